"""What a join of two streams knows of each side, and the rows of a side in one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.ipc import Rows, concat, one_batch
from spark_ckpt.state.keys.keys import Mask

ROW, MATCHED = "_row", "_matched"
"""Columns of a side's state table: what tells the rows of a key apart, and whether a row has found another."""

_LONG_AGO = NO_TIMEOUT - 1
"""A time-out of the event times before 1970: the watermark is never before them."""


@dataclass(frozen=True)
class Expiry:
    """Rows can match no more when the watermark, plus ``shift_ms``, has reached the event time in ``column``.

    A row without event time stays for ever, as in Spark.
    """

    column: str
    shift_ms: int = 0

    def timeouts_ms(self, times: pa.Array) -> np.ndarray:
        """Time-outs fire strictly behind their millisecond, a row ends with it."""
        micros = times.cast(pa.timestamp("us", "UTC")).view(pa.int64())
        timeouts = -(-micros.fill_null(0).to_numpy() // 1000) - self.shift_ms - 1
        timeouts[timeouts < 0] = _LONG_AGO
        if micros.null_count:
            timeouts[pc.is_null(micros).to_numpy(zero_copy_only=False)] = NO_TIMEOUT
        return np.asarray(timeouts)


@dataclass(frozen=True)
class Side:
    """``columns`` are those kept of a row, at least one; ``slots`` where each is in the rows that arrive.

    ``outer``: a row that finds no other comes out nevertheless, when it can find none any more. ``made_of``: of keys
    and ``columns``, what the side itself calls them.
    """

    columns: pa.Schema
    slots: tuple[str, ...]
    outer: bool
    expiry: Expiry | None = None
    made_of: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def stored(self) -> pa.Schema:
        """Day-time intervals are stored as microseconds: Delta tables have no such type."""
        fields = [pa.field(f.name, pa.int64()) if pa.types.is_duration(f.type) else f for f in self.columns]
        return pa.schema([*fields, pa.field(MATCHED, pa.bool_())] if self.outer else fields)

    def to_stored(self, rows: SideRows, matched: Mask) -> pa.Table:
        columns = [c.view(pa.int64()) if pa.types.is_duration(c.type) else c for c in rows.table.columns]
        return pa.Table.from_arrays([*columns, pa.array(matched)] if self.outer else columns, schema=self.stored)

    def from_stored(self, state: pa.Table) -> pa.RecordBatch:
        found = one_batch(state)
        columns = [
            found.column(f.name).view(f.type) if pa.types.is_duration(f.type) else found.column(f.name)
            for f in self.columns
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.columns)


@dataclass(frozen=True)
class SideRows:
    """``key`` is each row's, by its number among ``keys``; ``known``: so many rows, in front, were there before."""

    table: pa.RecordBatch
    key: Rows
    keys: pa.Table
    known: int = 0

    def __len__(self) -> int:
        return len(self.key)

    def behind(self, known: SideRows | None) -> SideRows:
        """``known`` rows, and then these."""
        if known is None:
            return self
        return SideRows(concat([known.table, self.table]), np.concatenate([known.key, self.key]), self.keys, len(known))

    def only(self, rows: Mask | Rows) -> SideRows:
        """Some of them; what was there before is not told any more."""
        at = np.flatnonzero(rows) if rows.dtype == bool else rows
        return SideRows(self.table.take(pa.array(at)), self.key[at], self.keys)

    def column(self, name: str, at: Rows | None = None) -> pa.Array:
        """Of the rows ``at``; of all if None."""
        if name in self.table.schema.names:
            found = self.table.column(name)
            return found if at is None else found.take(pa.array(at))
        key = self.keys.column(name).combine_chunks()
        return key.take(pa.array(self.key if at is None else self.key[at]))
