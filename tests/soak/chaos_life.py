"""One start of the job that is killed at scale: its processes, and what it said."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterable
from pathlib import Path

import psutil

from tests.cluster.standalone import Cluster
from tests.kill.processes import Session, await_condition
from tests.soak.chaos_places import Clock

_EXECUTOR = "CoarseGrainedExecutorBackend"
_RAISED = re.compile(r"(?:spark_ckpt\.errors\.)?\b(\w+(?:Error|Exception)): (.*)")


class Life:
    """``cluster``: its executors are in there. ``clock``: its own, if it has one."""

    def __init__(self, number: int, session: Session, cluster: Cluster | None, clock: Clock | None) -> None:
        self.number, self.session, self.cluster, self.clock = number, session, cluster, clock

    @property
    def ended(self) -> bool:
        return self.session.process.poll() is not None

    @property
    def log(self) -> Path:
        return self.session.log

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def victims(self, what: str) -> list[psutil.Process]:
        """Those of the job's processes that are a ``driver``, ``jvm``, ``worker``, ``executor``, or the ``machine``."""
        own = self._processes(self.session.members())
        driver = self.session.process.pid
        if what == "machine":
            return own
        if what == "driver":
            return [p for p in own if p.pid == driver]
        if what == "jvm":
            return [p for p in own if _name(p) == "java" and _parent(p) == driver]
        there = self._processes(self.cluster.members()) if self.cluster else []
        if what == "executor":
            return [p for p in there if _EXECUTOR in _command(p)]
        return [p for p in [*own, *there] if p.pid != driver and "pyspark" in _command(p) and _name(p) != "java"]

    def halt(self) -> None:
        await_condition(f"the halt of life {self.number}", lambda: self._sent(signal.SIGSTOP))

    def _sent(self, number: int) -> bool:
        """Whether all are halted, those too that were started meanwhile."""
        running = [p for p in self._processes(self.session.members()) if _status(p) != psutil.STATUS_STOPPED]
        for process in running:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return not running

    def last_error(self) -> str:
        """The last error it told of, in one line."""
        found = _RAISED.findall(self.said())
        ours = [f"{name}: {text}" for name, text in found if "Py4J" not in name and "SparkException" not in name]
        return (ours or [f"{name}: {text}" for name, text in found] or ["nothing"])[-1][:300]

    @staticmethod
    def _processes(pids: Iterable[int]) -> list[psutil.Process]:
        found = []
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
        return found


def role(process: psutil.Process) -> str:
    """What a Python worker is there for: the name of its main module, as Spark starts it."""
    return (_command(process).split() or ["gone"])[-1].rsplit(".", 1)[-1]


def _command(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return str(process.name())
    return ""


def _status(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return str(process.status())
    return str(psutil.STATUS_STOPPED)  # gone


def _parent(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.NoSuchProcess):
        return int(process.ppid())
    return 0
