"""What checkpoints were like: percentiles that are right, counts that are, and a record that stays small."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from spark_ckpt.cli import app
from spark_ckpt.config import JobConfig
from spark_ckpt.jobs.job import Job
from spark_ckpt.jobs.report import history_row
from spark_ckpt.jobs.statistics import StatisticsKeeper
from spark_ckpt.protocol.records import (
    AbortedRecord,
    CompletionRecord,
    GenerationRecord,
    Topology,
    TriggerRecord,
    VoidRecord,
)
from spark_ckpt.protocol.steps import AppendHistory
from spark_ckpt.storage.distribution import ERROR, PERCENTILES, Distribution
from spark_ckpt.storage.job_paths import STATISTICS_RECORD, JobPaths, id_name
from spark_ckpt.storage.statistics import Sample, Statistics, read_durations_ms
from spark_ckpt.types import CheckpointId

TOPOLOGY = Topology(4, 4, ("in",), {"totals": {}}, ("out",))


@given(st.lists(st.one_of(st.integers(0, 30), st.integers(0, 10**13)), min_size=1, max_size=200))
def test_percentiles_are_those_of_the_sorted_values(values: list[int]) -> None:
    d = Distribution()
    for value in values:
        d.add(value)
    d = Distribution.from_json(json.loads(json.dumps(d.to_json())))
    assert (d.count, d.total, d.minimum, d.maximum) == (len(values), sum(values), min(values), max(values))
    for percent in PERCENTILES:
        exact = sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]
        found = d.percentile(percent)
        assert found is not None
        assert abs(found - exact) <= ERROR * exact + 0.5, (percent, found, exact)


def test_small_numbers_are_exact() -> None:
    for value in range(25):
        d = Distribution()
        for other in (0, value, 1000):
            d.add(other)
        assert d.percentile(50) == value


def test_nothing_measured_has_no_values() -> None:
    assert set(Distribution().summary().values()) == {0, None}


def test_it_stays_small_however_much_it_has_seen() -> None:
    rng, statistics = random.Random(0), Statistics()
    for k in range(1, 3_001):
        took = int(rng.lognormvariate(7, 1))
        values = {"duration_ms": took, "written_bytes": took * 1000}
        statistics.add(k, "completed", Sample(values, {"x": values}, {"x": {0: values, 1: values}}))
    text = json.dumps(statistics.to_json())
    assert len(text) < 30_000
    again = Statistics.from_json(json.loads(text))
    assert again == statistics
    assert again.outcomes == {"completed": 3_000}
    assert len(again.durations_ms) == 60


def test_a_checkpoint_is_counted_once_whatever_is_told_again() -> None:
    statistics = Statistics()
    for k in (1, 2, 2, 1, *range(3, 2000), 5, 1999):
        statistics.add(k, "completed")
    assert statistics.outcomes == {"completed": 1999}
    assert len(statistics.counted) <= 512


@pytest.fixture
def job(tmp_path: Path) -> Job:
    found = Job(JobConfig(dir=str(tmp_path)), "flights")
    for g, restored in ((1, None), (2, 7)):
        found.records.create_generation(GenerationRecord(g, g, "spark", restored, 1000 * g, TOPOLOGY))
    return found


def complete(keeper: StatisticsKeeper, checkpoint: int, write_ms: int, took_ms: int = 500) -> None:
    stats = {"alignment_ms": 5, "held_bytes": 0, "keys": 10, "rows": 4, "size_bytes": 2048, "write_ms": write_ms}
    parts = {"totals": {0: {**stats, "keys": 6}, 1: {**stats, "keys": 4, "write_ms": 1}}}
    step = AppendHistory(
        CheckpointId(checkpoint), "checkpoint", "completed", 2, 2, 0, 1_700_000_000_000, 1_700_000_000_400,
        stats={"totals": stats}, subtasks=parts,
    )  # fmt: skip
    row = history_row(step, [], 1_700_000_000_000 + took_ms, {"commit_state_ms": 30})
    keeper.completed(step, row, [])


def abort(job: Job, checkpoint: int, cause: str) -> AppendHistory:
    job.records.abort(AbortedRecord(checkpoint, cause, "no space", 1_700_000_000_900, 2))
    return AppendHistory(CheckpointId(checkpoint), "checkpoint", cause, 2, 2, 0, 1_700_000_000_100, 1_700_000_000_900)


def test_everything_is_counted_by_operator_and_subtask_and_survives_restarts(job: Job) -> None:
    keeper = StatisticsKeeper(job.records)
    for k in range(1, 6):
        complete(keeper, k, write_ms=k)
    keeper.aborted(abort(job, 6, "failed"))
    abort(job, 7, "expired")  # by a source, whose process died: nobody counted it
    for k in (8, 9):
        complete(StatisticsKeeper(job.records), k, write_ms=100)  # every start
    job.records.create_trigger(TriggerRecord(10, "checkpoint", 5, "interval", None, False, None, 2))
    job.records.create_trigger(TriggerRecord(3, "checkpoint", 5, "interval", None, False, None, 1))
    found = job.statistics()
    assert found["counts"] == {"completed": 7, "failed": 1, "expired": 1, "pending": 1, "restored": 0}
    assert [p["id"] for p in found["pending"]] == [10]
    assert found["since_ms"] == 1_700_000_000_000
    totals = found["operators"]["totals"]
    write = totals["all"]["write_ms"]
    assert (write["count"], write["min"], write["max"], write["p50"]) == (7, 1, 100, 4)
    assert write["mean"] == pytest.approx(215 / 7)
    assert totals["subtasks"][1]["write_ms"]["max"] == 1
    assert totals["subtasks"][0]["keys"]["p99.9"] == 6
    assert found["checkpoints"]["commit_state_ms"]["p50"] == 30
    assert found["checkpoints"]["duration_ms"]["max"] == 500
    assert found["checkpoints"]["written_bytes"]["mean"] == 2048
    assert read_durations_ms(job.records.store) == [500] * 7


def test_restores_are_told_with_start_checkpoint_and_time(job: Job) -> None:
    start = job.records.generation(2)
    assert start is not None
    for now_ms in (4_500, 9_000):  # the batch is repeated
        StatisticsKeeper(job.records).restored(start, now_ms)
    found = job.statistics()
    assert found["counts"]["restored"] == 1
    assert found["restored"] == [{"start": 2, "generation": 2, "checkpoint": 7, "started_ms": 2_000, "took_ms": 2_500}]


def test_a_damaged_record_begins_anew(job: Job) -> None:
    complete(StatisticsKeeper(job.records), 1, 1)
    (Path(job.url) / STATISTICS_RECORD).write_text("{")
    assert job.statistics()["counts"]["completed"] == 0
    complete(StatisticsKeeper(job.records), 2, 1)
    assert job.statistics()["counts"]["completed"] == 1


def test_of_checkpoints_only_those_that_nobody_counted_are_read(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    complete(StatisticsKeeper(job.records), 1, 1)
    at = CompletionRecord(2, "checkpoint", 2, 2, 0, 0, {}, {}, (), TOPOLOGY, 0, 0)
    job.records.store.create(JobPaths.checkpoint(2), "checkpoint", at.to_json())
    job.records.store.create(JobPaths.checkpoint(3), "checkpoint", VoidRecord(3, 2, 0).to_json())
    (Path(job.url) / JobPaths.checkpoint(1)).write_text("{")
    assert job.statistics()["counts"]["completed"] == 2
    assert caplog.messages == [], "the first was not looked at"


def test_the_command_prints_them(job: Job) -> None:
    keeper = StatisticsKeeper(job.records)
    for k in range(1, 100):
        complete(keeper, k, write_ms=k * 20, took_ms=k * 30)
    keeper.aborted(abort(job, 200, "failed"))
    start = job.records.generation(2)
    assert start is not None
    keeper.restored(start, 4_500)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["stats", job.config.dir, "flights", *arguments], env={"COLUMNS": "60"})
        assert result.exit_code == 0, result.output
        return result.output

    lines = [line.split() for line in run().splitlines()]
    assert lines[0] == ["99", "completed,", "1", "failed,", "1", "restored,", "since", "2023-11-14", "22:13:20", "UTC"]
    of_all = lines[lines.index(["checkpoints"]) :]
    durations = next(line for line in of_all if line[:1] == ["duration"])
    assert " ".join(durations[1:]) == "30 ms 1.50 s 1.48 s 2.97 s 2.97 s"
    assert ["2", "checkpoint", "7", "1970-01-01", "00:00:02", "2.50", "s"] in lines
    assert "totals 1" in run("--subtasks")
    assert json.loads(run("--json"))["counts"]["completed"] == 99


def test_show_tells_why_a_checkpoint_was_given_up(job: Job) -> None:
    abort(job, 6, "failed")
    result = CliRunner().invoke(app, ["show", job.config.dir, "flights", "6"])
    assert result.exit_code == 0
    assert json.loads(result.output) | {"time_ms": 0} == {
        "checkpoint": 6, "cause": "failed", "reason": "no space", "time_ms": 0, "generation": 2
    }  # fmt: skip
    assert job.records.store.exists(f"aborted/{id_name(6)}")
