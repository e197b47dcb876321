"""The condition of a join of two streams, as Spark resolved it. Driver; classic Spark."""

from __future__ import annotations

from functools import reduce
from typing import Any

from pyspark.sql import Column

from spark_ckpt.execution.java_classes import CATALYST, OPTION, attribute_id, frame_of, items_of, java_class, seq_items
from spark_ckpt.operators.join_conditions import JoinedSides, Operands, SplitCondition
from spark_ckpt.operators.join_rules import LEFT, RIGHT, Bound, Times
from spark_ckpt.plan.analysed._in_arrow import RowColumns, StaysError, Trees
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    column_of,
    expression_class,
    expression_of,
    kind_of,
    parts_of,
    relation,
    type_of,
)
from spark_ckpt.plan.analysed._udf_plan import NodeCopies
from spark_ckpt.state.joins.predicate import Computed, Predicate

JavaObject = Any

_OPERATORS = {
    "And": "and",
    "Or": "or",
    "Not": "not",
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_ORDERING = ("LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual")
_HELPER = f"{CATALYST}.analysis.StreamingJoinHelper"
_ANY_WATERMARK_MS = 1 << 41
"""Spark gives the time until which rows are kept for a watermark; the difference is the same for all."""


class NodeSides(JoinedSides[Rows]):
    def __init__(self, spark: Any, left: Rows, right: Rows) -> None:
        super().__init__(left, right)
        self._spark = spark
        self._names = [dict(zip(rows.ids, rows.schema.names, strict=True)) for rows in self.rows]

    def reads(self, e: JavaObject) -> tuple[int, ...]:
        return tuple(side for side in (LEFT, RIGHT) if self.columns(e, side))

    def columns(self, e: JavaObject, side: int) -> set[str]:
        known, ids = self._names[side], map(attribute_id, items_of(e.references()))
        return {known[one] for one in ids if one in known}

    def name(self, e: JavaObject, side: int) -> str | None:
        return self._names[side].get(attribute_id(e)) if kind_of(e) == "AttributeReference" else None

    def expression(self, column: Column) -> JavaObject:
        return expression_of(column)

    def text(self, column: Column, side: int) -> str:
        """Spark leaves out a cast of its own, which tells computed columns apart, too."""
        tree = self.expression(column)
        text = str(frame_of(relation(self.rows[side].attributes), self._spark).select(column).columns[0])
        if kind_of(tree) != "Cast" or kind_of(tree.child()) == "AttributeReference":
            return text
        kind = tree.dataType()
        return text if kind.json() == tree.child().dataType().json() else f"CAST({text} AS {kind.sql()})"


def _plain(e: JavaObject, copies: NodeCopies) -> JavaObject:
    """``e`` with comparisons for BETWEEN, by which Spark says that a value is computed once. That has the attributes of
    the rows; what Spark prints of BETWEEN may have those of another copy of them."""
    kind = kind_of(e)
    if kind == "Between":
        return _plain(e.replacement(), copies)
    if kind == "With":
        once = {str(d.id().toString()): d.child() for d in items_of(e.defs())}
        return _plain(_inlined(e.child(), once, copies), copies)
    return copies.with_children(e, lambda part: _plain(part, copies)) if kind in ("And", "Or", "Not") else e


def _inlined(e: JavaObject, once: dict[str, JavaObject], copies: NodeCopies) -> JavaObject:
    if kind_of(e) == "CommonExpressionRef":
        return once[str(e.id().toString())]
    return copies.with_children(e, lambda part: _inlined(part, once, copies))


class NodeCondition(SplitCondition[Rows]):
    def __init__(self, spark: Any, sides: NodeSides, condition: JavaObject | None) -> None:
        super().__init__(sides)
        self._spark, self._copies, self._sides = spark, NodeCopies(spark), sides
        self._conditions = [] if condition is None else parts_of(_plain(condition, self._copies))
        for part in self._conditions:
            if kind_of(part) != "Literal" or part.value() is not True:
                self.add(part)

    def shape(self, e: JavaObject) -> tuple[str, list[JavaObject]] | None:
        op = _OPERATORS.get(kind_of(e))
        return None if op is None else (op, seq_items(e.children()))

    def column(self, e: JavaObject) -> Column:
        return column_of(e)

    def written(self, e: JavaObject) -> str:
        return str(e.sql())

    def operands(self, pair: tuple[JavaObject, JavaObject]) -> Operands:
        """Spark's analysis has put both into one type."""
        (left, right), name = pair, self._sides.name
        columns, kinds = (column_of(left), column_of(right)), (type_of(left), type_of(right))
        return Operands(columns, kinds, (name(left, LEFT), name(right, RIGHT)))

    def evaluated(self, e: JavaObject) -> Predicate | None:
        used = [(side, name) for side in (LEFT, RIGHT) for name in sorted(self._sides.columns(e, side))]
        rows = self._sides.rows
        ids = [rows[side].ids[rows[side].schema.names.index(name)] for side, name in used]
        try:
            tree = Trees(RowColumns(ids, [rows[s].schema[n].dataType for s, n in used]), self._spark).tree(e)
        except StaysError as reason:
            self.why = str(reason)
            return None
        return Computed(tree, tuple((side == LEFT, name) for side, name in used))

    def bound(self, times: Times) -> None:
        """As Spark's ``StreamingJoinHelper`` solves the condition for it."""
        asked = [e for e in self._conditions if kind_of(e) in _ORDERING and len(self._sides.reads(e)) == 2]
        if None in times or not asked:
            return
        both, rows = expression_class("And"), self._sides.rows
        condition = java_class(OPTION).apply(reduce(both, map(self._noted, asked)))
        for side, other in ((LEFT, RIGHT), (RIGHT, LEFT)):
            time = rows[other].attributes[rows[other].schema.names.index(str(times[other]))]
            sets = relation(rows[side].attributes).outputSet(), relation([time]).outputSet()
            at = java_class(_HELPER).getStateValueWatermark(
                *sets, condition, java_class(OPTION).apply(_ANY_WATERMARK_MS)
            )
            if at.isDefined():
                shift_ms = int(at.get()) - _ANY_WATERMARK_MS
                self.parts.bounds.append(Bound(side, str(times[side]), str(times[other]), shift_ms))

    def _noted(self, e: JavaObject) -> JavaObject:
        """``e`` over the sides' own attributes, which say what is an event time. It may name those of before."""
        for rows in self._sides.rows if kind_of(e) == "AttributeReference" else ():
            if attribute_id(e) in rows.ids:
                return rows.attributes[rows.place(e)]
        return self._copies.with_children(e, self._noted)
