"""``Sort`` and the nodes of ``limit``. Driver; classic Spark.

A stream has no order, but the whole result that output mode complete puts out has one: its rows come into one task,
sorted by their epoch first. A limit counts over time in other modes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import functions as F

from spark_ckpt.plan._java_classes import frame_of, to_seq
from spark_ckpt.plan._top_rows import first_rows, of_result
from spark_ckpt.plan.analysed._control_rows import ControlColumns
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    analysed,
    expression_class,
    kind_of,
    null_of,
    plan_class,
    with_own_names,
)
from spark_ckpt.plan.analysed._row_by_row import carried_step
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed._udf_plan import seq_items
from spark_ckpt.plan.analysed.ledger_of_expressions import Leaves
from spark_ckpt.plan.analysed.uids import given_uid
from spark_ckpt.plan.chain import Recipe
from spark_ckpt.plan.lineage import Stays
from spark_ckpt.plan.spark_errors import SORTING, unsupported
from spark_ckpt.types import TAG

JavaObject = Any


def sort(of: Translation, node: JavaObject) -> Rows:
    rows = of.rows(node.child())
    if not rows.lineage.whole_result:
        raise unsupported(f"{SORTING}: behind groupBy(...).agg(...)")
    over = partial(_sorted, of.spark, node, of.control)
    made = carried_step(of, node, rows, over, Stays(Leaves.WHOLE, "it looks at all rows of a result"))
    return replace(made, lineage=replace(made.lineage, is_sorted=True))


def _sorted(spark: Any, node: JavaObject, columns: ControlColumns, child: JavaObject) -> JavaObject:
    frame = frame_of(child, spark)
    together = frame.repartition(1) if getattr(node, "global")() else frame
    (by_epoch,) = seq_items(analysed(together.sortWithinPartitions(F.col(TAG))).order())
    orders = [_of_data_rows(order, columns) for order in seq_items(node.order())]
    return plan_class("Sort")(to_seq([by_epoch, *orders]), False, analysed(together), node.hint())


def _of_data_rows(order: JavaObject, columns: ControlColumns) -> JavaObject:
    value = order.child()
    made = expression_class("If")(columns.is_data(), value, null_of(value))
    return order.withNewChildren(to_seq([made, *seq_items(order.sameOrderExpressions())]))


def limit(of: Translation, node: JavaObject) -> Rows:
    """``GlobalLimit`` over ``LocalLimit``: the number is that of the first."""
    if kind_of(node) == "LocalLimit":
        return of.rows(node.child())
    n, rows = int(node.limitExpr().eval(None)), with_own_names(of.rows(node.child()))
    if rows.lineage.is_sorted:
        lineage = replace(rows.lineage, is_limited=True)
        return replace(rows, recipe=Recipe(lambda ctx: of_result(ctx, rows.recipe, n), (rows.recipe,)), lineage=lineage)
    made = first_rows(rows.upstream(), n, given_uid(of, node))
    return Rows(made.recipe, made.lineage, rows.attributes, made.schema)
