"""``Join`` of a stream with a table, so that each control row comes out exactly once. Driver; classic Spark.

A control row matches nothing: the condition says that it is not for them. So an outer join that keeps the stream, and a
left anti join, keep each of them once. An inner join is such an outer join with a column that tells which rows found
something, and a filter behind it. A left semi join asks for each row whether there is something.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import functions as F

from spark_ckpt.plan.analysed._control_rows import ControlColumns
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    expression_class,
    filtered,
    named_as,
    output_of,
    plan_class,
    project,
    resolved,
)
from spark_ckpt.plan.analysed._row_by_row import carried_step
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.java_classes import OPTION, frame_of, java_class
from spark_ckpt.plan.spark_errors import unsupported

JavaObject = Any

_MATCH, _FOUND = "__ckpt_match", "__ckpt_found"
_TYPES = "org.apache.spark.sql.catalyst.plans"
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
        return self._in_order(self._joined(stream, self._table(), self.kind))

    def _matched(self, stream: JavaObject) -> JavaObject:
        table = self._table()
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
        made = self._made(stream, self._table(), existence)
        return self._in_order(filtered(expression_class("Or")(self.columns.is_control(), found), made))

    def _table(self) -> JavaObject:
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


def join(of: Translation, node: JavaObject) -> Rows:
    """Each batch reads the table as it is then."""
    left, right = node.left().isStreaming(), node.right().isStreaming()
    if left and right:
        raise unsupported("Join: a join of two streams is not translated yet")
    made = _StaticJoin(node, of.control, of.spark)
    if made.kind not in ("Inner", *_KEEPS_STREAM[left], *(("LeftSemi",) if left else ())):
        side = "left" if left else "right"
        raise unsupported(
            f"{made.kind} join with a streaming DataFrame/Dataset on the {side} and a static DataFrame/DataSet on the "
            "other side not supported: that none of a stream's rows matches is known when it has ended"
        )
    rows = of.rows(node.left() if left else node.right())
    out = carried_step(of, node, rows, partial(_StaticJoin.over, made), "a join with a table")
    keeps = made.kind == "LeftOuter" or made.kind == "RightOuter"
    lineage = out.lineage if keeps else out.lineage.with_watermarks_told()
    return Rows(out.recipe, lineage, out.attributes, out.schema)
