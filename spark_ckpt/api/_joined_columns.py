"""What a column means behind a join: which one a name is, by its stream or an alias, and what stars stand for. Driver.

As Spark resolves it: an alias in front counts first, then the column's name, and what is behind are fields of structs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.api._joined_tables import of_table, refuse_ambiguous_texts, refuse_lost
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.attributes import not_there, stream_columns
from spark_ckpt.plan.columns import OWN, is_case_sensitive, quoted, unquoted
from spark_ckpt.plan.condition import Name, bare_name, names_in, parts_of, replaced, stream_names
from spark_ckpt.plan.join_itself import WithItself
from spark_ckpt.plan.stars import Star, expanded
from spark_ckpt.types import CONTROL_COLUMNS

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

GONE = -1
"""The place of a column that is known, and not there any more."""
Qualified = tuple[tuple[str, int], ...]
"""Columns that an alias stands in front of, in the order of ``alias.*``: names and places."""
_AT = "at"
_PLACE = f"{OWN}place_"
"""What names of columns by their places begin with."""


@dataclass(frozen=True)
class JoinedColumns:
    """``unique`` are the rows, each column with a name of its own; ``shown`` is what the first of them are called,
    ``behind`` the others, which are seen only by who asks for them. ``place`` finds a column by its stream; None: it
    is not known. ``itself`` says which of those Spark cannot tell. ``hides``: those that were replaced or dropped,
    which only filters find; ``renames``: those that are there under another name, and are found by it alone, but for
    filters. ``aliases``: what each of them stands for. ``tables`` were joined behind it; what their aliases stand for,
    Spark knows, but of those that are ``lost``, as a later one has columns of the same names. ``hiding``: aliases,
    in small letters, that stand for columns, too, which nobody can get at here.
    """

    unique: CkptDataFrame
    shown: tuple[str, ...]
    behind: tuple[str, ...]
    place: Callable[[Name], int | None]
    itself: WithItself
    hides: frozenset[int] = frozenset()
    renames: frozenset[int] = frozenset()
    aliases: Mapping[str, Qualified] = field(default_factory=dict)
    tables: tuple[Any, ...] = ()
    lost: tuple[Any, ...] = ()
    hiding: frozenset[str] = frozenset()

    def column(self, column: Column) -> Column:
        """What is meant, over the columns with names of their own. Fields of structs have those that are shown."""
        (one,) = self._with_stars(column)
        if self.tables and names_in(one) is None:
            refuse_ambiguous_texts(self.shown, one)
        return replaced(one, self._named if "struct(" in str(one) else self._meant, tables=True)

    def text(self, name: str) -> str:
        """A name that Spark made of an expression, with what columns are called."""
        for unique, shown in zip(self.unique.columns, (*self.shown, *self.behind), strict=True):
            if unique != shown:
                own = rf"(?<!\w){re.escape(unique)}(?: AS {re.escape(shown)})?(?!\w)"
                name = re.sub(own, shown.replace("\\", r"\\"), name)
        return name

    # -- stars -------------------------------------------------------------------------------------------------

    def _with_stars(self, column: Any) -> list[Column]:
        """Several, if ``column`` is a star itself."""
        return expanded(column, self._starred)

    def _starred(self, star: Star) -> list[Column] | None:
        if star.stream is not None:
            return self._of_stream_star(star.stream)
        places = self._places(star)
        if places is not None:
            return [self._at(at) for at in places]
        refuse_lost(self.lost, star)
        found = self._found(Name(star.target)) if star.target and not star.excepts else None
        return None if found is None else [F.col(f"{self._written(*found)}.*")]

    def _of_stream_star(self, stream: int) -> list[Column] | None:
        """Classic Spark looks for nothing in it, and takes columns that both sides have from the left one."""
        found = stream_columns(stream)
        if found is None or not self.itself.classic:
            return found
        places = [self._of_stream(name, told=True) for column in found for name in stream_names(column)]
        return [self._at(at) for at in places]

    def _at(self, at: int) -> Column:
        """The column at a place, whose own name, behind a join by it, may be one that is shown twice."""
        name = self.unique.columns[at]
        twice = [shown.lower() for shown in self.shown].count(name.lower()) > 1
        return F.col(f"{_PLACE}{at}" if twice else quoted(name))

    def _places(self, star: Star) -> list[int] | None:
        """What ``alias.*`` or ``*`` stands for, of those that are still there. None: it is something else."""
        if unquoted(star.target or "").lower() in self.hiding:
            raise InvalidInputError(
                f"{star.target}.*: the table was joined by names, and its columns of those are not there behind a join "
                'of streams. Take what you need of it by names, as in select("t.price")'
            )
        if not star.target:
            found: Qualified | None = tuple(zip(self.shown, range(len(self.shown)), strict=True))
        else:
            found = self._of_alias(unquoted(star.target))
            found = found and tuple((name, at) for name, at in found if self._is_there(at))
        if found is None:
            return None
        without = {self._excepted(text, found) for text in star.excepts if unquoted(text) not in CONTROL_COLUMNS}
        there = found if star.regex is None else self._matching(found, star.regex)
        return [at for _, at in there if at not in without]

    def _matching(self, columns: Qualified, regex: str) -> list[tuple[str, int]]:
        """Those whose names Spark finds to match."""
        fields = [T.StructField(name, T.LongType(), metadata={_AT: i}) for i, (name, _) in enumerate(columns)]
        rows = self.unique._session.spark.createDataFrame([], T.StructType(fields))
        return [columns[f.metadata[_AT]] for f in rows.select(rows.colRegex(f"`{regex}`")).schema.fields]

    def _excepted(self, text: str, columns: Qualified) -> int:
        parts = [unquoted(part) for part in parts_of(text)]
        own = {at for _, at in (self._of_alias(parts[0]) or () if len(parts) == 2 else columns)}
        places = [at for name, at in columns if at in own and name.lower() == parts[-1].lower()]
        if len(parts) > 2 or not places:
            raise InvalidInputError(f"* EXCEPT ({text}): behind a join expected a column of those that the star has")
        if len(places) > 1:
            self._ambiguous(Name(text), parts[-1])
        return places[0]

    def aliases_at(self, places: Mapping[int, int]) -> dict[str, Qualified]:
        """What aliases stand for where the columns that are there are at ``places``, by those where they were."""
        return {
            alias: tuple((name, places[at]) for name, at in found if at in places and self._is_there(at))
            for alias, found in self.aliases.items()
        }

    def _of_alias(self, alias: str) -> Qualified | None:
        return next((found for name, found in self.aliases.items() if name.lower() == alias.lower()), None)

    # -- names -------------------------------------------------------------------------------------------------

    def _found(self, name: Name) -> tuple[int, list[str]] | None:
        """The place of the column that ``name`` is, or is in, and the fields of it. Raises where several are called
        so, and as Spark does for what is not among the columns of its stream any more."""
        parts = [unquoted(part) for part in parts_of(name.text)] or [name.text]
        if name.of_stream:
            return self._of_stream(name), parts[1:]
        if name.table is not None:
            at = self.place(name)
            return (at, []) if at is not None and self._is_there(at) else None
        qualified = self._of_alias(parts[0]) if len(parts) > 1 else None
        places = [at for called, at in qualified or () if called.lower() == parts[1].lower()]
        places = [at for at in places if self._is_there(at)]
        if len(places) == 1:
            return places[0], parts[2:]
        if places:
            self._ambiguous(name, parts[1])
        if len(parts) > 1 and of_table(self.tables, name):
            return None
        at = self._called(name, parts[0])
        if at is None and parts[0].startswith(OWN) and parts[0] in self.unique.columns:
            at = self.unique.columns.index(parts[0])
        elif at is None and parts[0].startswith(_PLACE):
            at = int(parts[0].removeprefix(_PLACE))
        return None if at is None else (at, parts[1:])

    def known(self, name: Name) -> tuple[int, list[str]] | None:
        """The place of the column that ``name`` is, or is in, and the fields of it, if that is shown."""
        try:
            found = self._found(name)
        except AnalysisException:  # it is of another stream, or gone
            return None
        return found if found is not None and found[0] < len(self.shown) else None

    def has_alias(self, name: Name) -> bool:
        """Whether an alias of theirs stands in front of it."""
        parts = parts_of(name.text)
        return len(parts) > 1 and self._of_alias(unquoted(parts[0])) is not None

    def _of_stream(self, name: Name, told: bool = False) -> int:
        """``told``: it is no matter whether Spark can tell it."""
        column = Name(parts_of(name.text)[0], name.stream)
        if not told:
            self.itself.refuse(column)
        at = self.place(column)
        if at is None:
            at = self.unique._attributes.place(column)
            if at is not None and at < len(self.shown) and at not in self.renames:
                return at
        if at is None or not self._is_there(at):
            raise not_there(name, self.shown, F.col(name.text))
        return at

    def _is_there(self, at: int) -> bool:
        """Whether the column is there, and called as it was."""
        return at not in (GONE, *self.hides, *self.renames)

    def _called(self, name: Name, column: str) -> int | None:
        called = [i for i, shown in enumerate(self.shown) if shown.lower() == column.lower()]
        if len(called) > 1:
            self._ambiguous(name, self.shown[called[0]])
        return called[0] if called else None

    def _ambiguous(self, name: Name, column: str) -> int | None:
        raise InvalidInputError(
            f"[AMBIGUOUS_REFERENCE] Reference {name.text} is ambiguous: both sides of the join have such a column. "
            f"Take it from its stream, a[{column!r}], or rename it in front of the join"
        )

    def _place(self, name: Name) -> int | None:
        """Of what is a column, and no field of one."""
        found = self._found(name)
        return found[0] if found is not None and not found[1] else None

    def _bare(self, col: Any) -> int | None:
        """The place of a column that is one as it is."""
        column = F.col(col) if isinstance(col, str) else col
        names = (names_in(column) or []) if bare_name(column) else []
        return self._place(names[0]) if names else None

    def _written(self, at: int, fields: list[str]) -> str:
        return ".".join(map(quoted, [self.unique.columns[at], *fields]))

    def _meant(self, name: Name) -> Column | None:
        found = self._found(name)
        if found is None:
            return None
        at, fields = found
        column, asked = self.unique.columns[at], unquoted(parts_of(name.text)[-1 - len(fields)])
        other = asked.lower() != column.lower()
        if other or (asked != column and is_case_sensitive(self.unique._session.spark)):
            asked = column
        return F.col(".".join(map(quoted, [asked, *fields])))  # Spark calls what is made of it as it is written

    def _named(self, name: Name) -> Column | None:
        """With the name that it has as a field."""
        found, called = self._meant(name), self._called_as(name)
        return found if found is None or called is None else found.alias(called)

    def _called_as(self, name: Name) -> str | None:
        """What Spark calls a column: as it is written. None: what it is called anyway."""
        at, written = self._place(name), unquoted(parts_of(name.text)[-1])
        if at is None:
            return None
        shown = (*self.shown, *self.behind)[at]
        called = written if shown.lower() == written.lower() else shown
        return None if self.unique.columns[at] == called else called

    def _everything(self) -> list[Column]:
        return [F.col(quoted(c)).alias(name) for c, name in zip(self.unique.columns, self.shown)]
