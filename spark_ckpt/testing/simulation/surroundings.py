"""What the real code finds around it while a simulation runs: its disk, its clock, and names that the seed draws."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator
from typing import Protocol

from spark_ckpt import clock, faults
from spark_ckpt.storage import at_once
from spark_ckpt.testing.simulation import _invariants, world
from spark_ckpt.testing.simulation.disk import Disk, SimulatedFiles, Watcher
from spark_ckpt.testing.simulation.short_ways import replaced, short_ways
from spark_ckpt.testing.simulation.world import World


class Surroundings(Watcher, Protocol):
    """A disk, a clock, names, and somebody who hears of each place that the code reaches."""

    disk: Disk
    now_ms: int

    def reached(self, place: str) -> None: ...

    def unique(self) -> int: ...


@contextlib.contextmanager
def running(it: World) -> Iterator[World]:
    """Within, the real code of this process lives in the world ``it``."""
    world.running.append(it)
    it.check = _invariants.check
    try:
        with surrounded_by(it):
            yield it
    finally:
        it.check = None
        world.running.pop()


@contextlib.contextmanager
def surrounded_by(it: Surroundings) -> Iterator[None]:
    """Within, the real code of this process finds what is ``it`` around it."""
    with (
        replaced(SimulatedFiles, "disk", it.disk),
        replaced(SimulatedFiles, "watcher", it),
        replaced(uuid, "uuid4", lambda: _unique(it)),
        short_ways(it.disk),
        clock.told_by(lambda: it.now_ms),
        faults.heard_by(it.reached),
        replaced(at_once, "made", map),  # a driver that stops does so in its own thread, and a seed means one order
        _silent(),
    ):
        yield


def _unique(it: Surroundings) -> uuid.UUID:
    """The same in each run of a seed, from its first digits on."""
    n = it.unique()
    return uuid.UUID(int=n << 96 | n)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """What the job warns of happens all the time here."""
    log = logging.getLogger("spark_ckpt")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
