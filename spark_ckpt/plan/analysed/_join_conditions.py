"""The condition of a join of two streams, as Spark resolved it: keys, what concerns one side, what compares both.

Driver; classic Spark. What stands on one side of a comparison becomes a column in front of the operator.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.plan._distinct import as_text
from spark_ckpt.plan._event_time import DELAY_KEY
from spark_ckpt.plan._java_classes import CATALYST, OPTION, attribute_id, java_class
from spark_ckpt.plan._join_rules import FLIPPED, LEFT, ORDERED, RIGHT, Bound, Key, Parts, Times
from spark_ckpt.plan.analysed._in_arrow import RowColumns, StaysError, Trees
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    column_of,
    expression_class,
    kind_of,
    parts_of,
    relation,
    type_of,
)
from spark_ckpt.plan.analysed._udf_plan import NodeCopies, items_of, seq_items
from spark_ckpt.plan.key_columns import is_key
from spark_ckpt.state.joins.predicate import Both, Compared, Computed, Either, Not, OfSide, Predicate

JavaObject = Any

_OPERATORS = {
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


class JoinedSides:
    """The rows of both sides, whose columns have names of their own."""

    def __init__(self, left: Rows, right: Rows) -> None:
        self.rows = (left, right)
        self._names = [dict(zip(rows.ids, rows.schema.names, strict=True)) for rows in self.rows]

    def reads(self, e: JavaObject) -> tuple[int, ...]:
        """The sides whose columns are in ``e``; none of a constant."""
        return tuple(side for side in (LEFT, RIGHT) if self.columns(e, side))

    def columns(self, e: JavaObject, side: int) -> set[str]:
        """Those of ``side`` that are in ``e``."""
        known, ids = self._names[side], map(attribute_id, items_of(e.references()))
        return {known[one] for one in ids if one in known}

    def name(self, e: JavaObject, side: int) -> str | None:
        """The column of ``side`` that ``e`` is, as it is."""
        return self._names[side].get(attribute_id(e)) if kind_of(e) == "AttributeReference" else None

    def is_timed_window(self, name: str | None, side: int) -> bool:
        """Whether a column is a window of an event time."""
        found = None if name is None else self.rows[side].schema[name]
        return found is not None and isinstance(found.dataType, T.StructType) and DELAY_KEY in found.metadata


def conjuncts(e: JavaObject, copies: NodeCopies) -> list[JavaObject]:
    """The parts of a condition that all hold."""
    return parts_of(_plain(e, copies))


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


class SplitCondition:
    """``parts``, and of each side the columns that are ``compared`` with some of the other. ``behind``: what
    only Spark can tell, of pairs, and ``why``."""

    def __init__(self, spark: Any, sides: JoinedSides, conditions: list[JavaObject]) -> None:
        self.parts, self._spark, self._sides = Parts(), spark, sides
        self.compared: tuple[set[str], set[str]] = set(), set()
        self.behind: list[JavaObject] = []
        self.why = ""
        for condition in conditions:
            self._add(condition)

    def _add(self, e: JavaObject) -> None:
        reads = self._sides.reads(e)
        if len(reads) < 2:
            self._alone(e, reads or (LEFT, RIGHT))
            return
        op = _OPERATORS.get(kind_of(e))
        if op is not None:
            for side in reads:
                self.compared[side].update(self._sides.columns(e, side))
        pair = self._pair(e)
        if pair is not None and op in ("=", "<=>"):
            self._key(pair, op == "<=>")
            return
        found = self._predicate(e)
        if found is None:
            self.behind.append(e)
        else:
            self.parts.condition = found if self.parts.condition is None else Both(self.parts.condition, found)

    def _alone(self, e: JavaObject, sides: tuple[int, ...]) -> None:
        if kind_of(e) == "Literal" and e.value() is True:
            return
        for side in sides:
            self.parts.alone[side].append(column_of(e))

    def _pair(self, e: JavaObject) -> tuple[JavaObject, JavaObject] | None:
        """What a comparison compares, the left side's first; None unless each is of a side of its own."""
        if kind_of(e) not in _OPERATORS:
            return None
        one, other = seq_items(e.children())
        found = (self._sides.reads(one), self._sides.reads(other))
        if found == ((LEFT,), (RIGHT,)):
            return one, other
        return (other, one) if found == ((RIGHT,), (LEFT,)) else None

    def _key(self, pair: tuple[JavaObject, JavaObject], null_safe: bool) -> None:
        names = self._sides.name(pair[LEFT], LEFT), self._sides.name(pair[RIGHT], RIGHT)
        columns, kind = (column_of(pair[LEFT]), column_of(pair[RIGHT])), type_of(pair[LEFT])
        if any(self._sides.is_timed_window(name, side) for side, name in enumerate(names)):
            # Two times: as in Spark, rows end when the watermark passes the end.
            for part in ("start", "end"):
                of_part = columns[LEFT][part], columns[RIGHT][part]
                self.parts.keys.append(Key(of_part, T.TimestampType(), null_safe, (None, None), part == "end"))
        elif is_key(kind):
            self.parts.keys.append(Key(columns, kind, null_safe, names))
        else:  # state is found by flat columns
            text, other = (
                F.when(column.isNotNull(), as_text("join", str(tree.sql()), column, type_of(tree)))
                for column, tree in zip(columns, pair, strict=True)
            )
            self.parts.keys.append(Key((text, other), T.StringType(), null_safe, (None, None)))

    # -- what compares both sides ------------------------------------------------------------------------------

    def _predicate(self, e: JavaObject) -> Predicate | None:
        reads, kind = self._sides.reads(e), kind_of(e)
        if len(reads) < 2:
            side = LEFT if reads == (LEFT,) else RIGHT
            return OfSide(self._operand(side, e), side == LEFT)
        if kind in ("And", "Or"):
            one, other = map(self._predicate, seq_items(e.children()))
            return None if one is None or other is None else (Both if kind == "And" else Either)(one, other)
        if kind == "Not":
            part = self._predicate(e.child())
            return None if part is None else Not(part)
        return self._compared(e) or self._computed(e)

    def _compared(self, e: JavaObject) -> Predicate | None:
        pair = self._pair(e)
        if pair is None or not _is_ordered(type_of(pair[LEFT])):
            return None
        names = [self._sides.name(pair[side], side) or self._operand(side, pair[side]) for side in (LEFT, RIGHT)]
        op, turned = _OPERATORS[kind_of(e)], self._sides.reads(seq_items(e.children())[0]) == (RIGHT,)
        return Compared(FLIPPED[op] if turned else op, names[LEFT], names[RIGHT])

    def _computed(self, e: JavaObject) -> Predicate | None:
        """An expression over columns of both sides, in Arrow."""
        used = [(side, name) for side in (LEFT, RIGHT) for name in sorted(self._sides.columns(e, side))]
        rows = self._sides.rows
        ids = [rows[side].ids[rows[side].schema.names.index(name)] for side, name in used]
        try:
            tree = Trees(RowColumns(ids, [rows[s].schema[n].dataType for s, n in used]), self._spark).tree(e)
        except StaysError as reason:
            self.why = str(reason)
            return None
        return Computed(tree, tuple((side == LEFT, name) for side, name in used))

    def _operand(self, side: int, tree: JavaObject) -> str:
        computed = self.parts.computed[side]
        name = f"__ckpt_compared_{len(computed)}"
        computed[name] = column_of(tree)
        return name


def _is_ordered(kind: T.DataType) -> bool:
    return isinstance(kind, ORDERED) and not (isinstance(kind, T.StringType) and not kind.isUTF8BinaryCollation())


def time_bounds(copies: NodeCopies, sides: JoinedSides, conditions: list[JavaObject], times: Times) -> list[Bound]:
    """Until when rows of each side can match, as Spark's ``StreamingJoinHelper`` solves the condition for it."""
    asked = [e for e in conditions if kind_of(e) in _ORDERING and len(sides.reads(e)) == 2]
    if None in times or not asked:
        return []
    both = expression_class("And")
    condition = java_class(OPTION).apply(reduce(both, [_noted(copies, sides, e) for e in asked]))
    found = []
    for side, other in ((LEFT, RIGHT), (RIGHT, LEFT)):
        of_other = sides.rows[other]
        time = of_other.attributes[of_other.schema.names.index(str(times[other]))]
        sets = relation(sides.rows[side].attributes).outputSet(), relation([time]).outputSet()
        at = java_class(_HELPER).getStateValueWatermark(*sets, condition, java_class(OPTION).apply(_ANY_WATERMARK_MS))
        if at.isDefined():
            found.append(Bound(side, str(times[side]), str(times[other]), int(at.get()) - _ANY_WATERMARK_MS))
    return found


def _noted(copies: NodeCopies, sides: JoinedSides, e: JavaObject) -> JavaObject:
    """``e`` over the sides' own attributes, which say what is an event time. It may name those of before."""
    for rows in sides.rows if kind_of(e) == "AttributeReference" else ():
        if attribute_id(e) in rows.ids:
            return rows.attributes[rows.place(e)]
    return copies.with_children(e, lambda part: _noted(copies, sides, part))
