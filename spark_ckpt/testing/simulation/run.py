"""A seeded simulation of the whole protocol: driver, lanes, key groups, sink and storage on a fake clock.

The real coordinator, aligner, commit and recovery code runs; everything around it is simulated. The seed decides the
job's shape, the batches, which source follows when, task failures, declines, time-outs, savepoints, where the process
stops, where it starts again, and what drivers believed dead still do. At the end the visible rows and the state must
be those of a run without any of that, and after garbage collection nothing unnamed may be left.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from spark_ckpt.errors import (
    CheckpointFailedError,
    ConfigError,
    CorruptStorageError,
    FencedError,
    InvalidInputError,
    StorageNotWritableError,
)
from spark_ckpt.protocol.aligner import AT_LEAST_ONCE, EXACTLY_ONCE
from spark_ckpt.protocol.coordinator import TriggerPolicy
from spark_ckpt.protocol.life import identity
from spark_ckpt.protocol.records import CHECKPOINT, SAVEPOINT, CompletionRecord, Topology
from spark_ckpt.protocol.source_steps import SourceStep
from spark_ckpt.protocol.steps import Step
from spark_ckpt.testing.simulation._callers import Caller
from spark_ckpt.testing.simulation._changes import another_life, arrange, change_sources, visible
from spark_ckpt.testing.simulation._on_call import fresh_location, on_call
from spark_ckpt.testing.simulation._shell import collect, import_as_new_job, live_rows
from spark_ckpt.testing.simulation._state import DRAINED as DRAINED_COUNT
from spark_ckpt.testing.simulation._state import REMOVE_AT
from spark_ckpt.testing.simulation.query import DRAINED, FINISHED, STOPPED, Query
from spark_ckpt.testing.simulation.sources import SourceSpec
from spark_ckpt.testing.simulation.world import Crash, Location, SimulationError, Visible, World

SABOTAGES = (
    "commit_before_record",
    "no_adopt",
    "no_hold",
    "no_void",
    "no_fence",
    "torn_is_whole",
    "failed_is_done",
    "same_life",
    "late_at_the_end",
    "not_the_last",
)
"""Rules that can be broken on purpose; the simulation must notice every one."""

SHAPES: tuple[tuple[int, Mapping[str, tuple[str, ...]], tuple[str, ...]], ...] = (
    (1, {}, ("source0",)),
    (2, {}, ("source0", "source1")),
    (1, {"x": ("source0",)}, ("x",)),
    (2, {"x": ("source0", "source1")}, ("x",)),
    (3, {"x": ("source0", "source1", "source2"), "y": ("x",)}, ("y",)),
    (2, {"x": ("source0",)}, ("x", "source1")),
    (2, {"x": ("source0",), "y": ("x", "source1")}, ("y",)),
    (2, {"x": ("source0",), "y": ("source0", "source1")}, ("x", "y")),
)
"""How many sources, the operators with their inputs (upstream first), and what ends at the sink."""


@dataclass
class Scenario:
    """One job and its luck, drawn from a seed."""

    job: str
    key_groups: int
    sources: tuple[SourceSpec, ...]
    operators: Mapping[str, tuple[str, ...]]
    sink_inputs: tuple[str, ...]
    topology: Topology
    mode: str
    policy: TriggerPolicy
    max_buffered: int | None
    tolerable_failures: int
    retain: int
    memtable_limit: int
    tick_ms: int
    task_failures: float
    initial_delay_ms: int
    callers: tuple[Caller, ...]
    stops: tuple[int | str, ...]
    fresh_rate: float
    fork_rate: float
    streaming_rate: float
    faults: int
    slow: int
    refusals: float = 0.0
    sabotage: str = ""
    tears: int = 0
    lives: int = 0
    joins: str = ""
    leaves: str = ""
    all_sources: tuple[SourceSpec, ...] = ()
    all_operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    all_sink_inputs: tuple[str, ...] = ()
    restore: str | int = "auto"
    deleted: bool = False
    carried: Counter[Visible] = field(default_factory=Counter)
    """What is visible of the job from whose savepoint this one began."""
    before: Counter[Visible] = field(default_factory=Counter)
    """What was visible already when the job began anew, after its checkpoints were deleted."""
    left_at: dict[str, list[int]] = field(default_factory=dict)
    """Where sources stood that left the job."""
    restores: int = 0
    forks: int = 0
    given_up: int = 0


@dataclass(frozen=True)
class Report:
    """What a run went through; what it found wrong is raised."""

    seed: int
    stops: int
    starts: int
    restores: int
    checkpoints: int
    aborted: int
    savepoints: int
    forks: int
    given_up: int
    points: int
    seen: Counter[str]


def make_scenario(rng: random.Random, sabotage: str = "", by_spark: bool = False) -> Scenario:
    """``by_spark``: the last of the sources is one that Spark itself reads."""
    key_groups = rng.randint(1, 4)
    count, operators, sink_inputs = rng.choice(SHAPES)
    sources = tuple(_source(rng, f"source{i}", key_groups) for i in range(count))
    if by_spark:
        # Its end is not told, and its rows are of its lanes' tasks all the same.
        sources = (*sources[:-1], replace(sources[-1], by_spark=True, ends=False))
    operator_facts = {uid: {"state": "count long", "keys": "key long"} for uid in operators}
    names = tuple(s.name for s in sources)
    weight = len(sink_inputs) * key_groups
    topology = Topology(key_groups, weight, names, operator_facts, rng.choice((("append",), ("append", "merge"))))
    exactly_once = sabotage or rng.random() < 0.85
    scenario = Scenario(
        job="simulated",
        key_groups=key_groups,
        sources=sources,
        operators=operators,
        sink_inputs=sink_inputs,
        all_sources=sources,
        all_operators=operators,
        all_sink_inputs=sink_inputs,
        topology=topology,
        mode=EXACTLY_ONCE if exactly_once else AT_LEAST_ONCE,
        policy=TriggerPolicy(
            interval_ms=rng.choice((500, 1500, 4000)),
            min_pause_ms=rng.choice((0, 0, 1000)),
            timeout_ms=rng.choice((2500, 20_000, 600_000)),
            max_concurrent=rng.choice((1, 1, 2, 3)),
        ),
        max_buffered=rng.choice((None, None, 1, 4)),
        tolerable_failures=rng.choice((0, 1, 100)),
        retain=rng.randint(1, 3),
        memtable_limit=rng.randint(1, 6),
        tick_ms=rng.choice((300, 1200)),
        task_failures=rng.choice((0.0, 0.05)),
        initial_delay_ms=rng.randint(0, 500),
        callers=tuple(_caller(rng, i, not sabotage) for i in range(rng.randint(0, 3))),
        stops=tuple(_stop(rng) for _ in range(rng.randint(0, 7))),
        fresh_rate=rng.choice((0.0, 0.3, 0.6)),
        fork_rate=rng.choice((0.0, 0.5)),
        refusals=rng.choice((0.0, 0.0, 0.1)),
        streaming_rate=rng.choice((0.0, 0.0, 0.6)),
        faults=0 if sabotage not in ("", "failed_is_done") else rng.choice((0, 0, 2, 5)),
        slow=rng.choice((0, 0, 3, 10)),
        sabotage=sabotage,
        tears=rng.choice((0, 0, 1, 3)),
        lives=rng.choice((0, 0, 0, 1, 2)),
        joins=rng.choice(("", names[-1])) if count > 1 else "",
    )
    scenario.leaves = rng.choice(("", *names[1:])) if count > 1 else ""
    if any(c.drain for c in scenario.callers):
        scenario.joins = scenario.leaves = ""  # what a drain ends would depend on when they did
    arrange(scenario, tuple(n for n in names if n != scenario.joins))
    return scenario


def _source(rng: random.Random, name: str, key_groups: int) -> SourceSpec:
    keys = rng.randint(1, 6)
    splits = [tuple(rng.randrange(keys) for _ in range(rng.randint(0, 12))) for _ in range(rng.randint(1, 3))]
    return SourceSpec(
        name,
        tuple(splits),
        rng.randint(1, min(len(splits), key_groups)),
        step=rng.randint(1, 5),
        ends=rng.random() < 0.4,
        poll_ms=rng.choice((0, 500, 4000, 20_000)),
    )


def _caller(rng: random.Random, number: int, drains: bool) -> Caller:
    return Caller(
        f"request{number}",
        1_000_000 + rng.randint(0, 20_000),
        kind=SAVEPOINT if rng.random() < 0.8 else CHECKPOINT,
        terminal=rng.random() < 0.4,
        timeout_ms=rng.choice((500, 5_000, 600_000)),
        dies=rng.random() < 0.2,
        read_only=rng.random() < 0.15,
        drain=drains and rng.random() < 0.25,
    )


def _stop(rng: random.Random) -> int | str:
    """Where the process stops: before or after a step of some kind, or after so many points."""
    if rng.random() < 0.4:
        kinds: list[str] = [cls.__name__ for cls in (*get_args(Step), *get_args(SourceStep))]
        return rng.choice(kinds)
    return int(rng.expovariate(1 / rng.choice((10, 60, 200))))


def run_seed(seed: int, sabotage: str = "", trace: list[str] | None = None) -> Report:
    """One run. Raises ``SimulationError`` (or what broke) if anything is wrong; ``trace`` collects what happened."""
    rng = random.Random(seed)
    scenario = make_scenario(rng, sabotage, sabotage == "not_the_last" or (not sabotage and seed % 4 == 3))
    world = World(rng, trace)
    world.log("scenario", scenario)
    world.faults_left, world.fault_rate, world.slow_left = scenario.faults, rng.choice((0.001, 0.01)), scenario.slow
    world.tears_left, world.sabotage = scenario.tears, sabotage
    starts = _run(world, scenario)
    check_end(world, scenario)
    return Report(
        seed,
        len(scenario.stops),
        starts,
        scenario.restores,
        max(world.records.completions()),
        sum(h is not None and h.outcome != "completed" for h in world.history),
        len(world.savepoints),
        scenario.forks,
        scenario.given_up,
        world.points,
        world.seen,
    )


def _run(world: World, scenario: Scenario) -> int:
    stops = list(scenario.stops)
    location = world.locations.setdefault("spark0", Location("spark0"))
    for start in range(1, 400):
        world.stop_at = stops.pop(0) if stops else None
        streaming = start <= len(scenario.stops) + 1 and world.rng.random() < scenario.streaming_rate
        change_sources(world, scenario, location)
        try:
            outcome = Query(world, scenario, location, not streaming).run()
            if outcome == FINISHED and not _goes_on(world, scenario):
                return start
            if outcome == DRAINED:
                location = _behind_a_drain(world, scenario)
            elif outcome == STOPPED and world.rng.random() < scenario.fork_rate:
                location = _fork(world, scenario)
            elif _is_over(world, scenario):
                another_life(world, scenario)
                location = fresh_location(world)
            elif outcome == FINISHED:
                location = fresh_location(world)
        except (Crash, FencedError, CheckpointFailedError, StorageNotWritableError) as e:
            world.log("== ended", repr(e))
        except (ConfigError, CorruptStorageError, InvalidInputError) as e:  # somebody on call reads it
            world.log("== on call", repr(e))
            location = on_call(world, scenario, location, e)
        world.stop_at = None
        world.now_ms += 100
        if world.rng.random() < scenario.fresh_rate and start < 30:
            location = fresh_location(world)
    raise SimulationError("the job does not get to its end")


def _goes_on(world: World, scenario: Scenario) -> bool:
    """Whether a job that has come to its end is started once more: for a source that is new, or in another life."""
    return bool(scenario.joins and world.rng.random() < 0.7) or scenario.lives > 0


def _is_over(world: World, scenario: Scenario) -> bool:
    if scenario.lives and world.rng.random() < 0.5:
        scenario.lives -= 1
        return True
    return False


def _fork(world: World, scenario: Scenario) -> Location:
    """The job was stopped with a savepoint: a job of another name goes on from it, the old one's folder is deleted."""
    scenario.carried = visible(world, scenario)
    newest = max(world.savepoints.values(), key=lambda s: s.record.completed_ms)
    import_as_new_job(world, newest)
    world.log("== a new job from savepoint", newest.record.checkpoint)
    scenario.job += "-next"
    scenario.forks += 1
    return fresh_location(world)


def _behind_a_drain(world: World, scenario: Scenario) -> Location:
    """The location is drained for good. Whoever wants to go on all the same does it elsewhere."""
    newest = max(world.records.completions().values(), key=lambda c: c.checkpoint)
    if newest.target in world.savepoints and world.rng.random() < scenario.fork_rate:
        return _fork(world, scenario)
    return fresh_location(world)


# --- what must be true at the end ---------------------------------------------------------------------------------


def expected(
    scenario: Scenario, drains: Sequence[Mapping[str, Sequence[int]]] = ()
) -> tuple[Counter[Visible], dict[str, dict[int, int]]]:
    """The visible rows and the state of a run without crashes, computed without the protocol. ``drains``: where the
    sources stood each time the job was drained."""
    wanted: Counter[Visible] = Counter()
    state: dict[str, dict[int, int]] = {uid: {} for uid in scenario.all_operators}
    begin: Mapping[str, Sequence[int]] = {s.name: [0] * len(s.splits) for s in scenario.all_sources}
    whole = {s.name: _read(scenario, s) for s in scenario.all_sources}
    for end in (*drains, whole):
        rows = {s.name: _rows(s, begin[s.name], end[s.name]) for s in scenario.all_sources}
        for uid, inputs in scenario.all_operators.items():
            keys = [k if name.startswith("source") else (k + v) % 5 for name in inputs for k, v in rows[name]]
            rows[uid] = _counted(state[uid], keys)
            if end is not whole:
                rows[uid] += [(k, DRAINED_COUNT + count) for k, count in state[uid].items()]
                state[uid].clear()
        wanted.update((name, k, v) for name in scenario.all_sink_inputs for k, v in rows[name])
        begin = end
    return wanted, state


def _read(scenario: Scenario, spec: SourceSpec) -> list[int]:
    """How far each split of a source is read in the end: to where it stood when it left the job, if it did."""
    if spec.name in scenario.topology.sources:
        return [len(split) for split in spec.splits]
    return scenario.left_at.get(spec.name, [0] * len(spec.splits))


def _rows(spec: SourceSpec, begin: Sequence[int], end: Sequence[int]) -> list[tuple[int, int]]:
    places = ((i, n) for i in range(len(spec.splits)) for n in range(begin[i], end[i]))
    return [(spec.splits[i][n], i * 1000 + n) for i, n in places]


def _counted(state: dict[int, int], keys: Iterable[int]) -> list[tuple[int, int]]:
    rows = []
    for k in keys:
        count = state.pop(k, 0) + 1
        rows.append((k, count))
        if count < REMOVE_AT:
            state[k] = count
    return rows


def check_end(world: World, scenario: Scenario) -> None:
    wanted, state = expected(scenario, world.drains)
    found = visible(world, scenario) - scenario.before
    last = world.records.completions()[max(world.records.completions())]
    if scenario.mode == EXACTLY_ONCE or not scenario.restores:
        _check_equal("the visible rows", wanted, found)
        for uid, content in state.items():
            version = world.tables.versions[uid][last.tables[uid].version]
            _check_equal(f"the state of {uid}", content, dict(live_rows(world, uid, version)))
        _check_merged(world, scenario, wanted)
    elif sum(found.values()) < sum(wanted.values()):
        raise SimulationError(f"rows were lost: expected {sum(wanted.values())}, {sum(found.values())}")
    _check_no_leak(world, scenario)
    _check_collected(world, scenario, last)


def _check_equal(what: str, wanted: object, found: object) -> None:
    if wanted != found:
        raise SimulationError(f"{what}: expected {wanted}, found {found}")


def _check_merged(world: World, scenario: Scenario, wanted: Counter[Visible]) -> None:
    """The merging sink holds each key's last value. Only operators' keys have a defined last one."""
    if "merge" not in scenario.topology.sinks or scenario.given_up or world.drains:
        return
    for (node, key), value in world.sink.merged[identity(scenario.job, world.life)].items():
        rows = sum(n for (at, k, _), n in wanted.items() if (at, k) == (node, key))
        if node in scenario.operators and (rows or not scenario.before):
            _check_equal(f"the merged value of {node} {key}", (rows - 1) % REMOVE_AT + 1, value)


def _check_no_leak(world: World, scenario: Scenario) -> None:
    """Without crashes and failed tasks nothing is left for garbage collection to find."""
    unlucky = scenario.stops or scenario.task_failures or scenario.tolerable_failures < 100 or scenario.faults
    if unlucky or world.lives or scenario.deleted:
        return
    if world.sink.staged:
        raise SimulationError(f"staged rows are left: {list(world.sink.staged)}")


def _check_collected(world: World, scenario: Scenario, last: CompletionRecord) -> None:
    """After garbage collection every file is named by a retained checkpoint, and every name has its file."""
    records = world.records
    collect(world, records.completions().values(), lambda epoch: epoch <= last.checkpoint)
    named = set()
    for record in records.completions().values():
        for uid, ref in record.tables.items():
            for group in world.tables.manifest(ref.manifest).values():
                named |= {(uid, r.file) for r in group.runs}
    _check_equal("state files", named, set(world.tables.files))
    if set(records.completions()) - set(records.text["committed"]):
        raise SimulationError("a completed checkpoint is not committed")
    needed = min(last.batches_from, last.batch)  # the newest stays for the query's progress
    left = [b.name for b in records.all("batches") if b.origin == last.origin and b.batch < needed]
    if left and not world.zombies_moved and not scenario.faults:
        raise SimulationError(f"batch records are left: {left}")
