"""Behind a join a name may come twice: which column is meant is told by its stream, ``a["k"]``, or an alias. Driver.

What comes out of the operator has names of its own for such columns. Methods that take columns are done there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.api._joined_columns import GONE
from spark_ckpt.api._joined_places import JoinedPlaces
from spark_ckpt.api._joined_tables import knowing_tables
from spark_ckpt.api._left_out import behind_missing
from spark_ckpt.plan.attributes import same, with_known
from spark_ckpt.plan.columns import OWN, free, quoted
from spark_ckpt.plan.condition import Name, bare_name, names_in, parts_of, replaced, stream_names
from spark_ckpt.types import CTL, TAG

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame
    from spark_ckpt.api.grouped import CkptGroupedData


@dataclass(frozen=True)
class JoinedNames(JoinedPlaces):
    """Methods of a DataFrame that take columns, done where those have names of their own."""

    def frame(self) -> CkptDataFrame:
        """The rows as Spark has them, with names that come twice."""
        if self._own_names() != self.unique.columns:
            return replace(self, unique=self._renamed(self._own_names())).frame()
        columns, shown = self.unique.columns[: len(self.shown)], list(self.shown)
        if not self.repeated:
            made = self.unique._columns(columns, shown)
        else:
            wanted = [F.col(quoted(c)).alias(name) for c, name in zip(columns, shown, strict=True)]
            made = self.unique._operation("join", lambda df: df.select(*wanted, TAG, CTL))
        made._joined = self
        return made._with(same(self.unique._attributes, range(len(self.shown)), self.shown))

    def select(self, cols: list[Any]) -> CkptDataFrame:
        wanted, places = list[Any](), dict[int, int]()
        for col in self._expanded(cols):
            if isinstance(col, str) and col == "*":
                places |= {len(wanted) + at: at for at in range(len(self.shown))}
                wanted += self._everything()
            else:
                at = self._bare(col)
                places |= {} if at is None else {len(wanted): at}
                wanted.append(self._column(col))
        made = self.unique.select(*wanted)
        return self._known(made, self._behind_generator(made, wanted, places))

    def _behind_generator(self, made: CkptDataFrame, wanted: list[Any], places: dict[int, int]) -> dict[int, int]:
        """Several columns may come of one that is selected, such as ``posexplode``: what is behind it is further on."""
        more = len(made.columns) - len(wanted)
        if not more:
            return places
        several = next(i for i, one in enumerate(wanted) if len(self.unique._preview.select(one).columns) > 1)
        return {new + more * (new > several): old for new, old in places.items()}

    def _expanded(self, cols: list[Any]) -> list[Any]:
        """With the columns that stars stand for; ``"*"`` stays."""
        found: list[Any] = []
        for col in cols:
            star = isinstance(col, str) and col.endswith(".*")
            found += self._with_stars(F.col(col) if star else col)
        return found

    def _known(self, made: CkptDataFrame, places: dict[int, int]) -> CkptDataFrame:
        """``made`` of the rows, with columns that are theirs, if under the names that are shown. Aliases stand in front
        of those, as in Spark: ``st.k`` is no field of a column ``st``."""
        from spark_ckpt.api._joined_rows import aliased

        made = made._with(with_known(made._attributes, self.unique._attributes, places))
        moved = {old: new for new, old in places.items()}
        return aliased(made, self.aliases_at(moved), self.tables, self.lost)

    def where(self, condition: Column) -> CkptDataFrame:
        """As Spark does, by what is hidden since it was replaced, too."""
        moved = behind_missing(self.unique, condition)
        if moved is not None:
            return replace(self, unique=moved).frame()
        hides = frozenset(at for at in self.hides if at < len(self.shown))
        hidden = replace(self, hides=hides, renames=frozenset())
        return replace(self, unique=self.unique.where(hidden.column(condition))).frame()

    def with_columns(self, columns: dict[str, Column]) -> CkptDataFrame:
        """All that are called so are replaced, as Spark does. What was there is hidden."""
        names, shown = list(self.unique.columns), list(self.shown)
        ahead, replaces, computed = names[: len(shown)], list[int](), dict[str, Column]()
        for name, column in columns.items():
            places = [i for i, called in enumerate(self.shown) if called.lower() == name.lower()]
            replaces += places
            if not places:
                places = [len(shown)]
                shown.append(name)
                ahead.append("")
            for i in places:
                ahead[i] = free(f"{OWN}{name}" if i in replaces else name, [*names, *ahead])
                shown[i], computed[ahead[i]] = name, self.column(column)
        old = [*(names[i] for i in replaces), *names[len(self.shown) :]]
        behind = (*(self.shown[i] for i in replaces), *self.behind)
        unique = self.unique.withColumns(computed)._columns([*ahead, *old])
        moved = {i: unique.columns.index(name) for i, name in enumerate(names)}
        made = replace(self, unique=unique, shown=tuple(shown), behind=behind, hides=self.hides | set(replaces))
        return made._moved(moved).frame()

    def grouped(self, cols: list[Any]) -> CkptGroupedData:
        """By keys that are told by stream or alias, too; so may be what is aggregated."""
        from spark_ckpt.api.grouped import CkptGroupedData

        known = knowing_tables(self)
        bare = {i: None if isinstance(col, int) else known._bare(col) for i, col in enumerate(cols)}
        return CkptGroupedData(*known.keys(cols), known, places={i: at for i, at in bare.items() if at is not None})

    def keys(self, cols: list[Any]) -> tuple[CkptDataFrame, list[Any]]:
        """The rows, and keys over them by the names that are shown."""
        keys = [c if isinstance(c, int) else self._column(c) for c in cols]
        return self.unique._columns(self.unique.columns[: len(self.shown)]), keys

    def by_name(self, functions: dict[str, str]) -> dict[str, str]:
        """What ``agg`` is given by names, by those of their own."""
        places = {name: self._place(Name(name)) for name in functions}
        return {name if at is None else self.unique.columns[at]: functions[name] for name, at in places.items()}

    def drop(self, cols: list[Any]) -> CkptDataFrame:
        """By name: all that are called so, as Spark does. Of the others it is known as before whose they are."""
        low = [c.lower() for c in cols if isinstance(c, str)]
        gone: set[int | None] = {i for i, name in enumerate(self.shown) if name.lower() in low}
        for col in cols:
            if isinstance(col, Column):
                found = {self._dropped(name) for name in names_in(col) or []}
                gone |= self._dropped_of_table(col) if found <= {None} else found
        kept = [i for i in range(len(self.shown)) if i not in gone]
        if len({self.shown[i].lower() for i in kept}) == len(kept):
            made = self.unique.select(*[c for i, c in enumerate(self._everything()) if i in kept])
            return self._known(made, dict(enumerate(kept)))
        dropped = [i for i in range(len(self.unique.columns)) if i not in kept]
        hidden = frozenset(i for i in gone if i is not None and i < len(self.shown))
        return replace(self, hides=self.hides | hidden)._of(kept + dropped, len(kept)).frame()

    def renamed(self, names: dict[str, str]) -> CkptDataFrame:
        """All that are called so, one name behind the other, as Spark does."""
        shown = self.shown
        for old, new in names.items():
            shown = tuple(new if name.lower() == old.lower() else name for name in shown)
        renames = self.renames | {i for i, name in enumerate(self.shown) if shown[i] != name}
        return replace(self, shown=shown, renames=renames).frame()

    def alias(self, alias: str) -> CkptDataFrame | None:
        """Of columns that are shown; what was replaced or dropped nobody finds behind it. None: there are those of
        tables, which Spark knows by other aliases."""
        if self.tables:
            return None
        made, itself = self._of(list(range(len(self.shown))), len(self.shown)), self.itself

        def place(name: Name) -> int | None:
            return GONE if name.of_stream and itself.is_hidden(name) else made.place(name)

        unique = made.unique.alias(f"{OWN}{alias}")
        aliases = {alias: tuple(zip(self.shown, range(len(self.shown)), strict=True))}
        return replace(made, unique=unique, place=place, aliases=aliases).frame()

    def through(self, method: Callable[[CkptDataFrame], CkptDataFrame], visible: bool) -> CkptDataFrame:
        """What ``method``, which keeps the columns, makes of the rows; ``visible``: of the columns that are shown."""
        rows = self._of(list(range(len(self.shown))), len(self.shown)) if visible else self
        made = method(rows.unique)
        pairs = zip(rows.unique._attributes.all, made._attributes.all, strict=True)
        new = frozenset(at for at, (old, now) in enumerate(pairs) if now is not old)
        return replace(rows, unique=made, hides=rows.hides | new).frame()

    def meant(self, given: Any) -> Any:
        """An argument that says columns, by what they are called in ``unique``."""
        if isinstance(given, Column):
            return self.column(given)
        if isinstance(given, list | tuple):
            return [self.meant(g) for g in given]
        if isinstance(given, dict):
            return {self.meant(name): value for name, value in given.items()}
        at = self._place(Name(given)) if isinstance(given, str) else None
        return given if at is None or self.unique.columns[at] == given else self.unique.columns[at]

    def all_called(self, names: Any) -> Any:
        """All columns of each of ``names``, where those come twice."""
        low = [name.lower() for name in names if isinstance(name, str)]
        found = [column for column, name in zip(self.unique.columns, self.shown) if name.lower() in low]
        known = {name.lower() for name in self.shown}
        return [*found, *(name for name in names if not isinstance(name, str) or name.lower() not in known)]

    def _dropped(self, name: Name) -> int | None:
        whole = name.of_stream and len(parts_of(name.text)) == 1
        if whole:
            self.itself.refuse(name, dropped=True)
            if self.itself.is_hidden(name):
                return None
        try:
            return self._of_stream(name, told=True) if whole else self._place(name)
        except AnalysisException:  # it is gone already
            return None

    def _dropped_of_table(self, col: Column) -> set[int | None]:
        """``table["k"]``, or one by a table's alias."""
        names: list[Name] = []
        replaced(col, names.append, tables=True)
        found = {self.place(name) for name in names if name.table is not None}
        places = found - {None, GONE}
        if places or not self.tables or stream_names(col):
            return set(places)
        kept = self.unique._preview.drop(col).columns
        return {at for at, name in enumerate(self.unique.columns) if name not in kept}

    def _column(self, col: Any) -> Column:
        column = F.col(col) if isinstance(col, str) else col
        found = self.column(column)
        names = names_in(column) if bare_name(column) else None
        if not names:
            return self._named_as_shown(found)
        called = self._called_as(names[0])
        return found if called is None else found.alias(called)

    def _named_as_shown(self, found: Column) -> Column:
        names = self.unique._preview.select(found).columns
        return found if len(names) != 1 or names[0] == self.text(names[0]) else found.alias(self.text(names[0]))
