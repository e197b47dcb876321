"""A Spark standalone cluster on loopback, from the pip package: a master, and room for two executors."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from tests.cluster.pods import pod, temporary
from tests.java_options import SETTINGS
from tests.kill.killed_job import JAVA_OPTIONS
from tests.kill.processes import Session, await_condition, environment
from tests.ports import free_port

SPARK_HOME = Path(pyspark.__file__).parent
EXECUTORS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    # Begin when both are there, so that both get tasks.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


@dataclass(frozen=True)
class Cluster:
    url: str
    workers: list[Session]
    _start_worker: Callable[[], Session]

    def add_worker(self) -> Session:
        """One more, on a host of its own; returns when the master knows it."""
        worker = self._start_worker()
        self.workers.append(worker)
        await_condition("a worker's registration", lambda: _has_said(worker, "Successfully registered"))
        return worker

    def executor_ends(self) -> list[int]:
        """The exit codes of executors that ended, as the workers report them: 137 is death by SIGKILL."""
        said = "".join(worker.log.read_text() for worker in self.workers)
        return [int(code) for code in re.findall(r"Executor app-.* exitStatus (\d+)", said)]

    def members(self) -> list[int]:
        """The processes of the workers and of their executors."""
        return [pid for worker in self.workers for pid in worker.members()]

    def executors(self) -> list[psutil.Process]:
        """Their JVMs."""
        return executors_of(self.members())


def executors_of(pids: Iterable[int]) -> list[psutil.Process]:
    """Those of ``pids`` that are JVMs of executors."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if any("CoarseGrainedExecutorBackend" in part for part in process.cmdline()):
                found.append(process)
    return found


@contextmanager
def standalone_cluster(folder: Path, hosts: int = 1, pods: Path | None = None) -> Iterator[Cluster]:
    """A running cluster. Everything, executors included, is gone afterwards.

    ``hosts``: one worker on each; they share two cores. Spark starts a second copy of a task on another host only.
    ``pods``: above ``folder``; each worker, with its executors, has a disk of its own there.
    """
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        master = _daemon(folder, "master", "127.0.0.1", "--port", str(port))
        stack.enter_context(master)
        await_condition("the master's start", lambda: _has_said(master, "I have been elected leader"))
        numbers = itertools.count(1)
        cluster = Cluster(url, [], lambda: stack.enter_context(_worker(folder, url, next(numbers), 2 // hosts, pods)))
        for _ in range(hosts):
            cluster.add_worker()
        yield cluster


def _worker(folder: Path, url: str, number: int, cores: int, pods: Path | None) -> Session:
    arguments = ["--cores", str(cores), "--memory", f"{cores}g", "--work-dir", str(folder / f"work-{number}"), url]
    return _daemon(folder, "worker", f"127.0.0.{number}", *arguments, pods=pods)


def _daemon(folder: Path, role: str, host: str, *arguments: str, pods: Path | None = None) -> Session:
    command = [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{role}.{role.capitalize()}"]
    command += ["--host", host, "--webui-port", "0", *arguments]
    command = command if pods is None else [*pod(pods), *command]
    own = {} if pods is None else {"TMPDIR": temporary(pods)}
    env = environment(
        **own,
        SPARK_HOME=str(SPARK_HOME), SPARK_DAEMON_JAVA_OPTS=JAVA_OPTIONS, SPARK_DAEMON_MEMORY="256m",
        SPARK_LOCAL_IP=host, SPARK_LOCAL_DIRS=str(folder / "scratch"), SPARK_CONF_DIR=str(SETTINGS.parent),
    )  # fmt: skip
    return Session(command, folder / f"{role}-{host}.log", env)


def _has_said(session: Session, text: str) -> bool:
    said = session.log.read_text()
    assert session.process.poll() is None, f"{session.log.name} ended:\n{said}"
    return re.search(text, said) is not None
