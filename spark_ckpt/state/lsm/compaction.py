"""When and how a flush merges older runs into the new one (size-tiered, as in Cassandra and RocksDB's universal)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_ckpt.state.ipc import concat, int64_view
from spark_ckpt.state.keys.grouping import group_rows
from spark_ckpt.state.keys.keys import Mask
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.types import KEY_HASH


@dataclass(frozen=True)
class CompactionPolicy:
    """``fan_out``: so many levels of similar size are merged into one; two are similar when the older one is at
    most ``factor`` times all younger ones together (a little more than 1, because a task's shares of equal batches
    are not quite equal). ``max_runs`` bounds the levels, for the sake of lookups; what a merge under way still
    consists of is searched besides, but to merge other levels because of that would only make it wait.
    ``max_garbage`` bounds stored rows to so many times the live keys.

    No flush merges more than ``budget_rows``, or ``pace`` times the rows it flushes if that is more: what is larger
    is merged some key groups at a time, over the next flushes. Those take no more than ``pace_rows``, or ``pace``
    times their own rows, for it, but at least one key group. ``piece_rows`` and ``piece_bytes`` bound what is merged
    at once in memory.
    """

    fan_out: int = 6
    max_runs: int = 12
    factor: float = 1.1
    max_garbage: float = 3.0
    budget_rows: int = 1 << 20
    pace_rows: int = 1 << 17
    pace: int = 8
    piece_rows: int = 1 << 20
    piece_bytes: int = 1 << 28

    def levels_to_merge(self, sizes: Sequence[int], new_rows: int, live_keys: int, others: int = 0) -> int:
        """How many of the youngest levels join a flush of ``new_rows`` rows. ``sizes`` in rows, oldest first.

        ``others`` older levels cannot join now.
        """
        if sum(sizes) + new_rows > self.max_garbage * max(live_keys, 1) and len(sizes):
            return len(sizes)
        merged, count = new_rows, 0
        for size in reversed(sizes):
            if size > self.factor * merged and len(sizes) + others - count + 1 <= self.max_runs:
                break
            merged, count = merged + size, count + 1
        crowded = len(sizes) + others + 1 > self.max_runs
        return count if crowded or count + 1 >= self.fan_out else 0

    def budget(self, new_rows: int, row_bytes: int) -> int:
        """Rows of older runs that a flush of ``new_rows`` may merge at once."""
        return max(min(self.budget_rows, self.piece_bytes // row_bytes), self.pace * new_rows)

    def ration(self, new_rows: int) -> int:
        """Rows of older runs that a flush of ``new_rows`` may merge where a larger merge is under way."""
        return max(min(self.budget_rows, self.pace_rows), self.pace * new_rows)

    def piece(self, row_bytes: int) -> int:
        """Rows to merge at once."""
        return max(1, min(self.piece_rows, self.piece_bytes // row_bytes))


@dataclass(frozen=True)
class Sorted:
    """Rows (``StateLayout.stored_schema``, distinct keys, hash order) and which of them are tombstones."""

    rows: pa.RecordBatch
    removed: Mask

    def of_kind(self, tombstones: bool) -> pa.RecordBatch:
        wanted = self.removed if tombstones else ~self.removed
        return self.rows if wanted.all() else self.rows.filter(pa.array(wanted))


def merge(layout: StateLayout, newest_first: Sequence[Sorted], *, keep_tombstones: bool) -> Sorted:
    """The newest version of every key."""
    if len(newest_first) == 1:
        rows, removed = newest_first[0].rows, newest_first[0].removed
        first = np.arange(len(removed))
    else:
        rows = concat([part.rows for part in newest_first])
        removed = np.concatenate([part.removed for part in newest_first])
        hashes, keys = int64_view(rows.column(KEY_HASH)), rows.select(layout.key_schema.names)
        first = group_rows(hashes, keys).firsts()
    if not keep_tombstones:
        first = first[~removed[first]]
    if np.array_equal(first, np.arange(len(removed))):
        return Sorted(rows, removed)
    return Sorted(rows.take(pa.array(first)), removed[first])
