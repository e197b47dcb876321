"""Nodes that look at each row alone: in Arrow where every expression has a counterpart there, else in Spark. Driver."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.execution.chain import Chain, Recipe, StreamRows
from spark_ckpt.execution.java_classes import frame_of, items_of, seq_items, to_seq
from spark_ckpt.execution.lineage import Leaves, Stays, place_of_rows
from spark_ckpt.operators.aggregate_kinds import refuse_by_order
from spark_ckpt.operators.handlers import drawn
from spark_ckpt.operators.walks import Over
from spark_ckpt.plan.analysed._control_rows import ControlColumns, carried
from spark_ckpt.plan.analysed._generators import asked_for_data_rows, for_control_rows, refuse_generator
from spark_ckpt.plan.analysed._in_arrow import RowColumns, StaysError, computed, kept
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    analysed,
    expression_class,
    filtered,
    kind_of,
    named_as,
    output_of,
    plan_class,
    project,
    relation,
    resolved,
    rows_of,
    schema_of,
    with_ids,
)
from spark_ckpt.plan.analysed._rules import refuse_aggregated_stream
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed._udf_plan import NodeCopies, for_data_rows
from spark_ckpt.runtime.operations import Operation, Operations
from spark_ckpt.runtime.stateless import with_control

SparkDF = Any
JavaObject = Any

_IN_ARROW = ("Project", "Filter")


def row_by_row(of: Translation, node: JavaObject) -> Rows:
    return step(of, node, of.rows(node.child()))


def step(of: Translation, node: JavaObject, rows: Rows) -> Rows:
    """What ``node`` makes of ``rows``."""
    refuse_aggregated_stream(node)
    if kind_of(node) == "Generate":
        refuse_generator(node.generator())
    schema, parent = schema_of(node), rows.recipe
    full, here = with_control(schema), _in_arrow(of, node, rows)

    def in_spark(df: SparkDF) -> SparkDF:
        return over_frame(of, rows, df, carried(node, of.control))

    def make(ctx: Any) -> Chain:
        if isinstance(here, Stays):
            return Chain(in_spark(ctx.frame(parent)), full)
        return ctx.chain(parent).either(Operations(here), in_spark, full)

    lineage = replace(rows.lineage, places=(*rows.lineage.places, place_of_rows(kind_of(node), here)))
    return rows_of(StreamRows(Recipe(make, (parent,)), lineage, schema), output_of(node))


def over_frame(of: Translation, rows: Rows, df: SparkDF, over: Over) -> SparkDF:
    """What ``over`` makes of ``df``, which has the columns of ``rows`` and the control columns behind them."""
    child = with_ids(analysed(df), (*rows.attributes, *of.control.both))
    before, after = frame_of(child, of.spark), frame_of(over(child), of.spark)
    return asked_for_data_rows(for_data_rows(for_control_rows(after, before), before), before)


def projected(of: Translation, rows: Rows, kept: tuple[JavaObject, ...], columns: Mapping[str, Column]) -> Rows:
    """The attributes ``kept`` of ``rows``, and behind them ``columns`` over these, under their names."""
    trees = resolved(frame_of(relation(rows.attributes), of.spark), list(columns.values()))
    named = [named_as(tree, name) for tree, name in zip(trees, columns, strict=True)]
    return step(of, project([*kept, *named], relation(rows.attributes)), rows)


def names_only(of: Translation, node: JavaObject) -> Rows:
    """Of a node that says how columns may be called, or how Spark is to plan: nothing becomes of it."""
    return of.rows(node.child())


def _in_arrow(of: Translation, node: JavaObject, rows: Rows) -> tuple[Operation, ...] | Stays:
    if kind_of(node) not in _IN_ARROW:
        return Stays(Leaves.OPERATION, f"{kind_of(node)} is Spark's")
    columns = RowColumns([*rows.ids, *of.control_ids], [f.dataType for f in with_control(rows.schema).fields])
    try:
        if kind_of(node) == "Filter":
            return (kept(node.condition(), columns, of.spark),)
        return (computed(seq_items(node.projectList()), columns, of.spark),)
    except StaysError as reason:
        return reason.stays()


def sample(of: Translation, node: JavaObject) -> Rows:
    """Control rows are not drawn."""
    rows, bounds = of.rows(node.child()), (float(node.lowerBound()), float(node.upperBound()))
    wanted = drawn(bool(node.withReplacement()), _seed(node), *bounds)
    (condition,) = resolved(frame_of(relation(rows.attributes), of.spark), [wanted])
    return step(of, filtered(condition, relation(rows.attributes)), rows)


def _seed(node: JavaObject) -> int:
    """Some versions of Spark have none where SQL names none."""
    seed = node.seed()
    if isinstance(seed, int):
        return seed
    return int(seed.get()) if seed.isDefined() else random.getrandbits(62)


_PLACE = "__ckpt_projection"


def expand(of: Translation, node: JavaObject) -> Rows:
    rows = of.rows(node.child())
    projections = seq_items(node.projections())
    numbers = resolved(frame_of(relation(rows.attributes), of.spark), [F.lit(i) for i in range(len(projections))])
    over = partial(_expanded, node, of.control, projections, numbers)
    return of.carried_step(node, rows, over, Stays(Leaves.OPERATION, "rows are repeated"))


def _expanded(
    node: JavaObject,
    columns: ControlColumns,
    projections: list[JavaObject],
    numbers: list[JavaObject],
    child: JavaObject,
) -> JavaObject:
    """Control rows are repeated, too, and all but the first of each are left out behind it."""
    place = named_as(numbers[0], _PLACE).toAttribute()
    listed = [to_seq([*items_of(p), *columns.both, n]) for p, n in zip(projections, numbers, strict=True)]
    out = [*output_of(node), *columns.both]
    made = plan_class("Expand")(to_seq(listed), to_seq([*out, place]), child)
    first = expression_class("EqualTo")(place, numbers[0])
    return project(out, filtered(expression_class("Or")(columns.is_data(), first), made))


def metrics(of: Translation, node: JavaObject) -> Rows:
    rows, over = of.rows(node.child()), partial(_measured, NodeCopies(of.spark), node, of.control)
    over(relation([*rows.attributes, *of.control.both]))  # refuses what cannot be measured
    return of.carried_step(node, rows, over, Stays(Leaves.OPERATION, "Spark gathers its metrics"))


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
    guarded = [columns.guarded(part) if part in read else part for part in parts]
    made = function.withNewChildren(to_seq(guarded))
    return e.copy(made, e.mode(), e.isDistinct(), e.filter(), e.resultId())
