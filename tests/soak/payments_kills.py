"""What a payments job on a cluster stands on, to be killed with SIGKILL, several of it at once."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil

from examples.payments.demo import Servers, kill, start_job
from tests.cluster.standalone import Cluster

SERVERS = ("broker", "PostgreSQL", "MinIO")
WEIGHTS = {"driver": 1, "JVM": 1, "executor": 4, "Python worker": 4, **dict.fromkeys(SERVERS, 3)}
ENDING = ("driver", "JVM")
"""The query ends with these, and with the Python processes beside the driver; the rest is tried again."""
AWAY_S = 4.0
"""The longest that a server stays away before it is started again."""


class Server(Protocol):
    def kill(self) -> None: ...

    def restart(self) -> None: ...


@dataclass
class Kills:
    """``servers``: by the names of :data:`SERVERS`. A server that was killed comes back by itself, beside what else
    happens; :meth:`all_back` waits for that. ``conf``: the job's own settings of Spark."""

    given: Servers
    cluster: Cluster
    servers: dict[str, Server]
    log: Path
    conf: dict[str, str]
    draw: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    starts: int = 0

    def __post_init__(self) -> None:
        self._away: dict[str, Future[None]] = {}
        self._returning = ThreadPoolExecutor(len(SERVERS))
        self.job = self._start(now=False)

    def volley(self, ending: bool, most: int = 3) -> list[str]:
        """Kill one to ``most`` kinds at the same time, of those that are there; returns which. ``ending``: the query
        may end."""
        self.start_again_if_ended()
        kinds = [kind for kind in WEIGHTS if ending or kind not in ENDING]
        kinds.sort(key=lambda kind: self.draw.random() ** (1 / WEIGHTS[kind]), reverse=True)
        number = min(most, self.draw.choice((1, 2, 2, 3)))
        struck = list(itertools.islice((kind for kind in kinds if self._strike(kind, ending)), number))
        self.counts.update(struck)
        return struck

    def start_again_if_ended(self) -> None:
        if self.job.poll() is not None:
            kill(self.job)  # what it left behind
            self.job = self._start(now=False)

    def finish(self, deadline_s: float) -> None:
        """With all servers there, take what is left and end."""
        kill(self.job)
        self.all_back()
        self.job = self._start(now=True)
        assert self.job.wait(deadline_s) == 0, self.log.read_text(errors="replace")[-6000:]

    def all_back(self) -> None:
        for future in self._away.values():
            future.result()

    def raise_if_not_back(self) -> None:
        """What a server's start raised, if one could not be started again."""
        for future in self._away.values():
            if future.done():
                future.result()

    def end(self) -> None:
        """Whatever happened before: nothing of the job lives on, and each server can be stopped."""
        kill(self.job)
        self._returning.shutdown()

    def _start(self, now: bool) -> subprocess.Popen[bytes]:
        self.starts += 1
        return start_job(self.given, self.log, now=now, conf=self.conf)

    def _strike(self, kind: str, ending: bool) -> bool:
        if kind in SERVERS:
            return self._strike_server(kind)
        found = [process for process in self._processes(ending) if _KINDS[kind](process, self.job.pid)]
        if not found:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            self.draw.choice(found).kill()
            return True
        return False

    def _strike_server(self, kind: str) -> bool:
        if kind in self._away:
            if not self._away[kind].done():
                return False
            self._away[kind].result()  # raises if it did not come back
        self.servers[kind].kill()
        self._away[kind] = self._returning.submit(self._bring_back, kind, self.draw.uniform(0, AWAY_S))
        return True

    def _bring_back(self, kind: str, pause_s: float) -> None:
        time.sleep(pause_s)
        self.servers[kind].restart()

    def _processes(self, with_driver: bool) -> list[psutil.Process]:
        of_cluster, driver = set(self.cluster.members()), self.job.pid if with_driver else -1
        return [p for p in psutil.process_iter(["cmdline"]) if p.pid in of_cluster or _session(p) == driver]


def _session(process: psutil.Process) -> int | None:
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(process.pid)
    return None


def _is_jvm(process: psutil.Process, driver: int) -> bool:
    return _session(process) == driver and _command(process)[:1] != [] and _command(process)[0].endswith("java")


def _is_executor(process: psutil.Process, driver: int) -> bool:
    return any("CoarseGrainedExecutorBackend" in part for part in _command(process))


def _is_python_worker(process: psutil.Process, driver: int) -> bool:
    return process.pid != driver and any(part.startswith("pyspark.") for part in _command(process))


def _command(process: psutil.Process) -> list[Any]:
    return process.info["cmdline"] or []


_KINDS: dict[str, Callable[[psutil.Process, int], bool]] = {
    "driver": lambda process, driver: process.pid == driver,  # its JVM is killed with the next start
    "JVM": _is_jvm,
    "executor": _is_executor,
    "Python worker": _is_python_worker,
}
