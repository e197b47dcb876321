"""Somebody changes how a query reads its sources: in which order, under which uids, from where.

What must hold: a source goes on from its own offsets, whatever it is called and wherever it stands in the plan; and one
that is to begin elsewhere does so once, so that just the rows in between come again, or never.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.protocol.source_starts import ASKED, EARLIEST, LATEST, Moved
from spark_ckpt.testing.simulation._changes import arrange
from spark_ckpt.testing.simulation._folder import records_of
from spark_ckpt.testing.simulation._rows import Off, Place
from spark_ckpt.testing.simulation.durable import Location
from spark_ckpt.testing.simulation.sources import Offset, SourceSpec, keep_beside_offsets, stood
from spark_ckpt.testing.simulation.world import World

_RATE = 0.5


@dataclass(frozen=True)
class Line:
    """Of an origin: where each source was told to begin, and which rows it read more than once, or not at all."""

    asked: Mapping[str, Any] = field(default_factory=dict)
    off: Mapping[str, Counter[Place]] = field(default_factory=dict)


@dataclass
class Moving:
    """``left``: how many changes are still to come. ``migrations`` and ``asked``, by name, stand beside the query, and
    stay."""

    draw: random.Random | None = field(default=None, repr=False)
    left: int = 0
    begins_elsewhere: bool = False
    migrations: tuple[Moved, ...] = ()
    asked: dict[str, Any] = field(default_factory=dict)
    lines: dict[int, Line] = field(default_factory=dict)
    undo: list[Any] = field(default_factory=list)
    """What stood there before each change that no start has made its own yet."""

    def begins(self, sources: Sequence[SourceSpec]) -> dict[str, dict[str, Any]]:
        """As a topology has it."""
        return {s.uid: {ASKED: self.asked[s.name]} for s in sources if s.name in self.asked}

    def off(self, origin: int) -> Off:
        return self.lines[origin].off if self.begins_elsewhere else {}


def draw(seed: int, scenario: Any) -> None:
    """By draws of its own: those of the seed's schedule stay what they are."""
    own = random.Random(f"moving {seed}")
    if own.random() > _RATE:
        return
    # Where rows are counted otherwise, or a checkpoint does not say which start it comes from, sources stay where they
    # stand.
    elsewhere = not (scenario.may_set_back or scenario.fork_rate or scenario.rewrites_left)
    elsewhere = elsewhere and not any(c.drain for c in scenario.callers)
    scenario.moving = Moving(own, own.randint(1, 4), elsewhere)
    for step in ("BringSources", "FindOffsets"):
        if own.random() < 0.3:
            scenario.stops = (*scenario.stops, step)


def between_starts(world: World, scenario: Any, location: Location) -> None:
    """Nobody runs the job, as far as anybody knows."""
    moving = scenario.moving
    if not moving.left or moving.draw.random() < 0.5 or not _goes_on_elsewhere(world, location):
        return
    moving.left -= 1
    moving.undo.append((scenario.all_sources, moving.migrations, dict(moving.asked)))
    elsewhere = (_begin_elsewhere, _begin_elsewhere) if moving.begins_elsewhere else ()
    moving.draw.choice((_reorder, _rename, *elsewhere))(world, scenario, moving)
    _arranged(scenario)


def _goes_on_elsewhere(world: World, location: Location) -> bool:
    """Whether a changed query can start: at an empty location, or from a checkpoint."""
    return location.planned < 0 or bool(records_of(world).completions())


def _arranged(scenario: Any) -> None:
    arrange(scenario, tuple(s.name for s in scenario.sources))


def _reorder(world: World, scenario: Any, moving: Any) -> None:
    specs = list(scenario.all_sources)
    moving.draw.shuffle(specs)
    scenario.all_sources = tuple(specs)
    world.log("== sources stand in another order", [s.name for s in specs])
    world.seen["sources stand in another order"] += len(scenario.sources) > 1


def _rename(world: World, scenario: Any, moving: Any) -> None:
    spec = moving.draw.choice(scenario.sources)
    new, others = replace(spec, moved=spec.moved + 1), scenario.all_sources
    scenario.all_sources = tuple(replace(s, moved=new.moved) if s.name == spec.name else s for s in others)
    moving.migrations = (*moving.migrations, Moved(spec.uid, new.uid))
    world.log("== a source gets another uid", f"{spec.uid}, {new.uid}")
    world.seen["a source gets another uid"] += 1


def _begin_elsewhere(world: World, scenario: Any, moving: Any) -> None:
    spec = moving.draw.choice(scenario.sources)
    somewhere = {"at": [moving.draw.randint(0, len(split)) for split in spec.splits]}
    moving.asked[spec.name] = moving.draw.choice((EARLIEST, LATEST, somewhere, somewhere))
    world.log("== a source is to begin elsewhere", f"{spec.uid} {moving.asked[spec.name]}")
    world.seen["a source is to begin elsewhere"] += 1


def take_back(world: World, scenario: Any) -> None:
    """A start was refused, as there is no checkpoint that the changed query could go on from."""
    moving = scenario.moving
    scenario.all_sources, moving.migrations, moving.asked = moving.undo.pop()
    moving.left += 1
    _arranged(scenario)
    world.seen["a change of sources waits for a checkpoint"] += 1


def found(world: World, sources: Sequence[SourceSpec], uid: str, asked: Any) -> Offset:
    """Where the source ``uid`` begins, which is asked to say so; it keeps what that means."""
    spec = next(s for s in sources if s.uid == uid)
    keep_beside_offsets(world, spec)
    return {"at": _place(spec, asked)}


def _place(spec: SourceSpec, asked: Any) -> list[int]:
    if asked == EARLIEST:
        return [0] * len(spec.splits)
    return [len(split) for split in spec.splits] if asked == LATEST else list(asked["at"])


def begun(world: World, scenario: Any, run: RunSpec, restored: CompletionRecord | None) -> None:
    """A start went on as ``run`` says; from ``restored``, if it is at a new Spark location: note what each source reads
    again, or never."""
    moving = scenario.moving
    moving.undo.clear()
    if not moving.begins_elsewhere:
        return
    if run.origin != run.generation:
        if any(moving.asked.get(s.name) != moving.lines[run.origin].asked.get(s.name) for s in scenario.sources):
            world.fail(f"the job goes on at its location, and sources were to begin elsewhere: {moving.asked}")
        return
    before = Line() if restored is None else moving.lines[restored.origin]
    at = {} if restored is None else stood(restored.sources)
    off = {name: Counter(places) for name, places in before.off.items()}
    for spec in scenario.sources:
        asked = moving.asked.get(spec.name)
        if asked is not None and asked != before.asked.get(spec.name):
            stands = at.get(spec.name, [0] * len(spec.splits))
            off.setdefault(spec.name, Counter()).update(_between(stands, _place(spec, asked)))
    moving.lines[run.origin] = Line(dict(moving.asked), off)


def _between(stands: Sequence[int], begins: Sequence[int]) -> Counter[Place]:
    """What is read again, and what never (-1), by a source that stood at ``stands`` and begins at ``begins``."""
    again = Counter((i, n) for i, (a, b) in enumerate(zip(stands, begins, strict=True)) for n in range(b, a))
    again.subtract((i, n) for i, (a, b) in enumerate(zip(stands, begins, strict=True)) for n in range(a, b))
    return again
