"""Rows by key: which of an Iceberg table's go, and where to look for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyiceberg import expressions
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from spark_ckpt.change_rows import REMOVALS
from spark_ckpt.sinks import staging

_EX: Any = expressions  # their types hold for what they make of names and values, not for these
_MOST_IN = 200
"""More values of a key are looked for by their range; Iceberg does not look at longer lists either."""


@dataclass(frozen=True)
class Merge:
    """The last row of each of ``keys`` replaces the table's, or removes it if its column ``change`` says so."""

    keys: tuple[str, ...]
    change: str | None

    def last(self, rows: pa.Table, schema: Schema) -> tuple[pa.Table, pa.Table]:
        """(rows that are there now, as the table has its columns; keys of all rows that were there or are)."""
        last = staging.last_by_key(rows, self.keys)
        stored = schema_to_pyarrow(schema, include_field_ids=False)
        stored = pa.schema([pa.field(f.name, f.type) for f in stored])
        touched = last.select(list(self.keys)).cast(pa.schema([stored.field(k) for k in self.keys]))
        if self.change is not None and self.change in last.column_names:
            # Null where rows were staged by a query that had no such column: they are there.
            kinds = pc.fill_null(last.column(self.change), "")
            last = last.filter(pc.invert(pc.is_in(kinds, pa.array(REMOVALS))))
        return _as(last, stored), touched

    def filter(self, touched: pa.Table) -> BooleanExpression:
        """What a file must be able to have for one of the keys to be in it."""
        each = [_bounds(k, touched.column(k)) for k in self.keys]
        return reduce(lambda a, b: And(a, b), each)

    def without(self, there: pa.Table, touched: pa.Table) -> pa.Table:
        """``there`` without the rows of ``touched`` keys, equal as :func:`staging.key_columns` has it."""
        both = staging.key_columns(pa.concat_tables([there.select(list(self.keys)), touched]), self.keys)
        rows = pa.array(range(len(there)), pa.int64())
        numbers = pa.chunked_array([rows, pa.repeat(pa.scalar(-1, pa.int64()), len(touched))])
        names = [f"k{i}" for i in range(len(both))]
        numbered = pa.table([*both, numbers], [*names, "row"])
        groups = numbered.group_by(names).aggregate([("row", "min"), ("row", "list")])
        gone = pc.list_flatten(groups.filter(pc.equal(groups["row_min"], -1))["row_list"])
        return there.filter(pc.invert(pc.is_in(rows, gone.combine_chunks())))


def _as(rows: pa.Table, stored: pa.Schema) -> pa.Table:
    """``rows`` with all columns of ``stored``; one that was added to the table after they were staged is null."""
    columns = [
        rows.column(f.name).cast(f.type) if f.name in rows.column_names else pa.nulls(len(rows), f.type) for f in stored
    ]
    return pa.table(columns, schema=stored)


def _bounds(name: str, column: pa.ChunkedArray) -> BooleanExpression:
    if column.null_count or not len(column) or not _is_ordered(column.type):
        return AlwaysTrue()
    column = _plain(column)
    distinct = pc.unique(column)
    if len(distinct) <= _MOST_IN:
        return _EX.In(name, set(distinct.to_pylist()))
    bounds = pc.min_max(column).as_py()
    return And(_EX.GreaterThanOrEqual(name, bounds["min"]), _EX.LessThanOrEqual(name, bounds["max"]))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Days and microseconds as numbers, as Iceberg takes them, too: Python has no objects for the far ones."""
    if pt.is_date(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pt.is_timestamp(column.type) else column


def _is_ordered(kind: pa.DataType) -> bool:
    """Types that Arrow and Iceberg order the same way; in floats, NaN and the two zeros are not."""
    whole = pt.is_integer(kind) or pt.is_date(kind) or pt.is_timestamp(kind) or pt.is_decimal(kind)
    return whole or pt.is_string(kind) or pt.is_large_string(kind)
