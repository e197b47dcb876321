"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

MODULE = """
from spark_ckpt.testing.jobs import JobUnderTest, Rows
from tests.testing.test_jobs_under_test import PAYMENTS, totals

def test_job(crash_schedules):
    crash_schedules(JobUnderTest(totals, {"payments": PAYMENTS}), 3)
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
