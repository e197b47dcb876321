"""A bounded local cache of runs: memory-mapped Arrow files, so that state larger than memory can be looked up.

The operator writes new state files through; what is missing (after a restart, on another executor) is decoded from the
Parquet file once, by the row groups a run lies in. Key groups are left out, because they follow from the hashes.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_ckpt.errors import RESTORE_ANOTHER, CorruptStorageError
from spark_ckpt.protocol.events import Run
from spark_ckpt.storage._cache_budget import CacheBudget
from spark_ckpt.storage._cache_folder import CacheFolder
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.retry import Retry
from spark_ckpt.storage.run_files import open_run_file, read_row_group
from spark_ckpt.storage.tally import HIT, MISS, count
from spark_ckpt.types import KEY_GROUP

_logger = logging.getLogger(__name__)

_TIDY_S = 600.0
_MAX_OPEN = 256
_MAX_LAYOUTS = 256


@dataclass(frozen=True)
class _Layout:
    """Where the row groups of a state file start; the last number is the file's rows."""

    starts: tuple[int, ...]

    def span(self, run: Run) -> tuple[int, int]:
        """First row group of ``run`` and the one after its last."""
        first = max(i for i, start in enumerate(self.starts[:-1]) if start <= run.start)
        stop = min(i for i, start in enumerate(self.starts) if start >= run.start + run.count)
        return first, stop


class RunCache:
    """Implements :class:`spark_ckpt.state.lsm._interfaces.RunReader` for one state table. Executor; one thread.

    Any number of processes share ``cache_dir``, also of different jobs: files are told apart by the table's URL,
    appear complete or not at all, and may vanish at any time. All of them together keep to about ``max_bytes``.
    What is damaged or has other rows than it should is dropped and decoded again from the state file.
    """

    def __init__(
        self,
        table_url: str,
        cache_dir: str,
        max_bytes: int,
        storage_options: Mapping[str, Any] | None = None,
        retry: Retry | None = None,
    ) -> None:
        self._folder = Folder(table_url, storage_options, retry)
        self._dir = cache_dir
        self._files = _files_of(self._folder, cache_dir)
        self._budget = CacheBudget(cache_dir, max_bytes)
        self._tidied_s = time.time()
        self._open: OrderedDict[str, pa.RecordBatch] = OrderedDict()
        self._layouts: OrderedDict[str, _Layout] = OrderedDict()
        self._warned = False

    def put(self, name: str, table: pa.Table) -> None:
        """Keep a state file that is being written. Called by the operator, once a file; only saves work later."""
        batch = _one_batch(_needed(table))
        if batch is not None:
            self._store(_whole(name), batch)
        self._tidy(time.time())

    def _tidy(self, now_s: float) -> None:
        """Every ten minutes in which it writes, drop what is cached of state files that are no longer in the table.

        They were collected by the driver, which reaches the cache of its own machine only. One listing of the table.
        What was used in the meantime stays: somebody may be about to write its state file.
        """
        if now_s - self._tidied_s < _TIDY_S:
            return
        self._tidied_s = now_s
        cached = self._files.names()
        try:
            present = set(self._folder.names())
        except OSError as error:  # costs space and nothing else
            _logger.warning("Cached runs of %s cannot be tidied up: %s", self._folder, type(error).__name__)
            return
        for name, used_s in cached:
            if _state_file(name) not in present and used_s < now_s - _TIDY_S:
                self._files.drop(name)
                self._layouts.pop(_state_file(name), None)
                self._open.pop(name, None)

    def read(self, run: Run) -> pa.RecordBatch:
        """The run's rows as a slice of a memory map.

        Raises ``CorruptStorageError`` naming the state file if it is missing or damaged or has too few rows.
        """
        if run.file not in self._layouts:  # else the whole file was looked for in vain before
            whole = self._mapped(_whole(run.file), run.start + run.count)
            if whole is not None:
                count(HIT)
                return whole.slice(run.start, run.count)
        layout = self._layout(run)
        first, stop = layout.span(run)
        everything = (first, stop) == (0, len(layout.starts) - 1)
        name = _whole(run.file) if everything else f"{run.file}.{first}-{stop}.arrow"
        rows = layout.starts[stop] - layout.starts[first]
        batch = self._mapped(name, rows)
        count(MISS if batch is None else HIT)
        batch = batch or self._decode(run, name, first, stop)
        return batch.slice(run.start - layout.starts[first], run.count)

    def _decode(self, run: Run, name: str, first: int, stop: int) -> pa.RecordBatch:
        with open_run_file(self._folder, run.file) as file:
            # All columns are read, so that their checksums are looked at.
            tables = [_needed(read_row_group(self._folder, run.file, file, index)) for index in range(first, stop)]
        batch = _one_batch(pa.concat_tables(tables))
        if batch is None:
            raise CorruptStorageError(
                f"Run {run} of {self._folder.shown(run.file)} holds more than 2 GB in a column:"
                f" expected runs that fit one Arrow batch. Raise spark.ckpt.maxParallelism in a new job."
            )
        self._store(name, batch)
        return self._mapped(name, batch.num_rows) or batch

    def _layout(self, run: Run) -> _Layout:
        layout = self._layouts.get(run.file)
        if layout is None:
            with open_run_file(self._folder, run.file) as file:
                starts = [0]
                for index in range(file.num_row_groups):
                    starts.append(starts[-1] + file.metadata.row_group(index).num_rows)
            layout = _Layout(tuple(starts))
            _remember(self._layouts, run.file, layout, _MAX_LAYOUTS)
        if run.start + run.count > layout.starts[-1]:
            raise CorruptStorageError(
                f"State file {self._folder.shown(run.file)} has {layout.starts[-1]} rows: expected at least"
                f" {run.start + run.count}, which {run} needs; {RESTORE_ANOTHER}."
            )
        return layout

    def _mapped(self, name: str, least_rows: int) -> pa.RecordBatch | None:
        batch = self._open.get(name)
        if batch is not None and batch.num_rows >= least_rows:
            self._open.move_to_end(name)
            return batch
        content = self._files.read(name)
        if content is None:
            return None
        batch = _opened(content)
        if batch is None or batch.num_rows < least_rows:
            self._files.drop(name)
            return None
        _remember(self._open, name, batch, _MAX_OPEN)
        return batch

    def _store(self, name: str, batch: pa.RecordBatch) -> None:
        try:
            self._budget.added(self._write(name, batch))
        except OSError as error:  # a full local disk costs speed and nothing else
            if not self._warned:
                self._warned = True
                _logger.warning("Runs cannot be cached in %s, which makes lookups slow: %s", self._dir, error.strerror)

    def _write(self, name: str, batch: pa.RecordBatch) -> int:
        def write(file: Any) -> None:
            with pa.ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)

        return self._files.write(name, write)


def forget_cached(
    table_url: str, cache_dir: str, files: Iterable[str], storage_options: Mapping[str, Any] | None = None
) -> None:
    """Drop what this machine has cached of state files that were removed for good. Driver, after removing them.

    Processes that have them open keep them until they tidy up; other machines find out by themselves.
    """
    gone = set(files)
    cache = _files_of(Folder(table_url, storage_options), cache_dir)
    for name, _ in cache.names() if gone else ():
        if _state_file(name) in gone:
            cache.drop(name)


def _files_of(table: Folder, cache_dir: str) -> CacheFolder:
    return CacheFolder(cache_dir, hashlib.sha256(table.url.encode()).hexdigest()[:24])


def _state_file(cached: str) -> str:
    """The state file that a cached file was made of."""
    return f"{cached.partition('.parquet')[0]}.parquet"


def _needed(table: pa.Table) -> pa.Table:
    return table.select([column for column in table.column_names if column != KEY_GROUP])


def _whole(file: str) -> str:
    return f"{file}.all.arrow"


def _opened(content: pa.Buffer) -> pa.RecordBatch | None:
    try:
        batch = pa.ipc.open_file(pa.BufferReader(content)).get_batch(0)
        batch.validate()
    except (OSError, pa.ArrowException, IndexError):
        return None
    return batch


def _one_batch(table: pa.Table) -> pa.RecordBatch | None:
    """``table`` as one batch, or None if a column is too large for that."""
    batches = table.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    return batches[0] if len(batches) == 1 else None


def _remember(known: OrderedDict[str, Any], name: str, value: Any, most: int) -> None:
    known[name] = value
    while len(known) > most:
        known.popitem(last=False)
