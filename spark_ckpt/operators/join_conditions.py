"""The condition of a join of two streams, taken apart: keys, what concerns one side, what compares both. Driver.

What stands on one side of a comparison becomes a column in front of the operator. An expression is a node of Spark's
in classic Spark, and the client's column in Spark Connect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.execution.event_time import DELAY_KEY
from spark_ckpt.operators.distinct import as_text
from spark_ckpt.operators.join_rules import FLIPPED, LEFT, ORDERED, RIGHT, Key, Parts, Times
from spark_ckpt.operators.key_columns import is_key
from spark_ckpt.operators.walks import R
from spark_ckpt.state.joins.predicate import Both, Compared, Either, Not, OfSide, Predicate

Expression = Any
Pair = tuple[Expression, Expression]
"""The left side's first."""


class JoinedSides(ABC, Generic[R]):
    """The rows of both sides, whose columns have names of their own."""

    def __init__(self, left: R, right: R) -> None:
        self.rows = (left, right)

    @abstractmethod
    def reads(self, e: Expression) -> tuple[int, ...]:
        """The sides whose columns are in ``e``; none of a constant."""

    @abstractmethod
    def columns(self, e: Expression, side: int) -> set[str]:
        """Those of ``side`` that are in ``e``."""

    @abstractmethod
    def name(self, e: Expression, side: int) -> str | None:
        """The column of ``side`` that ``e`` is, as it is."""

    @abstractmethod
    def expression(self, column: Column) -> Expression:
        """What ``column`` was made of."""

    @abstractmethod
    def text(self, column: Column, side: int) -> str:
        """As Spark writes it over the columns of ``side``."""

    def is_timed_window(self, name: str | None, side: int) -> bool:
        """Whether a column is a window of an event time."""
        found = None if name is None else self.rows[side].schema[name]
        return found is not None and isinstance(found.dataType, T.StructType) and DELAY_KEY in found.metadata


@dataclass(frozen=True)
class Operands:
    """What a comparison compares, in the types in which Spark does. ``names``: the sides' columns, where it is just a
    column."""

    columns: tuple[Column, Column]
    kinds: tuple[T.DataType, T.DataType]
    names: tuple[str | None, str | None]


class SplitCondition(ABC, Generic[R]):
    """``parts``, and of each side the columns that are ``compared`` with some of the other. ``behind``: what only Spark
    can tell, of pairs, and ``why``."""

    def __init__(self, sides: JoinedSides[R]) -> None:
        self.parts, self.sides = Parts(), sides
        self.compared: tuple[set[str], set[str]] = set(), set()
        self.behind: list[Expression] = []
        self.why = ""

    @abstractmethod
    def shape(self, e: Expression) -> tuple[str, list[Expression]] | None:
        """The operator at the top, ``and``, ``or``, ``not`` or a comparison, and its arguments."""

    @abstractmethod
    def column(self, e: Expression) -> Column:
        """``e`` for PySpark's functions."""

    @abstractmethod
    def written(self, e: Expression) -> str:
        """For messages."""

    @abstractmethod
    def operands(self, pair: Pair) -> Operands:
        """What is compared of ``pair``."""

    @abstractmethod
    def bound(self, times: Times) -> None:
        """Finds until when rows of each side, whose event times are ``times``, can match."""

    def ordered(self, op: str, args: list[Expression]) -> None:
        """Hears of a comparison by order."""

    def evaluated(self, e: Expression) -> Predicate | None:
        """``e`` of pairs, in Arrow; None if it cannot be."""
        return None

    def add(self, e: Expression) -> None:
        """One of the parts that all hold."""
        reads = self.sides.reads(e)
        if len(reads) < 2:
            for side in reads or (LEFT, RIGHT):
                self.parts.alone[side].append(self.column(e))
            return
        op, args = self.shape(e) or ("", [])
        if op in FLIPPED:
            for side in reads:
                self.compared[side].update(self.sides.columns(e, side))
        pair = self._pair(args) if op in FLIPPED else None
        if pair is not None and op in ("=", "<=>"):
            self.add_key(self.operands(pair), op == "<=>", pair)
            return
        self.ordered(op, args)
        found = self._predicate(e)
        if found is None:
            self.behind.append(e)
        else:
            self.parts.condition = found if self.parts.condition is None else Both(self.parts.condition, found)

    def add_key(self, of: Operands, null_safe: bool, pair: Pair) -> None:
        """An equality of ``pair``."""
        keys, (left, right) = self.parts.keys, of.columns
        if any(self.sides.is_timed_window(name, side) for side, name in enumerate(of.names)):
            # Two times: as in Spark, rows end when the watermark passes the end.
            for part in ("start", "end"):
                keys.append(Key((left[part], right[part]), T.TimestampType(), null_safe, (None, None), part == "end"))
        elif is_key(of.kinds[LEFT]):
            keys.append(Key(of.columns, of.kinds[LEFT], null_safe, of.names))
        else:  # state is found by flat columns
            one, other = (
                F.when(c.isNotNull(), as_text("join", self.written(e), c, kind))
                for c, e, kind in zip(of.columns, pair, of.kinds, strict=True)
            )
            keys.append(Key((one, other), T.StringType(), null_safe, (None, None)))

    def _pair(self, args: list[Expression]) -> Pair | None:
        """None unless each is of a side of its own."""
        found = tuple(map(self.sides.reads, args))
        if found == ((LEFT,), (RIGHT,)):
            return args[0], args[1]
        return (args[1], args[0]) if found == ((RIGHT,), (LEFT,)) else None

    def _predicate(self, e: Expression) -> Predicate | None:
        """What compares both sides; None if only Spark can tell."""
        reads = self.sides.reads(e)
        if len(reads) < 2:
            side = LEFT if reads == (LEFT,) else RIGHT
            return OfSide(self._operand(side, self.column(e)), side == LEFT)
        op, args = self.shape(e) or ("", [])
        if op in ("and", "or"):
            return self._both(args, Both if op == "and" else Either)
        if op == "not":
            part = self._predicate(args[0])
            return None if part is None else Not(part)
        return (self._compared(op, args) if op in FLIPPED else None) or self.evaluated(e)

    def _both(self, args: list[Expression], kind: Any) -> Predicate | None:
        one, other = map(self._predicate, args)
        return None if one is None or other is None else kind(one, other)

    def _compared(self, op: str, args: list[Expression]) -> Predicate | None:
        pair = self._pair(args)
        if pair is None:
            return None
        of = self.operands(pair)
        kind = of.kinds[LEFT]
        collated = isinstance(kind, T.StringType) and not kind.isUTF8BinaryCollation()
        if not isinstance(kind, ORDERED) or collated:
            return None
        names = [of.names[side] or self._operand(side, of.columns[side]) for side in (LEFT, RIGHT)]
        turned = self.sides.reads(args[0]) == (RIGHT,)
        return Compared(FLIPPED[op] if turned else op, names[LEFT], names[RIGHT])

    def _operand(self, side: int, column: Column) -> str:
        computed = self.parts.computed[side]
        name = f"__ckpt_compared_{len(computed)}"
        computed[name] = column
        return name
