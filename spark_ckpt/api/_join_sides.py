"""A side of a join of streams, behind a join itself: each column has a name of its own, whatever it is called. Driver.

What a condition names is told by its stream, an alias, or what the columns are called, as in Spark.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import Column

from spark_ckpt.api._ahead import with_implied
from spark_ckpt.api._joined_names import JoinedNames
from spark_ckpt.api._joined_rows import behind_table
from spark_ckpt.api._joined_tables import refuse_ambiguous_texts
from spark_ckpt.api._kept_aliases import qualified_columns
from spark_ckpt.plan.attributes import attribute_of
from spark_ckpt.plan.columns import quoted, unquoted
from spark_ckpt.plan.condition import Name, names_in, parts_of, replaced, shape, stream_column
from spark_ckpt.plan.join_sides import LEFT, RIGHT

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

_BUILT: dict[str, Callable[..., Column]] = {
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.invert,
    "between": lambda column, low, high: column.between(low, high),
    "+": operator.add,
    "-": operator.sub,
    "=": operator.eq,
    "<=>": lambda one, other: one.eqNullSafe(other),
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class JoinedSide:
    """``rows`` of a side; ``joined``: what their columns are called, where their names alone do not say it. ``also``:
    the numbers of what they were made of."""

    rows: CkptDataFrame
    joined: JoinedNames | None = None
    also: frozenset[int] = frozenset()

    @classmethod
    def of(cls, df: CkptDataFrame, names: list[str]) -> JoinedSide:
        """``names``: what the join is by, if it is by names."""
        joined = behind_table(df)
        if joined is None:
            return cls(df)
        joined = joined.by(names)
        return cls(joined.unique, joined, df._recipe.numbers())

    def beside(self, other: JoinedSide) -> JoinedSide:
        """This, without keyed operators that are in ``other``, too."""
        return replace(self, rows=self.rows._beside(other.rows))

    def filtered(self, conditions: Iterable[Column]) -> JoinedSide:
        """Its rows that satisfy ``conditions``, which go in front of a watermark in it."""
        rows = with_implied(self.rows, conditions)
        return replace(self, rows=rows, joined=None if self.joined is None else replace(self.joined, unique=rows))

    @property
    def shown(self) -> list[str]:
        """What its user calls the columns."""
        return list(self.rows.columns if self.joined is None else self.joined.shown)

    @cached_property
    def streams(self) -> frozenset[int]:
        """The numbers by which columns are known that were taken from it, or from what it is made of."""
        return self.rows._recipe.numbers() | self.also

    def has(self, name: Name) -> bool:
        """Whether a column that was taken from a stream is one of these."""
        if self.joined is not None and name.stream != self.rows._recipe.number:
            return self.known(name) is not None
        return self._is_of(name) and self.rows._attributes.place(name) is not None

    def _is_of(self, name: Name) -> bool:
        """Whether a column that was taken from a stream may be one of these: classic Spark knows no streams, but
        columns, which others that were made of the same one have, too."""
        if name.stream in self.streams:
            return True
        return hasattr(self.rows._preview, "_jdf") and attribute_of(name) in self.rows._attributes.all

    def known(self, name: Name) -> tuple[str, list[str]] | None:
        """The column of the rows that a name of the user's is, and the fields of it. None: none of these, or the
        name alone says it."""
        if self.joined is None or (name.of_stream and not self._is_of(name)):
            return None
        found = self.joined.known(name)
        return None if found is None else (self.rows.columns[found[0]], found[1])

    def column(self, name: Name) -> Column | None:
        """The same, as a column of the rows."""
        found = self.known(name)
        if found is None:
            return None
        return stream_column(".".join(map(quoted, [found[0], *found[1]])), self.rows._recipe.number)

    def refuse_ambiguous_name(self, name: Name) -> None:
        """Raises ``InvalidInputError``: the other side has it, too."""
        assert self.joined is not None
        self.joined._ambiguous(name, unquoted(parts_of(name.text)[0]))

    def refuse_repeated_name(self, name: Name) -> None:
        """Raises ``InvalidInputError`` where several of its columns are called so."""
        if self.joined is not None:
            self.joined._called(name, unquoted(parts_of(name.text)[0]))

    def aliases(self, by: list[str]) -> dict[str, list[tuple[str, str]]]:
        """What each alias stands for: columns by their names there and as the rows'; those of ``by`` come first."""
        rows = self.rows.columns
        if self.joined is None:
            ordered = [*by, *(column for column in rows if column not in by)]
            own = qualified_columns(self.rows)
            return {} if not own else {str(self.rows._alias): [(column, column) for column in ordered if column in own]}
        return {
            alias: [(name, rows[at]) for name, at in columns if self.joined._is_there(at) and at < len(rows)]
            for alias, columns in self.joined.aliases.items()
        }

    def calls(self, name: Name) -> bool:
        """Whether one of its columns is called so."""
        return unquoted(parts_of(name.text)[0]).lower() in [shown.lower() for shown in self.shown]


def side_of(sides: tuple[JoinedSide, JoinedSide], name: Name) -> int | None:
    """That of a column that was taken from a stream; the first, if both are made of that, or neither is."""
    own = [side for side in (LEFT, RIGHT) if name.stream in sides[side].streams]
    return next((side for side in (*own, LEFT, RIGHT) if sides[side].has(name)), None)


def over_rows(sides: tuple[JoinedSide, JoinedSide], on: Column) -> Column:
    """The condition ``on`` by the names of the rows' columns. Raises ``InvalidInputError`` for those of several."""
    if all(side.joined is None for side in sides):
        return on
    if names_in(on) is None:
        op, parts = shape(on) or ("", [])  # a SQL text on Spark Connect
        if op in _BUILT:
            return _BUILT[op](*[over_rows(sides, part) for part in parts])
        refuse_ambiguous_texts([name for side in sides for name in side.shown], on)
    return replaced(on, lambda name: _meant(sides, name), tables=True)


def _meant(sides: tuple[JoinedSide, JoinedSide], name: Name) -> Column | None:
    if name.of_stream:
        first = side_of(sides, name)
        return None if first is None else sides[first].column(name)
    if name.table is not None:
        return next((c for c in (side.column(name) for side in sides) if c is not None), None)
    parts = [unquoted(part) for part in parts_of(name.text)]
    if len(parts) > 1 and any(side.joined is None and side.rows._alias == parts[0] for side in sides):
        return None
    joined = [side for side in sides if side.joined is not None]
    of_alias = [side for side in joined if side.joined is not None and side.joined.has_alias(name)]
    if not of_alias and all(side.calls(name) for side in sides):
        joined[0].refuse_ambiguous_name(name)
    found = [column for column in (side.column(name) for side in of_alias or joined) if column is not None]
    return found[0] if found else None
