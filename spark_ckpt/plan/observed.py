"""``observe`` for a stream with control rows in it: its metrics are those of the data rows. Driver. On Connect:
:mod:`spark_ckpt.plan._observed_connect`.

Spark allows no FILTER in an observed aggregate. So in each aggregate function of the analysed plan what it looks at is
null in control rows, which aggregates pass over; ``count(*)``, which looks at nothing, counts what is not null so.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.java_classes import to_seq
from spark_ckpt.plan.udf_plan import PlanRewriter, items_of

SparkDF = Any
JavaObject = Any

BY_ORDER = ("first", "first_value", "last", "last_value", "any_value")


def of_data_rows(df: SparkDF, name: str, exprs: tuple[Column, ...]) -> SparkDF:
    """``df.observe(name, *exprs)``. Raises ``InvalidInputError`` for aggregates that do not pass over nulls."""
    if not type(df).__module__.startswith("pyspark.sql.classic"):
        from spark_ckpt.plan._observed_connect import of_data_rows as connect

        return df.observe(name, *connect(df, exprs))
    after = df.observe(name, *exprs)
    rewriter = _Metrics(df.sparkSession, df._jdf.queryExecution().analyzed(), "AGGREGATE_EXPRESSION")
    return rewriter.frame(rewriter.plan(after._jdf.queryExecution().analyzed()))


def refuse_by_order(name: str) -> None:
    """Raises ``InvalidInputError`` for an aggregate that goes by the order of rows."""
    if name in BY_ORDER:
        raise InvalidInputError(
            f"observe: {name} would see control rows, and rows of a batch have no order here; use min or max"
        )


class _Metrics(PlanRewriter):
    def node(self, node: JavaObject, flag: JavaObject) -> JavaObject:
        if node.nodeName() != "CollectMetrics":
            return node
        metrics = to_seq([self._metric(m, flag) for m in items_of(node.metrics())])
        return node.copy(node.name(), metrics, node.child(), node.dataframeId())

    def _metric(self, e: JavaObject, flag: JavaObject) -> JavaObject:
        children = items_of(e.children())
        if e.nodeName() == "AggregateExpression":
            return e.withNewChildren(to_seq([self._function(children[0], flag), *children[1:]]))
        return e.withNewChildren(to_seq([self._metric(c, flag) for c in children])) if children else e

    def _function(self, function: JavaObject, flag: JavaObject) -> JavaObject:
        name = function.prettyName()
        refuse_by_order(name)
        arguments = items_of(function.children())
        # What comes behind the value, such as a percentage, has to stay constant.
        done = [a if i and a.foldable() else self._null_in_control_rows(a, flag) for i, a in enumerate(arguments)]
        return function.withNewChildren(to_seq(done))

    def _null_in_control_rows(self, value: JavaObject, flag: JavaObject) -> JavaObject:
        null = self._catalyst.expressions.Literal.create(None, value.dataType())
        return self._catalyst.expressions.If(flag, null, value)
