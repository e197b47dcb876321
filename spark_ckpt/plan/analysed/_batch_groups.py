"""``FlatMapGroupsInPandas``, ``FlatMapGroupsInArrow`` and those of cogroups: a user's function of the groups of a
batch, without state. Driver; classic Spark.

Spark groups by the user's keys, the epoch and the control column, and calls the function; what it calls lets control
rows pass (:mod:`spark_ckpt.runtime.batch_groups`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import types as T

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
from spark_ckpt.plan._java_classes import attribute_id, frame_of
from spark_ckpt.plan.analysed._nodes import (
    OWN,
    Rows,
    kind_of,
    named_as,
    output_of,
    project,
    relation,
    schema_of,
    tag_of,
)
from spark_ckpt.plan.analysed._python_functions import function_of
from spark_ckpt.plan.analysed._row_by_row import step
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed._udf_plan import seq_items
from spark_ckpt.plan.analysed.ledger_of_expressions import Leaves
from spark_ckpt.plan.analysed.own_operators import own_operator
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import refuse_reserved
from spark_ckpt.plan.lineage import Place
from spark_ckpt.runtime.batch_groups import BY, Form, around_both_sides, around_control_rows
from spark_ckpt.runtime.stateless import with_control

SparkDF = Any
JavaObject = Any


def batch_groups(of: Translation, node: JavaObject) -> Rows:
    """Where a barrier lies within a batch, the rows in front of it and those behind it are groups of their own."""
    if tag_of(node, OWN) is not None:
        return own_operator(of, node)
    side = _stream_side(of, node.child(), len(seq_items(node.groupingAttributes())))
    rows = side.rows
    out = with_control(kept_by_name(schema_of(node), rows.schema))
    portions = int(node.functionExpr().evalType()) in PORTIONS
    called = around_control_rows(function_of(node), _form(of, node, out), portions)
    meet = have_to_meet(rows.lineage)

    def make(ctx: Any) -> Chain:
        return Chain(getattr(side.grouped(ctx, meet), _method(node))(called, out), out)

    places = (*rows.lineage.places, Place(kind_of(node), "in Spark: it looks at all rows of a group", Leaves.WHOLE))
    lineage = replace(rows.lineage, places=places)
    return Rows(Recipe(make, (rows.recipe,)), lineage, output_of(node), T.StructType(out.fields[:-2]))


def batch_cogroups(of: Translation, node: JavaObject) -> Rows:
    """Rows of different epochs do not meet; those of a table meet those of each epoch. Event times end here."""
    if not node.left().isStreaming():
        raise InvalidInputError(STATIC_FIRST)
    static = not node.right().isStreaming()
    left = _stream_side(of, node.left(), int(node.leftGroupingLen()))
    count = int(node.rightGroupingLen())
    right = _table_side(of, node.right(), count) if static else _stream_side(of, node.right(), count)
    out = with_control(schema_of(node))
    called = around_both_sides(function_of(node), _form(of, node, out), static)
    streams = [side for side in (left, right) if isinstance(side, StreamSide)]
    lineage = together([side.rows.lineage for side in streams])
    meet = static or have_to_meet(lineage)

    def make(ctx: Any) -> Chain:
        both = left.grouped(ctx, meet).cogroup(right.grouped(ctx, meet))
        return Chain(getattr(both, _method(node))(called, out), out)

    recipe = Recipe(make, tuple(side.rows.recipe for side in streams))
    lineage = replace(lineage, open_watermarks=(), marks_reads=lineage.marks_reads or static)
    return Rows(recipe, lineage, output_of(node), schema_of(node))


def _stream_side(of: Translation, grouped: JavaObject, count: int) -> StreamSide:
    """``grouped`` is Spark's projection of the keys and, behind them, all columns."""
    rows, listed, keys = of.rows(grouped.child()), *_split(grouped, count)
    if [attribute_id(e) for e in listed] != rows.ids:
        rows = step(of, project(listed, relation(rows.attributes)), rows)
    return StreamSide(rows.upstream(), keys)


def _table_side(of: Translation, grouped: JavaObject, count: int) -> TableSide:
    listed, keys = _split(grouped, count)
    frame = frame_of(project(listed, grouped.child()), of.spark)
    refuse_reserved([c for c in frame.columns if not c.startswith(BY)], "the static side")
    return TableSide(frame, keys)


def _split(grouped: JavaObject, count: int) -> tuple[list[JavaObject], list[str]]:
    """The columns, the hidden ones among them, and the names of the keys."""
    listed = seq_items(grouped.projectList())
    columns, keys = listed[count:], []
    known = {attribute_id(c): str(c.name()) for c in columns}
    for i, key in enumerate(listed[:count]):
        name = known.get(attribute_id(key)) if kind_of(key) == "AttributeReference" else None
        keys.append(f"{BY}{i}" if name is None else name)
        if name is None:
            columns.append(named_as(key.child() if kind_of(key) == "Alias" else key, keys[-1]))
    return columns, keys


def _form(of: Translation, node: JavaObject, out: T.StructType) -> Form:
    return form_of(of.spark, out, _method(node) == "applyInPandas", "CoGroups" not in kind_of(node))


def _method(node: JavaObject) -> str:
    return "applyInPandas" if kind_of(node).endswith("Pandas") else "applyInArrow"
