"""Conditions over pairs of rows, one of each side, as Spark evaluates them: true, false or null. Arrow only.

What stands on either side of a comparison is a column: Spark computes it in front of the operator, types alike. So what
is done here are comparisons of one type, whose order is Spark's, its three-valued logic, and what
:mod:`spark_ckpt.expressions` has of expressions that mix columns of both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions.comparing import equal, equal_null_safe, less, not_less
from spark_ckpt.expressions.evaluate import column
from spark_ckpt.expressions.tree import Tree, may_raise

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
        one = self.one.evaluate(left, right)
        return pc.and_kleene(one, _undecided(one, False, self.other, left, right))


@dataclass(frozen=True)
class Either:
    """``one OR other``."""

    one: Predicate
    other: Predicate

    def evaluate(self, left: Columns, right: Columns) -> pa.Array:
        one = self.one.evaluate(left, right)
        return pc.or_kleene(one, _undecided(one, True, self.other, left, right))


@dataclass(frozen=True)
class Not:
    """``NOT part``."""

    part: Predicate

    def evaluate(self, left: Columns, right: Columns) -> pa.Array:
        return pc.invert(self.part.evaluate(left, right))


@dataclass(frozen=True)
class Computed:
    """What an expression says of a pair. Its columns, by their places: whether they are of the left side, and names."""

    tree: Tree
    columns: tuple[tuple[bool, str], ...]

    def evaluate(self, left: Columns, right: Columns) -> pa.Array:
        found = [(left if of_left else right)(name) for of_left, name in self.columns]
        return column(self.tree, found, len(found[0]))


def _undecided(one: pa.Array, decided: bool, other: Predicate, left: Columns, right: Columns) -> pa.Array:
    """``other`` where ``one`` is not ``decided``: what may fail is not computed where Spark does not ask for it."""
    if not _may_fail(other):
        return other.evaluate(left, right)
    asked = pc.fill_null(pc.not_equal(one, decided), True)
    found = other.evaluate(lambda name: left(name).filter(asked), lambda name: right(name).filter(asked))
    return pc.replace_with_mask(pa.nulls(len(one), pa.bool_()), asked, found)


def _may_fail(predicate: Predicate) -> bool:
    if isinstance(predicate, Computed):
        return may_raise(predicate.tree)
    if isinstance(predicate, Not):
        return _may_fail(predicate.part)
    return isinstance(predicate, Both | Either) and (_may_fail(predicate.one) or _may_fail(predicate.other))


_OPERATORS: Mapping[str, Callable[[pa.Array, pa.Array], pa.Array]] = {
    "=": equal,
    "<=>": equal_null_safe,
    "<": less,
    "<=": lambda x, y: not_less(y, x),
    ">": lambda x, y: less(y, x),
    ">=": not_less,
}
