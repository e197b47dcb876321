"""Which column is which, whatever it is called: what one that was taken from a stream is in what was made of that.

As Spark's analysis has it: a projection hands a column on under its name, ``withColumn("k", ...)`` and ``alias`` make
new ones. So ``stream["k"]`` is not any ``k`` that is there behind them. Looked at only when somebody asks. Driver.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.plan.columns import quoted, unquoted
from spark_ckpt.plan.condition import Name, parts_of, replaced, stream_column, stream_names
from spark_ckpt.plan.spark_errors import analysis_error
from spark_ckpt.plan.trying import unlogged
from spark_ckpt.plan.udf_plan import items_of
from spark_ckpt.types import CONTROL_COLUMNS

SparkDF = Any

_ID = re.compile(r"#(\d+)L?(?:-T\d+ms)?(?:,|$)")


class Attribute:
    """One column, wherever it is handed on. ``unknown``: it may be any earlier one of its name."""

    def __init__(self, unknown: bool = False) -> None:
        self.unknown = unknown


class Attributes:
    """Of a DataFrame's columns ``names``. ``find`` tells them, of those of ``parents``. ``tables``: columns of tables
    may be among them, or among what they were made of; ``lost``: some are behind an operator in Python, where Spark
    does not know them."""

    def __init__(
        self,
        names: Sequence[str],
        find: Callable[[], Sequence[Attribute]],
        parents: Iterable[Attributes] = (),
        tables: bool = False,
        lost: bool = False,
    ) -> None:
        self.names, self._find, self.parents = list(names), find, tuple(parents)
        self.tables: bool = tables or any(p.tables for p in self.parents)
        self.lost: bool = lost or any(p.lost for p in self.parents)
        self._found: list[Attribute] | None = None

    @property
    def all(self) -> list[Attribute]:
        """A chain of methods may be longer than Python's stack."""
        todo = [self]
        while todo:
            behind = [p for p in todo[-1].parents if p._found is None]
            todo += behind
            if not behind:
                last = todo.pop()
                last._found = list(last._find()) if last._found is None else last._found
        assert self._found is not None
        return self._found

    def of(self, name: str) -> Attribute | None:
        """That of a column, or of a field of it, as Spark's parser reads ``name``."""
        at = self._named(root_of(name))
        return None if at is None else self.all[at]

    def _named(self, root: str) -> int | None:
        names, wanted = (self.names, root) if root in self.names else ([n.lower() for n in self.names], root.lower())
        return names.index(wanted) if wanted in names else None

    def by_name_alone(self, name: Name) -> bool:
        """Whether nothing but its name says that it is there."""
        at = self.place(name)
        return at is not None and self.all[at].unknown

    def made_of(self, other: Attributes | None) -> bool:
        """Whether they are those of ``other``, or of what was made of it."""
        todo, seen = [self], set[int]()
        while todo:
            one = todo.pop()
            if one is other:
                return True
            if id(one) not in seen:
                seen.add(id(one))
                todo += one.parents
        return False

    def sources(self) -> list[Attributes]:
        """What they were made of that was made of nothing."""
        todo, found = [self], dict[int, Attributes]()
        while todo:
            one = todo.pop()
            if id(one) not in found:
                found[id(one)] = one
                todo += one.parents
        return [one for one in found.values() if not one.parents]

    def place(self, name: Name) -> int | None:
        """Where a column is that was taken from a stream, or from a table on classic Spark. None: nowhere."""
        if name.table is not None:
            there = self.all  # looking at them makes those of tables known
            of_table = _of_ids.get(name.table)
            return there.index(of_table) if of_table in there else None
        if name.stream is None:
            return None
        origin = _known.get(name.stream)
        if origin is self:
            return self._named(root_of(name.text))
        attribute, root = attribute_of(name), root_of(name.text).lower()
        if attribute is not None and attribute in self.all:
            return self.all.index(attribute)
        return next((i for i, n in enumerate(self.names) if n.lower() == root and self.all[i].unknown), None)


_known: WeakValueDictionary[int, Attributes] = WeakValueDictionary()
"""By the numbers of recipes. What is made of a DataFrame keeps its attributes."""
_of_ids: WeakValueDictionary[int, Attribute] = WeakValueDictionary()
"""Columns that come in by Spark's operations, those of tables among them, by Spark's ids."""


def known(stream: int) -> Attributes | None:
    """Those of the stream of that number."""
    return _known.get(stream)


def attribute_of(name: Name) -> Attribute | None:
    """That of a column that was taken from a stream."""
    assert name.stream is not None
    origin = _known.get(name.stream)
    return None if origin is None else origin.of(name.text)


def stream_columns(stream: int) -> list[Column] | None:
    """What ``stream["*"]`` stands for."""
    found = known(stream)
    return None if found is None else [stream_column(quoted(name), stream) for name in found.names]


def know(stream: int, attributes: Attributes) -> Attributes:
    _known[stream] = attributes
    return attributes


def root_of(name: str) -> str:
    """The column that it is, or is a field of."""
    return unquoted(parts_of(name)[0])


def new(names: Sequence[str], unknown: bool = False) -> Attributes:
    """Columns of nobody else; ``unknown``: as far as it is known."""
    return Attributes(names, lambda: [Attribute(unknown) for _ in names])


def same(parent: Attributes, places: Sequence[int], names: Sequence[str]) -> Attributes:
    """Some of ``parent``'s, by other names if need be."""
    return Attributes(names, lambda: [parent.all[i] for i in places], [parent])


def by_name(parent: Attributes, names: Sequence[str], handed_on: Iterable[str]) -> Attributes:
    """Behind an operator, which hands on some columns of ``parent`` under their names."""
    kept = set(handed_on)

    def find() -> list[Attribute]:
        return [(parent.of(quoted(name)) if name in kept else None) or Attribute() for name in names]

    return Attributes(names, find, [parent], lost=parent.tables)


def with_known(found: Attributes, parent: Attributes, places: Mapping[int, int]) -> Attributes:
    """``found``, some of which are known to be those at places of ``parent``."""

    def find() -> list[Attribute]:
        return [parent.all[places[i]] if i in places else one for i, one in enumerate(found.all)]

    return Attributes(found.names, find, [found, parent])


def beside_table(found: Attributes) -> Attributes:
    """``found``, behind a join with a table."""
    return Attributes(found.names, lambda: found.all, [found], tables=True)


def derived(parent: Attributes, before: SparkDF, after: SparkDF, names: Sequence[str]) -> Attributes:
    """Of ``after``, which Spark made of ``before``, whose columns are those of ``parent``."""

    def find() -> list[Attribute]:
        if not type(after).__module__.startswith("pyspark.sql.classic"):
            return _asked(parent, before, after, names)
        known_as = dict(zip(column_ids(before), parent.all, strict=True))
        return [known_as.get(one) or _of_ids.setdefault(one, Attribute()) for one in column_ids(after)]

    return Attributes(names, find, [parent])


def missing(found: Attributes, column: Any) -> list[Name]:
    """What ``column`` takes from a stream, and is not among these."""
    return [name for name in stream_names(column) if found.place(name) is None]


def refuse_missing(found: Attributes, column: Any) -> None:
    """Raises as Spark does for a ``column`` of which :func:`missing` has some."""
    gone = missing(found, column)
    if gone:
        raise not_there(gone[0], found.names, column)


def refuse_foreign(found: Attributes, column: Any) -> None:
    """Raises as Spark does for a ``column`` of a stream that these were not made of. One that is no longer there Spark
    looks for further in front."""
    for name in missing(found, column):
        if name.stream is None or not found.made_of(_known.get(name.stream)):
            raise not_there(name, found.names, column)


def not_there(name: Name, columns: Sequence[str], column: Any) -> AnalysisException:
    """What Spark raises where a column of another DataFrame is not among the ``columns``."""
    root, shown = root_of(name.text), ", ".join(columns)
    text = (
        f"Resolved attribute(s) {root!r} missing from {shown}: it was dropped, or replaced by another of its name, or "
        f"is of another stream. For the one that is called so here, write F.col({root!r}); to keep an earlier one, "
        "give it a name of its own, by withColumn, in front of that"
    )
    if not type(column).__module__.startswith("pyspark.sql.classic"):
        return analysis_error("CANNOT_RESOLVE_DATAFRAME_COLUMN", text, name=root)
    there = root.lower() in [c.lower() for c in columns]
    kind = "RESOLVED_ATTRIBUTE_APPEAR_IN_OPERATION" if there else "RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT"
    given = {"missingAttributes": root, "input": shown, "operation": root, "operator": ""}
    return analysis_error(f"MISSING_ATTRIBUTES.{kind}", text, **given)


def renamed(found: Attributes, column: Any) -> Any:
    """``column`` with what is there under another name than it was taken by."""

    def by_new_name(name: Name) -> Column | None:
        at = found.place(name) if name.of_stream else None
        if at is None or found.names[at].lower() == root_of(name.text).lower():
            return None
        return F.col(".".join([quoted(found.names[at]), *parts_of(name.text)[1:]]))

    return replaced(column, by_new_name) if stream_names(column) else column


def with_tables(found: Attributes, column: Any, *known_to_spark: SparkDF, alias: str | None = None) -> Any:
    """``column`` with columns of tables by their names, where classic Spark's previews do not know them. ``alias``:
    what these of the stream are known by where others may have their names."""
    if not (isinstance(column, Column) and found.lost and hasattr(known_to_spark[0], "_jdf")):
        return column
    ids = [one for df in known_to_spark for one in column_ids(df)]

    def by_name_there(name: Name) -> Column | None:
        at = found.place(name) if name.table is not None and name.table not in ids else None
        return None if at is None else F.col(".".join(quoted(part) for part in (alias, found.names[at]) if part))

    return replaced(column, by_name_there, tables=True)


def column_ids(df: SparkDF) -> list[int]:
    """Spark's, of the user's columns. Asked for in one text: each call of the JVM takes its time."""
    output, columns = df._jdf.queryExecution().analyzed().output(), df.columns
    text, found, at = str(output.mkString(",")), list[int](), 0
    for name in columns:
        shown = _ID.match(text, at + len(name)) if text.startswith(name, at) else None
        if shown is None:
            found = [int(a.exprId().id()) for a in items_of(output)]
            break
        found.append(int(shown[1]))
        at = shown.end()
    return [one for one, name in zip(found, columns, strict=True) if name not in CONTROL_COLUMNS]


def _asked(parent: Attributes, before: SparkDF, after: SparkDF, names: Sequence[str]) -> list[Attribute]:
    """On Spark Connect, which has no ids to give: what ``before["k"]`` is there, if it is. Of names that come twice
    nothing is known."""
    low, theirs = [n.lower() for n in names], [n.lower() for n in parent.names]
    once = [n for n in names if low.count(n.lower()) == 1 and theirs.count(n.lower()) <= 1]
    asked = [n for n in once if n in parent.names]
    kept = asked if _has(after, before, asked) else [n for n in asked if _has(after, before, [n])]
    found = {n: parent.all[parent.names.index(n)] for n in kept}
    return [found.get(n) or Attribute(unknown=n not in once) for n in names]


def _has(after: SparkDF, before: SparkDF, names: list[str]) -> bool:
    try:
        with unlogged():
            return bool(after.select(*[before[quoted(name)] for name in names]).columns or not names)
    except PySparkException:
        return False
