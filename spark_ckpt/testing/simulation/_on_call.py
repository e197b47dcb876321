"""Whoever is on call in the simulation: reads why a start was refused, and does what the message says."""

from __future__ import annotations

import re
from typing import Any

from spark_ckpt.errors import CkptError, ConfigError, CorruptStorageError
from spark_ckpt.protocol.abandon import decide_abandon
from spark_ckpt.protocol.life import identity
from spark_ckpt.protocol.records import AbandonedRecord
from spark_ckpt.testing.simulation.durable import Location, SimulationError
from spark_ckpt.testing.simulation.world import World


def fresh_location(world: World) -> Location:
    name = f"spark{len(world.locations)}"
    return world.locations.setdefault(name, Location(name))


def on_call(world: World, scenario: Any, location: Location, error: CkptError) -> Location:
    """Returns the Spark location to start at next; ``scenario.restore`` is set for that start."""
    scenario.restore = "auto"
    if isinstance(error, ConfigError):  # a start that was believed dead took over with an empty location: follow it
        return fresh_location(world)
    if isinstance(error, CorruptStorageError):
        return _restore_as_told(world, scenario, str(error))
    _give_up_a_commit(world, scenario, error)  # a sink will never take a checkpoint
    return fresh_location(world) if world.rng.random() < scenario.fresh_rate else location


def _restore_as_told(world: World, scenario: Any, message: str) -> Location:
    if not any(world.records.torn(folder) for folder in world.records.text):
        raise SimulationError(f"damage is found where nothing is damaged: {message}")
    named = re.search(r"set spark\.ckpt\.restore=(\d+)", message)
    if named is None and "or to none" not in message:
        raise SimulationError(f"the message tells no way out: {message}")
    scenario.restore = int(named.group(1)) if named else "none"
    world.seen["damage is found, and the message followed"] += 1
    return fresh_location(world)


def _give_up_a_commit(world: World, scenario: Any, error: CkptError) -> None:
    """Tries once more, or elsewhere, and then gives up what the error names."""
    me = scenario.job if scenario.sabotage == "same_life" else identity(scenario.job, world.life)
    stuck = [(sink, k) for (job, sink, k), tries in world.sink.refused.items() if job == me and tries]
    if not stuck:
        raise error
    if world.rng.random() < 0.3:
        return
    completions = world.records.completions()
    for sink, k in stuck:
        decided = decide_abandon(k, sink, completions.values(), world.records.text["committed"], world.now_ms)
        if isinstance(decided, AbandonedRecord) and world.records.create("abandoned", (k, sink), decided):
            world.log("== gives up", decided)
            committables = tuple(c for c in completions[k].committables if c.sink == sink)
            world.sink.give_up(me, sink, committables)
            scenario.given_up += 1
