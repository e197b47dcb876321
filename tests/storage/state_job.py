"""A small job that keeps keyed state in a state table, with an oracle that knows what every version must hold."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from spark_ckpt.protocol.events import Flushed, GroupManifest, Run
from spark_ckpt.storage.content import TableContent
from spark_ckpt.storage.deletion_vectors import encode_rows
from spark_ckpt.storage.run_files import run_file_name, write_run_file
from spark_ckpt.storage.state_table import StateTable, TableCommit
from spark_ckpt.types import KEY_GROUP, KEY_HASH

GROUPS = 3
KEYS = 30
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), (KEY_GROUP, pa.int32()), (KEY_HASH, pa.int64())])


def rows_table(rows: Iterable[tuple[int, str | None]]) -> pa.Table:
    found = list(rows)
    keys = [k for k, _ in found]
    return pa.table(
        {"k": keys, "v": [v for _, v in found], KEY_GROUP: [k % GROUPS for k in keys], KEY_HASH: keys}, schema=SCHEMA
    )


def read_version(url: str, version: int | None = None) -> list[tuple[int, str]]:
    """What delta-rs reads, duplicates included."""
    table = DeltaTable(url, version=version)
    query = QueryBuilder().register("t", table).execute("select k, v, _key_group from t order by k, v")
    rows = pa.table(query.read_all()).to_pylist()
    assert all(row["_key_group"] == row["k"] % GROUPS for row in rows)
    return [(row["k"], row["v"]) for row in rows]


@dataclass
class Group:
    """A key group: its runs, and where each live key's row is."""

    runs: list[Run] = field(default_factory=list)
    live: dict[int, tuple[str, str, int]] = field(default_factory=dict)


@dataclass
class Recorded:
    """A completed checkpoint: what a completion record and a manifest would say, and the oracle's rows."""

    checkpoint: int
    version: int
    content: TableContent
    groups: dict[int, GroupManifest]
    state: dict[int, Group]
    rows: list[tuple[int, str]]


@dataclass
class Job:
    """One run of a job. ``state`` is what the operators hold, ``flushed`` what they said since the base checkpoint."""

    table: StateTable
    random: random.Random
    state: dict[int, Group] = field(default_factory=lambda: {g: Group() for g in range(GROUPS)})
    flushed: list[Flushed] = field(default_factory=list)
    base: Recorded | None = None
    recorded: list[Recorded] = field(default_factory=list)
    next_checkpoint: int = 1
    generation: int = 1
    attempts: int = 0

    def rows(self) -> list[tuple[int, str]]:
        return sorted((k, value) for group in self.state.values() for k, (value, _, _) in group.live.items())

    def groups(self) -> dict[int, GroupManifest]:
        return {g: GroupManifest(tuple(s.runs), len(s.live)) for g, s in self.state.items()}

    def batch(self) -> None:
        """One task flushes some key groups, and some of those compact."""
        self.attempts += 1
        task = _Task(run_file_name(self.next_checkpoint, 0, f"a{self.attempts}"), self.next_checkpoint)
        for number, group in self.state.items():
            if self.random.random() < 0.7:
                task.flush(group, self._changes(number, group))
            if self.random.random() < 0.3 and len(group.runs) > 1:
                task.compact(group, self.random.randrange(len(group.runs)))
        self.flushed.append(task.finish(self.table))

    def commit(self) -> TableCommit:
        base = self.base.content if self.base else None
        return self.table.commit("job/u", self.next_checkpoint, base, self.flushed, self.groups(), self.generation)

    def checkpoint(self) -> Recorded:
        """A checkpoint that completes."""
        done = self.commit()
        state = copy.deepcopy(self.state)
        self.base = Recorded(self.next_checkpoint, done.version, done.content, self.groups(), state, self.rows())
        self.recorded.append(self.base)
        self.flushed = []
        self.next_checkpoint += 1
        return self.base

    def restart(self, at: Recorded | None) -> None:
        """Go on from checkpoint ``at``: everything since is forgotten, on storage it stays."""
        self.base = at
        self.state = copy.deepcopy(at.state) if at else {g: Group() for g in range(GROUPS)}
        self.flushed = []
        self.generation += 1
        self.table = StateTable(self.table.url, self.table.uid)

    def step(self) -> None:
        """Something that happens to a job."""
        self.batch()
        what = self.random.random()
        if what < 0.5:
            self.checkpoint()
        elif what < 0.6:  # committed, killed before the completion record, and the same checkpoint is taken again
            self.commit()
            self.restart(self.base)
        elif what < 0.65:  # the same, and the checkpoint is given up then
            self.commit()
            self.restart(self.base)
            self.next_checkpoint += 1
        elif what < 0.75 and self.recorded:
            self.restart(self.random.choice(self.recorded))
        elif what < 0.8:
            self.next_checkpoint += 1  # aborted: what was flushed counts for the next one

    def _changes(self, number: int, group: Group) -> dict[int, str | None]:
        keys = [k for k in range(number, KEYS, GROUPS) if self.random.random() < 0.3]
        remove = 1.0 if self.random.random() < 0.1 else 0.3
        return {k: None if k in group.live and self.random.random() < remove else f"{k}@{self.attempts}" for k in keys}


class _Task:
    def __init__(self, file: str, epoch: int) -> None:
        self.file = file
        self.epoch = epoch
        self.written: list[tuple[int, str | None]] = []
        self.dead: dict[str, set[int]] = {}

    def flush(self, group: Group, changes: dict[int, str | None]) -> None:
        for key in changes:
            if key in group.live:
                _, file, row = group.live.pop(key)
                self.dead.setdefault(file, set()).add(row)
        self._append(group, {k: v for k, v in changes.items() if v is not None}, len(group.runs))
        removed = {k: None for k, v in changes.items() if v is None}
        start = self._append(group, removed, len(group.runs))
        self.dead.setdefault(self.file, set()).update(range(start, start + len(removed)))

    def compact(self, group: Group, first: int) -> None:
        """Merge the runs from ``first`` on. Tombstones vanish if no older run is left."""
        merged = group.runs[first:]
        inside = {(run.file, run.start + i) for run in merged for i in range(run.count)}
        keep = {k: v for k, (v, file, row) in group.live.items() if (file, row) in inside}
        for file, row in inside:
            self.dead.setdefault(file, set()).add(row)
        # Ahead of the rows that are kept: those are newer than a tombstone of the same key.
        group.runs[first:] = [run for run in merged if run.tombstones] if first > 0 else []
        self._append(group, keep, len(group.runs))

    def finish(self, table: StateTable) -> Flushed:
        dead = {file: encode_rows(sorted(rows)) for file, rows in self.dead.items() if rows}
        if not self.written:
            return Flushed(table.uid, self.epoch, (), dead)
        return Flushed(table.uid, self.epoch, (write_run_file(table.url, self.file, rows_table(self.written)),), dead)

    def _append(self, group: Group, rows: dict[int, str | None], place: int) -> int:
        start = len(self.written)
        if rows:
            tombstones = next(iter(rows.values())) is None
            group.runs.insert(place, Run(self.file, start, len(rows), self.epoch, tombstones))
        for key, value in sorted(rows.items()):
            if value is not None:
                group.live[key] = (value, self.file, len(self.written))
            self.written.append((key, value))
        return start


def new_job(url: str, seed: int) -> Job:
    table = StateTable(url, "u")
    table.create_if_absent(SCHEMA, "state of u")
    return Job(table, random.Random(seed))
