"""Torn writes: the machine stops in the middle of a step, and half of what it wrote is there.

A local folder and an object store show a file whole or not at all; this is storage that does not. What is left of a
record has its name and no valid checksum: the name stays taken, and what it said is lost. Nothing that came behind it
in the same driver has happened, so whoever follows the message of the next start loses and doubles nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from spark_ckpt.storage.record_store import encode_record
from spark_ckpt.testing.simulation.durable import folder_of

if TYPE_CHECKING:
    from spark_ckpt.testing.simulation.world import World

_MAY_TEAR = (
    "generations", "triggers", "batches", "checkpoints", "copies", "committed", "aborted", "manifests", "requests",
    "answers", "drained",
)  # fmt: skip


def torn(world: World, writing: tuple[str, bytes | None] | None) -> bool:
    """Leave half of what is written now; False if nothing is, or it is written in place of a good one elsewhere."""
    path, data = writing or ("", None)
    folder = folder_of(world.job, path)
    if data is None or folder not in _MAY_TEAR:
        return False
    if world.sabotage == "torn_is_whole" and folder == "checkpoints":
        data = _with_half_its_committables(data)
    else:
        data = data[: len(data) // 2]
        world.torn[path] = data
    world.log("== torn", path)
    world.disk.put(path, data)
    if folder == "checkpoints" and world.rng.random() < 0.5:
        _lose_copy(world, path)
    world.seen[f"half a record in {folder}"] += 1
    return True


def _lose_copy(world: World, path: str) -> None:
    """Its copy, which is not synced, did not survive the machine."""
    job, _, name = path.rpartition("/checkpoints/")
    mark = name.removesuffix(".json")
    for copy in world.disk.names(f"{job}/copies"):
        if copy.startswith(mark):
            world.disk.drop(f"{job}/copies/{copy}")


def _with_half_its_committables(data: bytes) -> bytes:
    record: dict[str, Any] = json.loads(data)
    body = record["body"]
    staged = body.get("committables", [])
    return encode_record("checkpoint", {**body, "committables": staged[: len(staged) // 2]}, record["writer"])
