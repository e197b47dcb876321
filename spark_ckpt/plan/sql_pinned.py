"""Tables of a text's sub-queries, as they are called when the text is read. Driver; classic Spark.

An expression is analysed again for each DataFrame that it is used with, at last by ``start()``. What a name stands for
by then may be something else: so the plan of the table takes the place of its name in the parsed expression.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark.errors import PySparkException
from pyspark.sql import Column

from spark_ckpt.plan._trying import unlogged
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.udf_plan import items_of

SparkDF = Any
JavaObject = Any

_CATALYST = "org.apache.spark.sql.catalyst"
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


class _Pinning:
    def __init__(self, spark: Any, find: Find) -> None:
        self._spark, self._find = spark, find
        self._jvm, self._gateway = spark.sparkContext._jvm, spark.sparkContext._gateway

    def column(self, text: str) -> Column:
        from pyspark.sql.classic.column import Column as ClassicColumn

        parsed = self._spark._jsparkSession.sessionState().sqlParser().parseExpression(text)
        made = self._expression(parsed)
        return ClassicColumn(self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(made))

    def _expression(self, e: JavaObject) -> JavaObject:
        children = items_of(e.children())
        done = [self._expression(child) for child in children]
        if any(new is not old for new, old in zip(done, children, strict=True)):
            e = e.withNewChildren(self._seq(done))
        if not self._is(e, f"{_CATALYST}.expressions.SubqueryExpression"):
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
        children = items_of(node.children())
        done = [self._plan(child) for child in children]
        if any(new is not old for new, old in zip(done, children, strict=True)):
            node = node.withNewChildren(self._seq(done))
        args = items_of(node.productIterator())
        new_args = [self._arg(arg) for arg in args]
        if all(new is old for new, old in zip(new_args, args, strict=True)):
            return node
        made = self._gateway.new_array(self._jvm.Object, len(new_args))
        for i, arg in enumerate(new_args):
            made[i] = arg
        return node.makeCopy(made)

    def _arg(self, arg: Any) -> Any:
        if self._is(arg, f"{_CATALYST}.expressions.Expression"):
            return self._expression(arg)
        if not self._is(arg, "scala.collection.immutable.Seq"):
            return arg
        items = items_of(arg)
        done = [self._arg(item) for item in items]
        return arg if all(new is old for new, old in zip(done, items, strict=True)) else self._seq(done)

    def _table(self, node: JavaObject) -> JavaObject:
        name = [str(part) for part in items_of(node.multipartIdentifier())]
        found = None if node.isStreaming() or not node.options().isEmpty() else self._find(name)
        if found is None:
            return node
        return found.alias(name[-1])._jdf.queryExecution().analyzed()

    def _seq(self, items: list[Any]) -> JavaObject:
        return self._jvm.PythonUtils.toSeq(items)

    def _is(self, value: Any, java_class: str) -> bool:
        return hasattr(value, "_target_id") and is_instance_of(self._gateway, value, java_class)
