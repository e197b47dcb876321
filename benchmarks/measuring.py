"""Runs of the workers, and what is computed from a run's batches."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.answers import heard
from benchmarks.environments import FOLDER, OURS, ROOT, SPARK, Environment
from benchmarks.loads import Load, behind_warm_up
from benchmarks.memory import Sampler

CORES = 2
LOGS = FOLDER / "logs"
OURS_CONF = {"spark.ckpt.interval": "5s"}
"""Everything else is left as it comes."""

# Each engine with the state store that suits it: values of ours are small, Spark's own state is large.
PROVIDER = {"ours": "hdfs", "jvm": "rocksdb", "pandas": "rocksdb"}


@dataclass(frozen=True)
class Run:
    """One workload on one of the Spark engines, for ``seconds`` after ``warm_up`` batches of the last phase, and after
    its first ``warm_up_s`` seconds: a JVM compiles for about a minute what each batch runs."""

    workload: str
    load: Load
    seconds: float = 15
    warm_up: int = 3
    warm_up_s: float = 0
    min_batches: int = 3
    max_seconds: float = 60
    conf: Mapping[str, str] = field(default_factory=dict)
    partitions: int = CORES
    provider: str = ""
    snapshot: bool = False
    restore: bool = False
    answer: bool = False
    """Tell all rows that come out of one of ``workers.queries.QUERIES``, of a load that ends."""

    def request(self, role: str) -> dict[str, Any]:
        conf = {**OURS_CONF, **self.conf}
        fields = {k: v for k, v in vars(self).items() if k not in ("load", "conf", "provider")}
        return {**fields, "load": self.load.to_json(), "conf": conf, "provider": self.provider or PROVIDER[role]}

    def quick(self) -> Run:
        """A few small batches, to see that it works."""
        load = self.load.smaller(100)
        return replace(self, load=load, seconds=1, warm_up=1, warm_up_s=0, min_batches=2, max_seconds=20)


class WorkerError(RuntimeError):
    """A run failed in its process."""


class SparkWorker:
    """A process with a Spark session; ``with`` ends it and everything below it."""

    def __init__(
        self,
        role: str,
        master: str = f"local[{CORES}]",
        conf: Mapping[str, str] | None = None,
        watch: Sequence[int] = (),
    ) -> None:
        self.role = role
        self._watch = watch
        environment = OURS if role == "ours" else SPARK
        setup = {"role": role, "master": master, "cores": CORES, "conf": dict(conf or {})}
        self._process = start_process(environment, "benchmarks.workers.spark_worker", json.dumps(setup))
        self._answer()

    def __enter__(self) -> SparkWorker:
        return self

    def __exit__(self, *_: object) -> None:
        end_process(self._process)

    def run(self, run: Run) -> dict[str, Any]:
        """The worker's answer with ``memory``. Raises ``WorkerError`` if the run failed."""
        assert self._process.stdin is not None
        with Sampler(self._process.pid, *self._watch) as sampler:
            self._process.stdin.write(json.dumps(run.request(self.role)) + "\n")
            self._process.stdin.flush()
            answer = self._answer()
        return {**answer, "memory": sampler.peak.to_json()}

    def kill(self) -> None:
        """Whoever waits for an answer gets a ``WorkerError``."""
        kill_process(self._process)

    def _answer(self) -> dict[str, Any]:
        return read_answer(self._process)


def start_process(environment: Environment, module: str, *arguments: str) -> subprocess.Popen[str]:
    """A module of the suite in an environment. What it says beside its answers goes to ``.bench/logs``."""
    environment.provide()
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / f"{module.rpartition('.')[2]}.log").open("a") as log:
        return subprocess.Popen(
            [environment.python, "-m", module, *arguments],
            cwd=ROOT,
            env=environment.variables(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )


def read_answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line that is an answer. Raises ``WorkerError`` if it tells of an error or never comes."""
    assert process.stdout is not None
    for line in process.stdout:
        answer = heard(line)
        if answer is not None:
            if "error" in answer:
                raise WorkerError(answer["error"])
            return answer
    raise WorkerError(f"the process ended with exit code {process.wait()} and no answer; see {LOGS}")


def end_process(process: subprocess.Popen[str]) -> None:
    """Close its input and give it time; then kill its whole process group."""
    assert process.stdin is not None
    with suppress(subprocess.TimeoutExpired, BrokenPipeError):
        process.stdin.close()
        process.wait(20)
    kill_process(process)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def kill_process(process: subprocess.Popen[str]) -> None:
    """With all it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


# -- what batches say ---------------------------------------------------------------------------------------------


def measured(batches: Sequence[Mapping[str, Any]], run: Run) -> list[Mapping[str, Any]]:
    """The batches of the last phase behind the warm-up."""
    last = [b for b in batches if b["phase"] == len(run.load.phases) - 1]
    return behind_warm_up(last, run.warm_up, run.warm_up_s)


def median_s(batches: Sequence[Mapping[str, Any]]) -> float:
    return statistics.median(b["ms"] for b in batches) / 1000


def rows_per_s(batches: Sequence[Mapping[str, Any]]) -> float:
    """Over the wall clock from the first batch's begin to the last one's end, so that nothing between them is lost."""
    wall = batches[-1]["began"] + batches[-1]["ms"] / 1000 - batches[0]["began"]
    return sum(b["rows"] for b in batches) / wall


def summary(answer: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """A run's figures, as they are kept."""
    batches = measured(answer["batches"], run)
    return {
        "rows": sum(b["rows"] for b in batches),
        "batches": len(batches),
        "batch_ms": [b["ms"] for b in batches],
        "median_s": median_s(batches),
        "mean_s": statistics.mean(b["ms"] for b in batches) / 1000,
        "rows_per_s": rows_per_s(batches),
        "memory": answer.get("memory"),
    }
