"""Savepoints: a checkpoint copied to a place of its own, and brought into a job again. Driver.

A savepoint folder holds ``savepoint.json`` (written last: without it there is no savepoint), ``manifests/``,
``state/<uid>/`` as plain Delta tables and ``sources/<id>/``, what sources need to understand their offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from spark_ckpt.errors import CorruptStorageError, InvalidInputError, StorageNotWritableError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.names import checked_name, is_plain_file
from spark_ckpt.protocol.records import SAVEPOINT, CommittedRecord, CompletionRecord, TableRef
from spark_ckpt.protocol.recovery import as_savepoint
from spark_ckpt.protocol.steps import SavepointFailed
from spark_ckpt.storage.delta_schema import from_delta_schema
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.job_paths import SAVEPOINT_RECORD, JobPaths
from spark_ckpt.storage.manifest import StateManifest, read_manifest, write_manifest
from spark_ckpt.storage.record_store import RecordStore
from spark_ckpt.storage.state_table import StateTable


def write_savepoint(
    job: str, records: JobRecords, table: Callable[[str], StateTable], record: CompletionRecord
) -> SavepointFailed | None:
    """Copy ``record``'s state to its target. Again after a crash: what is there already is written over.

    Costs the size of the state. The target must not hold another savepoint.
    """
    assert record.target is not None
    options = records.store.storage_options
    try:
        store = RecordStore(record.target, options)
        found = store.read(SAVEPOINT_RECORD, "savepoint")
        if found is not None:
            if _is_of(job, record, found):
                return None
            return SavepointFailed(f"{record.target} already holds another savepoint; choose an empty folder")
        tables = {uid: _export(records, store, table(uid), ref) for uid, ref in record.tables.items()}
        for source in record.sources:
            there = Folder(JobPaths(record.target).source(source), options)
            copy_folder(Folder(records.paths.source(source), options), there)
        body = replace(record, tables=tables, committables=()).to_json()
        # Last: before it the folder is no savepoint.
        store.replace(SAVEPOINT_RECORD, "savepoint", {"job": job, "record": body})
    except (StorageNotWritableError, InvalidInputError) as e:
        return SavepointFailed(str(e))
    return None


def _is_of(job: str, record: CompletionRecord, found: Mapping[str, Any]) -> bool:
    """Whether the savepoint ``found`` is this one, written before a crash."""
    theirs = found["record"]
    # The mark of the life too: a job whose folder was removed counts its checkpoints from 1 again.
    return (found.get("job"), theirs["checkpoint"], theirs.get("life", "")) == (job, record.checkpoint, record.life)


def _export(records: JobRecords, store: RecordStore, table: StateTable, ref: TableRef) -> TableRef:
    manifest = read_manifest(records.store, ref.manifest)
    content, groups = table.export_savepoint(manifest.content, manifest.groups, store.url)
    copied = StateManifest(manifest.uid, manifest.checkpoint, 0, manifest.schema, content, groups)
    return TableRef(0, write_manifest(store, copied, "savepoint"))


def import_savepoint(records: JobRecords, path: str, options: dict[str, object], now_ms: int) -> int:
    """Make the savepoint at ``path`` a completed checkpoint of this job; returns its id here.

    Files are linked where possible, so that it costs names and not bytes. Stopped on the way: the next start imports
    it again under another id, and ``gc`` removes what the first try left.
    """
    store = RecordStore(path, options)
    body = store.read(SAVEPOINT_RECORD, "savepoint")
    if body is None:
        raise InvalidInputError(
            f"spark.ckpt.restore={path}: expected a checkpoint id, auto, none or the folder of a savepoint; "
            f"found no {SAVEPOINT_RECORD} there"
        )
    try:
        source = CompletionRecord.from_json(body["record"], f"{path}/{SAVEPOINT_RECORD}")
    except (KeyError, TypeError) as e:
        raise CorruptStorageError(f"{path}/{SAVEPOINT_RECORD} is damaged: {e!r}; use another savepoint") from e
    _check_names(source, f"{path}/{SAVEPOINT_RECORD}")
    checkpoint = max(records.newest_id(), source.checkpoint) + 1
    tables = {uid: _import(records, store, ref, uid, checkpoint, options) for uid, ref in source.tables.items()}
    for name in source.sources:
        copy_folder(Folder(JobPaths(path).source(name), options), Folder(records.paths.source(name), options))
    record = replace(as_savepoint(source), checkpoint=checkpoint, tables=tables, kind=SAVEPOINT, target=None)
    # committed/ first: a completion without it would look as if its sinks had to be committed.
    done = CommittedRecord(checkpoint, record.generation, now_ms)
    records.store.replace(JobPaths.committed(checkpoint), "committed", done.to_json())
    records.store.replace(JobPaths.copy(checkpoint, record.generation), "checkpoint", record.to_json(), durable=False)
    records.store.create(JobPaths.checkpoint(checkpoint), "checkpoint", record.to_json())
    return checkpoint


def _check_names(record: CompletionRecord, shown: str) -> None:
    """What a savepoint names becomes folders and files of the job: nothing may lead out of them."""
    for what, uid in [*(("source", s) for s in record.sources), *(("operator", u) for u in record.tables)]:
        checked_name(f"{shown}: {what} uid", uid, CorruptStorageError)
    for uid, ref in record.tables.items():
        folder, _, file = ref.manifest.rpartition("/")
        own = JobPaths.manifests_of(uid)
        if folder != own or not is_plain_file(file):
            raise CorruptStorageError(
                f"{shown} names the manifest {ref.manifest!r} of {uid!r}: expected one in {own}/; use another savepoint"
            )


def _import(
    records: JobRecords,
    store: RecordStore,
    ref: TableRef,
    uid: str,
    checkpoint: int,
    options: dict[str, object],
) -> TableRef:
    manifest = read_manifest(store, ref.manifest)
    table = StateTable(records.paths.state(uid), uid, options)
    recorded = records.table_versions().get(uid, -1)
    table.create_if_absent(from_delta_schema(manifest.schema), f"state of {uid}", reset=True, recorded=recorded)
    table.import_state(JobPaths(store.url).state(uid), manifest.content, manifest.groups)
    done = table.rollback(f"import/{uid}", checkpoint, manifest.content)
    own = StateManifest(uid, checkpoint, done.version, manifest.schema, done.content, manifest.groups)
    return TableRef(done.version, write_manifest(records.store, own, "imported"))


def copy_folder(source: Folder, target: Folder) -> None:
    """Copy all files below ``source`` that ``target`` lacks. They are immutable."""
    for name in source.names():
        data = source.read(name)
        if data is not None and not target.exists(name):
            target.create(name, data)
    for folder in source.folders():
        copy_folder(source.child(folder), target.child(folder))
