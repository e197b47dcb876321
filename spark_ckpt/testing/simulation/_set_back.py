"""What is set back while the job is stopped: a sink's target, or the job's folder, to an older copy of it.

What must hold, whatever the start makes of it: where somebody only starts the job, no row goes missing and none comes
twice. A start that would do either is refused, changes nothing, and says what to do; whoever follows it gets what it
says: all rows once, or exactly the gap (or the repetition) that was accepted.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from spark_ckpt.errors import CkptError
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.testing.simulation._folder import identity_of, records_of
from spark_ckpt.testing.simulation._rows import rows_up_to
from spark_ckpt.testing.simulation._sinks import job_of
from spark_ckpt.testing.simulation.durable import JOBS, Location, Target, Visible
from spark_ckpt.testing.simulation.sources import stood
from spark_ckpt.testing.simulation.world import World

Off = dict[str, Counter[Visible]]
"""By sink: what it shows more (or less, below 0) than the rows up to where the job stands."""


@dataclass(frozen=True)
class Copy:
    """The targets, the job's folder and its Spark location, all of one moment. ``told``: what the simulation had
    noted of the folder."""

    targets: dict[str, Target]
    off: Off
    files: dict[str, bytes]
    location: Location
    told: tuple[Any, ...]


@dataclass
class SetBack:
    """``sinks``: those whose targets were set back to ``older``; none if it is the folder. ``followed``: somebody did
    what the refused start said."""

    sinks: tuple[str, ...]
    older: Copy
    newer: Copy
    shown: dict[str, Target] | None
    """What sinks showed then; None if that is not known."""
    followed: bool = False
    once: bool = False
    """What was followed promises all rows once, to those that were set back."""


def between_starts(world: World, scenario: Any, location: Location) -> Location:
    """Nobody runs the job, as far as anybody knows. Returns the Spark location to start at."""
    if not scenario.set_backs or world.set_back or scenario.restore != "auto" or not _is_settled(world):
        return location
    if world.copy is None or world.rng.random() < 0.2:
        world.copy = _copy(world, scenario, location)
    elif _changed(_copy(world, scenario, location), world.copy) and world.rng.random() < 0.7:
        scenario.set_backs -= 1
        world.forget_zombies()  # it is stopped
        return _set_back(world, scenario, location, world.copy)
    return location


def begun(world: World, scenario: Any, run: RunSpec) -> None:
    """A start was not refused."""
    if not scenario.may_set_back:
        return
    done, world.set_back = world.set_back, None
    world.went_on = done or world.went_on
    off = _off(world, scenario, run)
    if done is None or not done.followed:
        for sink, rows in off.items():
            _check_nothing_new(world, sink, scenario.off[sink], rows)
    elif done.once:
        for sink in done.sinks:
            if off[sink] != done.older.off[sink]:
                world.fail(f"{sink} should have all rows once, and is off by {off[sink]}, not {done.older.off[sink]}")
    scenario.off = off


def is_set_back(world: World, error: CkptError) -> bool:
    """Whether a start was refused for it. One that began anew, as told, and did nothing yet counts for nothing: then
    the next start says it again."""
    if world.set_back is None and world.went_on is not None and "Ways out:" in str(error):
        world.set_back = replace(world.went_on, shown=None, followed=False, once=False)
    return world.set_back is not None and "Ways out:" in str(error)


def follow(world: World, scenario: Any, location: Location, message: str) -> Location:
    """Do what a refused start says. Returns the Spark location to start at next."""
    found: SetBack = world.set_back
    if found.shown is not None and found.shown != _targets(world, scenario):
        world.fail(f"a start that is refused changed what sinks show: {message}")
    accepts = re.findall(r"`spark-ckpt accept DIR \S+ (\d+) --sink (\w+)`", message)
    named = re.search(r"spark\.ckpt\.restore=(\w+) at an empty", message)
    if not accepts or (found.sinks and not named):
        world.fail(f"the message tells no way out: {message}")
    way = world.rng.choice(("accept", "put back", "restore" if found.sinks else "older targets"))
    world.log("== set back:", way)
    world.seen[f"a set-back is followed: {way}"] += 1
    with world.quietly():
        if way == "accept":
            for checkpoint, sink in accepts:
                job_of(world, scenario.topology.sinks).accept(int(checkpoint), sink)
            found.followed = True
            return location
        if way == "put back":
            return _put_back(world, location, found)
        if way == "restore" and named is not None:
            return _restore(world, scenario, found, named.group(1))
    _put_targets(world, scenario.topology.sinks, found.older)
    found.sinks, found.followed, found.once = scenario.topology.sinks, True, True
    return location


def _put_back(world: World, location: Location, found: SetBack) -> Location:
    """The newer copy."""
    world.set_back = None
    if found.sinks:
        _put_targets(world, found.sinks, found.newer)
        return location
    return _put_folder(world, found.newer)


def _restore(world: World, scenario: Any, found: SetBack, named: str) -> Location:
    scenario.restore, found.followed, found.once = named, True, True
    world.copy = None  # one of rows that are computed anew shows ids that nobody can tell from those of now
    if named == "none":
        for sink in scenario.topology.sinks:
            world.sink.put(identity_of(world), sink, Target())
        found.sinks, nothing = scenario.topology.sinks, {s: Counter[Visible]() for s in scenario.topology.sinks}
        found.older = replace(found.older, off=nothing)
    return world.fresh_location()


# --- setting back ----------------------------------------------------------------------------------------------------


def _is_settled(world: World) -> bool:
    """Nothing is complete and not committed: what a target has of that is a case of its own."""
    records = records_of(world)
    done = {c.checkpoint for c in records.completions()}
    return bool(done) and done <= set(records.ids("committed")) and not _is_torn(world)


def _is_torn(world: World) -> bool:
    return any(world.disk.files.get(path) == half for path, half in world.torn.items())


def _set_back(world: World, scenario: Any, location: Location, older: Copy) -> Location:
    newer = _copy(world, scenario, location)
    sinks: tuple[str, ...] = ()
    if world.rng.random() < 0.3:
        world.seen["a folder is set back"] += 1
        world.log("== the folder is set back")
        location, world.folder_set_back = _put_folder(world, older), True
        if world.rng.random() < 0.5:
            location = world.fresh_location()
    else:
        sinks = tuple(s for s in _changed(newer, older) if world.rng.random() < 0.7)
        world.seen["a target is set back"] += bool(sinks)
        world.log("== targets are set back", sinks)
        _put_targets(world, sinks, older)
    world.set_back = SetBack(sinks, older, newer, _targets(world, scenario))
    return location


def _copy(world: World, scenario: Any, location: Location) -> Copy:
    mine = (f"{JOBS}/{world.job}/", f"{location.path}/")
    files = {path: data for path, data in world.disk.files.items() if path.startswith(mine)}
    told = dict(world.answers), set(world.triggered), set(world.drained)
    return Copy(_targets(world, scenario), dict(scenario.off), files, location.copy(), told)


def _changed(newer: Copy, older: Copy) -> list[str]:
    """Sinks that committed something in between. What was only staged is looked for when it is committed."""
    return [sink for sink, target in newer.targets.items() if target.ledger != older.targets[sink].ledger]


def _targets(world: World, scenario: Any) -> dict[str, Target]:
    job = identity_of(world)
    return {sink: world.sink.copy_of(job, sink) for sink in scenario.topology.sinks}


def _put_targets(world: World, sinks: tuple[str, ...], of: Copy) -> None:
    for sink in sinks:
        world.sink.put(identity_of(world), sink, of.targets[sink])


def _put_folder(world: World, of: Copy) -> Location:
    location = of.location.copy()
    world.disk.drop(f"{JOBS}/{world.job}")
    world.disk.drop(location.path)
    for path, data in of.files.items():
        world.disk.put(path, data)
    answers, triggered, drained = of.told
    world.answers, world.triggered, world.drained = dict(answers), set(triggered), set(drained)
    world.locations[location.path] = location
    return location


# --- what that means -------------------------------------------------------------------------------------------------


def _off(world: World, scenario: Any, run: RunSpec) -> Off:
    """How far each sink is off what the job has read up to the checkpoint that it goes on from."""
    committed = records_of(world).ids("committed")  # a driver that was halted may have completed one since
    own = [c for c in records_of(world).completions() if c.origin == run.origin and c.checkpoint in committed]
    newest = max(own, key=lambda c: c.checkpoint, default=None)
    at = newest or (records_of(world).completion(run.restored_from) if run.restored_from else None)
    wanted, _ = rows_up_to(scenario, stood(at.sources) if at else {})
    out = {}
    for sink in scenario.topology.sinks:
        out[sink] = Counter(world.sink.seen_in(identity_of(world), sink))
        out[sink].subtract(wanted)
        out[sink] = Counter({row: n for row, n in out[sink].items() if n})
    return out


def _check_nothing_new(world: World, sink: str, before: Counter[Visible], after: Counter[Visible]) -> None:
    for row in before.keys() | after.keys():
        if min(after[row], 0) < min(before[row], 0):
            world.fail(f"the job goes on, and {sink} lacks {row}: {after[row]}, before {before[row]}")
        if max(after[row], 0) > max(before[row], 0):
            world.fail(f"the job goes on, and {sink} gets {row} again: {after[row]}, before {before[row]}")
