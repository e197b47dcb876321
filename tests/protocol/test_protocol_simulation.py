"""The whole protocol with crashes, against the fault-free run; and proof that the simulation notices broken rules."""

from __future__ import annotations

from collections import Counter

import pytest

from spark_ckpt.errors import CorruptStorageError, ProtocolBugError
from spark_ckpt.testing import simulate
from spark_ckpt.testing.simulation.durable import SimulationError
from spark_ckpt.testing.simulation.run import run_seed
from spark_ckpt.testing.simulation.scenario import SABOTAGES

SEEDS = 200
OFTEN_ENOUGH = {
    "storage fails": 200,
    "storage fails, and the query goes on": 15,
    "storage is slow": 500,
    "a write is torn": 15,
    "half a record in checkpoints": 2,
    "half a record in batches": 2,
    "half a record in generations": 2,
    "a sink refuses what is tried": 100,
    "a checkpoint is aborted: lost": 80,
    "a checkpoint is aborted: expired": 15,
    "a hook has its state back": 40,
    "the folder is removed": 60,
    "the checkpoints are deleted": 50,
    "a changed query goes on at a location of its own": 10,
    "a source joins": 40,
    "a source begins late": 30,
    "a source leaves": 25,
    "a source ends": 200,
    "sources stand in another order": 50,
    "a source gets another uid": 60,
    "a source is to begin elsewhere": 12,
    "a caller stops waiting": 40,
    "a halted driver moves": 1000,
    "a target is set back": 10,
    "a folder is set back": 6,
    "a set-back is followed: accept": 6,
    "a set-back is followed: restore": 2,
    "a set-back is followed: put back": 6,
    "a job is rolled back": 30,
    "a rollback is finished by the next one": 6,
    "a job is paused": 40,
    "a paused job is started": 8,
    "a source is asked while the job is paused": 40,
}
"""What schedules are there for, and how often it must really happen in 400 of them; `make simulate` tries 10,000."""
SHARE = SEEDS / 400


def test_hundreds_of_seeds_are_exactly_once_and_leave_nothing_behind():
    reports = [run_seed(seed) for seed in range(SEEDS)]
    seen = sum((r.seen for r in reports), Counter())
    assert {what: seen[what] for what, floor in OFTEN_ENOUGH.items() if seen[what] < floor * SHARE} == {}
    assert sum(r.starts > 1 for r in reports) > 200 * SHARE, "most runs are stopped somewhere"
    assert sum(r.restores for r in reports) > 50 * SHARE
    assert sum(r.aborted for r in reports) > 25 * SHARE
    assert sum(r.savepoints for r in reports) > 25 * SHARE
    assert sum(r.forks for r in reports) > 2 * SHARE
    assert sum(r.given_up for r in reports) > 15 * SHARE


SOONER = {"no_hold": 198, "no_adopt": 284, "not_the_last": 46, "no_void": 268}
"""A rare race: where to begin looking. Any seeds do."""
FEW = 200
"""A seed costs a tenth of a second. When schedules change, a rare race moves: then look for it and put it above."""


@pytest.mark.parametrize("rule", SABOTAGES)
def test_a_broken_rule_is_noticed(rule):
    first = SOONER.get(rule, 0)
    assert any(_fails(seed, rule) for seed in range(first, first + FEW)), f"not in {FEW} seeds from {first} on"


def _fails(seed: int, rule: str) -> bool:
    try:
        run_seed(seed, rule)
    except (SimulationError, ProtocolBugError, CorruptStorageError):  # as the simulation, the protocol or gc find it
        return True
    return False


def test_a_seed_replays_the_same():
    first: list[str] = []
    second: list[str] = []
    assert run_seed(8, trace=first) == run_seed(8, trace=second)
    assert first == second


def test_the_command_reports_and_replays(capsys):
    assert simulate.main(["--seeds", "5", "--first", "3"]) == 0
    assert "5 seeds" in capsys.readouterr().out
    assert simulate.main(["--seed", "3"]) == 0
    assert "planned batch 0" in capsys.readouterr().out


def test_the_command_names_the_failing_seed(capsys):
    assert simulate.main(["--seeds", "3000", "--sabotage", "commit_before_record"]) == 1
    assert "replay it with: python -m spark_ckpt.testing.simulate --seed" in capsys.readouterr().out
