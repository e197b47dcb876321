"""``CollectMetrics``: what ``observe`` measures of each batch. Driver; classic Spark."""

from __future__ import annotations

from functools import partial
from typing import Any

from spark_ckpt.plan._in_arrow import Stays
from spark_ckpt.plan._java_classes import to_seq
from spark_ckpt.plan._observed import refuse_by_order
from spark_ckpt.plan.analysed._control_rows import ControlColumns
from spark_ckpt.plan.analysed._nodes import Rows, expression_class, kind_of, null_of, output_of, project, relation
from spark_ckpt.plan.analysed._row_by_row import carried_step
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed.ledger_of_expressions import Leaves
from spark_ckpt.plan.udf_plan import NodeCopies, seq_items

JavaObject = Any


def metrics(of: Translation, node: JavaObject) -> Rows:
    rows, over = of.rows(node.child()), partial(_measured, NodeCopies(of.spark), node, of.control)
    over(relation([*rows.attributes, *of.control.both]))  # refuses what cannot be measured
    return carried_step(of, node, rows, over, Stays(Leaves.OPERATION, "Spark gathers its metrics"))


def _measured(copies: NodeCopies, node: JavaObject, columns: ControlColumns, child: JavaObject) -> JavaObject:
    """What aggregates read is null in control rows, and they pass over nulls. Spark takes no FILTER here."""
    made = copies.with_expressions(node, lambda e: _of_data_rows(copies, e, columns))
    return project([*output_of(node), *columns.both], made.withNewChildren(to_seq([child])))


def _of_data_rows(copies: NodeCopies, e: JavaObject, columns: ControlColumns) -> JavaObject:
    if kind_of(e) != "AggregateExpression":
        return copies.with_children(e, lambda part: _of_data_rows(copies, part, columns))
    function = e.aggregateFunction()
    refuse_by_order(str(function.prettyName()))
    parts = seq_items(function.children())
    read = [part for part in parts if not part.foldable()] or parts[:1]
    guarded = [_guarded(part, columns) if part in read else part for part in parts]
    made = function.withNewChildren(to_seq(guarded))
    return e.copy(made, e.mode(), e.isDistinct(), e.filter(), e.resultId())


def _guarded(e: JavaObject, columns: ControlColumns) -> JavaObject:
    return expression_class("If")(columns.is_data(), e, null_of(e))
