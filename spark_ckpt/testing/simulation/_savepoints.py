"""Savepoints of the simulation: a checkpoint copied out, and brought into a job of another name."""

from __future__ import annotations

from dataclasses import replace

from spark_ckpt.protocol.records import (
    CommittedRecord,
    CompletionRecord,
    TableRef,
)
from spark_ckpt.protocol.recovery import as_savepoint
from spark_ckpt.testing.simulation.durable import Savepoint
from spark_ckpt.testing.simulation.world import World


def export(world: World, record: CompletionRecord) -> Savepoint:
    tables = world.tables
    contents = {uid: tables.versions[uid][ref.version] for uid, ref in record.tables.items()}
    files = {(uid, f): tables.rows(uid, f) for uid, content in contents.items() for f in content}
    groups = {uid: tables.manifest(ref.manifest) for uid, ref in record.tables.items()}
    return Savepoint(replace(record, committables=()), files, contents, groups)


def import_as_new_job(world: World, savepoint: Savepoint) -> None:
    """Everything of the old job but its sinks is gone; a new one begins with the savepoint as its only checkpoint."""
    world.remove_folder()
    world.zombies = []
    world.tables.files = dict(savepoint.files)
    k = savepoint.record.checkpoint + 1
    refs = {}
    for uid, content in savepoint.contents.items():
        world.tables.versions[uid] = [content]
        world.tables.write_manifest(f"{uid}/{k}", savepoint.groups[uid])
        refs[uid] = TableRef(0, f"{uid}/{k}")
    record = replace(as_savepoint(savepoint.record), checkpoint=k, tables=refs)
    world.records.put("committed", k, CommittedRecord(k, record.generation, world.now_ms))
    world.records.put("checkpoints", k, record)
