"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spark_ckpt.testing.plugin import _schedule

MODULE = """
from spark_ckpt.testing.jobs import JobUnderTest, Rows
from tests.testing.test_jobs_under_test import PAYMENTS, totals

def test_job(crash_schedules):
    crash_schedules(JobUnderTest(totals, {"payments": PAYMENTS}), 3)
"""


IN_SPARK = """
from tests.testing.test_jobs_under_test import careless

def test_job(crash_schedules):
    crash_schedules(careless("commit"), with_spark=1)
"""


def run(folder: Path, *more: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "spark_ckpt.testing.plugin", "-c", os.devnull, "-q", *more]
    env = {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), env.get("PYTHONPATH", "")])
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env, check=False).stdout


def test_a_failure_prints_its_schedule_and_a_command_that_replays_it(tmp_path: Path) -> None:
    (tmp_path / "test_job.py").write_text(MODULE)
    said = run(tmp_path, "--rootdir", str(tmp_path))
    found = re.search(r'crash schedule (\d+): .*?replay it: pytest "(.*?)" --ckpt-schedule=(\d+)', said, re.DOTALL)
    assert found, said
    assert "start 1 dies at step" in said
    again = run(tmp_path, "--rootdir", str(tmp_path), found[2], f"--ckpt-schedule={found[3]}")
    assert f"crash schedule {found[1]}: " in again


def test_a_schedule_is_called_by_a_number_or_as_one_with_spark() -> None:
    assert [_schedule(name) for name in ("17", "spark-3")] == [(False, 17), (True, 3)]
    with pytest.raises(argparse.ArgumentTypeError, match="expected a number, or spark- and a number, found 'x'"):
        _schedule("x")


def test_a_schedule_with_spark_is_replayed_by_its_name(tmp_path: Path) -> None:
    """Number 3 dies behind the second commit, which a careless sink does twice."""
    (tmp_path / "test_job.py").write_text(IN_SPARK)
    said = run(tmp_path, "--rootdir", str(tmp_path), "--ckpt-schedule=spark-3")
    assert "crash schedule spark-3: 0 rows are missing and" in said, said
    assert "start 1 dies after CommitSink, at time 2" in said
    assert 'replay it: pytest "test_job.py::test_job" --ckpt-schedule=spark-3' in said
