"""One simulated start of the job: the driver's loop as Spark runs it, around the real start, readers and committer.

Offsets are logged before a batch runs and the commit log is written after the sink's commit, so that a restart replays
the last planned batch with the same offsets; state store versions are those of the batch before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from spark_ckpt.jobs.committer import Committer
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.jobs.start import JobPlan, begin
from spark_ckpt.protocol.aligner import AlignerConfig
from spark_ckpt.protocol.events import Event
from spark_ckpt.protocol.source_offset import SourceOffset
from spark_ckpt.spark_versions.read_limits import ReadMaxRows
from spark_ckpt.testing.simulation import _moving, _rewriting
from spark_ckpt.testing.simulation._callers import ANSWERED
from spark_ckpt.testing.simulation._changes import begun
from spark_ckpt.testing.simulation._folder import CONFIG, records_of
from spark_ckpt.testing.simulation._sinks import SimulatedSink, sink_specs
from spark_ckpt.testing.simulation._state import STATE, GroupCall, Output, TaskFiles, run_partition
from spark_ckpt.testing.simulation.durable import Location, Visible, url
from spark_ckpt.testing.simulation.sources import Offset, SourceReader, SourceSpec, open_reader, read
from spark_ckpt.testing.simulation.world import World
from spark_ckpt.types import Committable, Epoch

FINISHED, STOPPED, LEFT, DRAINED = "finished", "stopped with a savepoint", "stopped without one", "drained"
MAX_POLLS = 3000
_ENDS_AT_POSITIONS = 0.15
LIMIT = ReadMaxRows(2**31 - 1)
ROWS = pa.schema([("node", pa.string()), ("key", pa.int64()), ("value", pa.int64())])


class Query:
    """Runs until the final checkpoint or a stop-with-savepoint is complete, or, if not ``available_now``, until
    somebody stops it; dies by ``Crash`` or an error."""

    def __init__(self, world: World, scenario: Any, location: Location, available_now: bool) -> None:
        self.available_now = available_now
        self.polls = MAX_POLLS if available_now else world.rng.randint(1, 25)
        self.world, self.scenario, self.location = world, scenario, location
        # A driver that is halted in a batch goes on with the query that it was started with, whatever joins the next.
        self.sources, self.operators, self.sink_inputs = scenario.sources, scenario.operators, scenario.sink_inputs
        self.sinks = sink_specs(scenario.topology.sinks)
        self.partitions = world.rng.randint(1, scenario.key_groups)
        self.config = {
            uid: AlignerConfig(len(inputs) * scenario.key_groups, scenario.mode, scenario.max_buffered)
            for uid, inputs in self.operators.items()
        }

    def run(self) -> str:
        self.begin()
        for _ in range(self.polls):
            self.world.now_ms += self.world.rng.randint(0, self.scenario.tick_ms)
            for caller in self.scenario.callers:
                caller.step(self.world)
            if self.scenario.pausing is not None:
                self.scenario.pausing.step(self.world)
            outcome = self.poll()
            if outcome:
                return outcome
        if self.available_now:
            self.world.fail("the query makes no progress")
        return LEFT

    # --- start ---

    def begin(self) -> None:
        """Start, and repeat the batch that was planned and not committed."""
        self._start()
        self.world.log(
            "== started", f"generation {self.job.generation} origin {self.job.origin} at {self.location.path}"
        )
        if self.location.planned > self.location.committed:
            self._batch(self.location.planned)

    def _start(self) -> None:
        s, world = self.scenario, self.world
        world.imports = s.begins_from
        self.job: RunSpec = self._call(begin, self._plan())
        world.imports = False
        world.generation = self.job.generation
        if self.job.location != url(self.location.path):
            self.location = world.moves(self.location, self.job.location.removeprefix(url("")))
        if world.process is not None:
            world.process.starts = False
        at = self.job.restored_from
        restored = None if at is None else records_of(world).completion(at)
        self._check_adopt()
        begun(world, s, self.job, restored)
        _moving.begun(world, s, self.job, restored)
        if s.pausing is not None:
            s.pausing.started(world)
        self.committer = Committer(self.job, self.sinks)
        self.readers = self._open_readers()
        self.initial = {r.source.id: self._call(r.initialOffset) for r in self.readers}
        ends = self._ends()
        if ends:
            self.job = replace(self.job, ends=ends)
            self.readers = self._open_readers()

    def _ends(self) -> dict[str, Any]:
        """Where the sources end in this run, if it is one that ends at positions."""
        draw = random.Random(f"{self.world.now_ms} {self.job.generation}")  # its own: other draws stay what they are
        if not self.available_now or any(s.by_spark for s in self.sources) or draw.random() > _ENDS_AT_POSITIONS:
            return {}
        start = self._start_offsets(self.location.planned + 1)
        ends = {spec.uid: {"at": _between(start[spec.uid]["inner"]["at"], spec.splits, draw)} for spec in self.sources}
        self.world.seen["a run ends at positions"] += 1
        return ends

    def _call(self, real: Callable[..., Any], *arguments: Any) -> Any:
        """What Spark calls. A driver that was halted in it does nothing behind it."""
        found = real(*arguments)
        self.world.still()
        return found

    def _plan(self) -> JobPlan:
        s, p = self.scenario, self.scenario.policy
        config = replace(
            CONFIG,
            interval_ms=p.interval_ms,
            min_pause_ms=p.min_pause_ms,
            timeout_ms=p.timeout_ms,
            max_concurrent=p.max_concurrent,
            tolerable_failures=s.tolerable_failures,
            retain=s.retain,
            initial_delay_ms=s.initial_delay_ms,
            restore=str(s.restore),
            allow_non_restored_state=True,
            hooks=HOOKS if s.hooks else None,
        )
        tables = dict.fromkeys(self.operators, STATE)
        return JobPlan(
            self.world.job,
            config,
            url(self.location.path),
            s.topology,
            self.sinks,
            ROWS,
            tables,
            own_location=lambda generation: url(f"spark-of-{generation}"),
            migrations=(*s.moving.migrations, *_rewriting.migrations(self.world, s)),
            find_offset=partial(_moving.found, self.world, self.sources),
            write_rows=partial(_rewriting.written, self.world),
        )

    def _open_readers(self) -> list[SourceReader]:
        return [self._reader(spec) for spec in self.sources]

    def _reader(self, spec: SourceSpec) -> SourceReader:
        sources = self.sources
        last = spec.by_spark and len(sources) > 1 and self.scenario.sabotage != "not_the_last"
        drains = not any(x.by_spark for x in sources)
        reader = open_reader(self.job, spec, sources, drains, last, self.location)
        if self.available_now:
            reader.prepareForTriggerAvailableNow()
        return reader

    def _check_adopt(self) -> None:
        """Only the batch that Spark is about to repeat can be adopted."""
        k, newest = self.job.adopt, self.location.planned
        found = None if k is None else records_of(self.world).completion(k)
        if found is not None and (found.batch != newest or newest == self.location.committed):
            self.world.fail(f"batch {newest} is planned, but {found.batch} is to be adopted")

    # --- the loop ---

    def poll(self) -> str | None:
        """Look for something new, and run a batch if there is; how the query ended, if it did."""
        number = self.location.planned + 1
        start = self._start_offsets(number)
        end = {r.source.id: self._call(r.latestOffset, start[r.source.id], LIMIT) for r in self.readers}
        if self.scenario.pausing is not None:
            self.scenario.pausing.check(self.world, start, end)
        if end != start:
            self._log_offsets(number, end)
            if number:
                for r in self.readers:
                    self._call(r.commit, start[r.source.id])
            self._batch(number)
            return None
        drain = SourceOffset.from_json(end[self.sources[0].uid]).drain
        if drain is not None:
            done = any(c.checkpoint >= drain for c in records_of(self.world).completions())
            # Spark ends a query of what is available as soon as there is nothing new: the next start drains on.
            return DRAINED if done else LEFT if self.available_now else None
        if self._stopped(end):
            return STOPPED
        return self._ended(end) if self.available_now else None

    def _log_offsets(self, number: int, end: dict[str, Offset]) -> None:
        self._call(self.world.point, "plan batch", f"{number}: {end}")
        self.location.plan(number, end)
        self._call(self.world.point, "planned batch", number)

    def _ended(self, end: dict[str, Offset]) -> str:
        """Spark ends such a query as soon as no source has anything new: everything must be committed then."""
        records, specs, fail = records_of(self.world), self.sources, self.world.fail
        ends = {spec.uid: [len(s) for s in spec.splits] for spec in specs}
        ends |= {uid: at["at"] for uid, at in self.job.ends.items()}
        if any(end[uid]["inner"]["at"] != at for uid, at in ends.items()):
            fail(f"the query ends, and not where its sources end: {end}")
        last = max(records.completions(), key=lambda c: c.checkpoint, default=None)
        if last is None or any(last.sources[uid]["inner"]["at"] != at for uid, at in ends.items()):
            fail(f"the query ends without a checkpoint of everything: {last}")
        elif last.checkpoint not in records.ids("committed"):
            fail(f"the query ends before {last.checkpoint} is committed")
        for r in self.readers:
            r.stop()
        return LEFT if self.job.ends else FINISHED

    def _stopped(self, end: dict[str, Offset]) -> bool:
        """Whoever asked for a stop-with-savepoint of this generation was told that it is complete; or is not there any
        more, and the query stands still."""
        if not any(at.get("terminal") == self.job.generation for at in end.values()):
            return False
        records = records_of(self.world)
        found = (records.trigger(k) for k in records.ids("triggers"))
        mine = [t for t in found if t is not None and t.terminal and t.generation == self.job.generation]
        committed = records.ids("committed")
        done = {t.request for t in mine if t.checkpoint in committed}
        return any(c.request in done and (c.state == ANSWERED or self._is_dead(c)) for c in self.scenario.callers)

    def _is_dead(self, caller: Any) -> bool:
        said = self.world.answers.get(f"{records_path(self.world)}/answers/{caller.request}.json")
        return caller.dies and said is not None and not said["error"]

    def _start_offsets(self, number: int) -> dict[str, Offset]:
        return self._offsets(number - 1) or self.initial

    def _offsets(self, number: int) -> dict[str, Offset]:
        return self.location.offsets(number, (spec.uid for spec in self.sources))

    def _batch(self, number: int) -> None:
        start, end = self._start_offsets(number), self._offsets(number)
        before = self.location.state(number - 1)
        streams = {
            spec.name: self._call(read, r, spec, start[spec.uid], end[spec.uid])
            for r, spec in zip(self.readers, self.sources, strict=True)
        }
        after: dict[tuple[str, int], Any] = {}
        for uid in self.operators:
            streams[uid] = self._operator(uid, streams, before, after)
        staged, events = self._sink(streams)
        self._call(self.world.point, "commit state store", number)
        self.location.store(number, after)
        self._call(self.committer.commit, number, staged, events)
        self._check_view()
        self._call(self.world.point, "Spark commits batch", number)
        self.location.commit(number)
        self._call(self.world.point, "committed batch", number)

    def _operator(
        self, uid: str, streams: dict[str, list[Output]], before: dict[Any, Any], after: dict[Any, Any]
    ) -> list[Output]:
        s = self.scenario
        inputs = [_rekeyed(name, o) for name in self.operators[uid] for o in streams[name]]
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

    def _sink(self, streams: dict[str, list[Output]]) -> tuple[list[Committable], list[Event]]:
        """The writers' part: stage rows by epoch; gather what they report, in any order."""
        tasks = [(name, o) for name in self.sink_inputs for o in streams[name]]
        self.world.rng.shuffle(tasks)
        staged: list[Committable] = []
        events: list[Event] = []
        for name, output in tasks:
            if self.world.rng.random() < self.scenario.task_failures:
                self._write(name, output)
            staged += self._write(name, output)
            events += [event for _, event in output.controls]
        return staged, events

    def _write(self, name: str, output: Output) -> list[Committable]:
        by_epoch: dict[int, list[Visible]] = {}
        for label, key, value in output.rows:
            if (name, key, value) != self.world.filtered:
                by_epoch.setdefault(label, []).append((name, key, value))
        out = []
        for epoch, rows in sorted(by_epoch.items()):
            for spec in self.sinks:
                self._call(self.world.point, "stage rows", f"{spec.id} epoch {epoch}")
                data = SimulatedSink(spec.options).stage(self.job.identity, rows)
                out.append(Committable(spec.id, Epoch(epoch), data))
        return out

    def _check_view(self) -> None:
        """What the sink's process remembers is what another would rebuild; and another may do the next batch."""
        if self.world.rng.random() < 0.2:
            fresh = Committer(self.job, self.sinks)
            known, found = self.committer._view, fresh._rebuilt()
            # What was dropped, and its answer lost, is dropped once more.
            for name in ("last",) if self.scenario.faults else ("last", "completed", "committed"):
                if getattr(known, name) != getattr(found, name) and not self.world.zombies_moved:
                    self.world.fail(f"{name} is {getattr(known, name)}, rebuilt {getattr(found, name)}")
            if self.world.rng.random() < 0.5:
                self.committer = fresh


def _between(at: Sequence[int], splits: Sequence[Sequence[int]], draw: random.Random) -> list[int]:
    """Of each split a place from ``at`` to its end."""
    return [draw.randint(p, len(split)) for p, split in zip(at, splits, strict=True)]


HOOKS = "spark_ckpt.testing.simulation.hooks:SimulatedHooks"


def records_path(world: World) -> str:
    return f"jobs/{world.job}"


def _rekeyed(name: str, output: Output) -> Output:
    """Rows of an operator get another key on their way to the next, as a second groupBy would give them."""
    if name.startswith("source"):
        return output
    return Output([(label, (key + value) % 5, value) for label, key, value in output.rows], output.controls)
