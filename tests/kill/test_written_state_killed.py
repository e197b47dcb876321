"""State that Spark writes anew, by a savepoint's writer, an import or a start: the driver is killed on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.kill.processes import REPOSITORY, Session, environment
from tests.kill.written_state_job import KEYS, ROWS

KILLS = int(os.environ.get("KILLS", "2"))


def come_to_its_end(folder: Path, act: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.kill.written_state_job", str(folder), act, "0"]
    done = subprocess.run(command, env=environment(), cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def killed(folder: Path, act: str, nth: int) -> bool:
    command = [sys.executable, "-m", "tests.kill.written_state_job", str(folder), act, str(nth)]
    with Session(command, folder / "log", environment()) as driver:
        code = driver.wait()
    assert code in (0, -9), (folder / "log").read_text()[-5000:]
    return code != 0


@pytest.mark.soak  # a start of Spark for each kill
@pytest.mark.timeout(3000)
def test_state_that_is_written_is_what_it_would_have_been_however_often_the_driver_was_killed(tmp_path: Path) -> None:
    chance, before = Random("killed"), come_to_its_end(tmp_path, "prepare")
    assert before == {f"k{i}": [ROWS // KEYS, sum(range(i, ROWS, KEYS))] for i in range(KEYS)}
    by_digit = {str(d): [ROWS // 10, sum(range(d, ROWS, 10))] for d in range(10)}
    wanted = {"write": {k: v for k, v in before.items() if k != "k1"}, "import": before, "rescale": before}
    for act, rows in {**wanted, "migrate": by_digit}.items():
        kills = [killed(tmp_path, act, chance.randrange(1, 40)) for _ in range(KILLS)]
        assert come_to_its_end(tmp_path, act) == rows, (act, kills)
