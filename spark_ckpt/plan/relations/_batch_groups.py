"""``GroupMap`` and ``CoGroupMap``: a user's function of the groups of a batch, without state. Driver; Spark Connect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import types as T
from pyspark.sql.connect import plan as P
from pyspark.util import PythonEvalType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._batch_groups import (
    PORTIONS,
    STATIC_FIRST,
    StreamSide,
    TableSide,
    form_of,
    have_to_meet,
    together,
)
from spark_ckpt.plan._event_time import kept_by_name
from spark_ckpt.plan.analysed.ledger_of_expressions import Leaves
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import refuse_reserved
from spark_ckpt.plan.lineage import Place
from spark_ckpt.plan.relations._columns import bare, column, place_of
from spark_ckpt.plan.relations._python_functions import function_of
from spark_ckpt.plan.relations._row_by_row import step
from spark_ckpt.plan.relations._translation import Rows, Translation, rows_of
from spark_ckpt.plan.relations._tree import kind_of
from spark_ckpt.plan.relations._windows import hidden_window
from spark_ckpt.runtime.batch_groups import BY, around_both_sides, around_control_rows
from spark_ckpt.runtime.stateless import with_control

Relation = Any

_OF_FRAMES = (
    PythonEvalType.SQL_GROUPED_MAP_PANDAS_UDF,
    PythonEvalType.SQL_GROUPED_MAP_PANDAS_ITER_UDF,
    PythonEvalType.SQL_COGROUPED_MAP_PANDAS_UDF,
)


def batch_groups(of: Translation, node: Relation) -> Rows:
    """Where a barrier lies within a batch, the rows in front of it and those behind it are groups of their own."""
    schema = of.schema(node)
    side = _stream_side(of, node._child, node._grouping_cols)
    rows = side.rows
    out = with_control(kept_by_name(schema, rows.schema))
    form = form_of(of.spark, out, _method(node) == "applyInPandas", True)
    called = around_control_rows(function_of(node), form, _kind(node) in PORTIONS)
    meet = have_to_meet(rows.lineage)

    def make(ctx: Any) -> Chain:
        return Chain(getattr(side.grouped(ctx, meet), _method(node))(called, out), out)

    places = (*rows.lineage.places, Place(kind_of(node), "in Spark: it looks at all rows of a group", Leaves.WHOLE))
    lineage = replace(rows.lineage, places=places)
    return rows_of(Recipe(make, (rows.recipe,)), lineage, node, T.StructType(out.fields[:-2]))


def batch_cogroups(of: Translation, node: Relation) -> Rows:
    """Rows of different epochs do not meet; those of a table meet those of each epoch. Event times end here."""
    if not of.reads_stream(node._child):
        raise InvalidInputError(STATIC_FIRST)
    schema, static = of.schema(node), not of.reads_stream(node._other)
    left = _stream_side(of, node._child, node._input_grouping_cols)
    made = _table_side if static else _stream_side
    right = made(of, node._other, node._other_grouping_cols)
    out = with_control(schema)
    form = form_of(of.spark, out, _method(node) == "applyInPandas", False)
    called = around_both_sides(function_of(node), form, static)
    streams = [side.rows for side in (left, right) if isinstance(side, StreamSide)]
    lineage = together([rows.lineage for rows in streams])
    meet = static or have_to_meet(lineage)

    def make(ctx: Any) -> Chain:
        both = left.grouped(ctx, meet).cogroup(right.grouped(ctx, meet))
        return Chain(getattr(both, _method(node))(called, out), out)

    lineage = replace(lineage, open_watermarks=(), marks_reads=lineage.marks_reads or static)
    return rows_of(Recipe(make, tuple(rows.recipe for rows in streams)), lineage, node, schema)


def _stream_side(of: Translation, child: Relation, keys: Sequence[Any]) -> StreamSide:
    rows, keys = hidden_window(of, of.rows(child), list(keys), f"{BY}window")
    places = [place_of(of, rows, key._expr) for key in keys]
    names = [f"{BY}{i}" if place is None else rows.schema.names[place] for i, place in enumerate(places)]
    computed = {name: column(bare(key._expr)) for name, key, place in zip(names, keys, places) if place is None}
    if computed:
        rows = step(of, P.WithColumns(rows.plan, list(computed), list(computed.values())), rows)
    return StreamSide(rows.upstream(), names)


def _table_side(of: Translation, child: Relation, keys: Sequence[Any]) -> TableSide:
    frame, names = of.frame(child), [f"{BY}{i}" for i in range(len(keys))]
    refuse_reserved(frame.columns, "the static side")
    computed = dict(zip(names, (column(bare(key._expr)) for key in keys), strict=True))
    return TableSide(frame.withColumns(computed) if computed else frame, names)


def _kind(node: Relation) -> int:
    return int(node._function._function._eval_type)


def _method(node: Relation) -> str:
    return "applyInPandas" if _kind(node) in _OF_FRAMES else "applyInArrow"
