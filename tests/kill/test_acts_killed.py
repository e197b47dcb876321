"""Acts on jobs and savepoints, and a changed query's start, in processes that are killed at any step of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.how_many import EXAMPLES
from tests.kill.processes import REPOSITORY, environment

EVERY = max(1, round(24 / EXAMPLES))
"""Ahead of which changes of files it is killed; each in `make soak`."""


@pytest.mark.more
def test_what_an_act_that_is_killed_came_from_is_whole_and_the_same_act_again_finishes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.kill.killed_acts", str(tmp_path), str(EVERY)]
    done = subprocess.run(command, env=environment(), cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    kills = dict(line.split(": killed ") for line in done.stdout.splitlines())
    assert len(kills) == 12
    assert "0 times" not in kills.values()
