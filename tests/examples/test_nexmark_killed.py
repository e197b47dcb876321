"""Nexmark's stateful queries, killed with SIGKILL in the middle of a commit and started again by the same command."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kill.processes import REPOSITORY, environment

EVENTS = ["--events", "60000", "--interval", "1s", "--option", "perBatch=4000", "--option", "outOfOrder=500"]
KILLS = {
    "q3": "after CommitSink#3",  # the sink has the checkpoint, and nothing says so yet
    "q5": "before CommitState#5",  # one operator of four has committed its table
    "q8": "after WriteBatch#5",  # a batch is recorded, and is run again
    "q11": "after CreateCompletion#3",  # the next start commits the sink
    "q18": "before CommitSink#3",  # rows are there, others are not any more: all of it waits
}


def run(name: str, folder: Path, kill: str = "") -> tuple[int, str]:
    """The command, in a process group of its own, which dies as a whole at ``kill``."""
    command = [sys.executable, "-m", "examples.nexmark", name, "--folder", str(folder / "job"), *EVENTS]
    in_group = ["sh", "-c", 'SPARK_CKPT_KILL_PID=-$$ exec "$@"', "sh", *command]
    at = f"{kill}={folder / 'was killed'}" if kill else ""
    done = subprocess.run(
        in_group, env=environment(SPARK_CKPT_KILL_AT=at, TMPDIR=str(folder)), cwd=REPOSITORY, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.soak  # two starts of Spark each
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", KILLS)
def test_a_killed_query_goes_on_and_finds_what_batch_sql_finds(tmp_path: Path, name: str) -> None:
    code, said = run(name, tmp_path, KILLS[name])
    assert code == -signal.SIGKILL, said[-3000:]
    assert (tmp_path / "was killed").exists()
    code, said = run(name, tmp_path)
    assert code == 0, said[-3000:]
    assert "rows, equal to batch SQL over the same events" in said
