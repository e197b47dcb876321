"""Sub-queries as values that may find several rows, ``(SELECT v FROM x WHERE x.k <=> o.k)``, are not asked for control
rows: Spark ends a query where one finds two, as for a null key it may. Driver; classic Spark.

Those that are aggregates, or end with LIMIT 1, find one for every row.
"""

from __future__ import annotations

from typing import Any

from spark_ckpt.plan._java_classes import to_seq
from spark_ckpt.plan.udf_plan import PlanRewriter, items_of

SparkDF = Any
JavaObject = Any


def asked_for_data_rows(after: SparkDF, before: SparkDF) -> SparkDF:
    """``after``, which an operation made of ``before``, whose sub-queries find nothing for control rows."""
    return _Rewriter(before, "SCALAR_SUBQUERY").frame(after)


class _Rewriter(PlanRewriter):
    def node(self, node: JavaObject, flag: JavaObject) -> JavaObject:
        return self.with_expressions(node, lambda e: self._expression(e, flag.child()))

    def _expression(self, e: JavaObject, control: JavaObject) -> JavaObject:
        if not e.containsPattern(self._pattern):
            return e
        outer = items_of(e.getOuterAttrs()) if e.nodeName() == "ScalarSubquery" else []
        if not outer:
            return self.with_children(e, lambda child: self._expression(child, control))
        plan, expressions = e.plan(), self._catalyst.expressions
        rows = plan.maxRows()
        if rows.isDefined() and rows.get() <= 1:
            return e
        is_data = expressions.IsNull(expressions.OuterReference(control))
        asked = self._catalyst.plans.logical.Filter(is_data, plan)
        return e.withNewPlan(asked).withNewOuterAttrs(to_seq([*outer, control]))
