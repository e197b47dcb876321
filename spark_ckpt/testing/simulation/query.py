"""One simulated start of the job: the driver's loop as Spark runs it.

Offsets are logged before a batch runs and the commit log is written after the sink's commit, so that a restart replays
the last planned batch with the same offsets; state store versions are those of the batch before.
"""

from __future__ import annotations

from typing import Any

from spark_ckpt.protocol.aligner import AlignerConfig
from spark_ckpt.protocol.commit import JobView, commit_batch, labelled, rebuild
from spark_ckpt.protocol.events import (
    Event,
    Restore,
)
from spark_ckpt.protocol.records import BatchRecord, CompletionRecord, GenerationRecord
from spark_ckpt.protocol.recovery import GoOn, RestoreFrom
from spark_ckpt.protocol.source_offset import SourceOffset
from spark_ckpt.protocol.source_view import SourceRole
from spark_ckpt.protocol.startup import start_job
from spark_ckpt.protocol.weights import batch_record
from spark_ckpt.testing.simulation._callers import ANSWERED
from spark_ckpt.testing.simulation._changes import begun
from spark_ckpt.testing.simulation._shell import Shell
from spark_ckpt.testing.simulation._state import GroupCall, Output, TaskFiles, run_partition
from spark_ckpt.testing.simulation.durable import Location, SimulationError, Visible
from spark_ckpt.testing.simulation.sources import Offset, SourceReader, SourceSpec, first_offset, manifests, read
from spark_ckpt.testing.simulation.world import World
from spark_ckpt.types import Committable, Epoch

FINISHED, STOPPED, LEFT, DRAINED = "finished", "stopped with a savepoint", "stopped without one", "drained"
MAX_POLLS = 3000


class Query:
    """Runs until the final checkpoint or a stop-with-savepoint is complete, or, if not ``available_now``, until
    somebody stops it; dies by ``Crash`` or an error."""

    def __init__(self, world: World, scenario: Any, location: Location, available_now: bool) -> None:
        self.available_now = available_now
        self.polls = MAX_POLLS if available_now else world.rng.randint(1, 25)
        self.world, self.scenario, self.location = world, scenario, location
        self.shell = Shell(world, scenario.job, location, scenario.topology, scenario.sabotage)
        self.shell.refusals, self.shell.try_refusals = scenario.refusals, scenario.try_refusals
        self.shell.restore = scenario.restore
        self.partitions = world.rng.randint(1, scenario.key_groups)
        self.config = {
            uid: AlignerConfig(len(inputs) * scenario.key_groups, scenario.mode, scenario.max_buffered)
            for uid, inputs in scenario.operators.items()
        }

    def run(self) -> str:
        self.begin()
        for _ in range(self.polls):
            self.world.now_ms += self.world.rng.randint(0, self.scenario.tick_ms)
            for caller in self.scenario.callers:
                caller.step(self.world)
            outcome = self.poll()
            if outcome:
                return outcome
        if self.available_now:
            raise SimulationError("the query makes no progress")
        return LEFT

    # --- start ---

    def begin(self) -> None:
        """Start, and repeat the batch that was planned and not committed."""
        self._start()
        self.world.log("== started", f"generation {self.generation} origin {self.origin} at {self.location.path}")
        last = max(self.location.offsets, default=-1)
        if last > self.location.committed:
            self._batch(last, replayed=True)

    def _start(self) -> None:
        s = self.scenario
        claim = GenerationRecord(
            self._next_generation(), 0, self.location.path, None, self.world.now_ms, s.topology, self.world.life
        )
        started = self.world.drive(start_job(s.job, claim, self.world.now_ms), self.shell)
        self.generation, self.origin = started.generation.generation, started.generation.origin
        self.life = started.generation.life
        self.inherited = frozenset(started.inherited)
        decision = started.decision
        self.restored: CompletionRecord | None = None
        if isinstance(decision, GoOn):
            self.restored = decision.restored
            self._check_adopt(decision)
        elif isinstance(decision, RestoreFrom):
            self.restored = decision.checkpoint
        begun(self.world, s, decision)
        self.restored_from = started.generation.restored_from or 0
        self.adopt = decision.adopt.checkpoint if isinstance(decision, GoOn) and decision.adopt else None
        epoch = self.restored_from + 1
        self.initial = {
            spec.name: first_offset(spec, self.restored, self.origin, epoch, s.sabotage) for spec in s.sources
        }
        self.view = self._rebuild()
        self.readers = [SourceReader(self.world, spec, self._role(spec), self.location) for spec in s.sources]

    def _next_generation(self) -> int:
        """The first of a later life is numbered by the clock, and what is left of a torn record is a trace."""
        known = max(self.world.records.text["generations"], default=0)
        return known + 1 if known or not self.world.lives else self.world.now_ms

    def _role(self, spec: SourceSpec) -> SourceRole:
        s = self.scenario
        return SourceRole(
            source=spec.name,
            leader=spec is s.sources[0],
            generation=self.generation,
            started_ms=self.world.now_ms,
            initial_delay_ms=s.initial_delay_ms,
            poll_ms=spec.poll_ms,
            others=frozenset(x.name for x in s.sources) - {spec.name},
            available_now=self.available_now,
            tolerable_failures=s.tolerable_failures,
            policy=s.policy,
            inherited=self.inherited,
            can_drain=not any(x.by_spark for x in s.sources),
            last=spec.by_spark and len(s.sources) > 1 and s.sabotage != "not_the_last",
        )

    def _check_adopt(self, decision: GoOn) -> None:
        newest = max(self.location.offsets, default=-1)
        if decision.adopt and (decision.adopt.batch != newest or newest == self.location.committed):
            raise SimulationError(f"batch {newest} is planned, but {decision.adopt.batch} is to be adopted")

    def _rebuild(self) -> JobView:
        r = self.world.records
        return rebuild(
            job=self.scenario.job,
            topology=self.scenario.topology,
            generation=self.generation,
            origin=self.origin,
            restored=self.restored or r.completions().get(self.restored_from),
            completions=r.completions().values(),
            batches=r.all("batches"),
            committed=r.text["committed"],
            aborted=r.all("aborted"),
            voided=r.voids(),
            tolerable_failures=self.scenario.tolerable_failures,
            retain=self.scenario.retain,
            abandoned=r.abandoned(),
            adopt=self.adopt,
            life=self.life,
            timeout_ms=self.scenario.policy.timeout_ms,
            started_ms=r.get("generations", self.generation).started_ms,
        )

    # --- the loop ---

    def poll(self) -> str | None:
        """Look for something new, and run a batch if there is; how the query ended, if it did."""
        number = max(self.location.offsets, default=-1) + 1
        start = self._start_offsets(number)
        end = {x.spec.name: x.latest_offset(start[x.spec.name]) for x in self.readers}
        if end != start:
            self.world.point("plan batch", f"{number}: {end}")
            self.location.offsets[number] = end
            self.world.point("planned batch", number)
            self._batch(number)
            return None
        drain = SourceOffset.from_json(end[self.scenario.sources[0].name]).drain
        if drain is not None:
            done = max(self.world.records.completions(), default=0) >= drain
            # Spark ends a query of what is available as soon as there is nothing new: the next start drains on.
            return DRAINED if done else LEFT if self.available_now else None
        if self._stopped():
            return STOPPED
        return self._ended(end) if self.available_now else None

    def _ended(self, end: dict[str, Offset]) -> str:
        """Spark ends such a query as soon as no source has anything new: everything must be committed then."""
        r, specs = self.world.records, self.scenario.sources
        if not all(spec.at_end(end[spec.name]["inner"]) for spec in specs):
            raise SimulationError(f"the query ends before its input: {end}")
        last = max(r.completions().values(), key=lambda c: c.checkpoint, default=None)
        if last is None or not all(spec.at_end(last.sources[spec.name]["inner"]) for spec in specs):
            raise SimulationError(f"the query ends without a checkpoint of everything: {last}")
        if last.checkpoint not in r.text["committed"]:
            raise SimulationError(f"the query ends before {last.checkpoint} is committed")
        return FINISHED

    def _stopped(self) -> bool:
        """Whoever asked for a stop-with-savepoint of this generation was told that it is complete; or is not there any
        more, and the query stands still."""
        r = self.world.records
        mine = [t for t in r.all("triggers") if t.terminal and t.generation == self.generation]
        done = {t.request for t in mine if t.checkpoint in r.text["committed"]}
        answers = self.world.answers
        dead = {c.name for c in self.scenario.callers if c.dies and c.name in answers and not answers[c.name].error}
        told = {c.name for c in self.scenario.callers if c.state == ANSWERED}
        return bool(done & (told | dead))

    def _start_offsets(self, number: int) -> dict[str, Offset]:
        return self.location.offsets.get(number - 1) or self.initial

    def _batch(self, number: int, replayed: bool = False) -> None:
        start, end = self._start_offsets(number), self.location.offsets[number]
        before = self.location.state.get(number - 1, {})
        streams = {
            spec.name: read(spec, start[spec.name], end[spec.name], self.scenario.key_groups, restores)
            for spec in self.scenario.sources
            for restores in [self._restores(spec, start[spec.name], replayed)]
        }
        after: dict[tuple[str, int], Any] = {}
        for uid in self.scenario.operators:
            streams[uid] = self._operator(uid, streams, before, after)
        record = self._sink(number, streams)
        if len(self.view.pending) > 1:
            self.world.seen["several checkpoints are under way"] += 1
        self.world.point("commit state store", number)
        self.location.state = {n: s for n, s in self.location.state.items() if n == number - 1}
        self.location.state[number] = after
        self.view = self.world.drive(commit_batch(self.view, record, self.world.now_ms), self.shell)
        self._check_view()
        self.world.point("Spark commits batch", number)
        self.location.committed = number
        self.world.point("committed batch", number)

    def _restores(self, spec: SourceSpec, start: Offset, replayed: bool) -> list[Restore]:
        """What a source sends ahead of its data: the restored checkpoint, or the one that this replay adopts."""
        adopt = None if self.scenario.sabotage == "no_adopt" else self.adopt
        records = self.world.records.completions()
        return manifests(spec, start, records, adopt, replayed, self._groups)

    def _groups(self, record: CompletionRecord) -> dict[str, Any]:
        return {uid: self.world.tables.manifest(ref.manifest) for uid, ref in record.tables.items()}

    def _operator(
        self, uid: str, streams: dict[str, list[Output]], before: dict[Any, Any], after: dict[Any, Any]
    ) -> list[Output]:
        s = self.scenario
        inputs = [_rekeyed(name, o) for name in s.operators[uid] for o in streams[name]]
        self.world.rng.shuffle(inputs)

        def call(group: int, files: TaskFiles) -> GroupCall:
            return GroupCall(uid, group, self.config[uid], s.memtable_limit, files, s.sabotage)

        out = []
        for p in range(self.partitions):
            groups = [g for g in range(s.key_groups) if g % self.partitions == p]
            if self.world.rng.random() < s.task_failures:
                # A task that fails at its end leaves files behind; Spark runs it again.
                run_partition(self.world, uid, groups, call, inputs, before, s.key_groups, p)
            states, output = run_partition(self.world, uid, groups, call, inputs, before, s.key_groups, p)
            after.update(states)
            out.append(output)
        return out

    # --- sink ---

    def _sink(self, number: int, streams: dict[str, list[Output]]) -> BatchRecord:
        """The writers' part: stage rows by epoch; fold what they report, in any order."""
        tasks = [(name, o) for name in self.scenario.sink_inputs for o in streams[name]]
        self.world.rng.shuffle(tasks)
        staged: list[Committable] = []
        events: list[Event] = []
        for name, output in tasks:
            if self.world.rng.random() < self.scenario.task_failures:
                self._write(name, output)
            staged += self._write(name, output)
            events += [event for _, event in output.controls]
        return labelled(self.view, batch_record(self.origin, number, self.generation, staged, events))

    def _write(self, name: str, output: Output) -> list[Committable]:
        by_epoch: dict[int, list[Visible]] = {}
        for label, key, value in output.rows:
            by_epoch.setdefault(label, []).append((name, key, value))
        out = []
        for epoch, rows in sorted(by_epoch.items()):
            for sink in self.scenario.topology.sinks:
                self.world.point("stage rows", f"{sink} epoch {epoch}")
                data = f"{sink}-{self.world.unique()}".encode()
                self.world.sink.staged[data] = rows
                out.append(Committable(sink, Epoch(epoch), data))
        return out

    def _check_view(self) -> None:
        """What the sink's process remembers is what another process would rebuild."""
        if self.world.rng.random() < 0.2:
            fresh = self._rebuild()
            for name in ("last", "completed", "committed"):
                if name != "last" and self.scenario.faults:
                    continue  # what was dropped, and its answer lost, is dropped once more
                if getattr(fresh, name) != getattr(self.view, name) and not self.world.zombies_moved:
                    raise SimulationError(f"{name} is {getattr(self.view, name)}, rebuilt {getattr(fresh, name)}")
            if self.world.rng.random() < 0.5:
                self.view = fresh


def _rekeyed(name: str, output: Output) -> Output:
    """Rows of an operator get another key on their way to the next, as a second groupBy would give them."""
    if name.startswith("source"):
        return output
    return Output([(label, (key + value) % 5, value) for label, key, value in output.rows], output.controls)
