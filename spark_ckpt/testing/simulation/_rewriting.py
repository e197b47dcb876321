"""State that a start writes anew: by a function that changes nothing, so that what must be true stays what it is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.rewriting import NewRows
from spark_ckpt.protocol.events import GroupManifest, Run
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.protocol.rewriting import Rewrite, Rewriting
from spark_ckpt.storage.content import FileEntry
from spark_ckpt.storage.run_files import run_file_name, write_run_file
from spark_ckpt.testing.simulation._folder import manifest_of, state_folder, state_of
from spark_ckpt.testing.simulation._state import STATE
from spark_ckpt.testing.simulation.durable import JOBS
from spark_ckpt.testing.simulation.world import World


def migrations(world: World, scenario: Any) -> tuple[Rewrite, ...]:
    """What stands beside the query. Before a start somebody may write another line, for half of the operators."""
    if scenario.rewrites_left and world.rng.random() < 0.5:
        scenario.rewrites_left -= 1
        scenario.rewrites += 1
        world.log("== a line to write state anew", scenario.rewrites)
    lines = ((at, uid, n) for at, uid in enumerate(scenario.operators) for n in range(scenario.rewrites))
    return tuple(Rewrite(uid, f"same-{n}") for at, uid, n in lines if (at + n) % 2 == 0)


def take_back(world: World, scenario: Any) -> None:
    """A start was refused, as there is no checkpoint whose state could be written anew."""
    scenario.rewrites -= 1
    scenario.rewrites_left += 1
    world.seen["a line to write state anew waits for a checkpoint"] += 1


def written(world: World, _: JobRecords, at: CompletionRecord, checkpoint: int, step: Rewriting) -> NewRows:
    """The rows of the table ``step.table`` of ``at``, each key group's in a file of its own."""
    world.seen["state is written anew"] += 1
    world.imports = True  # another checkpoint that no batch completed
    content, groups = dict[str, FileEntry](), dict[int, GroupManifest]()
    for number, group in manifest_of(world, at.tables[step.table]).groups.items():
        _there(world, step.table, group)
        rows = sorted(state_of(world, step.table, {number: group}).items())
        groups[number] = GroupManifest(keys=len(rows), watermarks_us=group.watermarks_us)
        if rows:
            keys, counts = zip(*rows, strict=True)
            table = pa.table([keys, counts, [0] * len(rows), keys], schema=STATE)
            name = run_file_name(checkpoint, number, f"{world.unique():012x}")
            file = write_run_file(state_folder(world.job, step.table), name, table)
            content[name] = FileEntry(file.rows, file.size_bytes)
            runs = (Run(name, 0, len(rows), checkpoint),)
            groups[number] = GroupManifest(runs, len(rows), group.watermarks_us)
    return NewRows(STATE, content, groups)


def _there(world: World, uid: str, group: GroupManifest) -> None:
    """What a start that was believed dead goes on to read, its successor may have removed since."""
    gone = [r.file for r in group.runs if f"{JOBS}/{world.job}/state/{uid}/{r.file}" not in world.disk.files]
    if gone and world.zombie_moves:
        raise CorruptStorageError(f"state files {gone} are missing")
