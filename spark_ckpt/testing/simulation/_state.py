"""A toy keyed operator over the real aligner: counts rows by key, in a memtable over runs in state files.

Every 7th row of a key removes it, so that tombstones and dead rows occur. What it emits, ``(key, count)`` for every
row, does not depend on the order in which rows arrive, so runs with other batches can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from spark_ckpt.protocol import aligner as al
from spark_ckpt.protocol.aligner import AlignerConfig, AlignerState, BatchInput
from spark_ckpt.protocol.events import (
    Barrier,
    Cancel,
    Decline,
    Event,
    Finished,
    Flushed,
    GroupManifest,
    OperatorAck,
    Restore,
    Run,
    StateFile,
)
from spark_ckpt.protocol.weights import Arrivals
from spark_ckpt.storage.deletion_vectors import encode_rows
from spark_ckpt.storage.run_files import run_file_name, write_run_file
from spark_ckpt.testing.simulation._folder import rows_of, state_folder
from spark_ckpt.testing.simulation.durable import Row, SimulationError
from spark_ckpt.testing.simulation.world import World
from spark_ckpt.types import KEY_GROUP, KEY_HASH

STATE = pa.schema([("key", pa.int64()), ("count", pa.int64()), (KEY_GROUP, pa.int32()), (KEY_HASH, pa.int64())])
REMOVE_AT = 7
DRAINED = 100
"""A drain ends every key: its last row is its count, plus this."""
RUN_LIMIT = 3


@dataclass(frozen=True)
class GroupState:
    """What Spark's state store keeps of one key group."""

    aligner: AlignerState
    memtable: dict[int, int | None] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    keys: int = 0
    held: tuple[Row, ...] = ()

    def to_json(self) -> Any:
        return self.aligner.to_json()


class TaskFiles:
    """The state files that one task (partition) writes in one batch: one an epoch."""

    def __init__(self, world: World, uid: str, partition: int) -> None:
        self.world, self.uid, self.partition = world, uid, partition
        self.attempt = f"{world.unique():012x}"
        self.rows: dict[str, list[tuple[int, int | None]]] = {}
        self.dead: dict[int, dict[str, set[int]]] = {}

    def read(self, file: str) -> list[tuple[int, int | None]]:
        return self.rows[file] if file in self.rows else rows_of(self.world, self.uid, file)

    def append(
        self, epoch: int, rows: list[tuple[int, int | None]], dead: Iterable[tuple[str, int]]
    ) -> tuple[str, int]:
        file = run_file_name(epoch, self.partition, self.attempt)
        into = self.rows.setdefault(file, [])
        start = len(into)
        into += rows
        died = self.dead.setdefault(epoch, {})
        for f, i in dead:
            died.setdefault(f, set()).add(i)
        tombstones = {start + i for i, (_, v) in enumerate(rows) if v is None}
        if tombstones:
            died.setdefault(file, set()).update(tombstones)
        return file, start

    def write(self) -> list[Flushed]:
        """Make the files durable; what the batch record must say of them."""
        out = []
        for epoch, dead in sorted(self.dead.items()):
            files = tuple(self._write(f) for f in self.rows if f.startswith(f"e{epoch:010d}-"))
            out.append(Flushed(self.uid, epoch, files, {f: encode_rows(rows) for f, rows in sorted(dead.items())}))
        return out

    def _write(self, name: str) -> StateFile:
        rows = self.rows[name]
        keys, counts, n = [k for k, _ in rows], [c for _, c in rows], len(rows)
        table = pa.table([keys, counts, [0] * n, keys], schema=STATE)
        written = write_run_file(state_folder(self.world.job, self.uid), name, table)
        self.world.run_rows[self.uid, name] = rows
        return written


@dataclass
class GroupOutput:
    rows: list[Row] = field(default_factory=list)
    controls: list[Event] = field(default_factory=list)
    snapshots: dict[int, tuple[GroupManifest, int]] = field(default_factory=dict)
    """checkpoint -> (manifest, triggered_ms)"""
    drains: set[int] = field(default_factory=set)


class GroupCall:
    """One call of the operator: one key group, one batch."""

    def __init__(
        self, uid: str, group: int, config: AlignerConfig, memtable_limit: int, files: TaskFiles, sabotage: str
    ) -> None:
        self.uid, self.group, self.config = uid, group, config
        self.memtable_limit, self.files, self.sabotage = memtable_limit, files, sabotage
        self.out = GroupOutput()
        self.epoch = 0

    def run(
        self, state: GroupState | None, rows: list[Row], controls: list[tuple[int, Event]], now_ms: int
    ) -> tuple[GroupState, GroupOutput]:
        state = state or GroupState(AlignerState.restored(0))
        adopt: dict[int, GroupManifest] = {}
        for _, event in controls:
            if isinstance(event, Restore) and event.uid == self.uid and self.group in event.groups:
                if event.adopt:
                    adopt[event.checkpoint] = event.groups[self.group]
                else:
                    state = _take_over(event.groups[self.group], AlignerState.restored(event.checkpoint), ())
        waiting = [*state.held, *rows]
        aligner, actions = al.plan(state.aligner, self.config, _batch_input(now_ms, controls, waiting))
        for action in actions:
            state, waiting = self._execute(action, state, waiting, adopt)
        return replace(state, aligner=aligner, held=tuple(waiting)), self.out

    def _execute(
        self, action: al.Action, state: GroupState, waiting: list[Row], adopt: dict[int, GroupManifest]
    ) -> tuple[GroupState, list[Row]]:
        if isinstance(action, al.Process):
            return self._process(action, state, waiting)
        if isinstance(action, al.Snapshot):
            if action.drain:
                self.out.drains.add(action.checkpoint)
                state = self._end(state)
            state = self._flush(state, action.checkpoint)
            if action.checkpoint in adopt:
                state = _take_over(adopt[action.checkpoint], state.aligner, state.held)
            self.out.snapshots[action.checkpoint] = (GroupManifest(state.runs, state.keys), action.triggered_ms)
        elif isinstance(action, al.ForwardCancel):
            self.out.controls.append(Cancel(action.checkpoint))
        elif isinstance(action, al.Declined):
            self.out.controls.append(Decline(self.uid, action.checkpoint, action.reason))
        elif sorted({row[0] for row in waiting}) != list(action.epochs) and self.sabotage != "no_hold":
            raise SimulationError(f"{self.uid}/{self.group}: {action} but {waiting} wait")
        return state, waiting

    def _process(self, action: al.Process, state: GroupState, waiting: list[Row]) -> tuple[GroupState, list[Row]]:
        everything = action.up_to is None or self.sabotage == "no_hold"
        now = [r for r in waiting if everything or r[0] <= (action.up_to or 0)]
        later = [r for r in waiting if not everything and r[0] > (action.up_to or 0)]
        self.epoch = action.epoch
        state = replace(state, memtable=dict(state.memtable))  # filled below; nobody else has it
        for _, key, _ in now:
            state = self._count(state, key, action.epoch)
            if len(state.memtable) > self.memtable_limit:
                state = self._flush(state, action.epoch)
        return state, later

    def _count(self, state: GroupState, key: int, epoch: int) -> GroupState:
        old = state.memtable[key] if key in state.memtable else self._stored(state, key)[0]
        count = (old or 0) + 1
        self.out.rows.append((epoch, key, count))
        keys = state.keys + (old is None) - (count == REMOVE_AT)
        state.memtable[key] = None if count == REMOVE_AT else count
        return state if keys == state.keys else replace(state, keys=keys)

    def _end(self, state: GroupState) -> GroupState:
        """The end of the event time, behind a drain's barrier."""
        runs = {self.files.read(r.file)[i][0] for r in state.runs for i in range(r.start, r.start + r.count)}
        keys = sorted(runs | set(state.memtable))
        found = ((k, state.memtable[k] if k in state.memtable else self._stored(state, k)[0]) for k in keys)
        live = {k: count for k, count in found if count is not None}
        self.out.rows += [(self.epoch, k, DRAINED + count) for k, count in live.items()]
        return replace(state, memtable={**state.memtable, **dict.fromkeys(live)}, keys=state.keys - len(live))

    def _stored(self, state: GroupState, key: int) -> tuple[int | None, tuple[str, int] | None]:
        """The key's value in the runs, newest first, and where its live row is."""
        for run in reversed(state.runs):
            rows = self.files.read(run.file)
            for i in range(run.start, run.start + run.count):
                if rows[i][0] == key:
                    return rows[i][1], None if rows[i][1] is None else (run.file, i)
        return None, None

    def _flush(self, state: GroupState, epoch: int) -> GroupState:
        old = {key: self._stored(state, key)[1] for key in state.memtable}
        changed = sorted(state.memtable.items())
        rows = [(k, v) for k, v in changed if v is not None or old[k] is not None]
        if rows:
            file, start = self.files.append(epoch, rows, [place for place in old.values() if place])
            state = replace(state, runs=(*state.runs, Run(file, start, len(rows), epoch)))
        state = replace(state, memtable={})
        return self._compact(state, epoch) if len(state.runs) > RUN_LIMIT else state

    def _compact(self, state: GroupState, epoch: int) -> GroupState:
        keys = {self.files.read(r.file)[i][0] for r in state.runs for i in range(r.start, r.start + r.count)}
        found = {k: self._stored(state, k) for k in sorted(keys)}
        live: list[tuple[int, int | None]] = [(k, v) for k, (v, _) in found.items() if v is not None]
        file, start = self.files.append(epoch, live, [place for _, place in found.values() if place])
        return replace(state, runs=(Run(file, start, len(live), epoch),) if live else ())


def _take_over(manifest: GroupManifest, aligner: AlignerState, held: tuple[Row, ...]) -> GroupState:
    return GroupState(aligner, {}, manifest.runs, manifest.keys, held)


def _batch_input(now_ms: int, controls: list[tuple[int, Event]], waiting: list[Row]) -> BatchInput:
    bytes_by_label: dict[int, int] = {}
    for label, _, _ in waiting:
        bytes_by_label[label] = bytes_by_label.get(label, 0) + 1
    return BatchInput.of(now_ms, Arrivals(e for _, e in controls), bytes_by_label)


@dataclass
class Output:
    """What one partition (or lane) of a stage sends on: rows, and control events with their labels."""

    rows: list[Row] = field(default_factory=list)
    controls: list[tuple[int, Event]] = field(default_factory=list)


def run_partition(
    world: World,
    uid: str,
    groups: list[int],
    call: Any,
    inputs: list[Output],
    states: dict[tuple[str, int], GroupState],
    key_groups: int,
    partition: int,
) -> tuple[dict[tuple[str, int], GroupState], Output]:
    """One task of the operator: its key groups, then the snapshot stage behind it."""
    files = TaskFiles(world, uid, partition)
    after: dict[tuple[str, int], GroupState] = {}
    out = Output()
    acks: dict[int, dict[int, GroupManifest]] = {}
    triggered: dict[int, int] = {}
    cancels: set[int] = set()
    drains: set[int] = set()
    controls = [c for o in inputs for c in o.controls]
    for group in groups:
        rows = [r for o in inputs for r in o.rows if r[1] % key_groups == group]
        state, result = call(group, files).run(states.get((uid, group)), rows, controls, world.now_ms)
        after[uid, group] = state
        out.rows += result.rows
        for checkpoint, (manifest, triggered_ms) in result.snapshots.items():
            acks.setdefault(checkpoint, {})[group] = manifest
            triggered[checkpoint] = triggered_ms
        drains |= result.drains
        cancels |= {e.checkpoint for e in result.controls if isinstance(e, Cancel)}
        out.controls += [(0, e) for e in result.controls if isinstance(e, Decline)]
    out.controls += [(0, f) for f in files.write()]
    out.controls += [(0, Cancel(k)) for k in sorted(cancels)]
    for checkpoint, manifests in sorted(acks.items()):
        out.controls.append((0, OperatorAck(uid, checkpoint, partition, manifests, {"rows": len(out.rows)})))
        out.controls.append((0, Barrier(checkpoint, len(manifests), triggered[checkpoint], checkpoint in drains)))
    if 0 in groups:
        # What is not for this stage passes through, once.
        out.controls += [(label, e) for label, e in controls if not isinstance(e, Barrier | Cancel | Finished)]
    return after, out
