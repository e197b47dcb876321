"""Savepoints on a schedule: when they are due, where they go, and which ones are removed. No Spark."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import spark_ckpt
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError
from spark_ckpt.faults import heard_by
from spark_ckpt.jobs.scheduled_savepoints import newest_ms, schedule
from spark_ckpt.protocol.coordinator import (
    SavepointSchedule,
    TriggerFacts,
    TriggerNow,
    TriggerPolicy,
    Wait,
    decide_trigger,
)
from tests.storage.whole_job import JOB, WholeJob

HOUR_MS = 3_600_000
NIGHTLY = TriggerPolicy(interval_ms=10_000, savepoints=SavepointSchedule(24 * HOUR_MS, "at {}".format))
FACTS = TriggerFacts(now_ms=100 * HOUR_MS, started_ms=0, initial_delay_ms=0, last_trigger_ms=99 * HOUR_MS)


class Killed(BaseException):
    """As SIGKILL, but the test goes on."""


def test_the_checkpoint_that_is_due_next_is_a_savepoint_when_that_is_due_too() -> None:
    due = TriggerNow("savepoint", "schedule", "at 360000000")
    assert decide_trigger(NIGHTLY, FACTS) == due, "there is none yet"
    assert decide_trigger(NIGHTLY, replace(FACTS, last_savepoint_ms=76 * HOUR_MS)) == due
    plain = TriggerNow("checkpoint", "interval")
    assert decide_trigger(NIGHTLY, replace(FACTS, last_savepoint_ms=76 * HOUR_MS + 1)) == plain
    assert decide_trigger(replace(NIGHTLY, savepoints=None), FACTS) == plain
    assert isinstance(decide_trigger(NIGHTLY, replace(FACTS, last_trigger_ms=FACTS.now_ms - 1)), Wait)


def test_settings_say_where_and_a_schedule_without_a_folder_is_refused(tmp_path: Path) -> None:
    given = {"dir": str(tmp_path), "savepoint.every": "1d", "savepoint.dir": "/sp/"}
    config = JobConfig.from_options(given)
    assert JobConfig.from_options(config.to_options()) == config
    found = schedule(config, "orders")
    assert found is not None
    assert (found.every_ms, found.target(100 * HOUR_MS)) == (24 * HOUR_MS, "/sp/orders-19700105T040000Z")
    with pytest.raises(ConfigError, match=r"expected spark.ckpt.savepoint.dir beside it"):
        JobConfig.from_options({"dir": str(tmp_path), "savepoint.every": "1d"})


def started(root: Path, keep: int = 2) -> WholeJob:
    settings = {"savepoint.every": "1h", "savepoint.dir": str(root / "sp"), "savepoint.keep": str(keep)}
    job = WholeJob(root, **settings)
    job.start()
    return job


def take(job: WholeJob, day: int) -> None:
    job.step(True, savepoint=str(job.root / f"sp/{JOB}-202601{day:02d}T000000Z"))


def days(root: Path) -> list[int]:
    return [int(p.name.removeprefix(f"{JOB}-202601")[:2]) for p in sorted((root / "sp").glob(f"{JOB}-2026*"))]


def test_the_newest_are_kept_and_nothing_else_is_removed(tmp_path: Path) -> None:
    job = started(tmp_path)
    others = [f"{JOB}-20260101T000000Z-mine", f"{JOB}-2-20260101T000000Z", "notes", f"{JOB}-20260102T000000Z"]
    for name in others:
        (tmp_path / "sp" / name).mkdir(parents=True)
        (tmp_path / "sp" / name / "file").write_text("x")
    for day in (3, 4, 5, 6):
        take(job, day)
    assert days(tmp_path) == [1, 2, 5, 6], "of the first two one is called otherwise, and one is no savepoint"
    assert all((tmp_path / "sp" / name / "file").exists() for name in others)
    assert newest_ms(job.config, JOB) == 1_767_657_600_000
    assert [s.verify() for s in spark_ckpt.savepoints(str(tmp_path / "sp"))] == [[], []]


def test_savepoints_of_another_life_of_the_job_stay(tmp_path: Path) -> None:
    job = started(tmp_path, keep=1)
    take(job, 3)
    shutil.rmtree(tmp_path / "jobs")
    shutil.rmtree(tmp_path / "spark")
    again = started(tmp_path, keep=1)
    take(again, 4)
    take(again, 5)
    assert days(tmp_path) == [3, 5]


@pytest.mark.parametrize("place", ["dispose claimed", "savepoint removed", "state removed"])
def test_a_removal_that_is_killed_goes_on_behind_the_next_savepoint(tmp_path: Path, place: str) -> None:
    def kill(reached: str) -> None:
        if reached == place:
            raise Killed

    job = started(tmp_path, keep=1)
    take(job, 3)
    with heard_by(kill), suppress(Killed):
        take(job, 4)
    again = started(tmp_path, keep=1)
    take(again, 5)
    assert days(tmp_path) == [5]
    again.check(doubles=False)


def test_an_unfinished_savepoint_goes_behind_a_newer_one_and_a_damaged_one_stays(tmp_path: Path) -> None:
    job = started(tmp_path, keep=1)
    for day in (3, 4):
        take(job, day)
    (tmp_path / f"sp/{JOB}-20260104T000000Z/savepoint.json").write_bytes(b"{}")
    take(job, 5)
    (tmp_path / f"sp/{JOB}-20260105T000000Z/savepoint.json").unlink()
    take(job, 6)
    assert days(tmp_path) == [4, 6]


def test_a_folder_that_cannot_be_listed_or_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "sp").write_text("a file")
    job = started(tmp_path)
    assert newest_ms(job.config, JOB) is None
    take(job, 3)
    job.step(True)
    job.check(doubles=False)
