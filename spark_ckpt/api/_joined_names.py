"""Behind a join a name may come twice: which column is meant is told by its stream, ``a["k"]``, or an alias. Driver.

What comes out of the operator has names of its own for such columns. Methods that take columns are done there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.api._joined_columns import GONE, JoinedColumns, Qualified
from spark_ckpt.api._joined_tables import INNER
from spark_ckpt.api._left_out import behind_missing
from spark_ckpt.plan.attributes import same, with_known
from spark_ckpt.plan.columns import free, is_repeated, quoted
from spark_ckpt.plan.condition import Name, bare_name, names_in, parts_of, replaced, stream_names
from spark_ckpt.plan.join_columns import unlike
from spark_ckpt.plan.join_itself import WithItself
from spark_ckpt.plan.qualifiers import qualifiers
from spark_ckpt.types import CONTROL_COLUMNS, CTL, TAG

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame
    from spark_ckpt.api.grouped import CkptGroupedData


Method = TypeVar("Method", bound=Callable[..., Any])


def keeps_columns(*columns: str, visible: bool = False, by_all: bool = False) -> Callable[[Method], Method]:
    """Of a DataFrame's method behind which there are the same columns: behind a join, too, it is known whose they are.

    ``columns``: arguments that say some. ``visible``: it looks at all that there are, where names come twice.
    ``by_all``: without a ``subset`` Spark finds those by name, and refuses what comes twice.
    """

    def decorated(method: Method) -> Method:
        signature = inspect.signature(method)

        @wraps(method)
        def done(self: Any, *args: Any, **kwargs: Any) -> Any:
            joined = self._joined
            if joined is None or (visible and not joined.needed):
                return method(self, *args, **kwargs)
            given = signature.bind(self, *args, **kwargs)
            if by_all and given.arguments.get("subset") is None:
                getattr(self._in_spark(), method.__name__)(*args, **kwargs)  # raises as Spark does
            for name in columns:
                if given.arguments.get(name) is not None:
                    given.arguments[name] = joined.meant(given.arguments[name])
            return joined.through(lambda rows: method(rows, *given.args[1:], **given.kwargs), visible)

        return cast(Method, done)

    return decorated


@dataclass(frozen=True)
class JoinedNames(JoinedColumns):
    """Methods of a DataFrame that take columns, done where those have names of their own."""

    @classmethod
    def of(cls, df: CkptDataFrame) -> JoinedNames | None:
        """Rows with the columns that ``df`` shows, right behind a join or where a projection has names twice. None: its
        names alone say which column is meant."""
        if df._joined is not None:
            return df._joined._of(list(range(len(df._joined.shown))), len(df._joined.shown))
        if not is_repeated(df.columns, df._session.spark):
            return None
        names, places = unlike(df.columns, 0), range(len(df.columns))
        unique = df._operation("names of their own", lambda rows: rows.toDF(*names, *CONTROL_COLUMNS))
        unique._with(same(df._attributes, places, names))
        return cls._by_names(unique, df)

    @classmethod
    def _by_names(cls, unique: CkptDataFrame, shown: CkptDataFrame | None = None) -> JoinedNames:
        """Of rows whose columns have names of their own; ``shown`` has what its user calls them."""
        shown = shown or unique
        attributes = (unique._attributes, unique._attributes)
        no_join = WithItself(unique._session.spark, attributes, (frozenset(), frozenset()), (), both=False)
        return cls(unique, tuple(shown.columns), (), shown._attributes.place, no_join)

    @classmethod
    def behind_table(cls, df: CkptDataFrame) -> JoinedNames | None:
        """As :meth:`of`, and behind a join with a table, for what goes on where Spark does not know that: aliases, and
        the table's columns."""
        if df._joined is not None or not is_behind_table(df):
            return cls.of(df)
        found, made = qualifiers(df._preview), cls.of(df) or cls._by_names(df)
        place = _or_of_table(made.place, {one: at for at, one in enumerate(found.ids)})
        return replace(made, place=place, aliases=found.aliases, hiding=found.hiding)

    @classmethod
    def aliased(
        cls,
        rows: CkptDataFrame,
        aliases: dict[str, Qualified],
        tables: tuple[Any, ...] = (),
        lost: tuple[Any, ...] = (),
        ids: Mapping[int, int] | None = None,
    ) -> CkptDataFrame:
        """``rows``, some of whose columns aliases stand in front of. ``ids``: of columns that were a table's, where
        they are."""
        if not any(aliases.values()):
            return rows
        made = cls.of(rows) or cls._by_names(rows)
        place = made.place if ids is None else _or_of_table(made.place, ids)
        return replace(made, aliases=aliases, tables=tables, lost=lost, place=place).frame()

    @classmethod
    def called(cls, rows: CkptDataFrame, names: list[str]) -> CkptDataFrame:
        """``rows``, whose columns have names of their own, by ``names``, of which some may come twice."""
        if rows.columns == names:
            return rows
        if rows._joined is None and not is_repeated(names, rows._session.spark):
            renamed = rows._columns(rows.columns, names)
            return renamed._with(same(rows._attributes, range(len(names)), names))
        made = rows._joined or cls._by_names(rows)
        unique = made._renamed([*unlike(names, 0), *made.unique.columns[len(names) :]])
        return replace(made, unique=unique, shown=tuple(names)).frame()

    @property
    def repeated(self) -> bool:
        """Whether a name is shown twice."""
        return len({name.lower() for name in self.shown}) < len(self.shown)

    @property
    def needed(self) -> bool:
        """Whether names alone do not say which of the columns that are shown is meant."""
        return self.repeated or any(self.aliases.values())

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

    def _own_names(self) -> list[str]:
        """Names that are shown once are those of the rows, too, and no other column has them, as SQL texts on Spark
        Connect are Spark's to read. A table's column has its own, as Spark knows it by that."""
        low, names = [name.lower() for name in self.shown], list(self.unique.columns)
        for at, name in enumerate(names):
            if at < len(low):
                names[at] = self.shown[at] if low.count(low[at]) == 1 else name
            elif name.lower() in low or (self.tables and not name.startswith(INNER)):
                names[at] = free(f"{INNER}{name}", [*names, *self.shown])
        return names

    def _renamed(self, names: list[str]) -> CkptDataFrame:
        made = self.unique._columns(self.unique.columns, names)
        return made._with(same(self.unique._attributes, range(len(names)), names))

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
        made = made._with(with_known(made._attributes, self.unique._attributes, places))
        moved = {old: new for new, old in places.items()}
        return JoinedNames.aliased(made, self.aliases_at(moved), self.tables, self.lost)

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
                ahead[i] = free(f"{INNER}{name}" if i in replaces else name, [*names, *ahead])
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

        bare = {i: None if isinstance(col, int) else self._bare(col) for i, col in enumerate(cols)}
        return CkptGroupedData(*self.keys(cols), self, places={i: at for i, at in bare.items() if at is not None})

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

        unique = made.unique.alias(f"{INNER}{alias}")
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

    def by(self, names: list[str]) -> JoinedNames:
        """For a join by ``names``: the rows have the first column that is called so by that name, as Spark takes it,
        and the same one but once."""
        low, known = [shown.lower() for shown in self.shown], self.unique._attributes.all
        taken = {at: self.shown[at] for at in (low.index(name.lower()) for name in names if name.lower() in low)}
        again = {at for at in range(len(low)) for key in taken if at != key and known[at] is known[key]}
        if again:
            kept = [at for at in range(len(self.unique.columns)) if at not in again]
            return self._of(kept, len(low) - len(again)).by(names)
        columns = [taken.get(at, name) for at, name in enumerate(self.unique.columns)]
        return self if columns == self.unique.columns else replace(self, unique=self._renamed(columns))

    def _of(self, places: list[int], visible: int) -> JoinedNames:
        """Some of the columns, the first of which are shown."""
        unique = self.unique._columns([self.unique.columns[i] for i in places])
        moved = {old: new for new, old in enumerate(places)}
        names = [(*self.shown, *self.behind)[i] for i in places]
        shown, behind = tuple(names[:visible]), tuple(names[visible:])
        return replace(self, unique=unique, shown=shown, behind=behind)._moved(moved)

    def _moved(self, places: dict[int, int]) -> JoinedNames:
        """With the columns that were at ``places`` elsewhere, and all others not there any more."""

        def found(name: Name) -> int | None:
            at = self.place(name)
            return at if at is None else places.get(at, GONE)

        aliases = {
            alias: tuple((name, places.get(at, GONE)) for name, at in found) for alias, found in self.aliases.items()
        }
        hides, renames = (frozenset(places[at] for at in some if at in places) for some in (self.hides, self.renames))
        return replace(self, place=found, aliases=aliases, hides=hides, renames=renames)

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


def is_behind_table(df: CkptDataFrame) -> bool:
    """Where classic Spark knows aliases of the stream and of the table."""
    return df._stream_side is not None and hasattr(df._preview, "_jdf")


def _or_of_table(place: Callable[[Name], int | None], ids: Mapping[int, int]) -> Callable[[Name], int | None]:
    """``place``, which knows columns of tables by their ids, too."""
    return lambda name: place(name) if name.table is None else ids.get(name.table)
