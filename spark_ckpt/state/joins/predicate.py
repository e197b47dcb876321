"""Conditions over pairs of rows, one of each side, as Spark evaluates them: true, false or null. Arrow only.

What stands on either side of a comparison is a column: Spark computes it in front of the operator, types alike. So the
few things done here are comparisons of one type, whose order is Spark's, and its three-valued logic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions.comparing import equal, equal_null_safe, less, not_less

Columns = Callable[[str], pa.Array]
"""The column of a side, by name, a value a pair."""


class Predicate(Protocol):
    """A condition, or a part of one. Pickles."""

    def evaluate(self, left: Columns, right: Columns) -> pa.Array:
        """Booleans and nulls, one a pair."""


@dataclass(frozen=True)
class Compared:
    """``left op right``: a column of each side, of one type. ``op``: ``=``, ``<=>``, ``<``, ``<=``, ``>`` or ``>=``.

    As in Spark, a NaN equals itself and is larger than all else, and strings are ordered by their bytes.
    """

    op: str
    left: str
    right: str

    def evaluate(self, left: Columns, right: Columns) -> pa.Array:
        return _OPERATORS[self.op](left(self.left), right(self.right))


@dataclass(frozen=True)
class OfSide:
    """A condition of one side's row alone, which Spark computed: a boolean column."""

    column: str
    of_left: bool

    def evaluate(self, left: Columns, right: Columns) -> pa.Array:
        return (left if self.of_left else right)(self.column)


@dataclass(frozen=True)
class Both:
    """``one AND other``."""

    one: Predicate
    other: Predicate

    def evaluate(self, left: Columns, right: Columns) -> pa.Array:
        return pc.and_kleene(self.one.evaluate(left, right), self.other.evaluate(left, right))


@dataclass(frozen=True)
class Either:
    """``one OR other``."""

    one: Predicate
    other: Predicate

    def evaluate(self, left: Columns, right: Columns) -> pa.Array:
        return pc.or_kleene(self.one.evaluate(left, right), self.other.evaluate(left, right))


@dataclass(frozen=True)
class Not:
    """``NOT part``."""

    part: Predicate

    def evaluate(self, left: Columns, right: Columns) -> pa.Array:
        return pc.invert(self.part.evaluate(left, right))


_OPERATORS: Mapping[str, Callable[[pa.Array, pa.Array], pa.Array]] = {
    "=": equal,
    "<=>": equal_null_safe,
    "<": less,
    "<=": lambda x, y: not_less(y, x),
    ">": lambda x, y: less(y, x),
    ">=": not_less,
}
