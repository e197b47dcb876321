"""Every interleaving of a small job: a breadth-first search over the simulation's own code.

Where the simulation draws from a seed, the search takes every way: how many rows each source reads before its next
batch, whether a follower sees a trigger at once, how many tasks an operator has after a start, whether the clock passes
the time-out, after which durable step the process stops, and where it starts again. States are compared as far as
anything can tell them apart, so the search ends. In each of them the simulation's invariants hold, from each of them
the job can come to its end, and at every end the rows and the state are those of a run without any of that.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from spark_ckpt.errors import CheckpointFailedError, RefusedError
from spark_ckpt.protocol.aligner import EXACTLY_ONCE
from spark_ckpt.protocol.coordinator import TriggerPolicy
from spark_ckpt.protocol.records import Topology
from spark_ckpt.protocol.source_view import LOOK_MS
from spark_ckpt.testing.simulation.checks import check_end
from spark_ckpt.testing.simulation.choices import Choices
from spark_ckpt.testing.simulation.durable import Location, SimulationError, Visible
from spark_ckpt.testing.simulation.explore_state import LATER_MS, fingerprint
from spark_ckpt.testing.simulation.processes import Crash
from spark_ckpt.testing.simulation.query import FINISHED, Query
from spark_ckpt.testing.simulation.sabotage import broken
from spark_ckpt.testing.simulation.scenario import Scenario
from spark_ckpt.testing.simulation.sources import SourceSpec, placed
from spark_ckpt.testing.simulation.surroundings import running
from spark_ckpt.testing.simulation.world import World

TIMEOUT_MS = 1_000_000


@dataclass(frozen=True)
class Bounds:
    """How small the job is. ``rows`` of each source; ``late``: so often the clock jumps past the time-out."""

    rows: tuple[int, ...] = (1, 1)
    operators: int = 1
    key_groups: int = 2
    """With as many tasks of an operator, or one."""
    sinks: tuple[str, ...] = ("append",)
    max_concurrent: int = 1
    crashes: int = 1
    late: int = 0
    fine: bool = False
    """The process stops between any two changes of the disk, and not only between two steps."""
    refused: Visible | None = None
    """A row that the last sink's target refuses. After the refusal the query is started with a filter that drops it."""
    sabotage: str = ""


@dataclass
class Explored:
    """What a search went through. ``states`` are told apart by all that can matter later."""

    states: int = 0
    steps: int = 0
    ends: int = 0
    crashes: int = 0


class ExploredWorld(World):
    """Stops after every durable step, as often as allowed."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(Choices())  # type: ignore[arg-type]
        self.crashes_left = bounds.crashes
        self.late_left = bounds.late
        self.durable = _FINE if bounds.fine else _STEPS
        self.sabotage = bounds.sabotage
        if bounds.refused is not None:
            self.sink.refused_rows[bounds.sinks[-1]] = bounds.refused

    def point(self, what: str, subject: Any = "") -> None:
        if self._quiet:
            return
        self.points += 1
        self.log(what, subject)
        if (
            self.crashes_left
            and not str(subject).startswith(_READING)
            and what in self.durable
            and self.rng.randint(0, 1)
        ):
            self.crashes_left -= 1
            self.log("== the process stops")
            raise Crash

    def stopped(self) -> None:
        # Names made from here on are the same wherever the process stopped.
        self._ids = max(1000, self._ids // 1000 * 1000 + 1000)


_READING = ("Read", "Look", "Ask", "Try")
_STEPS = ("after", "between", "planned batch", "commit state store", "committed batch")
_FINE = (*_STEPS, "written", "removed")
"""Points where something durable may have changed since the one before."""


@dataclass
class State:
    """``query`` None: the process is down, and starts at ``location``."""

    world: ExploredWorld
    scenario: Scenario
    location: str = "spark0"
    query: Query | None = None


@dataclass
class Search:
    """``parents`` lead back to the beginning, to show how a state came about."""

    bounds: Bounds
    report: Explored = field(default_factory=Explored)
    _known: dict[bytes, int] = field(default_factory=dict)
    _before: list[list[int]] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _open: deque[tuple[int, bytes]] = field(default_factory=deque)

    def run(self) -> Explored:
        """Raises ``SimulationError``, or what broke, with what led there."""
        self._found(State(ExploredWorld(self.bounds), scenario_of(self.bounds)), None)
        while self._open:
            number, frozen = self._open.popleft()
            for state, outcome in self._successors(frozen):
                self.report.steps += 1
                if outcome == FINISHED:
                    self._ended(state, number)
                else:
                    self._found(state, number)
        self._check_progress()
        return self.report

    def _successors(self, frozen: bytes) -> Iterator[tuple[State, str | None]]:
        choices = Choices()
        while True:
            state = _thawed(frozen)
            state.world.rng = choices  # type: ignore[assignment]
            try:
                outcome = _lived(state)
            except Crash:
                self.report.crashes += 1
                state, outcome = self._restarted(state), None
            except Exception as e:
                raise SimulationError(f"{type(e).__name__}: {e}\n{_story(frozen, choices)}") from e
            yield state, outcome
            if not choices.advance():
                return

    def _restarted(self, state: State) -> State:
        world = state.world
        world.stopped()
        if world.rng.randint(0, 1):
            state.location = f"spark{len(world.locations)}"
        state.query = None
        state.scenario.stops = ("somewhere",)  # from here on something may be left for garbage collection to find
        return state

    def _found(self, state: State, parent: int | None) -> None:
        mark = fingerprint(state, TIMEOUT_MS)
        number = self._known.setdefault(mark, len(self._known))
        if number == len(self._before):
            self._before.append([])
            self.report.states += 1
            self._open.append((number, pickle.dumps(_without_seed(state))))
        if parent is not None:
            self._before[number].append(parent)

    def _ended(self, state: State, parent: int) -> None:
        self.report.ends += 1
        self._ends.append(parent)
        with running(state.world):
            check_end(state.world, state.scenario)

    def _check_progress(self) -> None:
        """From every state some way leads to an end."""
        reached = set(self._ends)
        todo = list(reached)
        while todo:
            for parent in self._before[todo.pop()]:
                if parent not in reached:
                    reached.add(parent)
                    todo.append(parent)
        if len(reached) < len(self._before):
            raise SimulationError(f"{len(self._before) - len(reached)} of {len(self._before)} states lead to no end")


def _lived(state: State) -> str | None:
    with running(state.world), broken(state.world.sabotage):
        return _step(state)


def _step(state: State) -> str | None:
    """One start, or one look for a new batch with all that follows from it."""
    world = state.world
    try:
        if state.query is None:
            _started(state)
            return None
        world.now_ms += LOOK_MS * world.rng.randint(0, 1)  # a follower that looked a moment ago does not look again
        if world.late_left and world.rng.randint(0, 1):
            world.late_left -= 1
            world.now_ms += 2 * TIMEOUT_MS
        return state.query.poll()
    except (CheckpointFailedError, RefusedError) as e:
        world.log("== ended", repr(e))
        if isinstance(e, RefusedError):
            world.filtered = next(iter(world.sink.refused_rows.values()))
        raise Crash from e


def _started(state: State) -> None:
    world = state.world
    location = world.locations.setdefault(state.location, Location(state.location, world.disk))
    state.query = Query(world, state.scenario, location, available_now=True)
    try:
        state.query.begin()
    finally:
        world.now_ms = max(world.now_ms, LATER_MS)  # the first generation's number is no moment from here on


def _thawed(frozen: bytes) -> State:
    state: State = pickle.loads(frozen)  # noqa: S301 - a copy of what this process made itself
    return state


def _without_seed(state: State) -> State:
    state.world.rng = None  # type: ignore[assignment]
    return state


def _story(frozen: bytes, choices: Choices) -> str:
    """What happened in the step that broke: done once more, with a trace."""
    state = _thawed(frozen)
    choices._at = 0
    state.world.rng, state.world.trace = choices, []  # type: ignore[assignment]
    try:
        _lived(state)
    except Exception as e:  # noqa: BLE001 - the same again; what it did is wanted
        state.world.log("== broke", repr(e))
    return "\n".join(state.world.trace)


def scenario_of(bounds: Bounds) -> Scenario:
    sources = [
        SourceSpec(f"source{i}", ((0, 1, 2, 3)[:n],), 1, step=2, poll_ms=LOOK_MS) for i, n in enumerate(bounds.rows)
    ]
    names = tuple(s.name for s in sources)
    operators: dict[str, tuple[str, ...]] = {"x": names} if bounds.operators else {}
    if bounds.operators > 1:
        operators["y"] = ("x",)
    ends = (list(operators)[-1],) if operators else names
    facts = {uid: {"state": "count long", "keys": "key long"} for uid in operators}
    missing = Counter({bounds.refused: -1} if bounds.refused else {})
    return Scenario(
        key_groups=bounds.key_groups,
        sources=placed(sources, operators),
        operators=operators,
        sink_inputs=ends,
        all_sources=tuple(sources),
        all_operators=operators,
        all_sink_inputs=ends,
        topology=Topology(bounds.key_groups, len(ends) * bounds.key_groups, names, facts, bounds.sinks),
        mode=EXACTLY_ONCE,
        policy=TriggerPolicy(0, 0, TIMEOUT_MS, bounds.max_concurrent),
        max_buffered=None,
        tolerable_failures=100,
        retain=1,
        memtable_limit=1,
        tick_ms=0,
        task_failures=0.0,
        initial_delay_ms=0,
        callers=(),
        stops=(),
        fresh_rate=0.0,
        fork_rate=0.0,
        streaming_rate=0.0,
        faults=0,
        slow=0,
        sabotage=bounds.sabotage,
        off=defaultdict(Counter, {sink: Counter(missing) for sink in bounds.sinks}),
    )


def explore(bounds: Bounds) -> Explored:
    """Search a job of these bounds; returns how much there was to see."""
    return Search(bounds).run()


BOUNDS = (
    Bounds(),
    Bounds(max_concurrent=2),
    Bounds(late=1),
    Bounds(operators=2, sinks=("append", "merge")),
    Bounds(rows=(2, 2), max_concurrent=2),
    Bounds(rows=(1, 0), key_groups=1, fine=True),
    Bounds(sinks=("append", "merge"), refused=("x", 0, 1)),
    Bounds(rows=(2, 1), max_concurrent=2, refused=("x", 0, 2)),
    Bounds(rows=(1, 0), key_groups=1, fine=True, refused=("x", 0, 1)),
)


def main() -> None:
    """``python -m spark_ckpt.testing.explore``: all of :data:`BOUNDS`, an hour; or some, by number."""
    parser = argparse.ArgumentParser(prog="python -m spark_ckpt.testing.explore", description=main.__doc__)
    parser.add_argument("number", type=int, nargs="*", help=f"which of the jobs, 0 to {len(BOUNDS) - 1}")
    for bounds in (BOUNDS[i] for i in parser.parse_args().number or range(len(BOUNDS))):
        begin_s = time.monotonic()
        found = explore(bounds)
        sys.stdout.write(f"{bounds}\n    {found} in {time.monotonic() - begin_s:.0f} s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
