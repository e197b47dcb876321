"""A checkpoint whose state is written anew becomes another checkpoint of the job, which a start restores. Driver.

Stopped anywhere before the last record: files and table versions that no checkpoint names, as a start and the next
commit go by manifests. Behind it: a checkpoint that no start has chosen; the next start makes one of its own.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_ckpt import clock
from spark_ckpt.errors import ProtocolBugError
from spark_ckpt.faults import reach
from spark_ckpt.jobs._savepoints import record_complete, reserved_id
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.protocol.events import GroupManifest
from spark_ckpt.protocol.records import CHECKPOINT, CompletionRecord, TableRef, Topology
from spark_ckpt.protocol.recovery import as_savepoint
from spark_ckpt.protocol.rewriting import Rewriting, by_names, rewritings, rewritten
from spark_ckpt.storage.content import FileEntry
from spark_ckpt.storage.delta_schema import to_delta_schema
from spark_ckpt.storage.manifest import StateManifest, read_manifest, write_manifest
from spark_ckpt.storage.state_table import StateTable

_log = logging.getLogger("spark_ckpt")


@dataclass(frozen=True)
class NewRows:
    """State files that were written into a table's folder, and what they hold."""

    schema: pa.Schema
    content: Mapping[str, FileEntry]
    groups: Mapping[int, GroupManifest]

    @property
    def keys(self) -> int:
        return sum(group.keys for group in self.groups.values())


WriteRows = Callable[[JobRecords, CompletionRecord, int, Rewriting], NewRows]
"""Writes the state files of one table, of a checkpoint, for the checkpoint with this id."""


def rewrite_checkpoint(
    job: str, records: JobRecords, at: CompletionRecord, told: Topology, write: WriteRows
) -> CompletionRecord:
    """``told``: the topology of ``at``, migrated. Raises what ``write`` raises."""
    checkpoint, tables, keys = reserved_id(records, clock.now_ms()), {}, {}
    for step in rewritings(told):
        made = write(records, at, checkpoint, step)
        reach("state written anew")
        before = sum(read_manifest(records.store, at.tables[t].manifest).keys for t in step.of)
        if not step.names and before != made.keys:
            raise ProtocolBugError(f"the state of {step.table!r} had {before} keys and has {made.keys} written anew")
        tables[step.table], keys[step.table] = _published(job, records, checkpoint, step.table, made), made.keys
        _log.warning(
            "Job %s: the state of %r was written anew%s: %d rows of %d. This is done once.", job, step.table,
            by_names(step.names), made.keys, before,
        )  # fmt: skip
    new = as_savepoint(rewritten(at, told, tables))
    # Manifests are dropped with their checkpoint, and ``at`` goes before this one.
    kept = {
        t: replace(ref, manifest=_copied(records, checkpoint, ref)) for t, ref in new.tables.items() if t not in tables
    }
    new = replace(new, tables={**kept, **tables})
    stats = {**new.stats, **{table: {"keys": n} for table, n in keys.items()}}
    record = replace(new, checkpoint=checkpoint, kind=CHECKPOINT, target=None, request=None, stats=stats)
    record_complete(records, record, clock.now_ms())
    reach("rewritten checkpoint recorded")
    return record


def _copied(records: JobRecords, checkpoint: int, ref: TableRef) -> str:
    manifest = read_manifest(records.store, ref.manifest)
    return write_manifest(records.store, replace(manifest, checkpoint=checkpoint), uuid.uuid4().hex[:12])


def _published(job: str, records: JobRecords, checkpoint: int, uid: str, made: NewRows) -> TableRef:
    table = StateTable(records.paths.state(uid), uid, records.store.storage_options)
    recorded = records.table_versions().get(uid, -1)
    table.create_if_absent(made.schema, f"keyed state of {uid}, job {job}", reset=True, recorded=recorded)
    done = table.rollback(f"rewritten/{uid}", checkpoint, dict(made.content))
    manifest = StateManifest(uid, checkpoint, done.version, to_delta_schema(made.schema), done.content, made.groups)
    # A start that was believed dead may write the same checkpoint of the same table.
    return TableRef(done.version, write_manifest(records.store, manifest, uuid.uuid4().hex[:12]))
