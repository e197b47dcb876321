"""Starts a command in a session of its own, and sees to it that nothing of it lives on when it is dead."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from tests.java_options import SETTINGS

REPOSITORY = Path(__file__).parents[2]
DEADLINE_S = 280.0
"""Far above what a start takes on a slow and busy machine; only a hang reaches it."""


def await_condition(what: str, condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """Poll until ``condition`` holds. Raises ``TimeoutError`` naming ``what`` that did not happen."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not happen in {deadline_s} s")
        time.sleep(0.02)


def own_defaults(folder: Path, settings: str) -> dict[str, str]:
    """The environment in which Spark begins with ``settings``, and those that make tests quick, as its defaults."""
    quick = SETTINGS.read_text()
    quick += "spark.sql.streaming.checkpoint.fileChecksum.enabled true\n"
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text(settings + quick)
    return {"SPARK_CONF_DIR": str(folder / "conf"), "PYSPARK_SUBMIT_ARGS": "pyspark-shell"}


def environment(**more: str) -> dict[str, str]:
    """Of a process that uses Spark and this checkout."""
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "python_datasource")])
    ordinary = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    return {**os.environ, "PYTHONPATH": paths, **ordinary, **more}


def run_job(folder: Path, places: Sequence[str], *arguments: str) -> int:
    """``job.py`` of ``folder``, for it and ``arguments``, until it ends or dies at one of ``places``, each once.

    Returns its exit code.
    """
    at = ";".join(f"{place}={folder / place.replace(' ', '-')}" for place in places)
    done = subprocess.run(
        [sys.executable, str(folder / "job.py"), str(folder), *arguments], env=environment(SPARK_CKPT_KILL_AT=at),
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stdout[-6000:]
    return done.returncode


class Session:
    """A process and all its descendants. ``with`` ends them by SIGKILL, as when the machine goes."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=log.parent,
                start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait(self) -> int:
        """Its exit code; minus the signal's number if one killed it."""
        return self.process.wait(DEADLINE_S)

    def resume(self) -> None:
        """SIGCONT to every process of the session."""
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to every process of the session, and to what they start meanwhile, until none is left."""
        await_condition(f"the end of session {self.process.pid}", self._killed_all)
        self.process.wait()

    def members(self) -> list[int]:
        return [pid for pid in psutil.pids() if _session_of(pid) == self.process.pid]

    def _killed_all(self) -> bool:
        alive = self.members()
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not alive


def _session_of(pid: int) -> int | None:
    try:
        # The dead who wait for their parent to ask after them do no harm.
        return None if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE else os.getsid(pid)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return None
