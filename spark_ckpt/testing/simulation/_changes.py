"""What happens to a job between two starts: sources join and leave it, and it begins another life.

A source may join or leave where a start restores a checkpoint at an empty Spark location. Another life: the job's
folder is removed, or its checkpoints are deleted (``retention=delete``), and a job of the same name starts with the
same sinks.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.protocol.records import CompletionRecord, Topology
from spark_ckpt.testing.simulation import _set_back
from spark_ckpt.testing.simulation._folder import identity_of, records_of
from spark_ckpt.testing.simulation._sinks import job_of
from spark_ckpt.testing.simulation.durable import Location, Visible
from spark_ckpt.testing.simulation.processes import Crash
from spark_ckpt.testing.simulation.sources import placed, stood
from spark_ckpt.testing.simulation.world import World


def arrange(scenario: Any, names: tuple[str, ...]) -> None:
    """Let the job read these of its sources, as they are called and ordered now. Every operator keeps an input: one
    source stays."""
    there = {*names, *scenario.all_operators}
    operators = {uid: tuple(i for i in inputs if i in there) for uid, inputs in scenario.all_operators.items()}
    scenario.operators = operators
    scenario.sink_inputs = tuple(i for i in scenario.all_sink_inputs if i in there)
    scenario.sources = placed((s for s in scenario.all_sources if s.name in names), operators)
    facts = {uid: {"state": "count long", "keys": "key long"} for uid in operators}
    weight = len(scenario.sink_inputs) * scenario.key_groups
    uids = tuple(s.uid for s in scenario.sources)
    begins = scenario.moving.begins(scenario.sources)
    scenario.topology = Topology(scenario.key_groups, weight, uids, facts, scenario.topology.sinks, begins=begins)


def change_sources(world: World, scenario: Any, location: Location) -> None:
    """Before a start a source may join the job or leave it for good: at an empty location, or where the job has a
    checkpoint to go on from at another one."""
    records = records_of(world)
    if not records.ids("generations") or not (scenario.joins or scenario.leaves):
        return
    if location.planned >= 0 and (not records.completions() or world.rng.random() < 0.5):
        return
    names = tuple(s.name for s in scenario.sources)
    if scenario.joins and world.rng.random() < 0.5:
        world.log("== joins", scenario.joins)
        arrange(scenario, (*names, scenario.joins))
        scenario.joins = ""
        world.seen["a source joins"] += 1
    elif scenario.leaves in names and world.rng.random() < 0.5:
        world.log("== leaves", scenario.leaves)
        arrange(scenario, tuple(n for n in names if n != scenario.leaves))
        scenario.leaves = ""
        world.seen["a source leaves"] += 1


def visible(world: World, scenario: Any) -> Counter[Visible]:
    """What the sinks got from the job's present life, rows that were given up by hand included."""
    job = world.job if scenario.sabotage == "same_life" else identity_of(world)
    return scenario.carried + world.sink.seen_in(job, "append")


def begun(world: World, scenario: Any, run: RunSpec, restored: CompletionRecord | None) -> None:
    """Remember what a start's decision means for what must be true at the end."""
    scenario.restore, scenario.begins_from = "auto", False  # somebody on call asks for it once
    _set_back.begun(world, scenario, run)
    if run.origin != run.generation:
        return
    if restored is None and not scenario.may_set_back:  # which knows what each sink should have at any time
        scenario.before = visible(world, scenario)
        scenario.left_at = {}
        world.drains = []
        if scenario.before and not scenario.deleted and scenario.sabotage != "same_life":
            world.fail("a job that has committed rows starts over")
    if restored is None:
        return
    names = {s.name for s in scenario.sources}
    scenario.restores += 1
    at = stood(restored.sources)
    scenario.left_at |= {n: p for n, p in at.items() if n not in names}
    world.seen["a source begins late"] += len(names - set(at))


def another_life(world: World, scenario: Any) -> None:
    """Nobody runs the job, as far as anybody knows."""
    if world.rng.random() < 0.5:
        world.log("== the folder is removed")
        # A driver believed dead may come back where it looks who owns the job first, or in a sink's commit.
        world.forget_zombies(lambda z: z.at in ("ReadNewestGeneration", "CommitSink", "CommitSinks"))
        world.remove_folder()
        scenario.carried = Counter()
        world.seen["the folder is removed"] += 1
        return
    world.forget_zombies()  # deletion is refused while a driver may live
    scenario.deleted = True
    world.log("== the checkpoints are deleted")
    world.seen["the checkpoints are deleted"] += 1
    world.stop_at = world.rng.choice((None, *range(12)))
    try:
        job_of(world, scenario.topology.sinks).delete_checkpoints()
    except (Crash, OSError) as e:
        world.log("== deletion stopped on its way", repr(e))
