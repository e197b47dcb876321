"""What must be true at the end of a run: rows and state of a run without crashes, and nothing unnamed left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from spark_ckpt.errors import CkptError
from spark_ckpt.protocol.aligner import EXACTLY_ONCE
from spark_ckpt.protocol.events import Flushed
from spark_ckpt.protocol.records import CompletionRecord
from spark_ckpt.testing.simulation._changes import visible
from spark_ckpt.testing.simulation._folder import identity_of, live_rows, manifest_of, records_of
from spark_ckpt.testing.simulation._sinks import job_of
from spark_ckpt.testing.simulation._state import DRAINED as DRAINED_COUNT
from spark_ckpt.testing.simulation._state import REMOVE_AT
from spark_ckpt.testing.simulation.durable import JOBS, SimulationError, Visible
from spark_ckpt.testing.simulation.scenario import Scenario
from spark_ckpt.testing.simulation.sources import SourceSpec
from spark_ckpt.testing.simulation.world import World


def expected(
    scenario: Scenario, drains: Sequence[Mapping[str, Sequence[int]]] = ()
) -> tuple[Counter[Visible], dict[str, dict[int, int]]]:
    """The visible rows and the state of a run without crashes, computed without the protocol. ``drains``: where the
    sources stood each time the job was drained."""
    wanted: Counter[Visible] = Counter()
    state: dict[str, dict[int, int]] = {uid: {} for uid in scenario.all_operators}
    begin: Mapping[str, Sequence[int]] = {s.name: [0] * len(s.splits) for s in scenario.all_sources}
    whole = {s.name: _read(scenario, s) for s in scenario.all_sources}
    for end in (*drains, whole):
        rows = {s.name: _rows(s, begin[s.name], end[s.name]) for s in scenario.all_sources}
        for uid, inputs in scenario.all_operators.items():
            keys = [k if name.startswith("source") else (k + v) % 5 for name in inputs for k, v in rows[name]]
            rows[uid] = _counted(state[uid], keys)
            if end is not whole:
                rows[uid] += [(k, DRAINED_COUNT + count) for k, count in state[uid].items()]
                state[uid].clear()
        wanted.update((name, k, v) for name in scenario.all_sink_inputs for k, v in rows[name])
        begin = end
    return wanted, state


def _read(scenario: Scenario, spec: SourceSpec) -> list[int]:
    """How far each split of a source is read in the end: to where it stood when it left the job, if it did."""
    if spec.name in scenario.topology.sources:
        return [len(split) for split in spec.splits]
    return scenario.left_at.get(spec.name, [0] * len(spec.splits))


def _rows(spec: SourceSpec, begin: Sequence[int], end: Sequence[int]) -> list[tuple[int, int]]:
    places = ((i, n) for i in range(len(spec.splits)) for n in range(begin[i], end[i]))
    return [(spec.splits[i][n], i * 1000 + n) for i, n in places]


def _counted(state: dict[int, int], keys: Iterable[int]) -> list[tuple[int, int]]:
    rows = []
    for k in keys:
        count = state.pop(k, 0) + 1
        rows.append((k, count))
        if count < REMOVE_AT:
            state[k] = count
    return rows


def check_end(world: World, scenario: Scenario) -> None:
    world.forget_zombies()
    with world.quietly():
        _check_end(world, scenario)


def _check_end(world: World, scenario: Scenario) -> None:
    wanted, state = expected(scenario, world.drains)
    found = visible(world, scenario) - scenario.before
    last = max(records_of(world).completions(), key=lambda c: c.checkpoint)
    if scenario.mode == EXACTLY_ONCE or not scenario.restores:
        _check_equal("the visible rows", wanted, found)
        for uid, content in state.items():
            rows = live_rows(world, manifest_of(world, last.tables[uid]))
            _check_equal(f"the state of {uid}", content, dict(rows))
        _check_merged(world, scenario, wanted)
    elif sum(found.values()) < sum(wanted.values()):
        raise SimulationError(f"rows were lost: expected {sum(wanted.values())}, {sum(found.values())}")
    _check_no_leak(world, scenario)
    _check_collected(world, scenario, last)


def _check_equal(what: str, wanted: object, found: object) -> None:
    if wanted != found:
        raise SimulationError(f"{what}: expected {wanted}, found {found}")


def _check_merged(world: World, scenario: Scenario, wanted: Counter[Visible]) -> None:
    """The merging sink holds each key's last value. Only operators' keys have a defined last one."""
    if "merge" not in scenario.topology.sinks or scenario.given_up or world.drains:
        return
    for (node, key), value in world.sink.merged[identity_of(world)].items():
        rows = sum(n for (at, k, _), n in wanted.items() if (at, k) == (node, key))
        if node in scenario.operators and (rows or not scenario.before):
            _check_equal(f"the merged value of {node} {key}", (rows - 1) % REMOVE_AT + 1, value)


def _check_no_leak(world: World, scenario: Scenario) -> None:
    """Without crashes and failed tasks nothing is left for garbage collection to find."""
    unlucky = scenario.stops or scenario.task_failures or scenario.tolerable_failures < 100 or scenario.faults
    if unlucky or world.lives or scenario.deleted:
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
