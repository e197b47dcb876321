"""Torn writes: the machine stops in the middle of a step, and half of what it wrote is there.

A local folder and an object store show a record whole or not at all; this is storage that does not. What is left of a
record has its name and no valid checksum: the name stays taken, and what it said is lost. Nothing that came behind it
in the same driver has happened, so whoever follows the message of the next start loses and doubles nothing.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spark_ckpt.protocol import source_steps as st
from spark_ckpt.protocol import steps as s
from spark_ckpt.protocol.events import groups_to_json
from spark_ckpt.protocol.records import CompletionRecord

if TYPE_CHECKING:
    from spark_ckpt.testing.simulation.world import World

CREATED: dict[type, str] = {
    s.CreateGeneration: "generations",
    s.CreateVoid: "checkpoints",
    s.CreateCompletion: "checkpoints",
    s.WriteAborted: "aborted",
    st.GiveUp: "aborted",
    st.CreateTrigger: "triggers",
}
REPLACED: dict[type, str] = {s.WriteGeneration: "generations", s.WriteBatch: "batches", s.WriteCommitted: "committed"}
"""Where the records of steps go: create-if-absent, or in place of what is there."""


def tear(world: World, step: Any) -> bool:
    """Leave half of what ``step`` writes; False if it writes nothing that could be torn."""
    folder = CREATED.get(type(step)) or REPLACED.get(type(step))
    if folder is not None:
        return _tear_record(world, folder, step)
    if isinstance(step, s.CommitState):
        _tear_table(world, step)
    elif isinstance(step, s.AppendHistory):
        world.history.append(None)
    elif isinstance(step, s.AnswerRequest | st.Withdraw) and step.request not in world.answers:
        world.torn_answers.add(step.request)
    else:
        return False
    return True


def _tear_record(world: World, folder: str, step: Any) -> bool:
    record = step.record
    name = record.name if folder == "batches" else record.generation if folder == "generations" else record.checkpoint
    if type(step) in CREATED and name in world.records.text[folder]:
        return False
    if world.sabotage == "torn_is_whole" and isinstance(record, CompletionRecord):
        half = record.committables[: len(record.committables) // 2]
        world.records.put(folder, name, replace(record, committables=half))
    else:
        world.records.tear(folder, name, record)
    world.seen[f"half a record in {folder}"] += 1
    return True


def _tear_table(world: World, step: s.CommitState) -> None:
    """A version of the table, and a manifest, that nothing names."""
    files = [f.file for flushed in step.flushed for f in flushed.files]
    versions = world.tables.versions.setdefault(step.uid, [])
    versions.append({name: frozenset() for name in files[: len(files) // 2]})
    text = json.dumps(groups_to_json(step.groups))
    world.tables.manifests[f"{step.uid}/{step.checkpoint}-{world.unique()}"] = text[: len(text) // 2]
    world.seen["half a state table's version"] += 1
