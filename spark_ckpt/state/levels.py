"""Where the versions of a key group's keys are: a memtable over immutable sorted runs, searched newest first."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_ckpt.protocol.events import Run
from spark_ckpt.state.ipc import Rows, concat, conform, int64_view, nulls, one_batch
from spark_ckpt.state.keys import Hashes, Mask, match
from spark_ckpt.state.layout import StateLayout
from spark_ckpt.state.memtable import Memtable
from spark_ckpt.state.ports import RunReader
from spark_ckpt.types import KEY_HASH

NOWHERE = -2
MEMTABLE = -1
"""Sources; runs count from 0, oldest first."""

Sources = npt.NDArray[np.int32]


@dataclass
class Levels:
    """``runs`` oldest first. Runs flushed since the state was opened are in no readable file yet and stay in memory."""

    layout: StateLayout
    reader: RunReader
    memtable: Memtable
    runs: list[Run] = field(default_factory=list)
    _opened: dict[tuple[str, int], pa.RecordBatch] = field(default_factory=dict)

    def run_rows(self, index: int) -> pa.RecordBatch:
        """The run's rows, with the state table's columns; read when first needed."""
        run = self.runs[index]
        if (run.file, run.start) not in self._opened:
            self._opened[(run.file, run.start)] = self.reader.read(run)
        return self._opened[(run.file, run.start)]

    def add_run(self, run: Run, rows: pa.RecordBatch) -> None:
        self.runs.append(run)
        self._opened[(run.file, run.start)] = rows

    def locate(self, hashes: Hashes, keys: pa.RecordBatch, *, newer_than: int = -1) -> tuple[Sources, Rows]:
        """Source and row of the newest version of each key, tombstones included.

        With ``newer_than`` only what is newer than the run of that index.
        """
        source, row = np.full(len(hashes), NOWHERE, np.int32), np.full(len(hashes), -1, np.int64)
        if len(self.memtable):
            row = self._match(hashes, keys, self.memtable.rows, None)
            source[row >= 0] = MEMTABLE
        self.locate_in_runs(hashes, keys, source, row, oldest=newer_than + 1)
        return source, row

    def locate_in_runs(
        self, hashes: Hashes, keys: pa.RecordBatch, source: Sources, row: Rows, *, oldest: int = 0
    ) -> None:
        """Look keys that are ``NOWHERE`` yet up in runs ``oldest`` and younger; fills ``source`` and ``row`` in."""
        todo = np.flatnonzero(source == NOWHERE)
        for i in reversed(range(oldest, len(self.runs))):
            if not len(todo):
                return
            found = self._match(hashes[todo], keys, self.run_rows(i), todo)
            hit = found >= 0
            source[todo[hit]], row[todo[hit]] = i, found[hit]
            todo = todo[~hit]

    def _match(self, hashes: Hashes, keys: pa.RecordBatch, table: pa.RecordBatch, rows: Rows | None) -> Rows:
        own_hashes, own_keys = int64_view(table.column(KEY_HASH)), table.select(self.layout.key_schema.names)
        return match(hashes, keys, own_hashes, own_keys, rows=rows, injective=self.layout.injective)

    def live(self, source: Sources, row: Rows) -> Mask:
        """Which of these located versions are no tombstones."""
        live = source != NOWHERE
        for i, run in enumerate(self.runs):
            if run.tombstones:
                live &= source != i
        memory = source == MEMTABLE
        live[memory] = ~self.memtable.removed[row[memory]]
        return np.asarray(live)

    def gather(self, columns: list[str], source: Sources, row: Rows) -> pa.RecordBatch:
        """Columns of the versions at ``source`` and ``row``, null where ``NOWHERE``."""
        schema = pa.schema([self.layout.table_schema.field(c) for c in columns])
        parts, index, offset = [], np.full(len(source), -1, np.int64), 0
        for i in range(MEMTABLE, len(self.runs)):
            wanted = np.flatnonzero(source == i)
            if not len(wanted):
                continue
            table = self.memtable.rows if i == MEMTABLE else self.run_rows(i)
            part = table.select(columns).take(pa.array(row[wanted]))
            parts.append(one_batch(conform(part, schema)))
            index[wanted] = np.arange(offset, offset + len(wanted))
            offset += len(wanted)
        if not parts:
            return nulls(schema, len(source))
        if len(parts) == 1 and offset == len(source):
            return parts[0]
        return concat(parts).take(pa.array(index, mask=index < 0))
