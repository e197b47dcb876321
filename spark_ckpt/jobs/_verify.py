"""Reads everything that a job's checkpoints need and says, file by file, what is wrong with it. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.protocol.records import (
    AbortedRecord,
    BatchRecord,
    CommittedRecord,
    CompletionRecord,
    TriggerRecord,
    checkpoint_from_json,
)
from spark_ckpt.sources.file_log import COPIES, FOLDER, KIND, DiscoveryLog, is_record
from spark_ckpt.storage.content import FileEntry
from spark_ckpt.storage.deletion_vectors import read_vector
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.job_paths import JOB_RECORD, SAVEPOINT_RECORD, SINKS_RECORD, JobPaths, RecordFolder
from spark_ckpt.storage.manifest import StateManifest, read_manifest
from spark_ckpt.storage.record_store import RecordStore
from spark_ckpt.storage.run_files import checked_rows
from spark_ckpt.storage.state_table import StateTable, savepoint_table_files

Progress = Callable[[str], None]
Check = tuple[str, Callable[[], object]]
"""What is read, and how; it raises ``CorruptStorageError``."""


def verify_job(records: JobRecords, options: dict[str, object], progress: Progress) -> list[str]:
    """Every record, manifest, state file (all columns decoded, checksums checked) and deletion vector.

    ``progress`` is told the name of what is read next. Returns the damage, empty if there is none.
    """
    return _damage([*_records(records), *_states(records, options), *_discovered(records.paths, options)], progress)


def verify_savepoint(store: RecordStore, read: Callable[[], CompletionRecord], progress: Progress) -> list[str]:
    """As :func:`verify_job`, of the savepoint in the folder of ``store``, whose record ``read`` reads."""
    progress(SAVEPOINT_RECORD)
    try:
        record = read()
    except CorruptStorageError as damage:
        return [str(damage)]
    paths, options = JobPaths(store.url), store.storage_options
    tables = [c for uid, ref in record.tables.items() for c in _table(store, paths, uid, ref.manifest, options)]
    logs = {uid: _log_check(store, paths, uid, ref.manifest, options) for uid, ref in record.tables.items()}
    of_logs = [(paths.state_file(uid), check) for uid, check in logs.items()]
    return _damage([*tables, *of_logs, *_discovered(paths, options)], progress)


def _damage(checks: Iterable[Check], progress: Progress) -> list[str]:
    wrong = []
    for name, check in checks:
        progress(name)
        try:
            check()
        except CorruptStorageError as damage:
            wrong.append(str(damage))
    return list(dict.fromkeys(wrong))


def _records(records: JobRecords) -> Iterator[Check]:
    store = records.store
    yield JOB_RECORD, lambda: store.read(JOB_RECORD, "job")
    yield SINKS_RECORD, lambda: store.read(SINKS_RECORD, "sinks")
    for g in records.ids("generations"):
        yield JobPaths.generation(g), lambda g=g: records.generation(g)  # type: ignore[misc]
    for k in records.ids("checkpoints"):
        yield JobPaths.checkpoint(k), lambda k=k: records.checkpoint(k)  # type: ignore[misc]
    plain: tuple[tuple[RecordFolder, str, Callable[[Any, str], object]], ...] = (
        ("copies", "checkpoint", checkpoint_from_json),
        ("triggers", "trigger", TriggerRecord.from_json),
        ("committed", "committed", CommittedRecord.from_json),
        ("aborted", "aborted", AbortedRecord.from_json),
        ("batches", "batch", BatchRecord.from_json),
        ("abandoned", "abandoned", lambda body, _: body),
        ("requests", "request", lambda body, _: body),
    )
    for folder, kind, read in plain:
        for path in (JobPaths.listed(folder, name) for name in store.names(folder)):
            yield path, lambda p=path, k=kind, r=read: r(store.read(p, k), p)  # type: ignore[misc]


def _states(records: JobRecords, options: dict[str, object]) -> Iterator[Check]:
    seen: set[tuple[str, FileEntry]] = set()
    paths = records.paths
    for record in records.completions():
        for uid, ref in record.tables.items():
            yield from _table(records.store, paths, uid, ref.manifest, options, seen)
    recorded = records.table_versions()
    for uid in sorted({*Folder(paths.states, options).folders(), *recorded}):
        newest = recorded.get(uid, -1)
        yield paths.state_file(uid), lambda u=uid, v=newest: StateTable(paths.state(u), u, options).require(v)  # type: ignore[misc]


def _table(
    store: RecordStore,
    paths: JobPaths,
    uid: str,
    manifest: str,
    options: dict[str, object],
    seen: set[tuple[str, FileEntry]] | None = None,
) -> Iterator[Check]:
    """The manifest of one table, and the files that it names and that are not in ``seen``, to which they are added."""
    yield manifest, lambda: read_manifest(store, manifest)
    folder, known = Folder(paths.state(uid), options), set() if seen is None else seen
    for file, entry in _content(store, manifest).items():
        path = paths.state_file(uid, file)
        if (path, entry) not in known:
            known.add((path, entry))
            yield path, lambda n=file, e=entry: _file(folder, n, e)  # type: ignore[misc]


def damaged_state(records: JobRecords, record: CompletionRecord, options: dict[str, object]) -> list[str]:
    """What is wrong with the state of ``record``. All of its files are read."""
    tables = (_table(records.store, records.paths, uid, ref.manifest, options) for uid, ref in record.tables.items())
    return _damage(chain.from_iterable(tables), lambda _: None)


def _log_check(
    store: RecordStore, paths: JobPaths, uid: str, manifest: str, options: dict[str, object]
) -> Callable[[], object]:
    """Of a savepoint's table: that Delta readers see the files that the manifest names."""

    def check() -> None:
        folder = Folder(paths.state(uid), options)
        seen, named = savepoint_table_files(folder), set(_content(store, manifest))
        if named and seen != named:  # else the manifest's damage is reported by itself
            raise CorruptStorageError(
                f"The Delta log of {folder.shown('')} is damaged: expected files {sorted(named)}, found {sorted(seen)}."
                " A restore does not need it; Delta readers do."
            )

    return check


def _discovered(paths: JobPaths, options: dict[str, object]) -> Iterator[Check]:
    """The discovery logs of ``files`` sources: each record, and that there is no gap. Other sources' files are not."""
    for source in Folder(paths.sources, options).folders():
        store = RecordStore(paths.source(source), options)
        ours = [f"{f}/{n}" for f in (FOLDER, COPIES) for n in store.names(f) if is_record(n)]
        for path in ours:
            yield paths.source_file(source, path), lambda s=store, p=path: s.read(p, KIND)  # type: ignore[misc]
        if ours:
            yield paths.source_file(source), lambda s=store: DiscoveryLog(s)  # type: ignore[misc]


def _content(store: RecordStore, manifest: str) -> dict[str, FileEntry]:
    try:
        found: StateManifest = read_manifest(store, manifest)
    except CorruptStorageError:
        return {}  # reported by itself
    return dict(found.content)


def _file(folder: Folder, name: str, entry: FileEntry) -> None:
    rows = checked_rows(folder, name)
    size = int(folder.fs.size(folder.path(name)) or 0)
    if (rows, size) != (entry.rows, entry.size_bytes):
        raise CorruptStorageError(
            f"State file {folder.shown(name)} is damaged: expected {entry.rows} rows in {entry.size_bytes} bytes, found"
            f" {rows} in {size}."
        )
    if entry.dv is not None and len(read_vector(folder, entry.dv)) != entry.dead:
        raise CorruptStorageError(
            f"Deletion vector {folder.shown(entry.dv.file)} is damaged: expected {entry.dead} rows."
        )
