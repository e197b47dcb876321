"""One job and its luck, drawn from a seed. The order of the draws is what a seed means."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from spark_ckpt.protocol.aligner import AT_LEAST_ONCE, EXACTLY_ONCE
from spark_ckpt.protocol.coordinator import TriggerPolicy
from spark_ckpt.protocol.records import CHECKPOINT, SAVEPOINT, Topology
from spark_ckpt.protocol.source_steps import ReadPaused, SourceStep
from spark_ckpt.protocol.steps import BringSources, FindOffsets, RewriteState, Step
from spark_ckpt.testing.simulation._callers import Caller
from spark_ckpt.testing.simulation._changes import arrange
from spark_ckpt.testing.simulation._moving import Moving
from spark_ckpt.testing.simulation.durable import Visible
from spark_ckpt.testing.simulation.sources import SourceSpec

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
    try_refusals: float = 0.0
    sabotage: str = ""
    tears: int = 0
    hooks: bool = False
    lives: int = 0
    joins: str = ""
    leaves: str = ""
    all_sources: tuple[SourceSpec, ...] = ()
    all_operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    all_sink_inputs: tuple[str, ...] = ()
    restore: str | int = "auto"
    begins_from: bool = False
    """``restore`` names a savepoint that this job begins from."""
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
    set_backs: int = 0
    """How often a target or the job's folder is still set back to an older copy."""
    may_set_back: bool = False
    rollbacks: int = 0
    """How often the job is still rolled back."""
    rewrites: int = 0
    """How many lines stand beside the query that have all state written anew."""
    rewrites_left: int = 0
    pausing: Any = None
    """Somebody who pauses the job."""
    moving: Moving = field(default_factory=Moving)
    """Somebody who changes how the query reads its sources."""
    off: dict[str, Counter[Visible]] = field(default_factory=lambda: defaultdict(Counter))
    """By sink: rows that it has again, or lacks (below 0), as somebody accepted it."""


def make_scenario(rng: random.Random, sabotage: str = "", by_spark: bool = False, sets_back: bool = False) -> Scenario:
    """``by_spark``: the last of the sources is one that Spark itself reads. ``sets_back``: a target, or the job's
    folder, is set back to an older copy."""
    key_groups = rng.randint(1, 4)
    # Of two sources the second is the last in any case: it follows the first.
    shapes = [shape for shape in SHAPES if shape[0] > 2] if sabotage == "not_the_last" else SHAPES
    count, operators, sink_inputs = rng.choice(shapes)
    sources = tuple(_source(rng, f"source{i}", key_groups) for i in range(count))
    if by_spark:
        # Its end is not told, and its rows are of its lanes' tasks all the same.
        sources = (*sources[:-1], replace(sources[-1], by_spark=True, ends=False))
    if sabotage == "not_the_last":
        sources = (sources[0], replace(sources[1], poll_ms=20_000), replace(sources[2], poll_ms=0))
    operator_facts = {uid: {"state": "count long", "keys": "key long"} for uid in operators}
    names = tuple(s.name for s in sources)
    weight = len(sink_inputs) * key_groups
    topology = Topology(key_groups, weight, names, operator_facts, rng.choice((("append",), ("append", "merge"))))
    exactly_once = sabotage or rng.random() < 0.85
    scenario = Scenario(
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
        hooks=rng.random() < 0.1,
        sabotage=sabotage,
        tears=rng.choice((0, 0, 1, 3)),
        lives=rng.choice((0, 0, 0, 1, 2)),
        joins=rng.choice(("", names[-1])) if count > 1 else "",
    )
    scenario.leaves = rng.choice(("", *names[1:])) if count > 1 else ""
    scenario.try_refusals = 0.0 if sabotage else rng.choice((0.0, 0.0, 0.15))
    if sabotage == "not_the_last":
        scenario.fresh_rate, scenario.stops = 0.6, tuple(_stop(rng) for _ in range(7))
    if sabotage == "torn_is_whole":
        scenario.tears, scenario.stops = 3, tuple(f"write jobs/simulated/checkpoints/{k:010d}.json" for k in (1, 2, 3))
    if any(c.drain for c in scenario.callers):
        scenario.joins = scenario.leaves = ""  # what a drain ends would depend on when they did
    if sets_back:
        _with_set_backs(rng, scenario)
    arrange(scenario, tuple(n for n in names if n != scenario.joins))
    return scenario


def _with_set_backs(rng: random.Random, scenario: Scenario) -> None:
    """Of a job that stays what it is: how many rows each sink should have is known at any moment."""
    scenario.set_backs, scenario.may_set_back = rng.choice((1, 2, 3)), True
    scenario.rollbacks = rng.choice((0, 1, 2))
    scenario.mode = EXACTLY_ONCE
    scenario.joins, scenario.leaves, scenario.lives, scenario.fork_rate = "", "", 0, 0.0
    scenario.callers = tuple(c for c in scenario.callers if not c.drain)
    scenario.refusals = 0.0  # what is given up by hand is missing, and in no copy


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
        # What writes state anew is stopped by the number of points, and so is a look for a pause. Of moved sources says
        # who moves them.
        left_out = (RewriteState, BringSources, FindOffsets, ReadPaused)
        kinds: list[str] = [c.__name__ for c in (*get_args(Step), *get_args(SourceStep)) if c not in left_out]
        return rng.choice((*kinds, "between copy and checkpoint"))
    return int(rng.expovariate(1 / rng.choice((20, 120, 400))))
