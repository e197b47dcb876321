"""What a Delta log keeps about a Parquet file's columns, as Spark's Delta writes it: by path, not by a name's text.

A flat column ``host.name`` and the field ``name`` of a struct ``host`` have one name in a Parquet footer. What a
file's columns are is told by their order.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

DEFAULT_COLUMNS = 32
"""How many a table has statistics of that says nothing: Delta's number."""
_LONGEST_TEXT = 32
_LAST_CHARACTER = chr(0x10FFFF)
_EPOCH = dt.datetime(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = ((day - _EPOCH.date()).days for day in (dt.date.min, dt.date.max))
_BOUNDS = ("minValues", "maxValues")

Path = tuple[str, ...]


class Leaf(NamedTuple):
    """A column, or a field of a struct, that is none itself. ``place`` is where its first column is in a file."""

    path: Path
    kind: pa.DataType
    place: int


def leaves(schema: pa.Schema) -> list[Leaf]:
    """In the order of the columns. A list or a map is one leaf, as for Delta's numbers of columns."""
    found: list[Leaf] = []
    place = 0
    for field in schema:
        for path, kind in _paths((field.name,), field.type):
            found.append(Leaf(path, kind, place))
            place += _width(kind)
    return found


def first_leaves(schema: pa.Schema) -> frozenset[Path]:
    """Those that a table without such properties has statistics of."""
    return frozenset(leaf.path for leaf in leaves(schema)[:DEFAULT_COLUMNS])


def _paths(path: Path, kind: pa.DataType) -> Iterator[tuple[Path, pa.DataType]]:
    if not pt.is_struct(kind):
        yield path, kind
        return
    for field in kind:
        yield from _paths((*path, field.name), field.type)


def _width(kind: pa.DataType) -> int:
    """How many columns of a Parquet file it is."""
    return sum(_width(kind.field(i).type) for i in range(kind.num_fields)) if pt.is_nested(kind) else 1


class Seen:
    """What a footer does not tell of the rows of a file: which columns have nulls, how many lists and maps are null,
    and which leaves have NaN."""

    def __init__(self, schema: pa.Schema) -> None:
        found = leaves(schema)
        self._floats = [leaf.path for leaf in found if pt.is_floating(leaf.kind)]
        self.lists = {leaf.path: 0 for leaf in found if pt.is_nested(leaf.kind)}
        self.nulls: set[str] = set()
        self.nans: set[Path] = set()

    def add(self, rows: pa.Table) -> None:
        self.nulls |= {name for name, column in zip(rows.column_names, rows.columns, strict=True) if column.null_count}
        for path in self.lists:
            self.lists[path] += _column(rows, path).null_count
        for path in self._floats:
            if path not in self.nans and pc.any(pc.is_nan(_column(rows, path))).as_py():
                self.nans.add(path)


def _column(rows: pa.Table, path: Path) -> pa.ChunkedArray:
    column = rows.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, [column.type.get_field_index(name)])
    return column


def file_stats(
    footer: Any,
    schema: pa.Schema,
    wanted: Collection[Path],
    nans: Collection[Path] | None,
    lists: Mapping[Path, int],
) -> dict[str, Any]:
    """Delta's ``stats`` of the ``wanted`` leaves of a file with columns ``schema``, as JSON has them; a decimal is a
    text. ``nans``, ``lists``: as :class:`Seen` has them; of None any leaf may have NaN.

    There are bounds wherever Spark has some, and of booleans, as delta-rs has: its readers by way of pyarrow find no
    row by a column without. But years beyond 1 to 9999 have none: the same readers do not open a table with these.
    NaN, which a footer ignores, is the largest number.
    """
    groups = [footer.row_group(g) for g in range(footer.num_row_groups)]
    found: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for leaf in leaves(schema):
        if leaf.path in wanted and leaf.path in lists:
            _put(found["nullCount"], leaf.path, lists[leaf.path])
        stats = [group.column(leaf.place).statistics for group in groups]
        exact = all(s is not None and s.has_null_count for s in stats)
        if leaf.path not in wanted or pt.is_nested(leaf.kind) or not exact:
            continue
        _put(found["nullCount"], leaf.path, sum(s.null_count for s in stats))
        filled = [s for s, group in zip(stats, groups, strict=True) if s.null_count < group.num_rows]
        for name, bound in zip(_BOUNDS, _bounds(leaf, filled, nans) or (), strict=False):
            _put(found[name], leaf.path, bound)
    return found


def _put(tree: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def has(tree: Any, path: Path) -> bool:
    """Whether ``tree``, such as ``nullCount``, tells of ``path``."""
    return not path or (isinstance(tree, dict) and path[0] in tree and has(tree[path[0]], path[1:]))


def _bounds(leaf: Leaf, filled: Sequence[Any], nans: Collection[Path] | None) -> tuple[Any, Any] | None:
    kind = leaf.kind
    if pt.is_floating(kind):
        return None if nans is None else _floats(filled, leaf.path in nans)
    plain = pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_decimal(kind) or pt.is_string(kind)
    times = pt.is_date(kind) or pt.is_timestamp(kind)
    if not filled or not (plain or times) or not all(s.has_min_max for s in filled):
        return None
    if times:  # the numbers: Python has no objects for many of them
        return _times(kind, min(s.min_raw for s in filled), max(s.max_raw for s in filled))
    least, most = min(s.min for s in filled), max(s.max for s in filled)
    if pt.is_string(kind):
        return least[:_LONGEST_TEXT], _cut(most)
    return (format(least, "f"), format(most, "f")) if pt.is_decimal(kind) else (least, most)


def _floats(filled: Sequence[Any], has_nan: bool) -> tuple[Any, Any] | None:
    bounded = [s for s in filled if s.has_min_max]  # a group in which all is NaN is not
    if has_nan and not bounded:
        return "NaN", "NaN"
    if not bounded or (len(bounded) < len(filled) and not has_nan):
        return None
    return _number(min(s.min for s in bounded)), "NaN" if has_nan else _number(max(s.max for s in bounded))


def _cut(text: str) -> str:
    """A text that is not less: a cut one gets the last character of all, unless that is what follows."""
    end = _LONGEST_TEXT
    while text[end : end + 1] == _LAST_CHARACTER:
        end += 1
    return text[:end] + (_LAST_CHARACTER if len(text) > end else "")


def _number(value: float) -> float | str:
    """JSON has no infinities; Spark writes them as texts."""
    return value if math.isfinite(value) else ("-" if value < 0 else "") + "Infinity"


def _times(kind: pa.DataType, least: int, most: int) -> tuple[str, str] | None:
    unit_us = 86_400_000_000 if pt.is_date(kind) else 1
    days = least * unit_us // 86_400_000_000, most * unit_us // 86_400_000_000
    if days[0] < _FIRST_DAY or days[1] > _LAST_DAY:
        return None
    first, last = (_EPOCH + dt.timedelta(microseconds=number * unit_us) for number in (least, most))
    if pt.is_date(kind):
        return first.date().isoformat(), last.date().isoformat()
    zone = "Z" if kind.tz else ""
    return first.isoformat(timespec="microseconds") + zone, last.isoformat(timespec="microseconds") + zone


def log_text(stats: Mapping[str, Any], schema: pa.Schema, wanted: Collection[Path] | None) -> str:
    """``stats`` of ``wanted`` leaves, all with None, as the log of a table of columns ``schema`` has them."""
    decimals = {leaf.path for leaf in leaves(schema) if pt.is_decimal(leaf.kind)}

    def kept(tree: Mapping[str, Any], at: Path) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in tree.items():
            path = (*at, name)
            if isinstance(value, dict):
                inner = kept(value, path)
                made.update({name: inner} if inner else {})
            elif wanted is None or path in wanted:
                made[name] = Decimal(value) if path in decimals and isinstance(value, str) else value
        return made

    columns = {name: kept(stats[name], ()) for name in ("minValues", "maxValues", "nullCount")}
    return _json({"numRecords": stats["numRecords"], **columns})


def _json(value: Any) -> str:
    """Decimals as numbers with all their digits, and no character escaped that need not be: delta-rs reads those
    behind U+20000 as others then."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(name)}:{_json(v)}" for name, v in value.items()) + "}"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)
