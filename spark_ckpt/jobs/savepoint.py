"""A savepoint by its folder: what is in it, whether it is whole, a copy of it, its end. Needs no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.faults import reach
from spark_ckpt.hints import Hinting
from spark_ckpt.jobs._savepoint_target import SavepointMark, claim, read_claim, replace_claim
from spark_ckpt.jobs._savepoint_uses import FOLDER as USES
from spark_ckpt.jobs._savepoint_uses import standing_on
from spark_ckpt.jobs._savepoints import copy_folder, read_mark, read_savepoint
from spark_ckpt.jobs._verify import verify_savepoint
from spark_ckpt.jobs.state import State
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.redaction import redact_url
from spark_ckpt.storage.delta_schema import column_types
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.job_paths import CLAIM_RECORD, JOB_RECORD, SAVEPOINT_RECORD, JobPaths
from spark_ckpt.storage.manifest import read_manifest
from spark_ckpt.storage.record_store import Exists, RecordStore
from spark_ckpt.storage.retry import Retry
from spark_ckpt.types import KEY_GROUP, KEY_HASH

_FOLDERS = ("manifests", "state", "sources")
_DEPTH = 4
"""How far below a folder savepoints are looked for: every folder costs a listing."""


class Savepoint(Hinting):
    """One savepoint's folder. Nothing is read until a method asks for it.

    A start copies what it restores, so behind its first batch no job needs the folder: it may be moved and removed.
    """

    def __init__(self, path: str, config: JobConfig) -> None:
        self.store = RecordStore(path, config.storage_options(), Retry.of(config))
        self.path = self.store.url
        self.config = config

    def __repr__(self) -> str:
        return f"Savepoint({redact_url(self.path)!r})"

    def record(self) -> CompletionRecord:
        """What the checkpoint recorded: sources with their offsets, operators, sinks. Raises ``InvalidInputError`` if
        there is no complete savepoint, ``CorruptStorageError`` if it is damaged."""
        return read_savepoint(self.store)[1]

    def summary(self) -> dict[str, Any]:
        """``path``, ``job``, ``checkpoint``, ``complete`` and, of one that is complete, ``completed_ms`` (epoch
        milliseconds), ``kind``, ``drained``, and how many ``sources``, ``operators`` and ``sinks``. One record is read.
        """
        mark = read_mark(self.store) or self._claimed()
        found = {"path": redact_url(self.path), "job": mark.job, "checkpoint": mark.checkpoint}
        if not self.store.exists(SAVEPOINT_RECORD):
            return {**found, "complete": False}
        record = self.record()
        counts = {"sources": len(record.sources), "operators": len(record.tables), "sinks": len(record.topology.sinks)}
        told = {"completed_ms": record.completed_ms, "kind": record.kind, "drained": record.drained}
        return {**found, "complete": True, **told, **counts}

    def describe(self) -> dict[str, Any]:
        """:meth:`summary` in full: ``sources`` with their offsets, ``operators`` by uid with ``columns`` (name to
        Spark's type), ``keys``, ``files`` and ``size_bytes``, ``sinks`` with the newest ``checkpoint`` that each was
        given and its ``target``, and ``max_parallelism``. Reads a manifest for each operator, and no state.
        """
        record = self.record()
        return {
            **self.summary(),
            "max_parallelism": record.topology.key_groups,
            "sources": {uid: dict(offset) for uid, offset in record.sources.items()},
            "operators": {uid: self._operator(ref.manifest) for uid, ref in record.tables.items()},
            "sinks": {s: self._sink(record, s) for s in record.topology.sinks},
        }

    def _operator(self, manifest: str) -> dict[str, Any]:
        found = read_manifest(self.store, manifest)
        columns = {n: kind for n, kind in column_types(found.schema).items() if n not in (KEY_GROUP, KEY_HASH)}
        return {"columns": columns, "keys": found.keys, "files": len(found.content), "size_bytes": found.size_bytes}

    @staticmethod
    def _sink(record: CompletionRecord, sink: str) -> dict[str, Any]:
        shown = record.shown.get(sink)
        return {"checkpoint": shown.checkpoint if shown else None, "target": shown.target if shown else ""}

    def state_table(self, uid: str) -> tuple[str, int]:
        """(URL, version) of the Delta table that is the state of ``uid``, for any Delta reader. Raises
        ``InvalidInputError`` if there is no such state."""
        record = self.record()
        if uid not in record.tables:
            raise InvalidInputError(f"{self!r} has no state of {uid!r}, only of {list(record.tables)}")
        return JobPaths(self.path).state(uid), record.tables[uid].version

    def state(self, uid: str) -> State:
        """The state of ``uid``, as Arrow or pandas, or one key of it. Raises ``InvalidInputError`` if there is none."""
        return State(self.store, self.record(), uid)

    def verify(self, progress: Callable[[str], None] = lambda _: None) -> list[str]:
        """Read all of it, checksums included; returns what is wrong, empty if nothing.

        Costs reading the state. ``progress`` is told the name of what is read next.
        """
        return verify_savepoint(self.store, self.record, progress)

    def copy(self, path: str) -> Savepoint:
        """Copy it into the empty folder ``path`` (or URL), file by file; returns the copy.

        Stopped on the way, the same call finishes it; until then ``path`` is no savepoint. Nothing here changes. Raises
        ``InvalidInputError`` if ``path`` is not free.
        """
        job, record = read_savepoint(self.store)
        mark = SavepointMark.of(job, record)
        there = Savepoint(path, self.config)
        if read_mark(there.store) == mark:
            return there
        claim(there.store, mark)
        # Stopped from here on: the claim says what the files are, and the same copy goes on.
        reach("savepoint claimed")
        for name in _FOLDERS:
            copy_folder(self.store.folder.child(name), there.store.folder.child(name))
        reach("state copied")
        body = self.store.read(SAVEPOINT_RECORD, "savepoint")
        assert body is not None
        # Last: before it the folder is no savepoint.
        made = there.store.create(SAVEPOINT_RECORD, "savepoint", body)
        if isinstance(made, Exists) and read_mark(there.store) != mark:
            raise InvalidInputError(f"{redact_url(there.path)} was taken by another savepoint at the same time")
        return there

    def dispose(self, force: bool = False) -> None:
        """Remove it, for good. What in its folder is not a savepoint's stays.

        Jobs that were started from it have what they need once they have completed a checkpoint of their own: until
        then it is what they fall back on. Stopped on the way, it is no savepoint any more, and the same call goes on.
        Raises ``InvalidInputError`` if there is no savepoint, if a job stands on it, and if it is unfinished: a driver
        may be writing it (``force``: it may go all the same).
        """
        mark, folder = read_mark(self.store), self.store.folder
        if mark is None and read_claim(self.store) is None and folder.remove_if_empty():
            return  # stopped behind the last file, ahead of its folder
        if mark is None:
            mark = self._claimed()
            if not (force or mark.disposing):
                raise InvalidInputError(
                    f"{redact_url(self.path)} holds an unfinished savepoint, {mark}: its driver may be writing it, or "
                    "finishes it at its next start. If neither is so, say --force (force=True)"
                )
        elif not force:
            self._require_unused()
        # Savepoints of older releases have no claim. It goes last, so that a folder that is half empty says why.
        replace_claim(self.store, replace(mark, disposing=True))
        reach("dispose claimed")
        self.store.delete(SAVEPOINT_RECORD)
        # Stopped from here on: there is no savepoint, and the claim tells that the rest is to go.
        reach("savepoint removed")
        for name in (*_FOLDERS, USES, ".tmp"):
            folder.remove_all(name)
            reach(f"{name} removed")
        self.store.delete(CLAIM_RECORD)
        # Stopped here: an empty folder is left, and the same call removes it.
        reach("savepoint's claim removed")
        folder.remove_if_empty()

    def _require_unused(self) -> None:
        users = standing_on(self.store, self.config)
        if users:
            raise InvalidInputError(
                f"{redact_url(self.path)} is stood on by {'; '.join(users)}: it has no checkpoint of its own yet. Wait "
                "for one, or say --force (force=True)"
            )

    def _claimed(self) -> SavepointMark:
        mark = read_claim(self.store)
        if mark is None:
            raise InvalidInputError(
                f"expected a savepoint in {redact_url(self.path)}, found no {SAVEPOINT_RECORD} there; nothing was done"
            )
        return mark


def savepoint(path: str, **options: str) -> Savepoint:
    """The savepoint in the folder ``path`` (or URL); ``options`` are settings such as ``**{"storage.key": "..."}``.

    Nothing is read yet. Raises ``ConfigError`` for unknown settings::

        spark_ckpt.savepoint("s3://lake/savepoints/before-v2").describe()["operators"]["totals"]["keys"]
    """
    return Savepoint(path, JobConfig.from_options({"dir": path, **options}))


def savepoints(dir: str, **options: str) -> list[Savepoint]:
    """The savepoints in ``dir`` and up to four folders below it, unfinished ones too, in the order of their paths.

    ``options`` are as of :func:`savepoint`. Folders of jobs are passed over.
    """
    config = JobConfig.from_options({"dir": dir, **options})
    return [Savepoint(url, config) for url in _found(Folder(dir, config.storage_options()), _DEPTH)]


def _found(folder: Folder, depth: int) -> Iterator[str]:
    names = folder.names()
    if SAVEPOINT_RECORD in names or CLAIM_RECORD in names:
        yield folder.url
    elif JOB_RECORD not in names and depth:
        for name in folder.folders():
            yield from _found(folder.child(name), depth - 1)
