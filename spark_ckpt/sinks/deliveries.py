"""Rows that wait to be delivered to functions of the user's process: what ``foreachBatch`` and ``foreach`` write to.

Such a function cannot run in the sink's commit, which is another process without a session. So rows are staged as
files below ``rows/``, and a commit writes ``ready/{checkpoint}-{job}-{sink}.json``, created if absent, which names
them. The user's process delivers what is ready in order (:mod:`spark_ckpt.jobs.delivering`), creates ``delivered/...``
of the same name and then removes the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.redaction import secret_values
from spark_ckpt.sinks import _durable as durable
from spark_ckpt.sinks import staging
from spark_ckpt.sinks._options import SinkOption, SinkOptions, option_names, with_absolute_path
from spark_ckpt.sinks.base import SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.storage.filesystem import Folder, make_on
from spark_ckpt.storage.job_paths import checkpoint_of
from spark_ckpt.storage.record_store import Exists, RecordStore
from spark_ckpt.types import CheckpointId, CommitPermit, Committable

_KIND = "delivery"
_ROWS, _READY, _DELIVERED = "rows", "ready", "delivered"
SPARK_SCHEMA = b"spark"
"""Where a file's Arrow schema has the JSON of Spark's, which says more."""
FUNCTION, AMONG = b"function", b"among"
"""Where it has the name of the function that the rows are for, and how many of them were known by their places."""


@dataclass(frozen=True)
class ReadyFile:
    """One file of rows: its place below the folder, and its size."""

    path: str
    rows: int
    size: int


class DeliverySink(TwoPhaseSink):
    """Options: ``path`` (a folder of the job's), ``schema`` (Spark's, as JSON), ``function`` (its name) and ``among``
    (how many there are without a uid), ``storage.*`` (as the job's)."""

    DECLARED: ClassVar[tuple[SinkOption, ...]] = (
        SinkOption("path", "a folder, local or any fsspec URL", required=True),
        SinkOption("schema"),
        SinkOption("function"),
        SinkOption("among"),
        SinkOption("storage.*"),
    )
    OPTIONS = option_names(DECLARED)
    CAN_REPLACE = True

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        parsed = SinkOptions("foreachBatch", options, self.DECLARED)
        self._url = parsed.required("path")
        noted = {SPARK_SCHEMA: "schema", FUNCTION: "function", AMONG: "among"}
        self._notes = {key: parsed.text(option) or "" for key, option in noted.items()}
        self._storage = parsed.fsspec()

    def __repr__(self) -> str:
        return f"DeliverySink({self._folder().shown('')})"

    @classmethod
    def absolute(cls, options: Mapping[str, str]) -> dict[str, str]:
        return with_absolute_path(options)

    def validate(self, schema: pa.Schema) -> None:
        if self._folder().local:
            for name in (_ROWS, _READY, _DELIVERED):
                durable.make_folders(self._folder().path(name))

    def writer(self, ctx: WriterContext) -> SinkWriter:
        return _Writer(self._folder(), ctx, self._notes)

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        doing = f"making checkpoint {permit.checkpoint} ready for delivery"
        with staging.disk_errors(doing, secret_values(self._storage)):
            self._commit(permit, committables)

    def _commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        sink = staging.sink_of(committables)
        staged = [staging.decode(_KIND, c) for c in committables]
        folder, store = self._folder(), self._store()
        record = f"{_READY}/{_name(permit.checkpoint, permit.job, sink)}"
        found, known = staging.digest(committables), store.read(record, _KIND)
        if known is None:
            missing = [s["file"] for s in staged if not folder.exists(f"{_ROWS}/{s['file']}")]
            if missing:
                raise CorruptStorageError(
                    f"staged file(s) {', '.join(missing)} are missing from {folder.shown(_ROWS)}; put them back"
                )
            files = [[s["file"], s["rows"], s["size"]] for s in staged]
            self._step("before record")  # a crash here: nothing is ready, the next commit starts over
            body = {"digest": found, "files": files, "oldest": permit.oldest}
            created = store.create(record, _KIND, body)
            known = created.body if isinstance(created, Exists) else None
        if known is not None:
            staging.check_same_life(folder.shown(record), permit, sink, known["digest"], found)
        self._step("after record")  # a crash here: the record says all, the next commit finds it

    def newest_checkpoint(self, job: str, sink: str) -> int:
        store, ending = self._store(), _name(0, job, sink)[10:]
        names = (*store.names(_READY), *store.names(_DELIVERED))
        return max((checkpoint_of(n) or 0 for n in names if n.endswith(ending)), default=0)

    def abort(self, committables: Sequence[Committable]) -> None:
        folder, ready = self._folder(), self._ready_files()
        for name in (staging.decode(_KIND, c)["file"] for c in committables):
            if name not in ready:
                folder.remove(f"{_ROWS}/{name}")

    def gc(self, job: str, keep: Sequence[Committable]) -> list[str]:
        return self._remove(staging.staged_prefix(job), {staging.decode_any(c).get("file") for c in keep})

    def forget(self, job: str, oldest: CheckpointId) -> list[str]:
        store = self._store()
        mine = f"-{staging.tag(job)}-"
        delivered = [n for n in store.names(_DELIVERED) if mine in n]
        newest = {n[10:]: n for n in sorted((*store.names(_READY), *delivered))}
        done = [n for n in delivered if (checkpoint_of(n) or 0) < oldest and n != newest[n[10:]]]
        for name in done:
            _forget(store, name)
        return [f"{_DELIVERED}/{name}" for name in done]

    def staged_by(self) -> dict[str, int]:
        ready = self._ready_files()
        return staging.count_stagers(n for n in self._folder().names(_ROWS) if n not in ready)

    def discard(self, who: str) -> list[str]:
        return self._remove(staging.prefix_of(who), set())

    def _remove(self, prefix: str, keep: set[str | None]) -> list[str]:
        folder, named = self._folder(), self._ready_files() | keep
        lost = [n for n in folder.names(_ROWS) if n.startswith(prefix) and n not in named]
        for name in lost:
            folder.remove(f"{_ROWS}/{name}")
        return lost

    def _ready_files(self) -> set[str | None]:
        """Those that nobody was given yet."""
        store = self._store()
        bodies = (store.read(f"{_READY}/{name}", _KIND) for name in _waiting_names(store))
        return {file for body in bodies if body is not None for file, _, _ in body["files"]}

    def _folder(self) -> Folder:
        return Folder(self._url, self._storage)

    def _store(self) -> RecordStore:
        return RecordStore(self._url, self._storage)


class Deliveries:
    """What waits for one function of a job. One thread of the user's process.

    ``job`` is the identity that the sink knows it by. Tests stop between two durable steps in ``on_step``.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any], job: str, sink: str) -> None:
        self.job, self.sink = job, sink
        self._folder, self._store = Folder(url, storage_options), RecordStore(url, storage_options)
        self._done: set[int] | None = None
        self.on_step: Callable[[str], None] = lambda _: None

    @property
    def url(self) -> str:
        return self._folder.url

    def waiting(self) -> list[int]:
        """The checkpoints that are ready and not delivered, in order."""
        if self._done is None:
            self._done = self._of(_DELIVERED)
            self._sweep()
        return sorted(self._of(_READY) - self._done)

    def files(self, checkpoint: int) -> list[ReadyFile]:
        """What ``checkpoint`` has for the function, always in the same order."""
        return _files(self._body(checkpoint))

    def schema(self, file: ReadyFile) -> pa.Schema:
        """The rows' schema, with Spark's in :data:`SPARK_SCHEMA`."""
        return _schema(self._folder, file)

    def delivered(self, checkpoint: int) -> None:
        """Remember that the function is done with ``checkpoint``, and remove its rows."""
        body = self._body(checkpoint)
        self.on_step("before delivered")  # a crash here: the function is called again, with the same id and rows
        self._store.create(f"{_DELIVERED}/{self._name(checkpoint)}", _KIND, {})
        self.on_step("before rows are removed")  # a crash here: the next start's `_sweep`, or gc, removes them
        self._remove(body)
        done = self._done = {*(self._done or ()), checkpoint}
        for old in sorted(k for k in done if k < (body["oldest"] or 0)):
            _forget(self._store, self._name(old))
            done.discard(old)

    def _sweep(self) -> None:
        for checkpoint in sorted(self._done or ()):
            self._remove(self._body(checkpoint))

    def _remove(self, body: Mapping[str, Any]) -> None:
        for file in _files(body):
            self._folder.remove(file.path)

    def _body(self, checkpoint: int) -> Mapping[str, Any]:
        return self._store.read(f"{_READY}/{self._name(checkpoint)}", _KIND) or {"files": (), "oldest": None}

    def _of(self, folder: str) -> set[int]:
        ending = self._name(0)[10:]
        found = (checkpoint_of(n) for n in self._store.names(folder) if n.endswith(ending))
        return {k for k in found if k is not None}

    def _name(self, checkpoint: int) -> str:
        return _name(checkpoint, self.job, self.sink)


def left_waiting(url: str, storage_options: Mapping[str, Any], job: str, sinks: Sequence[str]) -> dict[str, list[int]]:
    """Checkpoints that wait for functions of ``job`` which are none of ``sinks``, by the names of those functions."""
    folder, store = Folder(url, storage_options), RecordStore(url, storage_options)
    mine, known = f"-{staging.tag(job)}-", tuple(_name(0, job, sink)[10:] for sink in sinks)
    found: dict[str, list[int]] = {}
    for name in _waiting_names(store):
        body = store.read(f"{_READY}/{name}", _KIND) if mine in name and not name.endswith(known) else None
        if body is not None:
            found.setdefault(_function_of(folder, _files(body)[0]), []).append(checkpoint_of(name) or 0)
    return found


def _waiting_names(store: RecordStore) -> list[str]:
    """The records of what is ready and not delivered. Most jobs have none, and are asked once."""
    ready = set(store.names(_READY))
    return sorted(ready - set(store.names(_DELIVERED))) if ready else []


def _function_of(folder: Folder, file: ReadyFile) -> str:
    try:
        notes = _schema(folder, file).metadata or {}
    except FileNotFoundError:
        return ""
    return str(notes.get(FUNCTION, b"").decode())


def _schema(folder: Folder, file: ReadyFile) -> pa.Schema:
    with folder.fs.open(folder.path(file.path), "rb") as stream, pa.ipc.open_stream(stream) as rows:
        return rows.schema


def _files(body: Mapping[str, Any]) -> list[ReadyFile]:
    return [ReadyFile(f"{_ROWS}/{name}", rows, size) for name, rows, size in body["files"]]


def read_rows(folder: Folder, path: str) -> Iterator[pa.RecordBatch]:
    with folder.fs.open(folder.path(path), "rb") as stream, pa.ipc.open_stream(stream) as rows:
        yield from rows


class _Writer(staging.FileWriter):
    def __init__(self, folder: Folder, ctx: WriterContext, notes: Mapping[bytes, str]) -> None:
        super().__init__(f"staging rows in {folder.shown(_ROWS)}", ctx)
        self._folder, self._name, self._rows = folder, f"{staging.staged_name(ctx)}.arrow", 0
        self._schema = ctx.schema.with_metadata({key: text.encode() for key, text in notes.items() if text})

    def _open(self, rows: pa.Table) -> tuple[Any, Any]:
        make_on(self._folder.fs, self._folder.path(_ROWS))
        stream = self._folder.fs.open(self._folder.path(f"{_ROWS}/{self._name}"), "wb")
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        return stream, pa.ipc.new_stream(stream, self._schema, options=options)

    def _put(self, rows: pa.Table) -> None:
        self._writer.write_table(rows.combine_chunks().cast(self._schema))
        self._rows += len(rows)

    def _finish(self) -> bytes:
        size = self._stream.tell()
        self._stream.close()
        if self._folder.local:
            durable.sync([self._folder.path(f"{_ROWS}/{self._name}")])
        return staging.encode(_KIND, file=self._name, rows=self._rows, size=size)


def _name(checkpoint: int, job: str, sink: str) -> str:
    # The job's tag by itself, so that `forget` finds what is the job's.
    return f"{checkpoint:010d}-{staging.tag(job)}-{staging.tag(sink)}.json"


def _forget(store: RecordStore, name: str) -> None:
    """Of what was delivered. A driver that was halted for long and commits it again, finds no rows."""
    store.delete(f"{_READY}/{name}")
    # Stopped here: `delivered` alone says that nothing waits.
    store.delete(f"{_DELIVERED}/{name}")
