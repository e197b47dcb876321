"""What happens to a job between two starts: sources join and leave it, and it begins another life.

A source may join or leave where a start restores a checkpoint at an empty Spark location. Another life: the job's
folder is removed, or its checkpoints are deleted (``retention=delete``), and a job of the same name starts with the
same sinks.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from spark_ckpt.protocol.checkpoint_state import Name
from spark_ckpt.protocol.life import identity
from spark_ckpt.protocol.records import Topology, VoidRecord
from spark_ckpt.protocol.recovery import GoOn, RestoreFrom, StartFresh
from spark_ckpt.protocol.steps import CommitSinks, ReadNewestGeneration
from spark_ckpt.testing.simulation.durable import Location, SimulationError, StateTables, Visible
from spark_ckpt.testing.simulation.sources import placed
from spark_ckpt.testing.simulation.world import Crash, World


def arrange(scenario: Any, names: tuple[str, ...]) -> None:
    """Let the job read these of its sources. Every operator keeps an input: the first source stays."""
    there = {*names, *scenario.all_operators}
    operators = {uid: tuple(i for i in inputs if i in there) for uid, inputs in scenario.all_operators.items()}
    scenario.operators = operators
    scenario.sink_inputs = tuple(i for i in scenario.all_sink_inputs if i in there)
    scenario.sources = placed((s for s in scenario.all_sources if s.name in names), operators)
    facts = {uid: {"state": "count long", "keys": "key long"} for uid in operators}
    weight = len(scenario.sink_inputs) * scenario.key_groups
    scenario.topology = Topology(scenario.key_groups, weight, names, facts, scenario.topology.sinks)


def change_sources(world: World, scenario: Any, location: Location) -> None:
    """Before a start at an empty location, a source may join the job or leave it for good."""
    if location.offsets or not world.records.text["generations"]:
        return
    names = tuple(s.name for s in scenario.sources)
    if scenario.joins and world.rng.random() < 0.5:
        world.log("== joins", scenario.joins)
        arrange(scenario, tuple(sorted((*names, scenario.joins))))
        scenario.joins = ""
        world.seen["a source joins"] += 1
    elif scenario.leaves in names and world.rng.random() < 0.5:
        world.log("== leaves", scenario.leaves)
        arrange(scenario, tuple(n for n in names if n != scenario.leaves))
        scenario.leaves = ""
        world.seen["a source leaves"] += 1


def visible(world: World, scenario: Any) -> Counter[Visible]:
    """What the sinks got from the job's present life, rows that were given up by hand included."""
    job = scenario.job if scenario.sabotage == "same_life" else identity(scenario.job, world.life)
    return scenario.carried + world.sink.appended[job] + world.sink.given_up[job]


def begun(world: World, scenario: Any, decision: GoOn | RestoreFrom | StartFresh) -> None:
    """Remember what a start's decision means for what must be true at the end."""
    scenario.restore = "auto"  # somebody on call asks for it once
    if isinstance(decision, StartFresh):
        scenario.before = visible(world, scenario)
        scenario.left_at = {}
        world.drains = []
        if scenario.before and not scenario.deleted and scenario.sabotage != "same_life":
            raise SimulationError("a job that has committed rows starts over")
    elif isinstance(decision, RestoreFrom):
        names = {s.name for s in scenario.sources}
        scenario.restores += 1
        scenario.left_at |= {n: p["inner"] for n, p in decision.checkpoint.sources.items() if n not in names}
        new = names - set(decision.checkpoint.sources)
        world.seen["a source begins late"] += len(new)


def another_life(world: World, scenario: Any) -> None:
    """Nobody runs the job, as far as anybody knows."""
    if world.rng.random() < 0.5:
        world.log("== the folder is removed")
        # A driver believed dead may come back where it looks who owns the job first, or in a sink's commit.
        world.zombies = [z for z in world.zombies if isinstance(z.step, ReadNewestGeneration | CommitSinks)]
        world.remove_folder()
        scenario.carried = Counter()
        world.seen["the folder is removed"] += 1
        return
    world.zombies = []  # deletion is refused while a driver may live
    scenario.deleted = True
    world.log("== the checkpoints are deleted")
    world.seen["the checkpoints are deleted"] += 1
    world.stop_at = world.rng.choice((None, *range(7)))
    try:
        delete_checkpoints(world)
    except Crash:
        world.log("== deletion stopped on its way")


def delete_checkpoints(world: World) -> None:
    """As ``spark_ckpt.jobs.job.Job.delete_checkpoints`` does it; Spark's folder is gone."""
    r = world.records
    newest = r.newest_id()
    world.point("delete", "Spark's folder")
    void = VoidRecord(newest, max(r.text["generations"], default=0), world.now_ms)
    if newest and newest not in r.text["checkpoints"]:
        r.put("checkpoints", newest, void)
    world.point("delete", "the newest id is taken")
    for folder in ("triggers", "batches"):
        r.text[folder].clear()
        world.point("deleted", folder)
    for k in sorted(r.text["checkpoints"]):
        if r.name_of(k) is Name.VOID:
            continue
        if k == newest:
            r.put("checkpoints", k, void)
        else:
            r.delete("checkpoints", k)
        world.point("deleted", k)
    for folder in ("committed", "aborted"):
        r.text[folder].clear()
        world.point("deleted", folder)
    world.requests, world.answers, world.torn_answers, world.drained = {}, {}, set(), set()
    world.tables = StateTables()
