"""A seeded simulation of the whole protocol: driver, lanes, key groups, sink and storage on a fake clock.

The real coordinator, aligner, commit and recovery code runs; everything around it is simulated. The seed decides the
job's shape, the batches, which source follows when, task failures, declines, time-outs, savepoints, where the process
stops, where it starts again, and what drivers believed dead still do. At the end the visible rows and the state must
be those of a run without any of that, and after garbage collection nothing unnamed may be left.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from spark_ckpt.errors import (
    ConfigError,
    CorruptStorageError,
    FencedError,
    InvalidInputError,
    RefusedError,
    RetryableError,
    StorageNotWritableError,
)
from spark_ckpt.testing.simulation import _moving, _rolling_back
from spark_ckpt.testing.simulation._changes import another_life, change_sources, visible
from spark_ckpt.testing.simulation._folder import records_of
from spark_ckpt.testing.simulation._on_call import on_call
from spark_ckpt.testing.simulation._pausing import Pausing
from spark_ckpt.testing.simulation._set_back import between_starts
from spark_ckpt.testing.simulation.checks import check_end
from spark_ckpt.testing.simulation.durable import Location, SimulationError
from spark_ckpt.testing.simulation.processes import Crash
from spark_ckpt.testing.simulation.query import DRAINED, FINISHED, STOPPED, Query
from spark_ckpt.testing.simulation.sabotage import broken
from spark_ckpt.testing.simulation.scenario import Scenario, make_scenario
from spark_ckpt.testing.simulation.surroundings import running
from spark_ckpt.testing.simulation.world import World


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


def run_seed(seed: int, sabotage: str = "", trace: list[str] | None = None) -> Report:
    """One run. Raises ``SimulationError`` (or what broke) if anything is wrong; ``trace`` collects what happened."""
    rng = random.Random(seed)
    by_spark = sabotage == "not_the_last" or (not sabotage and seed % 4 == 3)
    scenario = make_scenario(rng, sabotage, by_spark, sets_back=not sabotage and seed % 4 == 1)
    scenario.rewrites_left = 3 if not sabotage and seed % 5 == 0 else 0
    world = World(rng, trace)
    scenario.pausing = None if sabotage or by_spark else Pausing.drawn(seed)
    if not (sabotage or by_spark):
        _moving.draw(seed, scenario)
    world.log("scenario", scenario)
    world.faults_left, world.fault_rate, world.slow_left = scenario.faults, rng.choice((0.001, 0.01)), scenario.slow
    world.tears_left, world.sabotage = scenario.tears, sabotage
    world.hook_faults_left = scenario.faults if scenario.hooks else 0
    world.sink.refusals, world.sink.try_refusals = scenario.refusals, scenario.try_refusals
    with running(world), broken(sabotage):
        starts = _to_its_end(world, scenario)
        return Report(
            seed,
            len(scenario.stops),
            starts,
            scenario.restores,
            records_of(world).newest_committed(),
            sum(n for what, n in world.seen.items() if what.startswith("a checkpoint is aborted")),
            len(world.savepoints),
            scenario.forks,
            scenario.given_up,
            world.points,
            world.seen,
        )


def _to_its_end(world: World, scenario: Scenario) -> int:
    try:
        starts = _run(world, scenario)
        check_end(world, scenario)
        return starts
    finally:
        world.forget_zombies()


def _run(world: World, scenario: Scenario) -> int:
    stops = list(scenario.stops)
    location = world.locations.setdefault("spark0", Location("spark0", world.disk))
    for start in range(1, 400):
        world.stop_at = stops.pop(0) if stops else None
        streaming = start <= len(scenario.stops) + 1 and world.rng.random() < scenario.streaming_rate
        here = world.now_at(location)
        change_sources(world, scenario, here)
        _moving.between_starts(world, scenario, here)
        streaming = streaming or (scenario.pausing is not None and scenario.pausing.streams())
        _rolling_back.between_starts(world, scenario)
        at = between_starts(world, scenario, here)
        if at is not here or (here is not location and world.rng.random() < 0.5):
            location = at  # else it is started as ever
        try:
            # Who asked for a rollback, and went on to roll back later, would have what came between twice, as told.
            world.may_halt = scenario.restore == "auto"
            outcome = world.drive(Query(world, scenario, location, not streaming).run)
            if outcome == FINISHED and not _goes_on(world, scenario):
                return start
            if outcome == DRAINED:
                location = _behind_a_drain(world, scenario)
            elif outcome == STOPPED and world.rng.random() < scenario.fork_rate:
                location = _fork(world, scenario)
            elif _is_over(world, scenario):
                another_life(world, scenario)
                location = world.fresh_location()
            elif outcome == FINISHED:
                location = world.fresh_location()
        except (Crash, FencedError, RetryableError, RefusedError, StorageNotWritableError, OSError) as e:
            world.log("== ended", repr(e))
        except (ConfigError, CorruptStorageError, InvalidInputError) as e:  # somebody on call reads it
            world.log("== on call", repr(e))
            location = on_call(world, scenario, location, e)
        world.stop_at = None
        world.now_ms += 100
        if world.rng.random() < scenario.fresh_rate and start < 30:
            location = world.fresh_location()
    raise SimulationError("the job does not get to its end")


def _goes_on(world: World, scenario: Scenario) -> bool:
    """Whether a job that has come to its end is started once more: for a source that is new, in another life,
    or behind a set-back."""
    again = scenario.joins or scenario.set_backs
    return bool(again and world.rng.random() < 0.7) or scenario.lives > 0


def _is_over(world: World, scenario: Scenario) -> bool:
    if scenario.lives and world.rng.random() < 0.5:
        scenario.lives -= 1
        return True
    return False


def _fork(world: World, scenario: Scenario) -> Location:
    """The job was stopped with a savepoint: a job of another name goes on from it, the old one's folder is deleted."""
    scenario.carried = visible(world, scenario)
    newest = max(world.savepoints, key=lambda path: world.savepoints[path])
    world.log("== a new job from savepoint", newest)
    world.forget_zombies()
    world.remove_folder()
    world.job += "-next"
    scenario.restore, scenario.begins_from = newest, True
    scenario.forks += 1
    return world.fresh_location()


def _behind_a_drain(world: World, scenario: Scenario) -> Location:
    """The location is drained for good. Whoever wants to go on all the same does it elsewhere."""
    newest = max(records_of(world).completions(), key=lambda c: c.checkpoint)
    if newest.target in world.savepoints and world.rng.random() < scenario.fork_rate:
        return _fork(world, scenario)
    return world.fresh_location()
