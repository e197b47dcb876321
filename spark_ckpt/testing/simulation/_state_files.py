"""What the simulation's state files and tables hold, and which of them nobody names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from spark_ckpt.protocol.events import GroupManifest
from spark_ckpt.protocol.records import (
    CompletionRecord,
)
from spark_ckpt.testing.simulation.world import World


def epoch_of_file(name: str) -> int:
    return int(name[1:11])


def live_rows(world: World, uid: str, content: dict[str, frozenset[int]]) -> list[tuple[int, int]]:
    """What a reader of the table version sees."""
    out = []
    for file, dead in content.items():
        rows = world.tables.rows(uid, file)
        out += [(k, v) for i, (k, v) in enumerate(rows) if i not in dead and v is not None]
    return out


def state_of(world: World, uid: str, groups: dict[int, GroupManifest] | Any) -> dict[int, int]:
    """What an operator finds when it looks through its runs, oldest first."""
    state: dict[int, int] = {}
    for group in groups.values():
        for run in group.runs:
            for key, value in world.tables.rows(uid, run.file)[run.start : run.start + run.count]:
                state.pop(key, None)
                if value is not None:
                    state[key] = value
    return state


def collect(world: World, named_by: Iterable[CompletionRecord], old: Callable[[int], bool]) -> None:
    """Delete the state files that are ``old`` and that no checkpoint of ``named_by`` names."""
    named = set()
    for record in named_by:
        for uid, ref in record.tables.items():
            named |= {(uid, r.file) for g in world.tables.manifest(ref.manifest).values() for r in g.runs}
    for uid, name in list(world.tables.files):
        if (uid, name) not in named and old(epoch_of_file(name)):
            del world.tables.files[uid, name]
