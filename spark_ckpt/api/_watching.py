"""What a start shows of its query while it runs: metrics, traces, a log line a checkpoint. Driver.

Everything is told by one thread beside the query, which looks once a second and never fails the query.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError
from spark_ckpt.execution.progress import with_reports
from spark_ckpt.jobs.batch_reports import reported
from spark_ckpt.jobs.following import Follower, log_checkpoint
from spark_ckpt.jobs.job import Job
from spark_ckpt.jobs.log_lines import log_as
from spark_ckpt.jobs.spec import RunSpec
from spark_ckpt.monitoring.running import RunningJobs
from spark_ckpt.storage.history import HistoryRow

if TYPE_CHECKING:
    from spark_ckpt.execution.start import Running
    from spark_ckpt.monitoring.endpoint import Endpoint
    from spark_ckpt.monitoring.otel import Telemetry

_log = logging.getLogger("spark_ckpt")
_LOOK_S = 1.0
_SPARKS = ("queryPlanning", "walCommit", "commitOffsets")
_SOURCES = ("latestOffset", "getBatch")

_running = RunningJobs()
_lock = threading.Lock()
_endpoints: dict[str, Endpoint] = {}
"""By address; all are closed with the last query."""
_telemetry: list[Telemetry] = []
_watches = 0
"""Of queries that run, or are about to."""


class Watch:
    """Of one start. Made ahead of it, so that a port that is taken refuses it; then :meth:`begin` or :meth:`abandon`.

    Raises ``ConfigError``.
    """

    def __init__(self, config: JobConfig) -> None:
        self._meters = config.metrics_port is not None or config.otel
        self._telemetry = _telemetry_of(config)
        _enter()
        try:
            if config.metrics_port is not None:
                _open(config.metrics_port)
        except ConfigError:
            _leave()
            raise

    def abandon(self) -> None:
        """There is no query."""
        _leave()

    def begin(self, running: Running) -> None:
        """The query runs."""
        run = running.run
        if self._meters:
            _running.add(Job(run.config, run.job))
        if self._meters or (run.config.history and _log.isEnabledFor(logging.INFO)):
            thread = threading.Thread(target=self._watch, args=(running.query, run), name="spark-ckpt-watch")
            thread.daemon = True
            thread.start()
        else:
            _leave()

    def _watch(self, query: Any, run: RunSpec) -> None:
        log_as(run.config, run.job, generation=run.generation)
        follower = Follower(run, lambda row: self._tell(run, row))
        try:
            self._follow(query, run, follower)
        except Exception as error:  # noqa: BLE001 - Spark and Spark Connect raise errors of many kinds when they end
            _log.debug("the query of job %s is not followed any more: %s", run.job, error)
        follower.look_again()
        _leave()

    def _follow(self, query: Any, run: RunSpec, follower: Follower) -> None:
        batch, pause = None, threading.Event()
        while query.isActive:
            progress = query.lastProgress
            if progress is not None and progress["batchId"] != batch:
                batch = progress["batchId"]
                follower.look(progress)
                if self._meters:
                    told = with_reports(progress, run, reported(run))
                    _running.batch_took(run.job, parts_s(told["durationMs"]))
            pause.wait(_LOOK_S)

    def _tell(self, run: RunSpec, row: HistoryRow) -> None:
        trace = None if self._telemetry is None else self._telemetry.tell(run.job, row)
        log_checkpoint(run, row, trace)


def parts_s(duration_ms: Mapping[str, int]) -> dict[str, float]:
    """Spark's durations of a batch with our phases as seconds of sources, state, sinks, Spark's own work, and rows,
    which is all that tasks do."""

    def total(*names: str) -> float:
        return sum(duration_ms.get(name, 0) for name in names) / 1000

    state, sink = total("checkpoint.commitState"), total("checkpoint.commitSinks")
    rows = max(0.0, total("addBatch") - state - sink)
    return {"source": total(*_SOURCES), "rows": rows, "state": state, "sink": sink, "spark": total(*_SPARKS)}


def _open(address: str) -> None:
    try:
        from spark_ckpt.monitoring.endpoint import Endpoint
        from spark_ckpt.monitoring.metrics import text_of
    except ImportError as error:
        raise ConfigError(
            f"spark.ckpt.metrics.port needs {error.name}: pip install 'spark-ckpt[metrics]' on the driver"
        ) from None
    with _lock:
        if address not in _endpoints:
            made = _endpoints[address] = Endpoint(address, lambda: text_of(_running.samples()))
            _log.info("Metrics of this driver: port %d, /metrics", made.port)


def _telemetry_of(config: JobConfig) -> Telemetry | None:
    if not config.otel:
        return None
    try:
        from spark_ckpt.monitoring.otel import Telemetry
    except ImportError as error:
        raise ConfigError(f"spark.ckpt.otel needs {error.name}: pip install 'spark-ckpt[otel]' on the driver") from None
    with _lock:
        if not _telemetry:
            _telemetry.append(Telemetry(_running.samples))
        return _telemetry[0]


def _enter() -> None:
    global _watches
    with _lock:
        _watches += 1


def _leave() -> None:
    """With the last one all endpoints close."""
    global _watches
    with _lock:
        _watches -= 1
        if _watches:
            return
        closed = list(_endpoints.values())
        _endpoints.clear()
        _running.clear()
    for endpoint in closed:
        endpoint.close()
