"""What must hold whenever something of a job's folder changes, whoever changed it."""

from __future__ import annotations

import json
from typing import Any

from spark_ckpt.protocol.life import identity
from spark_ckpt.protocol.records import FAILED, SAVEPOINT, SUBSUMED, CompletionRecord, TriggerRecord
from spark_ckpt.storage.job_paths import SAVEPOINT_RECORD
from spark_ckpt.testing.simulation._folder import live_rows, manifest_of, state_of
from spark_ckpt.testing.simulation.durable import JOBS, folder_of, url
from spark_ckpt.testing.simulation.sources import stood
from spark_ckpt.testing.simulation.world import World


def check(world: World, path: str, data: bytes | None) -> None:
    """``path`` holds ``data`` now; None: it is gone."""
    if data is None:
        if folder_of(world.job, path) == "answers":
            for gone in [p for p in world.answers if p not in world.disk.files]:
                del world.answers[gone]
        return
    look = _LOOKS.get(folder_of(world.job, path))
    if look is not None:
        look(world, _body(data), path)
    elif path.endswith(f"/{SAVEPOINT_RECORD}"):
        _savepoint(world, _body(data)["record"], path)


def _body(data: bytes) -> Any:
    return json.loads(data)["body"]


def _read(world: World, path: str) -> Any:
    """The record at ``path``; None if it is not there, or torn."""
    data = world.disk.files.get(f"{JOBS}/{world.job}/{path}")
    try:
        return None if data is None else _body(data)
    except ValueError:
        return None


def _completion(world: World, checkpoint: int) -> CompletionRecord | None:
    body = _read(world, f"checkpoints/{checkpoint:010d}.json")
    return None if body is None or body.get("void") else CompletionRecord.from_json(body)


def _trigger(world: World, checkpoint: int) -> TriggerRecord | None:
    body = _read(world, f"triggers/{checkpoint:010d}.json")
    return None if body is None else TriggerRecord.from_json(body)


# --- by folder -----------------------------------------------------------------------------------------------------


def _checkpoint(world: World, body: Any, path: str) -> None:
    if body.get("void"):
        return
    record = CompletionRecord.from_json(body)
    if record.drained and path not in world.drained and record.origin > 0:
        world.drained.add(path)
        world.seen["a job is drained"] += 1
        world.drains.append(stood(record.sources))
    if not world.zombie_moves:  # whose successor may have collected its files since; nobody reads what it made
        for uid, ref in record.tables.items():
            _state(world, uid, record.checkpoint, ref)


def _state(world: World, uid: str, checkpoint: int, ref: Any) -> None:
    manifest = manifest_of(world, ref)
    live = live_rows(world, manifest)
    if sorted(live) != sorted(state_of(world, uid, dict(manifest.groups)).items()):
        world.fail(f"{uid} at {checkpoint}: the table's live rows are not the state")


def _committed(world: World, body: Any, _path: str) -> None:
    k = body["checkpoint"]
    record = _completion(world, k)
    if record is None:
        if not world.zombie_moves and not world.imports:
            world.fail(f"checkpoint {k} is confirmed as committed and has no record")
        return
    if record.target and body["savepoint_error"] is None and record.target not in world.savepoints:
        world.fail(f"savepoint {record.target} is announced before it is written")


def _aborted(world: World, body: Any, _path: str) -> None:
    k, cause = body["checkpoint"], body["cause"]
    world.seen[f"a checkpoint is aborted: {cause}"] += 1
    world.seen["storage fails, and the query goes on"] += cause == FAILED
    if world.zombie_moves:
        return
    if _completion(world, k) is not None:
        world.fail(f"checkpoint {k} is complete and given up: {body}")
    trigger = _trigger(world, k)
    ours = trigger is not None and trigger.generation == world.generation
    if cause == SUBSUMED and trigger is not None and ours and trigger.kind == SAVEPOINT:
        world.fail(f"a savepoint is subsumed: {body}")


def _triggered(world: World, body: Any, path: str) -> None:
    if path in world.triggered:
        return  # the hooks' state is put in
    world.triggered.add(path)
    answer = _read(world, f"answers/{body['request']}.json") if body["request"] else None
    if answer is not None and not world.zombie_moves:
        world.fail(f"{body} takes up a request that has its answer: {answer}")


def _answered(world: World, body: Any, path: str) -> None:
    before = world.answers.setdefault(path, body)
    if before["checkpoint"] not in (None, body["checkpoint"]):
        world.fail(f"{path} is answered twice: {before} and {body}")


def _savepoint(world: World, body: Any, path: str) -> None:
    record = CompletionRecord.from_json(body)
    abandoned = world.disk.names(f"{JOBS}/{world.job}/abandoned")
    completion = _completion(world, record.checkpoint)
    for sink in {c.sink for c in (completion.committables if completion else ())}:
        done = record.checkpoint in world.sink.targets[identity(world.job, record.life), sink].ledger
        if not done and f"{record.checkpoint:010d}-{sink}.json" not in abandoned and not world.sabotage:
            world.fail("a savepoint is written before its checkpoint is committed")
    world.savepoints[url(path.removesuffix(f"/{SAVEPOINT_RECORD}"))] = record.completed_ms


_LOOKS = {
    "checkpoints": _checkpoint,
    "committed": _committed,
    "aborted": _aborted,
    "triggers": _triggered,
    "answers": _answered,
}
