"""What survives a crash in the simulation besides the disk: Spark's checkpoint locations, staged and visible rows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from spark_ckpt.testing.simulation.disk import SCHEME, Disk
from spark_ckpt.types import Committable

Row = tuple[int, int, int]
"""(label, key, value)"""
Visible = tuple[str, int, int]
"""(node that made it, key, value)"""

JOBS, READ_ONLY = "jobs", "savepoints/read-only"
"""Folders of the disk."""


def url(path: str) -> str:
    return f"{SCHEME}://{path}"


def folder_of(job: str, path: str) -> str:
    """The folder of ``job`` that the file is in; empty for a file elsewhere."""
    mine = f"{JOBS}/{job}/"
    return path[len(mine) :].partition("/")[0] if path.startswith(mine) else ""


class SimulationError(AssertionError):
    """An invariant does not hold."""


@dataclass
class Location:
    """A Spark checkpoint location: offset log, commit log, and the state store's versions, by batch.

    What there is of them says the disk, where they are as Spark writes them; here is what they say."""

    path: str
    disk: Disk
    _offsets: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    _state: dict[int, dict[tuple[str, int], Any]] = field(default_factory=dict)

    @property
    def planned(self) -> int:
        """The newest batch in the offset log; -1 if there is none."""
        return max(self._batches("offsets"), default=-1)

    @property
    def committed(self) -> int:
        return max(self._batches("commits"), default=-1)

    def offsets(self, batch: int, uids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Where the sources of a query stand behind ``batch``; nothing if it was not planned. As Spark reads them: a
        line is of the source that has its place in the plan, whoever wrote it."""
        return dict(zip(uids, self._offsets[batch], strict=True)) if batch in self._batches("offsets") else {}

    def state(self, batch: int) -> dict[tuple[str, int], Any]:
        return self._state[batch] if batch in self._batches("state") else {}

    def plan(self, batch: int, offsets: dict[str, dict[str, Any]]) -> None:
        self._offsets[batch] = list(offsets.values())
        self._put("offsets", batch, "\n".join(["v1", "{}", *map(json.dumps, offsets.values())]))

    def store(self, batch: int, state: dict[tuple[str, int], Any]) -> None:
        self._state = {n: s for n, s in self._state.items() if n >= batch - 2} | {batch: state}
        self._put("state", batch, "")

    def commit(self, batch: int) -> None:
        self._put("commits", batch, "v1\n{}")

    def copy(self) -> Location:
        return Location(self.path, self.disk, dict(self._offsets), dict(self._state))

    def _batches(self, log: str) -> list[int]:
        return [int(n) for n in self.disk.folders.get(f"{self.path}/{log}", ())]

    def _put(self, log: str, batch: int, text: str) -> None:
        self.disk.put(f"{self.path}/{log}/{batch}", text.encode())


def _staged_by(job: str, sink: str) -> bytes:
    return f"{sink}|{job}|".encode()


@dataclass
class Target:
    """What one sink keeps of one job: which checkpoints it shows, by id what was committed, and the rows."""

    ledger: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    rows: Counter[Visible] = field(default_factory=Counter)
    """All that were committed; of a sink that merges, too."""
    merged: dict[tuple[str, int], int] = field(default_factory=dict)
    by_checkpoint: dict[int, list[Visible]] = field(default_factory=dict)
    given_up: Counter[Visible] = field(default_factory=Counter)
    """Rows that somebody gave up by hand."""
    forgotten: int = 0
    """The checkpoint before which nobody asks again, which is as far as a sink may forget."""
    staged: dict[bytes, list[Visible]] = field(default_factory=dict)
    """In a copy: what lay beside the rows then."""


@dataclass
class ToySink:
    """Staged rows by id, and what readers see: all rows, and of a sink that merges the newest value by key.

    ``job`` is what a sink knows the job by, its identity; each has its rows in a place of its own here."""

    staged: dict[bytes, list[Visible]] = field(default_factory=dict)
    targets: dict[tuple[str, str], Target] = field(default_factory=lambda: defaultdict(Target))
    """By job and sink."""
    committed: set[bytes] = field(default_factory=set)
    undone: set[bytes] = field(default_factory=set)
    """What was committed and taken back by a rollback."""
    refusals: float = 0.0
    """How many commits it will never take."""
    refused: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """Commits that fail for ever, by job, sink and checkpoint: how often they did."""
    try_refusals: float = 0.0
    """How many checkpoints it refuses when it is asked ahead of their completion."""
    refused_rows: dict[str, Visible] = field(default_factory=dict)
    """By sink: a row that it refuses whenever it is asked."""

    def give_up(self, job: str, sink: str, committables: tuple[Committable, ...]) -> None:
        """A person did. gc removes what is staged."""
        rows = [row for c in committables for row in self.staged.pop(c.data)]
        self.targets[job, sink].given_up.update(rows)

    def publish(self, job: str, sink: str, checkpoint: int, rows: list[Visible]) -> None:
        target = self.targets[job, sink]
        target.rows.update(rows)
        target.by_checkpoint.setdefault(checkpoint, []).extend(rows)
        if sink == "merge":
            target.merged.update({(node, key): value for node, key, value in rows})

    def undo(self, job: str, sink: str, behind: int) -> None:
        """What checkpoints behind ``behind`` brought was never there."""
        target = self.targets[job, sink]
        kept = {k: rows for k, rows in target.by_checkpoint.items() if k <= behind}
        for k in [k for k in target.ledger if k > behind]:
            data = set(target.ledger.pop(k))
            self.undone |= data
            self.committed -= data
        target.rows, target.merged, target.by_checkpoint = Counter(), {}, {}
        for k, rows in sorted(kept.items()):
            self.publish(job, sink, k, rows)

    def copy_of(self, job: str, sink: str) -> Target:
        staged = {data: rows for data, rows in self.staged.items() if data.startswith(_staged_by(job, sink))}
        return replace(deepcopy(self.targets[job, sink]), staged=staged)

    def put(self, job: str, sink: str, copy: Target) -> None:
        """``copy`` in place of what is there, with what was staged then."""
        mine = _staged_by(job, sink)
        others = {data: rows for data, rows in self.staged.items() if not data.startswith(mine)}
        self.staged = others | copy.staged
        self.committed -= copy.staged.keys()
        self.targets[job, sink] = replace(deepcopy(copy), staged={})

    def seen_in(self, job: str, sink: str) -> Counter[Visible]:
        """What it got, rows that were given up by hand included."""
        target = self.targets[job, sink]
        return target.rows + target.given_up
