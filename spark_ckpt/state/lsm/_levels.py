"""Where the versions of a subtask's keys are: a memtable over immutable sorted runs, searched newest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark_ckpt.state.ipc import Rows, concat, conform, nulls, one_batch, picked
from spark_ckpt.state.keys.keys import Hashes, Mask, match
from spark_ckpt.state.lsm._interfaces import RunReader
from spark_ckpt.state.lsm._memtable import Memtable
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.state.lsm.ranges import KeyRange, RangeRun

MEMTABLE = -1
"""A source; runs count from 0, oldest first."""

Layer = list[RangeRun]
"""Runs of one age, oldest first. Two overlap only if the younger holds tombstones."""


class Hit(NamedTuple):
    """The keys at positions ``at`` (ascending) of what was looked up were found in ``rows`` of ``source``."""

    source: int
    at: Rows
    rows: Rows


@dataclass
class Level:
    """Layers, oldest first. More than one are being merged, some key groups at a time, into the oldest."""

    layers: list[Layer]

    @property
    def merging(self) -> bool:
        return len(self.layers) > 1

    @property
    def runs(self) -> Iterator[RangeRun]:
        return (run for layer in self.layers for run in layer)

    @property
    def rows(self) -> int:
        return sum(run.count for run in self.runs)


class Levels:
    """``levels`` oldest first, and all their runs in ``runs``, which follows by :meth:`changed`.

    Runs are read when they are first needed. Those flushed since the state was opened are in no readable file yet
    and stay in memory.
    """

    def __init__(self, layout: StateLayout, groups: KeyRange, reader: RunReader) -> None:
        self.layout = layout
        self.groups = groups
        self.memtable = Memtable.empty(layout)
        self.levels: list[Level] = []
        self.runs: list[RangeRun] = []
        self._reader = reader
        self._opened: dict[RangeRun, pa.RecordBatch] = {}
        self._flushed: dict[str, list[tuple[int, pa.RecordBatch]]] = {}

    def changed(self) -> None:
        """Layers or runs were exchanged: drop what became empty and number the runs anew."""
        for level in self.levels:
            level.layers = [layer for layer in level.layers if layer]
        self.levels = [level for level in self.levels if level.layers]
        self.runs = [run for level in self.levels for run in level.runs]

    def copy_levels(self) -> list[Level]:
        """The levels as they are; runs themselves never change."""
        return [Level([list(layer) for layer in level.layers]) for level in self.levels]

    def forget(self, file: str) -> None:
        """What was flushed into ``file`` never came to be."""
        self._flushed.pop(file, None)

    def rows_of(self, run: RangeRun) -> pa.RecordBatch:
        """The run's rows, with all stored columns; read when first needed."""
        rows = self._opened.get(run)
        if rows is None:
            rows = self._in_memory(run)
            rows = self._opened[run] = self._reader.read(run.run) if rows is None else rows
        return rows

    def keep(self, run: RangeRun, rows: pa.RecordBatch) -> None:
        """``run`` was flushed in this call: no file has it yet."""
        self._flushed.setdefault(run.file, []).append((run.start, rows))

    def _in_memory(self, run: RangeRun) -> pa.RecordBatch | None:
        for start, rows in self._flushed.get(run.file, ()):
            if start <= run.start and run.start + run.count <= start + len(rows):
                return rows.slice(run.start - start, run.count)
        return None

    def locate(self, hashes: Hashes, keys: pa.RecordBatch, *, newer_than: int = MEMTABLE) -> list[Hit]:
        """The newest version of each key, tombstones included. ``hashes`` ascending.

        With ``newer_than`` only what is newer than the run of that number, the memtable too.
        """
        hits, missing = [], np.ones(len(hashes), bool)
        if len(self.memtable):
            found = self._match(hashes, keys, None, self.memtable.rows)
            at = np.flatnonzero(found >= 0)
            if len(at):
                hits.append(Hit(MEMTABLE, at, found[at]))
                missing[at] = False
        return hits + self.locate_in_runs(hashes, keys, missing, oldest=newer_than + 1)

    def locate_in_runs(
        self, hashes: Hashes, keys: pa.RecordBatch, missing: Mask | None = None, *, oldest: int = 0
    ) -> list[Hit]:
        """As :meth:`locate`, in runs from number ``oldest`` on, for keys that are still ``missing``; clears those
        it finds there."""
        missing = np.ones(len(hashes), bool) if missing is None else missing
        hits, cuts, left = [], self.groups.cuts(hashes), int(np.count_nonzero(missing))
        for i in reversed(range(oldest, len(self.runs))):
            if not left:
                break
            run = self.runs[i]
            low, high = cuts[run.first - self.groups.first], cuts[run.end - self.groups.first]
            at = np.flatnonzero(missing[low:high]) + low
            if not len(at):
                continue
            if len(at) == high - low:
                found = self._match(hashes[low:high], keys.slice(low, high - low), None, self.rows_of(run))
            else:
                found = self._match(hashes[at], keys, at, self.rows_of(run))
            hit = found >= 0
            if hit.any():
                at = at[hit]
                hits.append(Hit(i, at, found[hit]))
                missing[at] = False
                left -= len(at)
        return hits

    def _match(self, hashes: Hashes, keys: pa.RecordBatch, rows: Rows | None, table: pa.RecordBatch) -> Rows:
        return match(hashes, keys, *self.layout.identity(table), rows=rows, injective=self.layout.injective)

    def live(self, hits: Iterable[Hit], keys: int) -> Mask:
        """Which of the ``keys`` that were looked up have a version that is no tombstone."""
        live = np.zeros(keys, bool)
        for hit in hits:
            if hit.source == MEMTABLE:
                live[hit.at] = ~self.memtable.removed[hit.rows]
            elif not self.runs[hit.source].tombstones:
                live[hit.at] = True
        return live

    def gather(self, columns: list[str], hits: Iterable[Hit], keys: int) -> pa.RecordBatch:
        """Columns of the versions found, null where there is none. Tombstones count as none."""
        schema = pa.schema([self.layout.table_schema.field(c) for c in columns])
        hits = [hit for hit in hits if hit.source == MEMTABLE or not self.runs[hit.source].tombstones]
        if not hits:
            return nulls(schema, keys)
        if len(hits) == 1 and len(hits[0].at) == keys:
            return self._versions(schema, hits[0])
        parts, index, offset = [], np.full(keys, -1, np.int64), 0
        for hit in hits:
            parts.append(self._versions(schema, hit))
            index[hit.at] = np.arange(offset, offset + len(hit.at))
            offset += len(hit.at)
        return concat(parts).take(pa.array(index, mask=index < 0))

    def _versions(self, schema: pa.Schema, hit: Hit) -> pa.RecordBatch:
        table = self.memtable.rows if hit.source == MEMTABLE else self.rows_of(self.runs[hit.source])
        return one_batch(conform(picked(table.select(schema.names), hit.rows), schema))
