"""Simulated sources: lanes over splits, barriers at lane end, offsets as plain JSON as Spark's offset log keeps them.

The first source leads: it decides triggers. The others follow ``triggers/``, perhaps batches later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from spark_ckpt.errors import CheckpointFailedError
from spark_ckpt.protocol import coordinator as co
from spark_ckpt.protocol.events import Barrier, Cancel, Event, Finished, GroupManifest, Restore, SourceAck
from spark_ckpt.protocol.records import EXPIRED, LOST, SAVEPOINT, AbortedRecord, CompletionRecord, TriggerRecord
from spark_ckpt.testing.simulation_state import Output
from spark_ckpt.testing.simulation_world import World

Offset = dict[str, Any]


@dataclass(frozen=True)
class SourceSpec:
    """``splits``: the keys of each split's rows, in order."""

    name: str
    splits: tuple[tuple[int, ...], ...]
    lanes: int

    def weight(self, lane: int, key_groups: int) -> int:
        return key_groups // self.lanes + (lane < key_groups % self.lanes)

    def of_lane(self, lane: int) -> list[int]:
        return [i for i in range(len(self.splits)) if i % self.lanes == lane]


def initial_offset(spec: SourceSpec, restored: CompletionRecord | None, origin: int) -> Offset:
    if restored is None:
        inner, epoch = [0] * len(spec.splits), 1
    else:
        inner, epoch = list(restored.sources[spec.name]["inner"]), restored.checkpoint + 1
    return {
        "inner": inner,
        "epoch": epoch,
        "barrier": None,
        "triggered_ms": 0,
        "cancels": [],
        "cancelled": [],
        "pending": [],
        "finished": [],
        "stop": None,
        "opened": False,
        "origin": origin,
    }


class SourceReader:
    """The driver's side of one source: ``latestOffset``. Volatile; a new one after every start."""

    def __init__(self, world: World, spec: SourceSpec, leader: bool, generation: int, scenario: Any) -> None:
        self.world, self.spec, self.leader, self.generation = world, spec, leader, generation
        self.scenario = scenario
        self.started_ms = world.now_ms
        self.first = True
        self.waiting: co.Wait | None = None

    def latest_offset(self, start: Offset, origin: int, base: int) -> Offset:
        end = {**start, "barrier": None, "cancels": [], "opened": True}
        done = self._done(origin, base)
        self._read(end, done)
        if self.leader:
            self._lead(end, done, base)
        else:
            self._follow(end, done)
        self._finish_lanes(end)
        changed = end["barrier"] is not None or end["cancels"] or end["inner"] != start["inner"]
        return end if changed or not start["opened"] or end["finished"] != start["finished"] else start

    def at_end(self, offset: Offset) -> bool:
        return all(p == len(s) for p, s in zip(offset["inner"], self.spec.splits, strict=True))

    def _read(self, end: Offset, done: set[int]) -> None:
        stop = end["stop"]
        if stop is not None and not self._resumed(stop, done):
            return
        end["stop"] = None
        sizes = [len(s) for s in self.spec.splits]
        step = self.scenario.rows_per_batch
        end["inner"] = [min(n, p + self.world.rng.randint(0, step)) for p, n in zip(end["inner"], sizes, strict=True)]

    def _resumed(self, stop: int, done: set[int]) -> bool:
        """Whether a stop-with-savepoint is over: it failed, or this is a later start of the job."""
        records = self.world.records
        trigger = records.get("triggers", stop)
        if trigger is None:
            return True
        return stop in records.text["aborted"] or (trigger.generation < self.generation and stop in done)

    def _done(self, origin: int, base: int) -> set[int]:
        records = self.world.records
        newest = max((k for k, c in records.completions().items() if c.origin == origin), default=base)
        return set(range(newest + 1)) | set(records.text["aborted"]) | records.voids()

    def _finish_lanes(self, end: Offset) -> None:
        """A lane whose splits have ended may finish; lane 0 stays for the barriers."""
        for lane in range(1, self.spec.lanes):
            ended = all(end["inner"][i] == len(self.spec.splits[i]) for i in self.spec.of_lane(lane))
            if ended and lane not in end["finished"] and self.world.rng.random() < 0.3:
                end["finished"] = [*end["finished"], lane]

    def _inject(self, end: Offset, trigger: TriggerRecord) -> None:
        end["barrier"], end["triggered_ms"] = trigger.checkpoint, trigger.time_ms
        end["epoch"] = trigger.checkpoint + 1
        end["cancelled"] = [k for k in end["cancelled"] if k > trigger.checkpoint]
        if trigger.terminal:
            end["stop"] = trigger.checkpoint

    # --- follower ---

    def _follow(self, end: Offset, done: set[int]) -> None:
        triggers = self.world.records.all("triggers")
        ready = [t for t in triggers if t.checkpoint >= end["epoch"] and t.checkpoint not in done]
        if not ready or (ready[0].kind == co.FINAL and not self.at_end(end)):
            return  # a final checkpoint is final for every source
        if self.world.rng.random() < self.scenario.follow_rate:
            self._inject(end, ready[0])

    # --- leader ---

    def _lead(self, end: Offset, done: set[int], base: int) -> None:
        records = self.world.records
        if self.first:
            self.first = False
            open_triggers = [t for t in records.all("triggers") if t.checkpoint not in done]
            for k in co.decide_lost(open_triggers, self.generation, end["epoch"]):
                self._abort(k, LOST, "its generation ended before it was injected")
        pending = [k for k in end["pending"] if k not in done]
        triggers = [records.get("triggers", k) for k in pending]
        facts = tuple(co.PendingTrigger(t.checkpoint, t.time_ms, t.terminal) for t in triggers)
        for e in co.decide_expiry(self.scenario.policy, facts, self.world.now_ms):
            self._abort(e.checkpoint, EXPIRED, e.reason)
        self._cancel(end, pending)
        end["pending"] = [k for k in pending if k not in records.text["aborted"]]
        self._trigger(end, tuple(p for p in facts if p.checkpoint in end["pending"]), base)

    def _cancel(self, end: Offset, pending: list[int]) -> None:
        """Send a marker for what is aborted, once, also for what only a follower injected."""
        aborted = self.world.records.text["aborted"]
        known = {*pending, *end["pending"], *(k for k in aborted if k >= end["epoch"])}
        end["cancels"] = sorted(k for k in known if k in aborted and k not in end["cancelled"])
        end["cancelled"] = sorted({*end["cancelled"], *end["cancels"]})

    def _abort(self, checkpoint: int, cause: str, reason: str) -> None:
        records = self.world.records
        self.world.point("before abort", checkpoint)
        records.put("aborted", checkpoint, AbortedRecord(checkpoint, cause, reason, self.world.now_ms, self.generation))
        self.world.point("after abort", checkpoint)
        counter = co.FailureCounter(self.scenario.tolerable_failures).add(records.all("aborted"), self.generation)
        newest = max(records.completions(), default=0)
        if cause == EXPIRED and counter.completed(newest).exceeded:
            raise CheckpointFailedError(reason)

    def _trigger(self, end: Offset, pending: tuple[co.PendingTrigger, ...], base: int) -> None:
        decision = co.decide_trigger(self.scenario.policy, self._facts(end, pending, base))
        self.waiting = decision if isinstance(decision, co.Wait) else None
        if isinstance(decision, co.Wait):
            return
        r = self.world.records
        k = max([base, *r.text["triggers"], *r.text["checkpoints"], *r.text["aborted"]]) + 1
        trigger = TriggerRecord(
            k,
            decision.kind,
            self.world.now_ms,
            decision.by,
            decision.target,
            decision.terminal,
            decision.request,
            self.generation,
        )
        self.world.point("before trigger", trigger)
        r.create("triggers", k, trigger)
        self.world.point("after trigger", k)
        self._inject(end, trigger)
        end["pending"] = [*end["pending"], k]

    def _facts(self, end: Offset, pending: tuple[co.PendingTrigger, ...], base: int) -> co.TriggerFacts:
        r = self.world.records
        completions = r.completions()
        mine = [t for t in r.all("triggers") if t.generation == self.generation]
        complete = [t for t in mine if t.checkpoint in completions]
        return co.TriggerFacts(
            now_ms=self.world.now_ms,
            started_ms=self.started_ms,
            initial_delay_ms=self.scenario.initial_delay_ms,
            last_trigger_ms=max((t.time_ms for t in mine), default=None),
            last_completion_ms=max((c.completed_ms for c in completions.values()), default=None),
            pending=pending,
            requests=self._requests(),
            at_end=self.at_end(end),
            final_done=any(t.kind == co.FINAL for t in complete),
            stopping=any(t.terminal for t in complete),
        )

    def _requests(self) -> tuple[co.ManualRequest, ...]:
        answered = {t.request for t in self.world.records.all("triggers")} | self.scenario.answered
        asked = [
            co.ManualRequest(name, SAVEPOINT, at_ms, f"savepoint-{name}", terminal)
            for name, at_ms, terminal in self.scenario.savepoints
            if at_ms <= self.world.now_ms and name not in answered
        ]
        self.scenario.answered |= answered - {None}
        return tuple(asked)


def read(spec: SourceSpec, start: Offset, end: Offset, key_groups: int, restores: Iterable[Restore]) -> list[Output]:
    """One batch's lanes, executor side. A source without news is not run at all, as in Spark."""
    if start == end:
        return []
    return [_read_lane(spec, lane, start, end, key_groups, restores) for lane in range(spec.lanes)]


def _read_lane(
    spec: SourceSpec, lane: int, start: Offset, end: Offset, key_groups: int, restores: Iterable[Restore]
) -> Output:
    label, barrier = start["epoch"], end["barrier"]
    out = Output()
    for i in spec.of_lane(lane):
        rows = range(start["inner"][i], end["inner"][i])
        out.rows += [(label, spec.splits[i][n], i * 1000 + n) for n in rows]
    controls: list[Event] = []
    weight = spec.weight(lane, key_groups)
    if lane in end["finished"]:
        controls += [Finished(weight)] if lane not in start["finished"] else []
    elif barrier is not None:
        controls.append(Barrier(barrier, weight, end["triggered_ms"]))
    if lane == 0:
        controls += [*restores, *(Cancel(k) for k in end["cancels"])]
        if barrier is not None:
            controls.append(SourceAck(spec.name, barrier, end))
    out.controls = [(label, e) for e in controls]
    return out


def restores_for(checkpoint: int, groups: dict[str, dict[int, GroupManifest]], adopt: bool) -> list[Restore]:
    return [Restore(uid, checkpoint, manifests, adopt) for uid, manifests in groups.items()]
