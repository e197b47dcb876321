"""Rules of the real code that can be broken on purpose: the simulation must notice every one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from spark_ckpt.jobs import committer
from spark_ckpt.protocol import steps as s
from spark_ckpt.runtime.source import reader
from spark_ckpt.testing.simulation.world import current
from spark_ckpt.types import Committable

_IO: Any = vars(committer)["JobIO"]


@contextlib.contextmanager
def broken(rule: str) -> Iterator[None]:
    """Within, ``rule`` does not hold; none is broken by the empty one. Some rules are the simulation's own to break."""
    place = _PATCHES.get(rule)
    if place is None:
        yield
        return
    owner, name, wrong = place
    right = getattr(owner, name)
    setattr(owner, name, wrong(right))
    try:
        yield
    finally:
        setattr(owner, name, right)


def _own_generation(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda io, _step: io._generation


def _never_taken(_right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _io, _step: s.Created()


def _commits_first(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(io: Any, step: s.CreateCompletion) -> Any:
        world = current()
        for c in step.record.committables:
            _show(world, c)
        world.point("sabotage", "committed before the record")
        return right(io, step)

    return wrong


def _show(world: Any, c: Committable) -> None:
    if c.data in world.sink.staged:
        world.sink.publish("sabotage", c.sink, c.epoch, world.sink.staged.pop(c.data))


def _taken_for_done(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(io: Any, step: s.CommitSinks) -> Any:
        return tuple(None for _ in right(io, step))

    return wrong


def _none(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda start, restores, reaches, _adopt, replayed: right(start, restores, reaches, None, replayed)


_PATCHES: dict[str, tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = {
    "no_fence": (_IO, "_ReadNewestGeneration", _own_generation),
    "no_void": (_IO, "_CreateVoid", _never_taken),
    "commit_before_record": (_IO, "_CreateCompletion", _commits_first),
    "failed_is_done": (_IO, "_CommitSinks", _taken_for_done),
    "no_adopt": (reader, "manifests_to_send", _none),
}
