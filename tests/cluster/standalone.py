"""A Spark standalone cluster on loopback, from the pip package: one master, one worker with room for two executors."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.kill.killed_job import JAVA_OPTIONS
from tests.kill.processes import Session, await_condition, environment

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
    worker: Session

    def executor_ends(self) -> list[int]:
        """The exit codes of executors that ended, as the worker reports them: 137 is death by SIGKILL."""
        return [int(code) for code in re.findall(r"Executor app-.* exitStatus (\d+)", self.worker.log.read_text())]


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Cluster]:
    """A running cluster. Everything, executors included, is gone afterwards."""
    port = _free_port()
    url = f"spark://127.0.0.1:{port}"
    master = _daemon(folder, "master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    with master:
        await_condition("the master's start", lambda: _has_said(master, "I have been elected leader"))
        worker = _daemon(
            folder, "worker", "--host", "127.0.0.1", "--cores", "2", "--memory", "2g", "--webui-port", "0",
            "--work-dir", str(folder / "work"), url,
        )  # fmt: skip
        with worker:
            await_condition("the worker's registration", lambda: _has_said(worker, "Successfully registered"))
            yield Cluster(url, worker)


def _daemon(folder: Path, role: str, *arguments: str) -> Session:
    command = [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{role}.{role.capitalize()}", *arguments]
    env = environment(
        SPARK_HOME=str(SPARK_HOME), SPARK_DAEMON_JAVA_OPTS=JAVA_OPTIONS, SPARK_DAEMON_MEMORY="256m",
        SPARK_LOCAL_IP="127.0.0.1", SPARK_LOCAL_DIRS=str(folder / "scratch"),
    )  # fmt: skip
    return Session(command, folder / f"{role}.log", env)


def _has_said(session: Session, text: str) -> bool:
    said = session.log.read_text()
    assert session.process.poll() is None, f"{session.log.name} ended:\n{said}"
    return re.search(text, said) is not None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
