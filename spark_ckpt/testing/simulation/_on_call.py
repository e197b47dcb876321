"""Whoever is on call in the simulation: reads why a start was refused, and does what the message says."""

from __future__ import annotations

import re
from typing import Any

from spark_ckpt.errors import CkptError, ConfigError, CorruptStorageError, InvalidInputError
from spark_ckpt.testing.simulation import _moving, _rewriting, _rolling_back, _set_back
from spark_ckpt.testing.simulation._folder import identity_of, records_of
from spark_ckpt.testing.simulation._sinks import job_of
from spark_ckpt.testing.simulation.durable import Location
from spark_ckpt.testing.simulation.world import World


def on_call(world: World, scenario: Any, location: Location, error: CkptError) -> Location:
    """Returns the Spark location to start at next; ``scenario.restore`` is set for that start."""
    if _rolling_back.is_unfinished(world, error):
        _rolling_back.finish(world, scenario, str(error))
        return location
    if _set_back.is_set_back(world, error):
        return _set_back.follow(world, scenario, location, str(error))
    if not scenario.begins_from:
        scenario.restore = "auto"
    if "first start the query as it was, until one is complete" in str(error):
        if scenario.rewrites:
            _rewriting.take_back(world, scenario)
        else:
            _moving.take_back(world, scenario)
        return location
    if "Resume it (`spark-ckpt resume`)" in str(error):
        scenario.pausing.resume(world)
        return location
    if isinstance(error, ConfigError):  # a start that was believed dead took over with an empty location: follow it
        return world.fresh_location()
    if isinstance(error, CorruptStorageError):
        return _restore_as_told(world, scenario, str(error))
    _give_up_a_commit(world, scenario, error)  # a sink will never take a checkpoint
    return world.fresh_location() if world.rng.random() < scenario.fresh_rate else location


def _restore_as_told(world: World, scenario: Any, message: str) -> Location:
    if not any(world.disk.files.get(path) == half for path, half in world.torn.items()):
        world.fail(f"damage is found where nothing is damaged: {message}")
    named = re.search(r"set spark\.ckpt\.restore=(\d+)", message)
    if named is None and "or to none" not in message:
        world.fail(f"the message tells no way out: {message}")
    scenario.restore = named.group(1) if named else "none"
    world.seen["damage is found, and the message followed"] += 1
    return world.fresh_location()


def _give_up_a_commit(world: World, scenario: Any, error: CkptError) -> None:
    """Tries once more, or elsewhere, and then gives up what the error names."""
    me = world.job if scenario.sabotage == "same_life" else identity_of(world)
    stuck = [(sink, k) for (job, sink, k), tries in world.sink.refused.items() if job == me and tries]
    if not stuck:
        raise error
    if world.rng.random() < 0.3:
        return
    with world.quietly():
        for sink, k in stuck:
            _give_up(world, scenario, sink, k)


def _give_up(world: World, scenario: Any, sink: str, checkpoint: int) -> None:
    records = records_of(world)
    found = records.readable_checkpoint(checkpoint)
    if (checkpoint, sink) in records.abandoned_pairs():
        return
    try:
        job_of(world, scenario.topology.sinks).abandon(checkpoint, sink)
    except InvalidInputError:
        return  # it is committed, or gone
    world.log("== gives up", f"{checkpoint} in {sink}")
    committables = tuple(c for c in getattr(found, "committables", ()) if c.sink == sink)
    world.sink.give_up(identity_of(world), sink, committables)
    scenario.given_up += 1
