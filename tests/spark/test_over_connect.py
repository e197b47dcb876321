"""Joins, de-duplication, windows, processors and aggregates through Spark Connect, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHORT = ("join, aliased", "processor of rows", "columns", "expressions")
"""In the test command; static joins are in random chains there."""


def _over_connect(folder: Path, *names: str) -> None:
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, f"{root}/python_datasource", os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "tests.spark.over_connect", str(folder), *names]
    done = subprocess.run(
        command, stderr=subprocess.PIPE, text=True, check=False, cwd=folder, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == 0, done.stderr[-5000:]


def test_stateful_operators_over_connect_are_those_of_spark(tmp_path: Path) -> None:
    _over_connect(tmp_path, *SHORT)


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_all_cases_over_connect_are_those_of_spark(tmp_path: Path) -> None:
    _over_connect(tmp_path)
