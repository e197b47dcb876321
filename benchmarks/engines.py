"""The engines of the sections on queries: started when first needed, and again if one failed or took too long."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.environments import FLINK
from benchmarks.measuring import Run, SparkWorker, WorkerError, end_process, kill_process, read_answer, start_process
from benchmarks.memory import Sampler

OURS, SPARK, FLINK_SQL = "ours", "spark", "Flink SQL"
_ROLES = {OURS: "ours", SPARK: "jvm"}
_LIMIT_S = 240.0
"""No single run takes longer, start of the engine included; one that does failed."""


class FlinkWorker:
    """A process that runs requests of ``workers/flink_queries.py``."""

    def __init__(self) -> None:
        self._process = start_process(FLINK, "benchmarks.workers.flink_queries")

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer with ``memory``. Raises ``WorkerError``."""
        assert self._process.stdin is not None
        with Sampler(self._process.pid) as sampler:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer = read_answer(self._process)
        return {**answer, "memory": sampler.peak.to_json()}

    def kill(self) -> None:
        kill_process(self._process)

    def __exit__(self, *_: object) -> None:
        end_process(self._process)


class Engines:
    """``with`` ends those that run."""

    def __init__(self) -> None:
        self._running: dict[str, SparkWorker | FlinkWorker] = {}

    def __enter__(self) -> Engines:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._running):
            self._end(name)

    def spark(self, name: str, run: Run) -> dict[str, Any]:
        """A run on ``OURS`` or ``SPARK``. Raises ``WorkerError``, and the engine is another one next time."""
        with self._limited(name) as worker:
            assert isinstance(worker, SparkWorker)
            return worker.run(run)

    def flink(self, request: dict[str, Any]) -> dict[str, Any]:
        """The same of Flink SQL."""
        with self._limited(FLINK_SQL) as worker:
            assert isinstance(worker, FlinkWorker)
            return worker.run(request)

    @contextmanager
    def _limited(self, name: str) -> Iterator[SparkWorker | FlinkWorker]:
        if name not in self._running:
            self._running[name] = FlinkWorker() if name == FLINK_SQL else SparkWorker(_ROLES[name])
        worker = self._running[name]
        timer = threading.Timer(_LIMIT_S, worker.kill)
        timer.start()
        try:
            yield worker
        except (WorkerError, OSError) as e:
            self._end(name)
            raise WorkerError(f"{name}: {e}") from e
        finally:
            timer.cancel()

    def _end(self, name: str) -> None:
        self._running.pop(name).__exit__()
