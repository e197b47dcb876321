"""One flush: the memtable becomes a layer of runs, and a bounded number of older rows is merged.

A merge that fits the budget is done at once, for all key groups, the memtable with it. A larger one only begins: its
layers become one level, and this and the following flushes merge some of its key groups each, from the first on. So
the largest runs end up in pieces, each a few key groups wide and merged at its own time, and no batch pays for all of
them. Lookups search the same layers meanwhile. What such a merge writes must not hold versions that newer layers
override: they are dead in the old file and would come alive in the new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from spark_ckpt.state.ipc import Rows, conform, int64_view, one_batch
from spark_ckpt.state.keys.keys import match
from spark_ckpt.state.lsm._dead_rows import DeadRows
from spark_ckpt.state.lsm._interfaces import RunAppender
from spark_ckpt.state.lsm._levels import Layer, Level, Levels
from spark_ckpt.state.lsm._memtable import Memtable
from spark_ckpt.state.lsm._timers import earliest
from spark_ckpt.state.lsm.compaction import CompactionPolicy, Sorted, merge
from spark_ckpt.state.lsm.ranges import RangeRun, blocks, offsets
from spark_ckpt.types import KEY_HASH, TIMEOUT_MS


@dataclass(frozen=True)
class Unflushed:
    """State as it was right before a flush."""

    levels: Sequence[Level]
    memtable: Memtable
    dead: DeadRows


@dataclass(frozen=True)
class FlushResult:
    """``dead`` names, by file, the absolute row positions that died since the last flush, new tombstones included."""

    dead: Mapping[str, BitMap] = field(default_factory=dict)
    rows_written: int = 0
    rows_merged: int = 0
    """Rows of older runs that were read and written anew, or left out."""
    runs_merged: int = 0


class Flush:
    """Used once. ``rows_written`` and ``runs_merged`` tell what it did; what it kills goes to ``dead``."""

    def __init__(
        self, levels: Levels, dead: DeadRows, policy: CompactionPolicy, appender: RunAppender, epoch: int
    ) -> None:
        self.rows_written = 0
        self.rows_merged = 0
        self.runs_merged = 0
        self._levels, self._dead, self._policy, self._appender, self._epoch = levels, dead, policy, appender, epoch
        self._groups = levels.groups
        self._memtable = levels.memtable
        self._cuts = self._groups.cuts(self._memtable.hashes)
        self._row_bytes = max(1, self._memtable.size_bytes // max(1, len(self._memtable)))

    def run(self, live_keys: int) -> None:
        """Flush the memtable, which is not empty."""
        levels, fresh = self._levels.levels, len(self._memtable)
        budget = self._policy.budget(fresh, self._row_bytes)
        if np.count_nonzero(~self._memtable.removed) == live_keys:
            self._replace_everything()
        else:
            count = self._to_merge(len(levels), fresh, live_keys)
            chosen = levels[len(levels) - count :]
            if sum(level.rows for level in chosen) <= budget:
                self._merge_with_memtable(chosen)
            else:
                layer = self._rewrite([], *self._all_groups, keep_tombstones=True)
                levels.append(Level([layer]))
                self._begin_merge(len(levels) - 1 - count, len(levels))
        self._levels.memtable = Memtable.empty(self._levels.layout)
        self._levels.changed()
        self._begin_older_merges(live_keys)
        self._go_on_merging(min(self._policy.ration(fresh), budget - self.rows_merged))
        self._levels.changed()

    @property
    def _all_groups(self) -> tuple[int, int]:
        return self._groups.first, self._groups.end

    # -- what to merge -----------------------------------------------------------------------------------------

    def _to_merge(self, stop: int, new_rows: int, live_keys: int) -> int:
        """How many levels before ``stop`` join ``new_rows``; those being merged already and older ones cannot."""
        levels = self._levels.levels
        start = next((i for i in reversed(range(stop)) if levels[i].merging), -1) + 1
        sizes = [level.rows for level in levels[start:stop]]
        return self._policy.levels_to_merge(sizes, new_rows, live_keys, start)

    def _begin_merge(self, start: int, stop: int) -> None:
        """Levels ``start`` to ``stop - 1`` will be merged into one."""
        levels = self._levels.levels
        levels[start:stop] = [Level([layer for level in levels[start:stop] for layer in level.layers])]

    def _begin_older_merges(self, live_keys: int) -> None:
        """Levels that became similar when a merge ended."""
        levels, i = self._levels.levels, len(self._levels.levels) - 1
        while i > 0:
            count = 0 if levels[i].merging else self._to_merge(i, levels[i].rows, live_keys)
            if count:
                self._begin_merge(i - count, i + 1)
            i -= count + 1

    def _replace_everything(self) -> None:
        """The memtable holds every live key: all older rows are dead, and nobody needs to look at them."""
        for run in self._levels.runs:
            self._dead.bury_run(run)
        layer = self._rewrite([], *self._all_groups, keep_tombstones=False)
        self._levels.levels[:] = [Level([layer])]

    def _merge_with_memtable(self, chosen: Sequence[Level]) -> None:
        levels = self._levels.levels
        rest = len(levels) - len(chosen)
        layers = [layer for level in chosen for layer in level.layers]
        layer = self._rewrite(layers, *self._all_groups, keep_tombstones=rest > 0)
        for run in (run for old in layers for run in old):
            self._bury(run)
        levels[rest:] = [Level([layer])]

    def _go_on_merging(self, rows: int) -> None:
        """Merge up to ``rows`` rows of levels that are being merged, small ones first; at least one key group."""
        for index in reversed(range(len(self._levels.levels))):
            while self._levels.levels[index].merging:
                first, end, taken = self._next_block(index, rows)
                if taken > rows and self.rows_merged:
                    return
                self._merge_groups(index, first, end)
                rows -= taken

    def _next_block(self, index: int, limit: int) -> tuple[int, int, int]:
        """The next contiguous key groups to merge, of at most ``limit`` rows together if one is not larger.

        Rows of newer levels count too, because they are looked at.
        """
        level = self._levels.levels[index]
        todo = self._row_counts(level.layers[1:]) > 0
        rows = self._row_counts([*level.layers, *self._newer(index)])
        start = int(np.argmax(todo))
        stop = start + int(np.argmin(np.append(todo[start:], False)))
        first, end = next(blocks(rows[start:stop], self._groups.first + start, max(0, limit)))
        return first, end, int(rows[first - self._groups.first : end - self._groups.first].sum())

    # -- merge -------------------------------------------------------------------------------------------------

    def _newer(self, index: int) -> list[Layer]:
        return [layer for level in self._levels.levels[index + 1 :] for layer in level.layers]

    def _merge_groups(self, index: int, first: int, end: int) -> None:
        level, newer = self._levels.levels[index], self._newer(index)
        layer = self._rewrite(level.layers, first, end, newer=newer, keep_tombstones=index > 0)
        for i, old in enumerate(level.layers):
            level.layers[i] = [part for run in old for part in self._carved(run, first, end)]
        level.layers[0] += layer
        level.layers = [level.layers[0], *(old for old in level.layers[1:] if old)]

    def _carved(self, run: RangeRun, first: int, end: int) -> list[RangeRun]:
        """What is left of ``run`` without these key groups."""
        merged = run.part(first, end)
        if merged is None:
            return [run]
        self._bury(merged)
        return [part for part in (run.part(run.first, first), run.part(end, run.end)) if part is not None]

    def _rewrite(
        self,
        layers: Sequence[Layer],
        first: int,
        end: int,
        *,
        keep_tombstones: bool,
        newer: Sequence[Layer] | None = None,
    ) -> Layer:
        """The newest versions of these key groups' keys as a new layer, without those that ``newer`` ones override.

        ``newer`` is None if there is nothing but the memtable, which is merged too. Tombstones come last, so that
        neighbours' rows lie side by side in the file.
        """
        layer: Layer = []
        tombstones = []
        counts = self._row_counts([*layers, *(newer or ())])
        if newer is None:
            counts += np.diff(self._cuts)
        counts = counts[first - self._groups.first : end - self._groups.first]
        for a, b in blocks(counts, first, self._policy.piece(self._row_bytes)):
            parts = [self._sorted(run) for run in _parts(layers, a, b)]
            if newer is None:
                parts.insert(0, self._memtable_part(a, b))
            if parts:
                result = merge(self._levels.layout, parts, keep_tombstones=keep_tombstones)
                result = self._without_overridden(result, _parts(newer or (), a, b))
                self._append(layer, result.of_kind(False), a, b, tombstones=False)
                tombstones.append((result.of_kind(True), a, b))
        for rows, a, b in tombstones:
            self._append(layer, rows, a, b, tombstones=True)
        return layer

    def _memtable_part(self, first: int, end: int) -> Sorted:
        low, high = self._cuts[[first - self._groups.first, end - self._groups.first]].tolist()
        return Sorted(self._memtable.rows.slice(low, high - low), self._memtable.removed[low:high])

    def _without_overridden(self, rows: Sorted, newer: Sequence[RangeRun]) -> Sorted:
        kept, layout = np.ones(len(rows.removed), bool), self._levels.layout
        hashes, keys = layout.identity(rows.rows)
        for run in newer:
            found = match(*layout.identity(self._levels.rows_of(run)), hashes, keys, injective=layout.injective)
            kept[found[found >= 0]] = False
        return rows if kept.all() else Sorted(rows.rows.filter(pa.array(kept)), rows.removed[kept])

    def _row_counts(self, layers: Sequence[Layer]) -> Rows:
        """Rows of each key group."""
        rows = np.zeros(len(self._groups), np.int64)
        for layer in layers:
            for run in layer:
                run.add_counts(rows, self._groups)
        return rows

    def _sorted(self, run: RangeRun) -> Sorted:
        rows = one_batch(conform(self._levels.rows_of(run), self._levels.layout.stored_schema))
        return Sorted(rows, np.full(len(rows), run.tombstones))

    def _bury(self, run: RangeRun) -> None:
        self._dead.bury_run(run)
        self.rows_merged += run.count
        self.runs_merged += 1

    # -- write -------------------------------------------------------------------------------------------------

    def _append(self, layer: Layer, rows: pa.RecordBatch, first: int, end: int, *, tombstones: bool) -> None:
        if not len(rows):
            return
        layout = self._levels.layout
        counts = self._groups.count(int64_view(rows.column(KEY_HASH)))
        counts = counts[first - self._groups.first : end - self._groups.first]
        groups = pa.array(np.repeat(np.arange(first, end, dtype=np.int32), counts))
        batch = pa.RecordBatch.from_arrays([*rows.columns[:-1], groups, rows.columns[-1]], schema=layout.table_schema)
        file, start = self._appender.append(pa.Table.from_batches([batch]))
        timed = layout.with_timeout and not tombstones
        due_ms = earliest(int64_view(batch.column(TIMEOUT_MS))) if timed else None
        run = RangeRun(file, start, first, offsets(counts), self._epoch, tombstones, due_ms)
        self._levels.keep(run, batch)
        layer.append(run)
        self.rows_written += run.count
        if tombstones:
            self._dead.bury_run(run)


def _parts(layers: Sequence[Layer], first: int, end: int) -> list[RangeRun]:
    """What lies in these key groups, newest first."""
    parts = [run.part(first, end) for layer in layers for run in layer]
    return [part for part in reversed(parts) if part is not None]
