"""State files in memory: a run reader and appender that behave like those of the storage room."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.protocol.events import Run


class MemoryRuns:
    """Files by name and their dead rows. Implements :class:`spark_ckpt.state.lsm._interfaces.RunReader`."""

    def __init__(self) -> None:
        self.files: dict[str, pa.Table] = {}
        """What tasks that ended wrote."""
        self.dead: dict[str, BitMap] = {}
        self.reads: list[Run] = []
        """Every run that was read, in order."""

    def appender(self, file: str) -> MemoryAppender:
        """One task's appender; its file appears when the appender is closed."""
        return MemoryAppender(self, file)

    def read(self, run: Run) -> pa.RecordBatch:
        self.reads.append(run)
        if run.file not in self.files:
            raise CorruptStorageError(f"expected state file {run.file}, found {sorted(self.files)}")
        batches = self.files[run.file].slice(run.start, run.count).combine_chunks().to_batches()
        if not batches or len(batches[0]) != run.count:
            raise CorruptStorageError(f"state file {run.file} has no rows {run.start} to {run.start + run.count}")
        return batches[0]

    def bury(self, dead: Mapping[str, BitMap]) -> None:
        """Take note of what a flush reported as dead, in files that may yet appear."""
        for file, positions in dead.items():
            self.dead[file] = self.dead.get(file, BitMap()) | positions

    def live_rows(self) -> pa.Table | None:
        """What a reader of the state table sees: the rows of all files but the dead ones. None without files."""
        parts = []
        for file, table in self.files.items():
            alive = np.ones(len(table), bool)
            alive[np.array(self.dead.get(file, BitMap()), dtype=np.int64)] = False
            parts.append(table.filter(pa.array(alive)))
        return pa.concat_tables(parts) if parts else None


class MemoryAppender:
    """Collects one file. Implements :class:`spark_ckpt.state.lsm._interfaces.RunAppender`."""

    def __init__(self, runs: MemoryRuns, file: str) -> None:
        self._runs = runs
        self._file = file
        self._tables: list[pa.Table] = []

    def append(self, rows: pa.Table) -> tuple[str, int]:
        start = sum(len(t) for t in self._tables)
        self._tables.append(rows)
        return self._file, start

    def close(self) -> None:
        """The task ends: the file, if it has rows, can be read from now on."""
        if self._tables:
            self._runs.files[self._file] = pa.concat_tables(self._tables).combine_chunks()
