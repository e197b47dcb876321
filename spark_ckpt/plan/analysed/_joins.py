"""``Join`` of two streams, and of a stream with a table. Driver; classic Spark.

Beside a table, each control row comes out exactly once: it matches nothing, as the condition says that it is not for
them. So an outer join that keeps the stream, and a left anti join, keep each of them once. An inner join is such an
outer join with a column that tells which rows found something, and a filter behind it. A left semi join asks for each
row whether there is something.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import functions as F

from spark_ckpt.execution.chain import Chain, Recipe
from spark_ckpt.execution.java_classes import OPTION, attribute_id, frame_of, java_class
from spark_ckpt.execution.lineage import Leaves, Stays
from spark_ckpt.operators import stream_joins as joins
from spark_ckpt.operators.handlers import static_join_refused
from spark_ckpt.operators.join_rules import join_kind
from spark_ckpt.operators.walks import own_names
from spark_ckpt.plan.analysed._control_rows import ControlColumns
from spark_ckpt.plan.analysed._in_arrow import RowColumns, StaysError
from spark_ckpt.plan.analysed._join_conditions import NodeCondition, NodeSides
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    expression_class,
    filtered,
    named_as,
    output_of,
    plan_class,
    project,
    relation,
    resolved,
    schema_of,
)
from spark_ckpt.plan.analysed._row_by_row import step
from spark_ckpt.plan.analysed._static_in_arrow import StaticPlace, check_types, join_columns
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.runtime.static_join import ANTI, INNER, LEFT, SEMI, JoinColumns
from spark_ckpt.types import CONTROL_COLUMNS

JavaObject = Any

_MATCH, _FOUND = "__ckpt_match", "__ckpt_found"
_TYPES = "org.apache.spark.sql.catalyst.plans"
_KINDS = {"Inner": INNER, "LeftOuter": LEFT, "RightOuter": LEFT, "LeftSemi": SEMI, "LeftAnti": ANTI}
_KEEPS_STREAM = {True: ("LeftOuter", "LeftAnti"), False: ("RightOuter",)}
"""Whether the stream is on the left -> the joins in which each of its rows comes out."""


@dataclass(frozen=True)
class _StaticJoin:
    node: JavaObject
    columns: ControlColumns
    spark: Any

    @property
    def stream_left(self) -> bool:
        return bool(self.node.left().isStreaming())

    @property
    def kind(self) -> str:
        kind = str(self.node.joinType().toString())
        return "Inner" if kind == "Cross" else kind

    def over(self, stream: JavaObject) -> JavaObject:
        """The join over the plan of the stream, control columns included."""
        if self.kind == "Inner":
            return self._matched(stream)
        if self.kind == "LeftSemi":
            return self._existing(stream)
        return self._in_order(self._joined(stream, self.table, self.kind))

    def _matched(self, stream: JavaObject) -> JavaObject:
        table = self.table
        (true,) = resolved(frame_of(table, self.spark), [F.lit(True)])
        marked = project([*output_of(table), named_as(true, _MATCH)], table)
        match = output_of(marked)[-1]
        outer = self._joined(stream, marked, "LeftOuter" if self.stream_left else "RightOuter")
        found = expression_class("Or")(self.columns.is_control(), expression_class("IsNotNull")(match))
        return self._in_order(filtered(found, outer))

    def _existing(self, stream: JavaObject) -> JavaObject:
        (true,) = resolved(frame_of(stream, self.spark), [F.lit(True)])
        found = named_as(true, _FOUND).toAttribute()
        existence = java_class(f"{_TYPES}.ExistenceJoin")(found)
        made = self._made(stream, self.table, existence)
        return self._in_order(filtered(expression_class("Or")(self.columns.is_control(), found), made))

    @property
    def keeps_stream(self) -> bool:
        """Whether each row of the stream comes out."""
        return self.kind in ("LeftOuter", "RightOuter")

    @property
    def table(self) -> JavaObject:
        return self.node.right() if self.stream_left else self.node.left()

    def _joined(self, stream: JavaObject, table: JavaObject, kind: str) -> JavaObject:
        return self._made(stream, table, java_class(f"{_TYPES}.JoinType").apply(kind))

    def _made(self, stream: JavaObject, table: JavaObject, kind: JavaObject) -> JavaObject:
        is_data, given = self.columns.is_data(), self.node.condition()
        condition = expression_class("And")(is_data, given.get()) if given.isDefined() else is_data
        sides = (stream, table) if self.stream_left else (table, stream)
        return plan_class("Join")(*sides, kind, java_class(OPTION).apply(condition), self.node.hint())

    def _in_order(self, made: JavaObject) -> JavaObject:
        return project([*output_of(self.node), *self.columns.both], made)


def static_join(of: Translation, node: JavaObject) -> Rows:
    """Each batch reads the table as it is then."""
    left = bool(node.left().isStreaming())
    made = _StaticJoin(node, of.control, of.spark)
    if made.kind not in ("Inner", *_KEEPS_STREAM[left], *(("LeftSemi",) if left else ())):
        raise static_join_refused(made.kind, left)
    rows = of.rows(node.left() if left else node.right())
    return _placed(of, made, rows)


def _placed(of: Translation, made: _StaticJoin, rows: Rows) -> Rows:
    """In Python, where the rows are there and the table is small enough; else in Spark."""
    in_spark = of.carried_step(made.node, rows, made.over, Stays(Leaves.TABLE, "a join with a table"))
    place = StaticPlace(_in_arrow(of, made, rows), frame_of(made.table, of.spark))
    full = with_control(in_spark.schema)

    def make(ctx: Any) -> Chain:
        return place.joined(ctx, ctx.chain(rows.recipe), full) or in_spark.recipe.make(ctx)

    places = (*rows.lineage.places, place.of("Join", f"{made.kind} join"))
    lineage = replace(rows.lineage, places=places)
    lineage = lineage if made.keeps_stream else lineage.with_watermarks_told()
    return replace(in_spark, recipe=Recipe(make, (rows.recipe,)), lineage=lineage)


def _in_arrow(of: Translation, made: _StaticJoin, rows: Rows) -> JoinColumns | Stays:
    table = output_of(made.table)
    table_schema = schema_of(made.table)
    stream = RowColumns([*rows.ids, *of.control_ids], [f.dataType for f in with_control(rows.schema).fields])
    ids = [attribute_id(a) for a in table]
    place = {one: at for at, one in enumerate([*stream.ids, *ids])}
    wanted = [*zip(output_of(made.node), own_names(schema_of(made.node).names), strict=True)]
    out = [(name, place[attribute_id(a)]) for a, name in wanted]
    out += list(zip(CONTROL_COLUMNS, range(len(rows.ids), len(stream.ids)), strict=True))
    try:
        check_types(table_schema)
        sides = stream, RowColumns(ids, [f.dataType for f in table_schema.fields])
        return join_columns(made.node.condition(), _KINDS[made.kind], *sides, out, of.spark)
    except StaysError as reason:
        return reason.stays()


def stream_join(of: Translation, node: JavaObject) -> Rows:
    how, given = join_kind(str(node.joinType().toString())), node.condition()
    left, right = (of.with_own_names(of.rows(side)) for side in (node.left(), node.right()))
    split = NodeCondition(of.spark, NodeSides(of.spark, left, right), given.get() if given.isDefined() else None)
    joined, _plan = joins.stream_join(of, node, how, split, [])
    made = of.put_out(node, joined)
    for condition in split.behind:
        made = step(of, filtered(condition, relation(made.attributes)), made)
    return made
