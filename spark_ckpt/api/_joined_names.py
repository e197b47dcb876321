"""Behind a join a name may come twice: which column is meant is told by its stream, ``a["k"]``, or an alias. Driver.

What comes out of the operator has names of its own for such columns. Methods that take columns are done there.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.attributes import not_there, same, with_known
from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.condition import Name, bare_name, names_in, replaced
from spark_ckpt.types import CTL, TAG

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame
    from spark_ckpt.api.grouped import CkptGroupedData


Method = TypeVar("Method", bound=Callable[..., Any])

_GONE = -1
"""The place of a column that is known, and not there any more."""


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
            if joined is None or (visible and not joined.repeated):
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
class JoinedNames:
    """``unique`` are the rows, each column with a name of its own; ``shown`` is what the first of them are called, the
    others are seen only by who asks for them. ``place`` finds a column by its stream or alias; None: by its name.
    ``hides``: those that were replaced or dropped, which only filters find; ``renames``: those that are there under
    another name, and are found by it alone, but for filters. ``stars``: what ``alias.*`` stands for.
    """

    unique: CkptDataFrame
    shown: tuple[str, ...]
    place: Callable[[Name], int | None]
    hides: frozenset[int] = frozenset()
    stars: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    renames: frozenset[int] = frozenset()

    @property
    def repeated(self) -> bool:
        """Whether a name is shown twice."""
        return len({name.lower() for name in self.shown}) < len(self.shown)

    def frame(self) -> CkptDataFrame:
        """The rows as Spark has them, with names that come twice."""
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
        return self._known(self.unique.select(*wanted), places)

    def _expanded(self, cols: list[Any]) -> list[Any]:
        """With the columns that ``alias.*`` stands for, of those that are still there."""
        found: list[Any] = []
        for col in cols:
            alias = col[:-2].strip("`") if isinstance(col, str) and col.endswith(".*") else None
            names = [Name(f"{quoted(alias)}.{quoted(c)}") for c in self.stars.get(alias, ())] if alias else []
            there = [name for name in names if self.place(name) not in (None, _GONE, *self.hides)]
            found += [F.col(name.text) for name in there] or [col]
        return found

    def _known(self, made: CkptDataFrame, places: dict[int, int]) -> CkptDataFrame:
        """``made`` of the rows, with columns that are theirs, if under the names that are shown."""
        return made._with(with_known(made._attributes, self.unique._attributes, places))

    def where(self, condition: Column) -> CkptDataFrame:
        """As Spark does, by what is hidden since it was replaced, too."""
        hides = frozenset(at for at in self.hides if at < len(self.shown))
        hidden = replace(self, hides=hides, renames=frozenset())
        return replace(self, unique=self.unique.where(replaced(condition, hidden._meant))).frame()

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
                ahead[i] = free(f"__ckpt_{name}" if i in replaces else name, [*names, *ahead])
                shown[i], computed[ahead[i]] = name, self.column(column)
        old = [*(names[i] for i in replaces), *names[len(self.shown) :]]
        unique = self.unique.withColumns(computed)._columns([*ahead, *old])
        moved = {i: unique.columns.index(name) for i, name in enumerate(names)}
        hides = {moved[i] for i in (*replaces, *self.hides)}
        renames = frozenset(moved[i] for i in self.renames)
        place = _moved(self.place, moved)
        return JoinedNames(unique, tuple(shown), place, frozenset(hides), self.stars, renames).frame()

    def grouped(self, cols: list[Any]) -> CkptGroupedData:
        """By keys that are told by stream or alias, too; so may be what is aggregated."""
        from spark_ckpt.api.grouped import CkptGroupedData

        keys = [c if isinstance(c, int) else self._column(c) for c in cols]
        return CkptGroupedData(self.unique._columns(self.unique.columns[: len(self.shown)]), keys, self)

    def column(self, column: Column) -> Column:
        """What is meant, over the columns with names of their own. Fields of structs have those that are shown."""
        return replaced(column, self._named if "struct(" in str(column) else self._meant)

    def by_name(self, functions: dict[str, str]) -> dict[str, str]:
        """What ``agg`` is given by names, by those of their own."""
        places = {name: self._place(Name(name)) for name in functions}
        return {name if at is None else self.unique.columns[at]: functions[name] for name, at in places.items()}

    def text(self, name: str) -> str:
        """A name that Spark made of an expression, with what columns are called."""
        for unique, shown in zip(self.unique.columns, self.shown):
            if unique != shown:
                own = rf"(?<!\w){re.escape(unique)}(?: AS {re.escape(shown)})?(?!\w)"
                name = re.sub(own, shown.replace("\\", r"\\"), name)
        return name

    def drop(self, cols: list[Any]) -> CkptDataFrame:
        """By name: all that are called so, as Spark does. Of the others it is known as before whose they are."""
        low = [c.lower() for c in cols if isinstance(c, str)]
        gone: set[int | None] = {i for i, name in enumerate(self.shown) if name.lower() in low}
        for col in cols:
            if isinstance(col, Column):
                gone |= {self._at(name) for name in names_in(col) or []}
        kept = [i for i in range(len(self.shown)) if i not in gone]
        if len({self.shown[i].lower() for i in kept}) == len(kept):
            made = self.unique.select(*[c for i, c in enumerate(self._everything()) if i in kept])
            return self._known(made, dict(enumerate(kept)))
        dropped = [i for i in range(len(self.unique.columns)) if i not in kept]
        hidden = frozenset(i for i in gone if i is not None and i < len(self.shown))
        return replace(self, hides=self.hides | hidden)._of(kept + dropped, len(kept)).frame()

    def renamed(self, names: dict[str, str]) -> CkptDataFrame:
        """All that are called so, as Spark does."""
        new = {old.lower(): name for old, name in names.items()}
        shown = tuple(new.get(name.lower(), name) for name in self.shown)
        renames = self.renames | {i for i, name in enumerate(self.shown) if shown[i] != name}
        return replace(self, shown=shown, renames=renames).frame()

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

    def _of(self, places: list[int], visible: int) -> JoinedNames:
        """Some of the columns, the first of which are shown."""

        unique = self.unique._columns([self.unique.columns[i] for i in places])
        moved = {old: new for new, old in enumerate(places)}
        hides = frozenset(moved[i] for i in self.hides if i in moved)
        shown = tuple(self.shown[i] for i in places[:visible])
        renames = frozenset(moved[i] for i in self.renames if i in moved)
        return JoinedNames(unique, shown, _moved(self.place, moved), hides, self.stars, renames)

    def _bare(self, col: Any) -> int | None:
        """The place of a column that is one as it is."""
        column = F.col(col) if isinstance(col, str) else col
        names = (names_in(column) or []) if bare_name(column) else []
        return self._place(names[0]) if names else None

    def _everything(self) -> list[Column]:
        return [F.col(quoted(c)).alias(name) for c, name in zip(self.unique.columns, self.shown)]

    def _column(self, col: Any) -> Column:
        column = F.col(col) if isinstance(col, str) else col
        found = self.column(column)
        if not bare_name(column):
            return self._named_as_shown(found)
        name = (names_in(column) or [Name("")])[0]
        at, shown = self._place(name), self._shown(name)
        return found.alias(shown) if shown and at is not None and self.unique.columns[at] != shown else found

    def _named_as_shown(self, found: Column) -> Column:
        names = self.unique._preview.select(found).columns
        return found if len(names) != 1 or names[0] == self.text(names[0]) else found.alias(self.text(names[0]))

    def _named(self, name: Name) -> Column | None:
        at, shown = self._place(name), self._shown(name)
        own = at is None or self.unique.columns[at] == shown
        found = self._meant(name)
        return found if found is None or own else found.alias(shown)

    def _shown(self, name: Name) -> str:
        at = self._place(name)
        if at is not None and at >= len(self.shown):
            return name.text.rpartition(".")[2].strip("`")
        return "" if at is None else self.shown[at]

    def _meant(self, name: Name) -> Column | None:
        at = self._place(name)
        return None if at is None else F.col(quoted(self.unique.columns[at]))

    def _at(self, name: Name) -> int | None:
        """Where it is, by its stream or alias, and else by its name. Raises where several are called so."""
        at = self.place(name)
        if at is None and name.of_stream:
            found = self.unique._attributes.place(name)
            return _GONE if found is None else found
        return self._called(name) if at is None else at

    def _place(self, name: Name) -> int | None:
        """As :meth:`_at`. Raises as Spark does for what is not among the columns any more."""
        at = self._at(name)
        told = at in self.hides | self.renames and (name.of_stream or self.place(name) is not None)
        if at == _GONE or told or (at in self.hides and at is not None and at >= len(self.shown)):
            raise not_there(name, self.shown, F.col(name.text))
        return at

    def _called(self, name: Name) -> int | None:
        called = [i for i, shown in enumerate(self.shown) if quoted(shown).lower() == name.text.lower()]
        called = called or [i for i, shown in enumerate(self.shown) if shown.lower() == name.text.lower()]
        if len(called) > 1:
            raise InvalidInputError(
                f"[AMBIGUOUS_REFERENCE] Reference {name.text} is ambiguous: both sides of the join have such a column. "
                f"Take it from its stream, a[{self.shown[called[0]]!r}], or rename it in front of the join"
            )
        return called[0] if called else None


def _moved(place: Callable[[Name], int | None], places: dict[int, int]) -> Callable[[Name], int | None]:
    """``place``, where columns are elsewhere, and some not there any more."""

    def found(name: Name) -> int | None:
        at = place(name)
        return at if at is None else places.get(at, _GONE)

    return found
