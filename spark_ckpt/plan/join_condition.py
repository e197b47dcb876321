"""The condition of a join of two streams, taken apart: keys, what concerns one side, what compares both. Driver.

What stands on one side of a comparison is computed by Spark, in front of the operator; so the operator compares columns
of one type, and any function may be in the condition. Spark has analysed the whole condition before: names are clear.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.join_sides import LEFT, RIGHT, Sides, SparkDF
from spark_ckpt.plan.key_columns import written
from spark_ckpt.state.joins.predicate import Both, Compared, Either, Not, OfSide, Predicate

FLIPPED = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
ORDERED = (
    T.NumericType,
    T.BooleanType,
    T.DatetimeType,
    T.StringType,
    T.BinaryType,
    T.DayTimeIntervalType,
)


@dataclass(frozen=True)
class Key:
    """An equality of an expression of each side. ``names``: the sides' columns, where it is just a column.

    ``ends``: it is the end of a window that rows are late by, which is an event time, too.
    """

    columns: tuple[Column, Column]
    kind: T.DataType
    null_safe: bool
    names: tuple[str | None, str | None]
    ends: bool = False


@dataclass(frozen=True)
class Bound:
    """Rows of ``side``, by a time in ``column``, match no row of the other later than its watermark column's, plus
    ``shift_ms``."""

    side: int
    column: str
    other_column: str
    shift_ms: int


@dataclass
class Parts:
    """``alone``: of each side, what its rows have to satisfy by themselves. ``computed``: columns that the condition
    compares, by side. ``behind``: what only Spark can tell, of pairs."""

    keys: list[Key] = field(default_factory=list)
    alone: tuple[list[Column], list[Column]] = field(default_factory=lambda: ([], []))
    computed: tuple[dict[str, Column], dict[str, Column]] = field(default_factory=lambda: ({}, {}))
    condition: Predicate | None = None
    behind: list[Column] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)

    def times(self, side: int) -> set[str]:
        """The columns of a side that tell until when rows match: keys, and what is compared with times of the other."""
        keys = {key.names[side] for key in self.keys}
        return {name for name in keys if name} | {b.column if b.side == side else b.other_column for b in self.bounds}


def using(frames: tuple[SparkDF, SparkDF], names: list[str]) -> Parts:
    """The parts of ``on=["k"]``: equality of columns that both have."""
    sides = Sides(frames, lambda _: None)
    splitter = _Splitter(sides)
    for name in names:
        column = F.col(quoted(name))
        splitter.key(column, column, False)
    return splitter.parts


def split_condition(sides: Sides, condition: Column) -> Parts:
    """The parts of ``condition``. Raises ``InvalidInputError`` for types that are compared as something else than
    one of the two or a number."""
    splitter = _Splitter(sides)
    for conjunct in _conjuncts(sides, condition):
        splitter.add(conjunct)
    return splitter.parts


def _conjuncts(sides: Sides, condition: Column) -> list[Column]:
    op, args = sides.shape(condition)
    if op == "and":
        return [c for arg in args for c in _conjuncts(sides, arg)]
    if op == "between":
        return [args[0] >= args[1], args[0] <= args[2]]
    return [condition]


class _Splitter:
    def __init__(self, sides: Sides) -> None:
        self.parts, self._sides = Parts(), sides

    def add(self, conjunct: Column) -> None:
        side = self._sides.side(conjunct)
        if side is not None:
            self.parts.alone[side].append(self._sides.on(conjunct, side))
            return
        op, args = self._sides.shape(conjunct)
        pair = self._pair(args) if op in FLIPPED else None
        if pair is not None and op in ("=", "<=>"):
            self.key(*pair, op == "<=>")
            return
        if op in ("<", "<=", ">", ">="):
            self._bound(op, args)
        found = self._predicate(conjunct)
        if found is None:
            self.parts.behind.append(conjunct)
        else:
            self.parts.condition = found if self.parts.condition is None else Both(self.parts.condition, found)

    def key(self, left: Column, right: Column, null_safe: bool) -> None:
        columns, kind, same = self._of_one_type(left, right)
        names = (self._sides.name(left, LEFT), self._sides.name(right, RIGHT))
        plain = tuple(name if fits else None for name, fits in zip(names, same, strict=True))
        self.parts.keys.append(Key(columns, kind, null_safe, plain))  # type: ignore[arg-type]

    def _pair(self, args: list[Column]) -> tuple[Column, Column] | None:
        """Both arguments, the left side's first; None unless each is of a side of its own."""
        first, second = (self._sides.side(a) for a in args)
        if any(self._sides.constant(a) for a in args) or {first, second} != {LEFT, RIGHT}:
            return None
        return (args[0], args[1]) if first == LEFT else (args[1], args[0])

    def _of_one_type(self, left: Column, right: Column) -> tuple[tuple[Column, Column], T.DataType, list[bool]]:
        """Both over their sides, converted as Spark compares them; and which of them need not be."""
        fields = self._sides.kind(left, LEFT), self._sides.kind(right, RIGHT)
        kinds = [f.dataType for f in fields if f is not None]
        kind = kinds[0] if kinds[0] == kinds[1] else self._wider(*kinds)
        if kind is None:
            raise InvalidInputError(
                f"the join compares {written(left)} with {written(right)}, {kinds[0].simpleString()} with "
                f"{kinds[1].simpleString()}: make them one type first, as in left['k'] == right['k'].cast('long')"
            )
        on = self._sides.on(left, LEFT), self._sides.on(right, RIGHT)
        same = [found == kind for found in kinds]
        columns = [c if fits else c.cast(kind) for c, fits in zip(on, same, strict=True)]
        return (columns[0], columns[1]), kind, same

    def _wider(self, one: T.DataType, other: T.DataType) -> T.DataType | None:
        """What Spark converts both to, where it compares them. Of numbers and times ``coalesce`` tells it."""
        rows, nulls = self._sides.frames[LEFT], [F.lit(None).cast(kind) for kind in (one, other)]
        numbers = all(isinstance(kind, T.NumericType) for kind in (one, other))
        if numbers or all(isinstance(kind, T.DatetimeType) for kind in (one, other)):
            found: T.DataType = rows.select(F.coalesce(*nulls)).schema.fields[0].dataType
            return found
        both = rows.select(nulls[0].alias("one"), nulls[1].alias("other"))
        asked = both.select(F.col("one") == F.col("other"))
        tried = dict.fromkeys((one, other, T.LongType(), T.DoubleType()))
        return next((kind for kind in tried if asked.sameSemantics(both.select(_as(one, other, kind)))), None)

    # -- what compares both sides ------------------------------------------------------------------------------

    def _predicate(self, tree: Column) -> Predicate | None:
        side = self._sides.side(tree)
        if side is not None:
            return OfSide(self._operand(side, self._sides.on(tree, side)), side == LEFT)
        op, args = self._sides.shape(tree)
        if op == "between":
            return self._both([args[0] >= args[1], args[0] <= args[2]], Both)
        if op in ("and", "or"):
            return self._both(args, Both if op == "and" else Either)
        if op == "not":
            part = self._predicate(args[0])
            return None if part is None else Not(part)
        return self._compared(op, args) if op in FLIPPED else None

    def _both(self, args: list[Column], kind: Any) -> Predicate | None:
        one, other = (self._predicate(a) for a in args)
        return None if one is None or other is None else kind(one, other)

    def _compared(self, op: str, args: list[Column]) -> Predicate | None:
        pair = self._pair(args)
        if pair is None:
            return None
        columns, kind, same = self._of_one_type(*pair)
        collated = isinstance(kind, T.StringType) and not kind.isUTF8BinaryCollation()
        if not isinstance(kind, ORDERED) or collated:
            return None
        names = [
            (self._sides.name(pair[side], side) if same[side] else None) or self._operand(side, columns[side])
            for side in (LEFT, RIGHT)
        ]
        turned = self._sides.side(args[0]) == RIGHT
        return Compared(FLIPPED[op] if turned else op, names[LEFT], names[RIGHT])

    def _operand(self, side: int, column: Column) -> str:
        computed = self.parts.computed[side]
        name = f"__ckpt_compared_{len(computed)}"
        computed[name] = column
        return name

    # -- until when rows can match -----------------------------------------------------------------------------

    def _bound(self, op: str, args: list[Column]) -> None:
        """``small < big``, each a time and day-time intervals, as Spark's ``StreamingJoinHelper`` solves it."""
        small, big = args if op in ("<", "<=") else (args[1], args[0])
        lower, upper = self._linear(small), self._linear(big)
        if lower is None or upper is None or lower.time is None or upper.time is None:
            return
        (other, other_column), (side, column) = lower.time, upper.time
        if side != other:
            shift = (lower.micros - upper.micros) // 1000 - (1 if op in ("<=", ">=") else 0)
            self.parts.bounds.append(Bound(side, column, other_column, shift))

    def _linear(self, tree: Column) -> _Linear | None:
        """A timestamp column of one side, plus a constant; None if it is anything else."""
        side = self._sides.side(tree)
        if side is None:
            return None
        name = self._sides.name(tree, side)
        if name is not None:
            found = self._sides.kind(tree, side)
            is_time = found is not None and isinstance(found.dataType, T.TimestampType)
            return _Linear((side, name), 0) if is_time else None
        if self._sides.constant(tree):
            return self._constant(self._sides.on(tree, LEFT))
        op, args = self._sides.shape(tree)
        if op not in ("+", "-") or len(args) != 2:
            return None
        one, other = self._linear(args[0]), self._linear(args[1])
        if one is None or other is None or (other.time is not None and (op == "-" or one.time is not None)):
            return None
        return _Linear(one.time or other.time, one.micros + (other.micros if op == "+" else -other.micros))

    def _constant(self, column: Column) -> _Linear | None:
        one = self._sides.frames[LEFT].sparkSession.sql("SELECT 1").select(column)
        if not isinstance(one.schema.fields[0].dataType, T.DayTimeIntervalType):
            return None
        value = one.first()[0]
        return None if value is None else _Linear(None, value // timedelta(microseconds=1))


def _as(one: T.DataType, other: T.DataType, kind: T.DataType) -> Column:
    """Columns of both types, compared as ``kind``."""
    columns = [F.col(name) if own == kind else F.col(name).cast(kind) for name, own in (("one", one), ("other", other))]
    return columns[0] == columns[1]


@dataclass(frozen=True)
class _Linear:
    time: tuple[int, str] | None
    micros: int
