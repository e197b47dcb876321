"""Log lines as JSON, and the line of each checkpoint, over a job's folder; no Spark."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest

from spark_ckpt.config import JobConfig
from spark_ckpt.jobs.following import Follower, log_checkpoint, newest_barrier
from spark_ckpt.jobs.log_lines import JsonLines, about_checkpoint, log_as
from spark_ckpt.protocol.records import LOST
from spark_ckpt.storage.history import HistoryRow
from tests.storage.whole_job import WholeJob

LOG = logging.getLogger("spark_ckpt")


@pytest.fixture
def lines():
    """Those of the package, as they come, with the logger as it was afterwards."""
    before = (list(LOG.handlers), LOG.propagate, LOG.level)
    text = io.StringIO()

    def read() -> list[dict]:
        for handler in LOG.handlers:
            if isinstance(handler.formatter, JsonLines):
                handler.setStream(text)
        return [json.loads(line) for line in text.getvalue().splitlines()]

    yield read
    LOG.handlers[:], LOG.propagate, LOG.level = before
    about_checkpoint(None)
    LOG.manager._clear_cache()


def config(**options: str) -> JobConfig:
    return JobConfig.from_options({"dir": "/d", **options})


def test_a_line_names_job_generation_and_checkpoint_and_is_one_object(lines):
    for _ in range(2):  # again, as every batch does
        log_as(config(**{"log.format": "json"}), "orders", generation=3)
    lines()
    about_checkpoint(7)
    LOG.warning("two\nlines of %s", '"x"', extra={"cause": "slow"})
    about_checkpoint(None)
    try:
        raise ValueError("v")
    except ValueError:
        LOG.exception("failed")
    first, second = lines()
    assert {k: first[k] for k in ("level", "logger", "message", "job", "generation", "checkpoint", "cause")} == {
        "level": "WARNING", "logger": "spark_ckpt", "message": 'two\nlines of "x"', "job": "orders", "generation": 3,
        "checkpoint": 7, "cause": "slow",
    }  # fmt: skip
    assert first["time"].endswith("+00:00")
    assert ("checkpoint" in second, second["traceback"].splitlines()[-1]) == (False, "ValueError: v")


def test_in_the_text_format_nothing_is_set_up(lines):
    before = (list(LOG.handlers), LOG.propagate, LOG.level)
    log_as(config(), "orders")
    assert (LOG.handlers, LOG.propagate, LOG.level) == before


def test_each_checkpoint_of_a_start_is_told_once_whatever_it_became(tmp_path: Path, lines):
    job = WholeJob(tmp_path, history="true", **{"log.format": "json"})
    job.start()
    told = []
    follower = Follower(job.run, told.append)

    def progress() -> dict:
        end = {"origin": 1, "epoch": job.epoch}
        return {"sources": [{"endOffset": json.dumps(end)}, {"endOffset": None}, {"endOffset": "no JSON"}]}

    for checkpoint in (False, True, False, True):
        job.step(checkpoint)
        follower.look(progress())
        follower.look(progress())
    assert [(row.id, row.outcome) for row in told] == [(1, "completed"), (2, "completed")]
    follower.look_again()
    job.start()
    job.step(True)
    follower.look(progress())
    assert len(told) == 2, "the next start's are the next follower's"
    assert newest_barrier(None) == 0
    lines()
    log_checkpoint(job.run, told[0], "ab" * 16)
    line = lines()[-1]
    assert line["message"].startswith("Job job: checkpoint 1 took 0.")
    assert (line["checkpoint"], line["generation"], line["trace_id"]) == (1, told[0].generation, "ab" * 16)


def test_a_checkpoint_that_was_given_up_is_a_warning_with_its_cause(tmp_path: Path, caplog):
    job = WholeJob(tmp_path, history="true")
    job.start()
    lost = HistoryRow(1, "checkpoint", LOST, 0, 1, -1, "its driver ended")
    log_checkpoint(job.run, lost, None)
    assert "Job job: checkpoint 1 was given up (lost): its driver ended" in caplog.text
