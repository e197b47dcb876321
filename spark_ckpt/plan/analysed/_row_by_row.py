"""Nodes that look at each row alone: in Arrow where every expression has a counterpart there, else in Spark. Driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.types import StructType

from spark_ckpt.plan._asked_for_data_rows import asked_for_data_rows
from spark_ckpt.plan._generators import for_control_rows, refuse_generator
from spark_ckpt.plan._in_arrow import RowColumns, Stays, StaysError, computed, kept, place_of_rows
from spark_ckpt.plan._java_classes import frame_of
from spark_ckpt.plan.analysed._control_rows import carried
from spark_ckpt.plan.analysed._nodes import Rows, analysed, kind_of, output_of, schema_of, with_ids
from spark_ckpt.plan.analysed._sub_queries import refuse_aggregated_stream
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed.ledger_of_expressions import Leaves
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.refused_types import refuse_without_arrow
from spark_ckpt.plan.udf_plan import for_data_rows, seq_items
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
