"""A state table that is written from rows of a DataFrame: rows are hashed, sorted by Spark, and cut into state files.

Executor. Each task has the key groups of one subtask and keeps one file's rows in memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_ckpt.protocol.events import GroupManifest, groups_to_json
from spark_ckpt.state.ipc import one_batch
from spark_ckpt.state.lsm.written_rows import WrittenRows
from spark_ckpt.state.subtasks import Subtasks
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.retry import Retry
from spark_ckpt.storage.run_files import encode_run_file, run_file_name, write_run_file
from spark_ckpt.types import KEY_HASH

ROUTE = "_route"
REPORT = "state string, file string, rows bigint, size_bytes bigint, groups string, repeated bigint"
"""A row for each file that a task wrote for a state table; one without a file tells how many rows repeat a key."""
_REPORT = pa.schema(
    [
        ("state", pa.string()),
        ("file", pa.string()),
        ("rows", pa.int64()),
        ("size_bytes", pa.int64()),
        ("groups", pa.string()),
        ("repeated", pa.int64()),
    ]
)
_FILE_ROWS, _FILE_BYTES = 1 << 19, 1 << 27


@dataclass(frozen=True)
class WrittenTable:
    """The state table ``uid`` in the folder ``url``, which is to be written whole. ``epoch``: the checkpoint that its
    files are of. Pickled to tasks."""

    uid: str
    url: str
    form: WrittenRows
    epoch: int
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    retry: Retry | None = None

    @property
    def folder(self) -> Folder:
        return Folder(self.url, self.storage, self.retry)


@dataclass(frozen=True)
class HashRows:
    """Puts the subtask's route and the key hash to rows that have the columns of the table, by place.

    Keys are normalised: what Spark's ``groupBy`` takes for one key is one value.
    """

    form: WrittenRows
    subtasks: Subtasks

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = self.form.given.names
        for batch in batches:
            rows = pa.RecordBatch.from_arrays(batch.columns, names=names)
            keys = dict(zip(self.form.keys, self.form.normalised_keys(rows), strict=True))
            hashes = self.form.hashes(list(keys.values()))
            routes = [self.subtasks.routes[subtask] for subtask in self.subtasks.subtask_of(hashes).tolist()]
            columns = [keys.get(name, rows.column(name)) for name in names]
            yield pa.RecordBatch.from_arrays(
                [*columns, pa.array(hashes), pa.array(routes, pa.int32())], names=[*batch.schema.names, KEY_HASH, ROUTE]
            )


class RunFiles:
    """Cuts the rows of a task, which come in the order of hash and key, into state files, and reports each."""

    def __init__(self, table: WrittenTable) -> None:
        self.table = table
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = self._repeated = 0
        self._last: pa.RecordBatch | None = None

    def add(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """``rows``: the given columns and ``KEY_HASH``."""
        if not len(rows):
            return
        form = self.table.form
        stored = form.stored(rows)
        behind = stored if self._last is None else one_batch(pa.Table.from_batches([self._last, stored]))
        self._repeated += form.repeated(behind)
        self._last = stored.slice(len(stored) - 1)
        self._waiting.append(stored)
        self._rows, self._bytes = self._rows + len(stored), self._bytes + stored.nbytes
        if self._rows >= _FILE_ROWS or self._bytes >= _FILE_BYTES:
            yield self._written()

    def end(self) -> Iterator[pa.RecordBatch]:
        if self._waiting:
            yield self._written()
        if self._repeated:
            yield self._reported("", 0, 0, "{}", self._repeated)

    def _written(self) -> pa.RecordBatch:
        rows = pa.Table.from_batches(self._waiting)
        self._waiting, self._rows, self._bytes = [], 0, 0
        data = encode_run_file(rows)
        # The epoch, so that the file is collected when no checkpoint names it any more.
        name = run_file_name(self.table.epoch, 0, hashlib.blake2b(data, digest_size=16).hexdigest())
        file = write_run_file(self.table.folder, name, rows, data=data)
        # Stopped here: a file that nobody names, unless the task is repeated and writes the same.
        runs = self.table.form.runs(rows, name, self.table.epoch)
        groups = {group: GroupManifest((run,), run.count) for group, run in runs.items()}
        return self._reported(name, file.rows, file.size_bytes, json.dumps(groups_to_json(groups)), 0)

    def _reported(self, *values: Any) -> pa.RecordBatch:
        columns = [pa.array([v], f.type) for v, f in zip((self.table.uid, *values), _REPORT, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=_REPORT)


@dataclass(frozen=True)
class WriteRuns:
    """Writes the rows of a task; by place, the last column is the route."""

    table: WrittenTable

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files, names = RunFiles(self.table), [*self.table.form.given.names, KEY_HASH]
        for batch in batches:
            yield from files.add(pa.RecordBatch.from_arrays(batch.columns[:-1], names=names))
        yield from files.end()
