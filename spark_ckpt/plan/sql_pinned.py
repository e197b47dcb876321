"""Tables of a text's sub-queries, as they are called when the text is read. Driver; classic Spark.

An expression is analysed again for each DataFrame that it is used with, at last by ``start()``. What a name stands for
by then may be something else: so the plan of the table takes the place of its name in the parsed expression.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column

from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.java_classes import EXPRESSION_UTILS, is_a, java_class
from spark_ckpt.plan.trying import unlogged
from spark_ckpt.plan.udf_plan import NodeCopies, items_of

SparkDF = Any
JavaObject = Any

_SUB_QUERY = "org.apache.spark.sql.catalyst.expressions.SubqueryExpression"
Find = Callable[[list[str]], "SparkDF | None"]
"""The table of a name, in its parts; None if it is left to Spark."""


def named_table(spark: Any, name: list[str]) -> SparkDF | None:
    """None: Spark finds it in another way, or says what is wrong with it."""
    try:
        with unlogged():
            return spark.table(".".join(map(quoted, name)))
    except PySparkException:
        return None


def pinned(spark: Any, text: str, find: Find) -> Column:
    """The expression ``text``, whose sub-queries read what ``find`` gives for the names in their FROM."""
    return _Pinning(spark, find).column(text)


class _Pinning(NodeCopies):
    def __init__(self, spark: Any, find: Find) -> None:
        super().__init__(spark)
        self._find = find

    def column(self, text: str) -> Column:
        from pyspark.sql.classic.column import Column as ClassicColumn

        parsed = self._spark._jsparkSession.sessionState().sqlParser().parseExpression(text)
        made = self._expression(parsed)
        return ClassicColumn(java_class(EXPRESSION_UTILS).column(made))

    def _expression(self, e: JavaObject) -> JavaObject:
        e = self.with_children(e, self._expression)
        if not is_a(e, _SUB_QUERY):
            return e
        plan = e.plan()
        new = self._plan(plan)
        return e if new is plan else e.withNewPlan(new)

    def _plan(self, node: JavaObject) -> JavaObject:
        kind = str(node.nodeName())
        if kind == "UnresolvedRelation":
            return self._table(node)
        if kind == "UnresolvedWith":  # names of its own, which come first
            return node
        return self.with_expressions(self.with_children(node, self._plan), self._expression)

    def _table(self, node: JavaObject) -> JavaObject:
        name = [str(part) for part in items_of(node.multipartIdentifier())]
        found = None if node.isStreaming() or not node.options().isEmpty() else self._find(name)
        if found is None:
            return node
        return found.alias(name[-1])._jdf.queryExecution().analyzed()
