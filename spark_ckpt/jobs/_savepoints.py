"""Savepoints: a checkpoint copied to a place of its own, and brought into a job again. Driver.

A savepoint folder holds ``claim.json`` (written first: what the folder is for), ``savepoint.json`` (written last:
without it there is no savepoint), ``manifests/``, ``state/<uid>/`` as plain Delta tables and ``sources/<id>/``, what
sources need to understand their offsets.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import replace

from spark_ckpt.errors import CorruptStorageError, InvalidInputError, RetryableError
from spark_ckpt.faults import reach
from spark_ckpt.jobs._savepoint_target import SavepointMark, claim
from spark_ckpt.jobs._savepoint_uses import Noted, note_use
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.names import checked_name, is_plain_file
from spark_ckpt.protocol.records import (
    CHECKPOINT,
    SAVEPOINT,
    CommittedRecord,
    CompletionRecord,
    TableRef,
    TriggerRecord,
)
from spark_ckpt.protocol.recovery import as_savepoint
from spark_ckpt.protocol.steps import SavepointFailed
from spark_ckpt.redaction import redact_url
from spark_ckpt.storage.delta_schema import from_delta_schema
from spark_ckpt.storage.filesystem import Folder, normalize_url
from spark_ckpt.storage.job_paths import SAVEPOINT_RECORD, JobPaths
from spark_ckpt.storage.manifest import StateManifest, read_manifest, write_manifest
from spark_ckpt.storage.record_store import Exists, RecordStore
from spark_ckpt.storage.retry import describe
from spark_ckpt.storage.state_table import StateTable

_log = logging.getLogger("spark_ckpt")


def write_savepoint(
    job: str, records: JobRecords, table: Callable[[str], StateTable], record: CompletionRecord
) -> SavepointFailed | None:
    """Copy ``record``'s state to its target. Again after a crash: what is there already is kept.

    Costs the size of the state. Whatever fails is answered and not raised: the checkpoint is complete, and the job
    must go on though its target is taken, read-only, full or away.
    """
    assert record.target is not None
    try:
        copy_checkpoint(job, records, table, record, record.target)
    except Exception as error:  # noqa: BLE001 - clients of object stores raise anything
        reason = describe(error)
        _log.warning(
            "Job %s goes on, but the savepoint of checkpoint %d was not written: %s", job, record.checkpoint, reason
        )
        return SavepointFailed(reason)
    return None


def copy_retained(job: str, records: JobRecords, checkpoint: int, path: str) -> None:
    """Make ``path`` a savepoint of a checkpoint that the job retains, without the job. Any process.

    Raises ``InvalidInputError`` if there is no such checkpoint, a sink lacks its rows, or the folder is not free, and
    ``CorruptStorageError`` if its state is damaged, or was dropped meanwhile by a job that runs.
    """
    record = records.completion(checkpoint)
    if record is None:
        have = [c.checkpoint for c in records.completions()]
        raise InvalidInputError(f"job {job!r} has no checkpoint {checkpoint} to take a savepoint of; it retains {have}")
    _require_committed(job, records, record)
    options = records.store.storage_options

    def table(uid: str) -> StateTable:
        return StateTable(records.paths.state(uid), uid, options, records.store.folder.retry)

    copy_checkpoint(job, records, table, record, normalize_url(path))


def _require_committed(job: str, records: JobRecords, record: CompletionRecord) -> None:
    """Whoever restores the savepoint elsewhere has nothing to commit the rest with."""
    k = record.checkpoint
    given_up = {sink for c, sink in records.abandoned_pairs() if c == k}
    waiting = sorted({c.sink for c in record.committables} - given_up)
    if waiting and not records.confirmed([k]):
        older = [c.checkpoint for c in records.completions() if c.checkpoint < k]
        instead = f", or take the savepoint of checkpoint {older[-1]}" if older else ""
        raise InvalidInputError(
            f"job {job!r}: checkpoint {k} is complete, but sinks {waiting} may lack its rows, and a savepoint does not "
            f"hold them. Start the job, which commits them; give them up with `spark-ckpt abandon`{instead}"
        )


def copy_checkpoint(
    job: str, records: JobRecords, table: Callable[[str], StateTable], record: CompletionRecord, target: str
) -> None:
    """Make ``target`` a savepoint of ``record``. Stopped anywhere: it is no savepoint, and the same call finishes it.

    Raises ``InvalidInputError`` if the folder is not free, and what storage raises.
    """
    options, mark = records.store.storage_options, SavepointMark.of(job, record)
    store = RecordStore(target, options, records.store.folder.retry)
    if read_mark(store) == mark:
        return
    reach("before the claim")
    claim(store, mark, records.store.url)
    # Stopped from here on: the claim says that what is in the folder is of this savepoint.
    reach("savepoint claimed")
    tables = {uid: _export(records, store, table(uid), ref) for uid, ref in record.tables.items()}
    for source in record.sources:
        there = Folder(JobPaths(target).source(source), options)
        copy_folder(Folder(records.paths.source(source), options), there)
    reach("state copied")
    body = replace(record, tables=tables, committables=()).to_json()
    # Last: before it the folder is no savepoint.
    made = store.create(SAVEPOINT_RECORD, "savepoint", {"job": job, "record": body})
    if isinstance(made, Exists) and read_mark(store) != mark:
        raise InvalidInputError(f"{target} was taken by another savepoint at the same time; choose an empty folder")
    reach("savepoint recorded")


def read_mark(store: RecordStore) -> SavepointMark | None:
    """Which savepoint is in the folder of ``store``; None if there is none that is complete."""
    if not store.exists(SAVEPOINT_RECORD):
        return None
    return SavepointMark.of(*read_savepoint(store))


def read_savepoint(store: RecordStore) -> tuple[str, CompletionRecord]:
    """(job, record) of the savepoint in the folder of ``store``. Raises ``InvalidInputError`` if there is none."""
    shown = redact_url(f"{store.url}/{SAVEPOINT_RECORD}")
    body = store.read(SAVEPOINT_RECORD, "savepoint")
    if body is None:
        raise InvalidInputError(f"expected a complete savepoint in {redact_url(store.url)}, found no {shown}")
    try:
        job, record = str(body["job"]), CompletionRecord.from_json(body["record"], shown)
    except (KeyError, TypeError) as e:
        raise CorruptStorageError(f"{shown} is damaged: {e!r}; use another savepoint") from e
    _check_names(record, shown)
    return job, record


def _export(records: JobRecords, store: RecordStore, table: StateTable, ref: TableRef) -> TableRef:
    manifest = read_manifest(records.store, ref.manifest)
    schema = from_delta_schema(manifest.schema)
    content, groups = table.export_savepoint(manifest.content, manifest.groups, store.url, schema=schema)
    copied = StateManifest(manifest.uid, manifest.checkpoint, 0, manifest.schema, content, groups)
    return TableRef(0, write_manifest(store, copied, "savepoint"))


def import_savepoint(records: JobRecords, path: str, options: dict[str, object], now_ms: int) -> Noted:
    """Make the savepoint at ``path`` a completed checkpoint of this job; returns its use, with the id that it has here.

    Files are linked where possible, so that it costs names and not bytes. Stopped on the way: the next start imports
    it again under another id, and ``gc`` removes what the first try left.
    """
    store = RecordStore(path, options)
    if not store.exists(SAVEPOINT_RECORD):
        raise InvalidInputError(
            f"spark.ckpt.restore={path}: expected a checkpoint id, auto, none or the folder of a savepoint; "
            f"found no {SAVEPOINT_RECORD} there"
        )
    _, source = read_savepoint(store)
    checkpoint = reserved_id(records, now_ms, source.checkpoint)
    noted = note_use(store, records, checkpoint, now_ms)
    reach("savepoint told of its use")
    try:
        tables = {uid: _import(records, store, ref, uid, checkpoint, options) for uid, ref in source.tables.items()}
        for name in source.sources:
            copy_folder(Folder(JobPaths(path).source(name), options), Folder(records.paths.source(name), options))
        record = replace(as_savepoint(source), checkpoint=checkpoint, tables=tables, kind=SAVEPOINT, target=None)
        record_complete(records, record, now_ms)
    except Exception:
        noted.take_back(records)
        raise
    return noted


def reserved_id(records: JobRecords, now_ms: int, above: int = 0) -> int:
    """A new id for a checkpoint that no batch completes. ``triggers/`` has it from now on: however long this start is
    halted, no other start, and no source, gives it to another checkpoint.

    Stopped from here on: the id is of a checkpoint that was triggered by no generation and never completed; the next
    run aborts it.
    """
    while True:
        checkpoint = max(records.newest_id(), above) + 1
        if records.create_trigger(TriggerRecord(checkpoint, CHECKPOINT, now_ms, "start", None, False, None, 0)):
            return checkpoint


def record_complete(records: JobRecords, record: CompletionRecord, now_ms: int) -> None:
    """A checkpoint of this job that no batch of it completed. Its id is one that was reserved."""
    checkpoint = record.checkpoint
    if records.is_aborted(checkpoint) or any(k >= checkpoint for k in records.ids("checkpoints")):
        raise RetryableError(
            f"another start of the job went on while this one was halted ahead of its checkpoint {checkpoint}; start "
            "the query again"
        )
    # committed/ first: a completion without it would look as if its sinks had to be committed.
    done = CommittedRecord(checkpoint, record.generation, now_ms)
    records.store.replace(JobPaths.committed(checkpoint), "committed", done.to_json())
    records.store.replace(JobPaths.copy(checkpoint, record.generation), "checkpoint", record.to_json(), durable=False)
    made = records.store.create(JobPaths.checkpoint(checkpoint), "checkpoint", record.to_json())
    if isinstance(made, Exists):
        raise RetryableError(
            f"another start of the job made its checkpoint {checkpoint} at the same time; start the query again"
        )


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
    return TableRef(done.version, write_manifest(records.store, own, uuid.uuid4().hex[:12]))


def copy_folder(source: Folder, target: Folder) -> None:
    """Copy all files below ``source`` that ``target`` lacks. They are immutable."""
    for name in source.names():
        data = source.read(name)
        if data is not None and not target.exists(name):
            target.create(name, data)
    for folder in source.folders():
        copy_folder(source.child(folder), target.child(folder))
