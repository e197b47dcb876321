"""Nodes that look at each row alone: in Arrow where every expression has a counterpart there, else in Spark. Driver."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._aggregate_kinds import refuse_by_order
from spark_ckpt.plan._java_classes import frame_of, to_seq
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
    null_of,
    output_of,
    plan_class,
    project,
    relation,
    resolved,
    schema_of,
    with_ids,
)
from spark_ckpt.plan.analysed._sub_queries import refuse_aggregated_stream
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed._udf_plan import NodeCopies, for_data_rows, items_of, seq_items
from spark_ckpt.plan.analysed.ledger_of_expressions import Leaves
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.lineage import Stays, place_of_rows
from spark_ckpt.plan.refused_types import refuse_without_arrow
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
        return _in_spark(of, node, rows, df)

    def make(ctx: Any) -> Chain:
        if isinstance(here, Stays):
            return Chain(in_spark(ctx.frame(parent)), full)
        return ctx.chain(parent).either(Operations(here), in_spark, full)

    lineage = replace(rows.lineage, places=(*rows.lineage.places, place_of_rows(kind_of(node), here)))
    return Rows(Recipe(make, (parent,)), lineage, output_of(node), schema)


def carried_step(
    of: Translation, node: JavaObject, rows: Rows, over: Callable[[JavaObject], JavaObject], stays: Stays
) -> Rows:
    """What ``node`` makes of ``rows``, where ``over`` gives the plan of it over a child with control columns."""
    schema, parent = schema_of(node), rows.recipe
    full = with_control(schema)

    def make(ctx: Any) -> Chain:
        return Chain(_over(of, rows, ctx.frame(parent), over), full)

    lineage = replace(rows.lineage, places=(*rows.lineage.places, place_of_rows(kind_of(node), stays)))
    return Rows(Recipe(make, (parent,)), lineage, output_of(node), schema)


def python_step(rows: Rows, operation: Operation, attributes: Sequence[JavaObject], schema: StructType) -> Rows:
    """``operation`` of ours over ``rows``, in Python wherever they are; what comes out has these attributes. Raises
    ``InvalidInputError`` for a column of a type that Arrow has not."""
    refuse_without_arrow(rows.schema)
    full, parent = with_control(schema), rows.recipe
    recipe = Recipe(lambda ctx: ctx.chain(parent).then(operation, full), (parent,))
    return Rows(recipe, rows.lineage, tuple(attributes), schema)


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


def _in_spark(of: Translation, node: JavaObject, rows: Rows, df: SparkDF) -> SparkDF:
    """``node`` over ``df``, which has the columns of ``rows`` and the control columns behind them."""
    return _over(of, rows, df, carried(node, of.control))


def _over(of: Translation, rows: Rows, df: SparkDF, over: Callable[[JavaObject], JavaObject]) -> SparkDF:
    child = with_ids(analysed(df), (*rows.attributes, *of.control.both))
    before, after = frame_of(child, of.spark), frame_of(over(child), of.spark)
    return asked_for_data_rows(for_data_rows(for_control_rows(after, before), before), before)


def sample(of: Translation, node: JavaObject) -> Rows:
    """Anew with every batch, as all that is random is in Spark's streams; control rows are not drawn."""
    if node.withReplacement():
        raise InvalidInputError(
            "sample(withReplacement=True) is not there on a checkpointed stream: it draws rows several times, "
            "control rows among them; use sample(fraction)"
        )
    rows, least, most = of.rows(node.child()), float(node.lowerBound()), float(node.upperBound())
    # A row has one number: two conditions of rand() would count two.
    drawn = F.exists(F.array(F.rand(_seed(node))), lambda x: (x >= F.lit(least)) & (x < F.lit(most)))
    (condition,) = resolved(frame_of(relation(rows.attributes), of.spark), [drawn])
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
    return carried_step(of, node, rows, over, Stays(Leaves.OPERATION, "rows are repeated"))


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
