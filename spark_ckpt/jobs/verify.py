"""Reads everything that a job's checkpoints need and says, file by file, what is wrong with it. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.jobs.records import JobRecords, id_name
from spark_ckpt.protocol.records import AbortedRecord, CommittedRecord, TriggerRecord, checkpoint_from_json
from spark_ckpt.sources.file_log import COPIES, FOLDER, KIND, DiscoveryLog, is_record
from spark_ckpt.storage.content import FileEntry
from spark_ckpt.storage.deletion_vectors import read_vector
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.manifest import StateManifest, read_manifest
from spark_ckpt.storage.record_store import JOB_RECORD, RecordStore
from spark_ckpt.storage.run_files import open_run_file, read_row_group
from spark_ckpt.storage.state_table import StateTable

Progress = Callable[[str], None]


def verify_job(records: JobRecords, url: str, options: dict[str, object], progress: Progress) -> list[str]:
    """Every record, manifest, state file (all columns decoded, checksums checked) and deletion vector.

    ``progress`` is told the name of what is read next. Returns the damage, empty if there is none.
    """
    checks = [*_records(records), *_states(records, url, options), *_discovered(url, options)]
    wrong = []
    for name, check in checks:
        progress(name)
        try:
            check()
        except CorruptStorageError as damage:
            wrong.append(str(damage))
    return list(dict.fromkeys(wrong))


def _records(records: JobRecords) -> Iterator[tuple[str, Callable[[], object]]]:
    store = records.store
    yield JOB_RECORD, lambda: store.read(JOB_RECORD, "job")
    yield "sinks.json", lambda: store.read("sinks.json", "sinks")
    for g in records.ids("generations"):
        yield f"generations/{id_name(g)}", lambda g=g: records.generation(g)  # type: ignore[misc]
    for k in records.ids("checkpoints"):
        yield f"checkpoints/{id_name(k)}", lambda k=k: records.checkpoint(k)  # type: ignore[misc]
    for name in store.names("copies"):
        yield f"copies/{name}", lambda n=name: checkpoint_from_json(store.read(f"copies/{n}", "checkpoint"), n)  # type: ignore[misc]
    plain = (("triggers", "trigger", TriggerRecord), ("committed", "committed", CommittedRecord),
             ("aborted", "aborted", AbortedRecord))  # fmt: skip
    for folder, kind, record in plain:
        for name in store.names(folder):
            path = f"{folder}/{name}"
            yield path, lambda p=path, k=kind, r=record: r.from_json(store.read(p, k), p)  # type: ignore[misc]
    for name in store.names("batches"):
        yield f"batches/{name}", lambda n=name: records.batch(n)  # type: ignore[misc]
    for name in store.names("abandoned"):
        yield f"abandoned/{name}", lambda n=name: store.read(f"abandoned/{n}", "abandoned")  # type: ignore[misc]
    for name in store.names("requests"):
        yield f"requests/{name}", lambda n=name: store.read(f"requests/{n}", "request")  # type: ignore[misc]


def _states(records: JobRecords, url: str, options: dict[str, object]) -> Iterator[tuple[str, Callable[[], object]]]:
    seen: set[tuple[str, FileEntry]] = set()
    for record in records.completions():
        for uid, ref in record.tables.items():
            yield ref.manifest, lambda r=ref: read_manifest(records.store, r.manifest)  # type: ignore[misc]
            folder = Folder(f"{url}/state/{uid}", options)
            for file, entry in _content(records, ref.manifest).items():
                if (f"{uid}/{file}", entry) not in seen:
                    seen.add((f"{uid}/{file}", entry))
                    yield f"state/{uid}/{file}", lambda f=folder, n=file, e=entry: _file(f, n, e)  # type: ignore[misc]
    recorded = records.table_versions()
    for uid in sorted({*Folder(f"{url}/state", options).folders(), *recorded}):
        newest = recorded.get(uid, -1)
        yield f"state/{uid}", lambda u=uid, v=newest: StateTable(f"{url}/state/{u}", u, options).require(v)  # type: ignore[misc]


def _discovered(url: str, options: dict[str, object]) -> Iterator[tuple[str, Callable[[], object]]]:
    """The discovery logs of ``files`` sources: each record, and that there is no gap. Other sources' files are not."""
    for source in Folder(f"{url}/sources", options).folders():
        store = RecordStore(f"{url}/sources/{source}", options)
        ours = [f"{f}/{n}" for f in (FOLDER, COPIES) for n in store.names(f) if is_record(n)]
        for path in ours:
            yield f"sources/{source}/{path}", lambda s=store, p=path: s.read(p, KIND)  # type: ignore[misc]
        if ours:
            yield f"sources/{source}", lambda s=store: DiscoveryLog(s)  # type: ignore[misc]


def _content(records: JobRecords, manifest: str) -> dict[str, FileEntry]:
    try:
        found: StateManifest = read_manifest(records.store, manifest)
    except CorruptStorageError:
        return {}  # reported by itself
    return dict(found.content)


def _file(folder: Folder, name: str, entry: FileEntry) -> None:
    with open_run_file(folder, name) as file:
        rows = sum(read_row_group(folder, name, file, i).num_rows for i in range(file.num_row_groups))
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
