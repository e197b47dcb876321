"""A Spark standalone cluster on loopback, from the pip package: one master, one worker with room for two executors."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from benchmarks.environments import OURS

SPARK_HOME = Path(pyspark.__file__).parent
EXECUTORS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "3g",
    "spark.cores.max": "2",
    # Begin when both are there, so that both get tasks.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}
_START_TIMEOUT_S = 60


@dataclass(frozen=True)
class Cluster:
    """``worker_pid`` is the process that the executors are children of."""

    url: str
    worker_pid: int


@contextmanager
def standalone_cluster() -> Iterator[Cluster]:
    """A running cluster. Everything, executors included, is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-cluster-", ignore_cleanup_errors=True) as name:
        folder, (port,) = Path(name), free_ports(1)
        url = f"spark://127.0.0.1:{port}"
        with _daemon(
            folder, "master", "elected leader", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"
        ):
            options = ["--cores", "2", "--memory", "7g", "--work-dir", str(folder / "work"), "--webui-port", "0"]
            with _daemon(folder, "worker", "Successfully registered", "--host", "127.0.0.1", *options, url) as pid:
                yield Cluster(url, pid)


@contextmanager
def _daemon(folder: Path, role: str, ready: str, *arguments: str) -> Iterator[int]:
    command = [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{role}.{role.capitalize()}", *arguments]
    env = {**OURS.variables(), "SPARK_HOME": str(SPARK_HOME), "SPARK_DAEMON_MEMORY": "256m"}
    env["SPARK_LOCAL_DIRS"] = str(folder / "scratch")
    # Executors get their application's Python, not the daemon's.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        env.pop(name, None)
    log = folder / f"{role}.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=folder, start_new_session=True
        )
    try:
        _await(process, log, ready)
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await(process: subprocess.Popen[bytes], log: Path, ready: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while ready not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the cluster did not start; {log.name} says:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)


def free_ports(count: int) -> list[int]:
    with ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [int(s.getsockname()[1]) for s in sockets]
