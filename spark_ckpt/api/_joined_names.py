"""Behind a join a name may come twice: which column is meant is told by its stream, ``a["k"]``, or an alias. Driver.

What comes out of the operator has names of its own for such columns. Methods that take columns are done there.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.condition import Name, bare_name, names_in, replaced
from spark_ckpt.plan.spark_errors import analysis_error
from spark_ckpt.types import CTL, TAG

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame
    from spark_ckpt.api.grouped import CkptGroupedData


Method = TypeVar("Method", bound=Callable[..., Any])

_GONE = -1
"""The place of a column that is known, and not there any more."""


def keeps_columns(*columns: str, visible: bool = False) -> Callable[[Method], Method]:
    """Of a DataFrame's method behind which there are the same columns: behind a join, too, it is known whose they are.

    ``columns``: arguments that say some. ``visible``: it looks at all that there are, where names come twice.
    """

    def decorated(method: Method) -> Method:
        signature = inspect.signature(method)

        @wraps(method)
        def done(self: Any, *args: Any, **kwargs: Any) -> Any:
            joined = self._joined
            if joined is None or (visible and not joined.repeated):
                return method(self, *args, **kwargs)
            given = signature.bind(self, *args, **kwargs)
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
    """

    unique: CkptDataFrame
    shown: tuple[str, ...]
    place: Callable[[Name], int | None]

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
        return made

    def select(self, cols: list[Any]) -> CkptDataFrame:
        wanted: list[Any] = []
        for col in cols:
            wanted += self._everything() if isinstance(col, str) and col == "*" else [self._column(col)]
        return self.unique.select(*wanted)

    def where(self, condition: Column) -> CkptDataFrame:
        filtered = self.unique.where(replaced(condition, self._meant))
        return JoinedNames(filtered, self.shown, self.place).frame()

    def with_columns(self, columns: dict[str, Column]) -> CkptDataFrame:
        """All that are called so are replaced, as Spark does."""
        names, cut, shown = self.unique.columns, len(self.shown), list(self.shown)
        computed: dict[str, Column] = {}
        for name, column in columns.items():
            places = [i for i, called in enumerate(self.shown) if called.lower() == name.lower()]
            if not places:
                places = [len(shown)]
                shown.append(name)
                names = [*names[: places[0]], free(name, names), *names[places[0] :]]
            for i in places:
                shown[i], computed[names[i]] = name, replaced(column, self._meant)
        moved = len(shown) - cut

        def place(name: Name) -> int | None:
            at = self.place(name)
            return at if at is None or at < cut else at + moved

        return JoinedNames(self.unique.withColumns(computed)._columns(names), tuple(shown), place).frame()

    def grouped(self, cols: list[Any]) -> CkptGroupedData:
        """By keys that are told by stream or alias, too; so may be what is aggregated."""
        from spark_ckpt.api.grouped import CkptGroupedData

        keys = [c if isinstance(c, int) else self._column(c) for c in cols]
        return CkptGroupedData(self.unique._columns(self.unique.columns[: len(self.shown)]), keys, self)

    def column(self, column: Column) -> Column:
        """What is meant, over the columns with names of their own."""
        return replaced(column, self._meant)

    def by_name(self, functions: dict[str, str]) -> dict[str, str]:
        """What ``agg`` is given by names, by those of their own."""
        places = {name: self._place(Name(name)) for name in functions}
        return {name if at is None else self.unique.columns[at]: functions[name] for name, at in places.items()}

    def text(self, name: str) -> str:
        """A name that Spark made of an expression, with what columns are called."""
        for unique, shown in zip(self.unique.columns, self.shown):
            if unique != shown:
                name = re.sub(rf"(?<!\w){re.escape(unique)}(?!\w)", shown.replace("\\", r"\\"), name)
        return name

    def drop(self, cols: list[Any]) -> CkptDataFrame:
        """By name: all that are called so, as Spark does. Of the others it is known as before whose they are."""
        low = [c.lower() for c in cols if isinstance(c, str)]
        gone: set[int | None] = {i for i, name in enumerate(self.shown) if name.lower() in low}
        for col in cols:
            if isinstance(col, Column):
                gone |= {i for name in names_in(col) or [] if (i := self.place(name)) is not None} or self._named(col)
        kept = [i for i in range(len(self.shown)) if i not in gone]
        if len({self.shown[i].lower() for i in kept}) == len(kept):
            return self.unique.select(*[c for i, c in enumerate(self._everything()) if i in kept])
        return self._of(kept + list(range(len(self.shown), len(self.unique.columns))), len(kept)).frame()

    def renamed(self, names: dict[str, str]) -> CkptDataFrame:
        """All that are called so, as Spark does."""
        new = {old.lower(): name for old, name in names.items()}
        return replace(self, shown=tuple(new.get(name.lower(), name) for name in self.shown)).frame()

    def through(self, method: Callable[[CkptDataFrame], CkptDataFrame], visible: bool) -> CkptDataFrame:
        """What ``method``, which keeps the columns, makes of the rows; ``visible``: of the columns that are shown."""
        rows = self._of(list(range(len(self.shown))), len(self.shown)) if visible else self
        return replace(rows, unique=method(rows.unique)).frame()

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

        def place(name: Name) -> int | None:
            at = self.place(name)
            return at if at is None else places.index(at) if at in places else _GONE

        unique = self.unique._columns([self.unique.columns[i] for i in places])
        return JoinedNames(unique, tuple(self.shown[i] for i in places[:visible]), place)

    def _named(self, col: Column) -> set[int | None]:
        return {self._place(name) for name in names_in(col) or []}

    def _everything(self) -> list[Column]:
        return [F.col(quoted(c)).alias(name) for c, name in zip(self.unique.columns, self.shown)]

    def _column(self, col: Any) -> Column:
        column = F.col(col) if isinstance(col, str) else col
        found = replaced(column, self._meant)
        if not bare_name(column):
            return found
        name = (names_in(column) or [Name("")])[0]
        at, shown = self._place(name), self._shown(name)
        return found.alias(shown) if shown and at is not None and self.unique.columns[at] != shown else found

    def _shown(self, name: Name) -> str:
        at = self._place(name)
        if at is not None and at >= len(self.shown):
            return name.text.rpartition(".")[2].strip("`")
        return "" if at is None else self.shown[at]

    def _meant(self, name: Name) -> Column | None:
        at = self._place(name)
        return None if at is None else F.col(quoted(self.unique.columns[at]))

    def _place(self, name: Name) -> int | None:
        at = self.place(name)
        if at == _GONE:
            raise analysis_error(
                "MISSING_ATTRIBUTES.RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT",
                f"Resolved attribute {name.text} is missing: it was dropped, or is not among the columns any more",
                missingAttributes=name.text,
                input=", ".join(self.shown),
                operator="",
            )
        if at is not None:
            return at
        called = [i for i, shown in enumerate(self.shown) if quoted(shown).lower() == name.text.lower()]
        called = called or [i for i, shown in enumerate(self.shown) if shown.lower() == name.text.lower()]
        if len(called) > 1:
            raise InvalidInputError(
                f"[AMBIGUOUS_REFERENCE] Reference {name.text} is ambiguous: both sides of the join have such a column. "
                f"Take it from its stream, a[{self.shown[called[0]]!r}], or rename it in front of the join"
            )
        return called[0] if called else None
