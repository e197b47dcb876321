"""Simulated sources: splits of rows, and the shell that executes what ``protocol/source*.py`` decides.

Nothing is decided here: offsets, barriers, take-ups, expiries, announcements and restores come from the functions that
the real reader asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from spark_ckpt.protocol import source_steps as st
from spark_ckpt.protocol.events import Event, GroupManifest, Restore
from spark_ckpt.protocol.records import AbortedRecord, CompletionRecord, TriggerRecord
from spark_ckpt.protocol.source import next_offset
from spark_ckpt.protocol.source_events import announcements, manifests_to_send
from spark_ckpt.protocol.source_offset import SourceOffset, SourcePosition, initial_offset, with_inner
from spark_ckpt.protocol.source_view import SourceRole, SourceView
from spark_ckpt.testing.simulation._state import Output
from spark_ckpt.testing.simulation.durable import Answer, Location, SimulationError
from spark_ckpt.testing.simulation.world import World
from spark_ckpt.types import BEFORE_BARRIERS

Offset = dict[str, Any]
"""A source's offset as Spark's offset log keeps it."""


@dataclass(frozen=True)
class SourceSpec:
    """``splits``: the keys of each split's rows, in order. ``step``: the most rows of a split in a batch. ``ends``: it
    says so when it has read all. ``restores``, ``reaches``: operators, as the real reader is told. ``by_spark``: Spark
    itself reads its rows, so they have no epochs, and what sends its barriers is the last to do so."""

    name: str
    splits: tuple[tuple[int, ...], ...]
    lanes: int
    step: int = 3
    ends: bool = False
    poll_ms: int = 500
    restores: tuple[str, ...] = ()
    reaches: tuple[str, ...] = ()
    by_spark: bool = False

    def of_lane(self, lane: int) -> list[int]:
        return [i for i in range(len(self.splits)) if i % self.lanes == lane]

    def at_end(self, inner: Any) -> bool:
        return all(p == len(s) for p, s in zip(inner, self.splits, strict=True))


def first_offset(
    spec: SourceSpec, restored: CompletionRecord | None, origin: int, start_epoch: int, sabotage: str = ""
) -> Offset:
    position = SourcePosition.from_json({} if restored is None else restored.sources.get(spec.name, {}))
    offset = initial_offset(origin, start_epoch, None if restored is None else restored.checkpoint, position)
    skips = sabotage == "late_at_the_end" and restored is not None
    return with_inner(offset, [len(s) if skips else 0 for s in spec.splits]).to_json()


class SourceReader:
    """The driver's side of one source. Volatile; a new one after every start."""

    def __init__(self, world: World, spec: SourceSpec, role: SourceRole, location: Location) -> None:
        self.world, self.spec, self.role, self.location = world, spec, role, location
        self.view: SourceView | None = None
        self._parsed: tuple[Offset, SourceOffset] | None = None

    def latest_offset(self, start: Offset) -> Offset:
        if self._parsed is None or self._parsed[0] is not start:
            self._parsed = start, SourceOffset.from_json(start)
        before = self._parsed[1]
        steps = next_offset(self.role, self.view, before, self.world.now_ms)
        self.view, end = self.world.drive(steps, SourceShell(self.world, self.spec, self.role, self.location))
        return start if end == before else end.to_json()


class SourceShell:
    """Executes one source's steps on the simulated world, and checks what must always hold."""

    def __init__(self, world: World, spec: SourceSpec, role: SourceRole, location: Location) -> None:
        self.world, self.spec, self.role, self.location = world, spec, role, location

    def __call__(self, step: Any) -> Any:
        return getattr(self, f"_{type(step).__name__}")(step)

    def _AskInner(self, step: st.AskInner) -> st.InnerRead:
        rng, spec = self.world.rng, self.spec
        inner = list(step.inner)
        if not spec.at_end(inner):
            ahead = [min(len(s), p + rng.randint(0, spec.step)) for p, s in zip(inner, spec.splits, strict=True)]
            if self.role.available_now and ahead == inner:
                # What is there is read: only a source that is drained has nothing new.
                i = next(i for i, s in enumerate(spec.splits) if inner[i] < len(s))
                ahead[i] += 1
            inner = ahead
        finished = inner == step.inner and spec.ends and spec.at_end(inner)
        self.world.seen["a source ends"] += finished
        return st.InnerRead(inner, finished, self._injected() if self.role.last else 0)

    def _injected(self) -> int:
        """What all other sources have injected, by the newest offsets that were logged."""
        logged = self.location.offsets.get(max(self.location.offsets, default=-1), {})
        return min((o["epoch"] - 1 for name, o in logged.items() if name != self.spec.name), default=0)

    def _ReadSourceStart(self, step: st.ReadSourceStart) -> st.SourceStart:
        r = self.world.records
        done = r.completions()
        newest = max(done, default=0)
        taken = frozenset(t.request for t in r.all("triggers") if t.request is not None)
        return st.SourceStart(r.newest_id(), newest, done[newest].completed_ms if newest in done else None, taken)

    def _Look(self, step: st.Look) -> st.Looked:
        r = self.world.records
        recorded = r.recorded()
        aborted = frozenset(k for k in step.checkpoints if recorded.state(k).given_up)
        answers = self.world.answers
        released = frozenset(n for n in step.requests if n in answers and answers[n].error is not None)
        return st.Looked(max(r.completions(), default=0), aborted, released)

    def _ReadOpenTriggers(self, step: st.ReadOpenTriggers) -> tuple[TriggerRecord, ...]:
        r = self.world.records
        open_ = set(r.recorded().open_triggers())
        found = tuple(t for t in r.all("triggers") if t.checkpoint >= step.epoch and t.checkpoint in open_)
        self.world.seen["a source lags behind several triggers"] += not self.role.leader and len(found) > 1
        return found

    def _ReadRequests(self, step: st.ReadRequests) -> tuple[st.ManualRequest, ...]:
        return tuple(self.world.requests[name] for name in sorted(self.world.requests))

    def _ReadDrained(self, step: st.ReadDrained) -> frozenset[str]:
        return frozenset(s for g, s in self.world.drained if g == step.generation)

    def _ReadAborted(self, step: st.ReadAborted) -> tuple[AbortedRecord, ...]:
        return tuple(self.world.records.all("aborted"))

    def _CreateTrigger(self, step: st.CreateTrigger) -> bool:
        answer = self.world.answers.get(step.record.request or "")
        if answer is not None and not self.world.zombie_moves:
            raise SimulationError(f"{step.record} takes up a request that has its answer: {answer}")
        return self.world.records.create("triggers", step.record.checkpoint, step.record)

    def _CallHook(self, step: st.CallHook) -> str | None:
        world = self.world
        if not world.faults_left or world.rng.random() > 5 * world.fault_rate:
            return None
        world.faults_left -= 1
        return "a hook fails"

    def _DropRequest(self, step: st.DropRequest) -> None:
        self.world.requests.pop(step.request, None)

    def _Withdraw(self, step: st.Withdraw) -> bool:
        self.world.seen["a request is withdrawn by the job"] += 1
        return self.world.answer(step.request, Answer(None, step.reason)).checkpoint is None

    def _AnnounceDrained(self, step: st.AnnounceDrained) -> None:
        self.world.drained.add((step.generation, step.source))

    def _GiveUp(self, step: st.GiveUp) -> None:
        records, k = self.world.records, step.record.checkpoint
        if isinstance(records.get("checkpoints", k), CompletionRecord) and not self.world.zombie_moves:
            raise SimulationError(f"checkpoint {k} is complete and given up: {step.record}")
        records.create("aborted", k, step.record)


def read(spec: SourceSpec, start: Offset, end: Offset, key_groups: int, manifests: Iterable[Restore]) -> list[Output]:
    """One batch's partitions, executor side. A source without news is not run at all, as in Spark."""
    if start == end:
        return []
    before, behind = SourceOffset.from_json(start), SourceOffset.from_json(end)
    full = [rows for lane in range(spec.lanes) if (rows := _rows(spec, lane, before, behind))]
    said = announcements(spec.name, before, behind, key_groups, len(full))
    out = [Output(rows, _labelled(before, e)) for rows, e in zip(full or [[] for _ in said], said, strict=True)]
    restores = list(manifests)
    return [*out, Output([], _labelled(before, restores))] if restores else out


def _rows(spec: SourceSpec, lane: int, start: SourceOffset, end: SourceOffset) -> list[tuple[int, int, int]]:
    ranges = ((i, range(start.inner[i], end.inner[i])) for i in spec.of_lane(lane))
    label = BEFORE_BARRIERS if spec.by_spark else start.epoch
    return [(label, spec.splits[i][n], i * 1000 + n) for i, numbers in ranges for n in numbers]


def _labelled(start: SourceOffset, events: Iterable[Event]) -> list[tuple[int, Event]]:
    return [(start.epoch, e) for e in events]


def manifests(
    spec: SourceSpec,
    start: Offset,
    records: dict[int, CompletionRecord],
    adopt: int | None,
    replayed: bool,
    groups_of: Any,
) -> list[Restore]:
    """The restore rows of a source's batch."""
    wanted = manifests_to_send(SourceOffset.from_json(start), spec.restores, spec.reaches, adopt, replayed)
    out: list[Restore] = []
    for m in wanted:
        if m.checkpoint not in records:
            raise SimulationError(f"checkpoint {m.checkpoint} is to be restored, and its record is gone")
        groups: dict[str, dict[int, GroupManifest]] = groups_of(records[m.checkpoint])
        out += [Restore(uid, m.checkpoint, groups[uid], m.adopt) for uid in m.uids if uid in groups]
    return out


def placed(specs: Iterable[SourceSpec], operators: dict[str, tuple[str, ...]]) -> tuple[SourceSpec, ...]:
    """``specs`` with the operators that each reaches, and those whose state it restores: the first to reach one."""
    reached: dict[str, list[str]] = {}
    for uid, inputs in operators.items():
        for name in inputs:
            reached.setdefault(uid, []).extend([name] if name.startswith("source") else reached[name])
    specs, out, restored = tuple(specs), [], set()
    for spec in specs:
        reaches = tuple(uid for uid in operators if spec.name in reached[uid])
        restores = tuple(uid for uid in reaches if uid not in restored)
        restored |= set(restores)
        out.append(replace(spec, reaches=reaches, restores=restores))
    return tuple(out)
