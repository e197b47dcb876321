"""Somebody takes the stopped job back to a checkpoint, its sinks with it; it may be stopped on the way.

What must hold: no start goes on before it is done, and then each sink shows just the rows up to that checkpoint.
"""

from __future__ import annotations

import re
from typing import Any

from spark_ckpt.errors import (
    CkptError,
    ConfigError,
    CorruptStorageError,
    InvalidInputError,
    StorageNotWritableError,
    StorageUnavailableError,
)
from spark_ckpt.testing.simulation._folder import records_of
from spark_ckpt.testing.simulation._sinks import job_of
from spark_ckpt.testing.simulation.processes import Crash
from spark_ckpt.testing.simulation.world import World

_UNFINISHED = r"Run `spark-ckpt rollback DIR JOB (\d+)` again"


def between_starts(world: World, scenario: Any) -> None:
    """Nobody runs the job, as far as anybody knows."""
    if not scenario.rollbacks or world.set_back or scenario.restore != "auto" or world.rng.random() < 0.5:
        return
    retained = [c.checkpoint for c in records_of(world).completions() if c.origin > 0]  # what a sink can know
    if retained:
        scenario.rollbacks -= 1
        _roll_back(world, scenario, world.rng.choice(retained))


def is_unfinished(world: World, error: CkptError) -> bool:
    """Whether a start was refused because of a rollback that stopped on its way. If what it wrote is torn, the start
    finds targets that are set back, and says how all rows come once again; to roll back again is another way."""
    if re.search(_UNFINISHED, str(error)):
        return True
    return bool(world.rolled_back_to and world.torn) and world.set_back is None and "Ways out:" in str(error)


def finish(world: World, scenario: Any, message: str) -> None:
    """Do what a refused start says."""
    named = re.search(_UNFINISHED, message)
    world.seen["a rollback is finished by the next one"] += 1
    _roll_back(world, scenario, int(named.group(1)) if named else world.rolled_back_to)


def _roll_back(world: World, scenario: Any, checkpoint: int) -> None:
    world.log("== rolls back to", checkpoint)
    world.stop_at = world.rng.choice((None, None, *range(0, 60, 3)))
    world.forget_zombies()  # it is stopped
    may_halt, world.may_halt, world.rolls_back = world.may_halt, False, True  # a command that is killed is dead
    world.copy, world.rolled_back_to = None, checkpoint  # the copy is of a job that stood elsewhere
    try:
        world.drive(lambda: job_of(world, scenario.topology.sinks).rollback(checkpoint, force=True))
        world.seen["a job is rolled back"] += 1
    except (Crash, OSError, StorageNotWritableError, StorageUnavailableError) as e:  # ahead of what they derive from
        world.log("== the rollback stopped on its way", repr(e))
        world.seen["a rollback stops on its way"] += 1
    except ConfigError as e:
        if "was begun and is not finished" not in str(e):
            raise
        world.seen["a rollback to a newer checkpoint than one that was begun is refused"] += 1
    except InvalidInputError as e:
        # A target that was set back shows less than it did, also behind a start that restored what it shows.
        if "was set back or emptied since" not in str(e) or not world.seen["a target is set back"]:
            raise
        world.seen["a rollback over a set-back is refused"] += 1
    except CorruptStorageError as e:
        if "which is behind checkpoint" not in str(e):
            raise
        world.seen["a rollback is refused as a record behind it is lost"] += 1
    finally:
        world.stop_at, world.may_halt, world.rolls_back = None, may_halt, False
