"""What survives a crash in the simulation besides the disk: Spark's checkpoint locations, staged and visible rows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from spark_ckpt.testing.simulation._disk import SCHEME, Disk
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
    _offsets: dict[int, dict[str, dict[str, Any]]] = field(default_factory=dict)
    _state: dict[int, dict[tuple[str, int], Any]] = field(default_factory=dict)

    @property
    def planned(self) -> int:
        """The newest batch in the offset log; -1 if there is none."""
        return max(self._batches("offsets"), default=-1)

    @property
    def committed(self) -> int:
        return max(self._batches("commits"), default=-1)

    def offsets(self, batch: int) -> dict[str, dict[str, Any]]:
        """Where the sources stand behind ``batch``; nothing if it was not planned."""
        return self._offsets[batch] if batch in self._batches("offsets") else {}

    def state(self, batch: int) -> dict[tuple[str, int], Any]:
        return self._state[batch] if batch in self._batches("state") else {}

    def plan(self, batch: int, offsets: dict[str, dict[str, Any]]) -> None:
        self._offsets[batch] = offsets
        self._put("offsets", batch, "\n".join(["v1", "{}", *map(json.dumps, offsets.values())]))

    def store(self, batch: int, state: dict[tuple[str, int], Any]) -> None:
        self._state = {n: s for n, s in self._state.items() if n >= batch - 2} | {batch: state}
        self._put("state", batch, "")

    def commit(self, batch: int) -> None:
        self._put("commits", batch, "v1\n{}")

    def _batches(self, log: str) -> list[int]:
        return [int(n) for n in self.disk.folders.get(f"{self.path}/{log}", ())]

    def _put(self, log: str, batch: int, text: str) -> None:
        self.disk.put(f"{self.path}/{log}/{batch}", text.encode())


@dataclass
class ToySink:
    """Staged rows by id, and what readers see: appended rows, and the newest value by key.

    ``job`` is what a sink knows the job by, its identity; each has its rows in a place of its own here."""

    staged: dict[bytes, list[Visible]] = field(default_factory=dict)
    ledger: dict[tuple[str, str, int], tuple[bytes, ...]] = field(default_factory=dict)
    committed: set[bytes] = field(default_factory=set)
    appended: dict[str, Counter[Visible]] = field(default_factory=lambda: defaultdict(Counter))
    merged: dict[str, dict[tuple[str, int], int]] = field(default_factory=lambda: defaultdict(dict))
    refusals: float = 0.0
    """How many commits it will never take."""
    refused: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """Commits that fail for ever, by job, sink and checkpoint: how often they did."""
    try_refusals: float = 0.0
    """How many checkpoints it refuses when it is asked ahead of their completion."""
    forgotten: dict[tuple[str, str], int] = field(default_factory=dict)
    """By job and sink: the checkpoint before which nobody asks again, which is as far as a sink may forget."""
    given_up: dict[str, Counter[Visible]] = field(default_factory=lambda: defaultdict(Counter))
    """Rows of the appending sink that somebody gave up by hand."""

    def give_up(self, job: str, sink: str, committables: tuple[Committable, ...]) -> None:
        """A person did. gc removes what is staged."""
        rows = [row for c in committables for row in self.staged.pop(c.data)]
        if sink == "append":
            self.given_up[job].update(rows)

    def publish(self, job: str, sink: str, rows: list[Visible]) -> None:
        for node, key, value in rows:
            if sink == "append":
                self.appended[job][node, key, value] += 1
            else:
                self.merged[job][node, key] = value
