"""What the real code finds around it while a simulation runs: its disk, its clock, and names that the seed draws."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from spark_ckpt import clock, faults
from spark_ckpt.protocol import codec
from spark_ckpt.storage import record_store
from spark_ckpt.testing.simulation import _invariants, world
from spark_ckpt.testing.simulation._disk import SimulatedFiles
from spark_ckpt.testing.simulation.world import World


@contextlib.contextmanager
def running(it: World) -> Iterator[World]:
    """Within, the real code of this process lives in the world ``it``."""
    world.running.append(it)
    it.check = _invariants.check
    try:
        with (
            _set(SimulatedFiles, "disk", it.disk),
            _set(SimulatedFiles, "watcher", it),
            _set(uuid, "uuid4", lambda: _unique(it)),
            _remembered(),
            clock.told_by(lambda: it.now_ms),
            faults.heard_by(it.reached),
            _silent(),
        ):
            yield it
    finally:
        it.check = None
        world.running.pop()


@contextlib.contextmanager
def _set(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _unique(it: World) -> uuid.UUID:
    """The same in each run of a seed, from its first digits on."""
    n = it.unique()
    return uuid.UUID(int=n << 96 | n)


@contextlib.contextmanager
def _remembered() -> Iterator[None]:
    """The same bytes are the same record: to look at their checksum and to read their fields again would be half of the
    simulation's time."""
    decode, parse = record_store._decode, codec.read
    bodies: dict[tuple[bytes, str], dict[str, Any]] = {}
    values: dict[tuple[Any, int], tuple[Any, Any]] = {}

    def decoded(data: bytes, kind: str, shown: Callable[[], str]) -> dict[str, Any]:
        found = bodies.get((data, kind))
        if found is None:
            found = bodies[data, kind] = decode(data, kind, shown)
        return found

    def body(store: record_store.RecordStore, path: str, kind: str) -> Any:
        found = store._load(path, kind)
        return None if found is None else found["body"]

    def parsed(cls: Any, value: Any, where: str = "record") -> Any:
        found = values.get((cls, id(value)))
        if found is None:
            found = values[cls, id(value)] = parse(cls, value, where), value
        return found[0]

    read = record_store.RecordStore
    with _set(record_store, "_decode", decoded), _set(read, "read", body), _set(codec, "read", parsed):
        yield


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
