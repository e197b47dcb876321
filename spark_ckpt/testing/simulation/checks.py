"""What must be true at the end of a run: rows and state of a run without crashes, and nothing unnamed left."""

from __future__ import annotations

from collections import Counter

from spark_ckpt.errors import CkptError
from spark_ckpt.protocol.aligner import EXACTLY_ONCE
from spark_ckpt.protocol.events import Flushed
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.testing.simulation._changes import visible
from spark_ckpt.testing.simulation._folder import identity_of, live_rows, manifest_of, records_of
from spark_ckpt.testing.simulation._rows import expected
from spark_ckpt.testing.simulation._sinks import job_of
from spark_ckpt.testing.simulation._state import REMOVE_AT
from spark_ckpt.testing.simulation.durable import JOBS, SimulationError, Visible
from spark_ckpt.testing.simulation.scenario import Scenario
from spark_ckpt.testing.simulation.world import World


def check_end(world: World, scenario: Scenario) -> None:
    world.forget_zombies()
    with world.quietly():
        _check_end(world, scenario)


def _check_end(world: World, scenario: Scenario) -> None:
    last = max(records_of(world).completions(), key=lambda c: c.checkpoint)
    wanted, state = expected(scenario, world.drains, scenario.moving.off(last.origin))
    found = visible(world, scenario) - scenario.before
    if scenario.mode == EXACTLY_ONCE or not scenario.restores:
        _check_equal("the visible rows", _off(wanted, scenario, "append"), found)
        for uid, content in state.items():
            rows = live_rows(world, manifest_of(world, last.tables[uid]))
            _check_equal(f"the state of {uid}", content, dict(rows))
        _check_merged(world, scenario, wanted)
    elif sum(found.values()) < sum(wanted.values()):
        raise SimulationError(f"rows were lost: expected {sum(wanted.values())}, {sum(found.values())}")
    _check_no_leak(world, scenario)
    _check_collected(world, scenario, last)


def _off(wanted: Counter[Visible], scenario: Scenario, sink: str) -> Counter[Visible]:
    """``wanted`` with what somebody accepted: rows once more, or a gap."""
    found = Counter(wanted)
    found.update(scenario.off[sink])
    return Counter({row: n for row, n in found.items() if n})


def _check_equal(what: str, wanted: object, found: object) -> None:
    if wanted != found:
        raise SimulationError(f"{what}: expected {wanted}, found {found}")


def _check_merged(world: World, scenario: Scenario, wanted: Counter[Visible]) -> None:
    """The merging sink holds each key's last value. Only operators' keys have a defined last one."""
    if "merge" not in scenario.topology.sinks or scenario.given_up or world.drains:
        return
    target = world.sink.targets[identity_of(world), "merge"]
    if scenario.may_set_back:
        _check_equal("the rows that were merged", _off(wanted, scenario, "merge"), target.rows)
    if any(n < 0 for n in scenario.off["merge"].values()):
        return  # which of a key's values is missing is not told
    for (node, key), value in target.merged.items():
        rows = sum(n for (at, k, _), n in wanted.items() if (at, k) == (node, key))
        if node in scenario.operators and (rows or not scenario.before):
            _check_equal(f"the merged value of {node} {key}", (rows - 1) % REMOVE_AT + 1, value)


def _check_no_leak(world: World, scenario: Scenario) -> None:
    """Without crashes and failed tasks nothing is left for garbage collection to find."""
    unlucky = scenario.stops or scenario.task_failures or scenario.tolerable_failures < 100 or scenario.faults
    if unlucky or world.lives or scenario.deleted or scenario.may_set_back:
        return
    if world.sink.staged:
        raise SimulationError(f"staged rows are left: {list(world.sink.staged)}")


def _check_collected(world: World, scenario: Scenario, last: CompletionRecord) -> None:
    """After garbage collection every file is named by a retained checkpoint, and every name has its file."""
    records, job = records_of(world), job_of(world, scenario.topology.sinks)
    if {c.checkpoint for c in records.completions()} - set(records.ids("committed")):
        raise SimulationError("a completed checkpoint is not committed")
    needed = min(last.batches_from, last.batch)  # the newest stays for the query's progress
    left = [b.name for b in records.batches() if b.origin == last.origin and b.batch < needed]
    if left and not world.zombies_moved and not scenario.faults:
        raise SimulationError(f"batch records are left: {left}")
    try:
        job.gc()
    except CkptError:
        if not world.torn:
            raise
        return  # what a damaged record names cannot be told from garbage
    wrong = [w for w in job.verify() if not world.torn]
    _check_equal("what is wrong with the job's folder", [], wrong)
    _check_named(world, scenario)


def _check_named(world: World, scenario: Scenario) -> None:
    done = records_of(world).completions()
    flushed = [e for b in records_of(world).batches() for e in b.events if isinstance(e, Flushed)]
    for uid in scenario.operators:
        folder = f"{JOBS}/{world.job}/state/{uid}"
        named = {name for c in done if uid in c.tables for name in manifest_of(world, c.tables[uid]).files}
        named |= {f.file for e in flushed if e.uid == uid for f in e.files}  # it may go on at its Spark location
        _check_equal(f"state files of {uid}", named, set(world.disk.names(folder)))
    if world.sink.staged and not world.lives:
        raise SimulationError(f"staged rows are left behind gc: {list(world.sink.staged)}")
