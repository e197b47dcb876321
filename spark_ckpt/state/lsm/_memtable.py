"""What changed in a task's key groups since the last flush: one small sorted table, kept in Spark's state store."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from spark_ckpt.state.ipc import Rows, compress, concat, decompress, empty, from_bytes, int64_view, to_bytes
from spark_ckpt.state.keys.keys import Hashes, Mask
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.types import KEY_HASH

REMOVED = "_removed"


@dataclass(frozen=True)
class Memtable:
    """Distinct keys in hash order, with ``StateLayout.stored_schema``'s columns.

    ``removed`` marks tombstones: keys that ended while a run still holds them.
    """

    rows: pa.RecordBatch
    removed: Mask

    @staticmethod
    def empty(layout: StateLayout) -> Memtable:
        return Memtable(empty(layout.stored_schema), np.empty(0, bool))

    @cached_property
    def hashes(self) -> Hashes:
        return int64_view(self.rows.column(KEY_HASH))

    def __len__(self) -> int:
        return len(self.removed)

    @property
    def size_bytes(self) -> int:
        return int(self.rows.nbytes) + len(self.removed) // 8

    def replaced(self, new: Memtable, at: Rows, dropped: Rows) -> Memtable:
        """With ``new`` rows put over rows ``at`` (-1: inserted), and rows ``dropped`` left out."""
        if np.count_nonzero(at >= 0) + len(dropped) == len(self):
            return new  # nothing of the old is left
        source = self._source_rows(new, at, dropped)
        both = Memtable(concat([self.rows, new.rows]), np.concatenate([self.removed, new.removed]))
        return both._taken(source)

    def _source_rows(self, new: Memtable, at: Rows, dropped: Rows) -> Rows:
        """Positions in (old rows, then new rows) that make up the result, in hash order."""
        source = np.arange(len(self))
        fresh = np.arange(len(self), len(self) + len(new))
        over = at >= 0
        source[at[over]] = fresh[over]
        source[dropped] = -1
        if not over.all():
            places = np.searchsorted(self.hashes, new.hashes[~over], side="right")
            source = np.insert(source, places, fresh[~over])
        return source[source >= 0] if len(dropped) else source

    def _taken(self, rows: Rows) -> Memtable:
        if len(rows) == len(self) and np.array_equal(rows, np.arange(len(rows))):
            return self
        return Memtable(self.rows.take(pa.array(rows)), self.removed[rows])

    def to_bytes(self) -> bytes:
        return compress(to_bytes(self.rows.append_column(REMOVED, pa.array(self.removed))))

    @staticmethod
    def from_bytes(data: bytes, schema: pa.Schema) -> Memtable:
        """``schema``: of the rows, as they were kept."""
        batch = from_bytes(decompress(data), schema.append(pa.field(REMOVED, pa.bool_())))
        removed = batch.column(REMOVED).to_numpy(zero_copy_only=False)
        return Memtable(batch.select(schema.names), removed)
