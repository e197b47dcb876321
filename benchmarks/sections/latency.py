"""End-to-end latency: ours into Kafka, PostgreSQL and Delta under one checkpoint, and Flink SQL into Kafka."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.environments import FLINK, OURS
from benchmarks.latency.delta_log import seen_in_delta
from benchmarks.latency.events import INTERVALS, RATES, TABLE, Pace, cell
from benchmarks.latency.figures import latencies
from benchmarks.latency.flink_connector import provide_connector
from benchmarks.latency.servers import Places, Servers, servers
from benchmarks.latency.totals import check_totals
from benchmarks.measuring import CORES, WorkerError, end_process, kill_process, read_answer, start_process
from benchmarks.sections.running import say

ALL, KAFKA = ("kafka", "sql", "delta"), ("kafka",)
_SECONDS, _WARM_UP_S = 30.0, 90.0
"""A JVM compiles for more than a minute what each batch runs; a job runs for days."""
_LAST_S = 60.0
"""How long the last event may take to be seen everywhere."""
_LIMIT_S = 330.0
"""No run takes longer; one that does failed."""


@dataclass(frozen=True)
class Job:
    """One job of one engine under one load."""

    engine: str
    sinks: tuple[str, ...]
    interval: str
    rate: int

    @property
    def name(self) -> str:
        return cell(self.engine, self.interval, self.rate)


def jobs() -> Iterator[Job]:
    for interval in INTERVALS:
        for rate in RATES:
            yield Job("ours", ALL, interval, rate)
            yield Job("Flink SQL", KAFKA, interval, rate)


def latency(quick: bool) -> dict[str, Any]:
    """Ours, then Flink, for each interval and rate. A run that fails says so, and the others are measured."""
    found: dict[str, Any] = {}
    with servers() as running, engines() as processes:
        for job in jobs():
            say(job.name)
            try:
                found[job.name] = _measured(running, processes[job.engine], job, quick)
            except (WorkerError, RuntimeError, OSError) as e:
                say(f"failed: {e}")
                found[job.name] = {"failed": str(e)[:300]}
    return found


@contextmanager
def engines() -> Iterator[dict[str, Any]]:
    """A process of each, so that no job pays for its start; one that has no job does nothing."""
    setup = {"master": f"local[{CORES}]", "cores": CORES}
    with ExitStack() as stack:
        ours = start_process(OURS, "benchmarks.latency.ours", json.dumps(setup))
        stack.callback(end_process, ours)
        flink = start_process(FLINK, "benchmarks.latency.flink", json.dumps({"jar": str(provide_connector())}))
        stack.callback(end_process, flink)
        for process in (ours, flink):
            read_answer(process)
        yield {"ours": ours, "Flink SQL": flink}


def _measured(running: Servers, engine: Any, job: Job, quick: bool) -> dict[str, Any]:
    pace = Pace(job.rate, 10, 5) if quick else Pace(job.rate, _WARM_UP_S + _SECONDS, _WARM_UP_S)
    places = running.places()
    timer = threading.Timer(_LIMIT_S, kill_process, [engine])
    timer.start()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-latency-", ignore_cleanup_errors=True) as folder:
            asked = {"folder": folder, "interval": job.interval, "sinks": job.sinks, "places": asdict(places)}
            ask(engine, {"start": asked})
            try:
                produced, seen = _watched(places, job, pace)
                if "sql" in job.sinks:
                    check_totals(places.dsn, pace, _LAST_S)
            finally:
                told = ask(engine, {"stop": True})
            if "delta" in job.sinks:
                seen["delta"] = seen_in_delta(Path(folder) / TABLE, pace)
            return {**figures_of(pace, produced, seen), **told, "interval": job.interval, "rate": job.rate}
    finally:
        timer.cancel()


def figures_of(pace: Pace, produced: Mapping[str, Any], seen: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    return {"sinks": latencies(pace, produced["began"], seen), "producer": produced}


def ask(process: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    return read_answer(process)


def _watched(places: Places, job: Job, pace: Pace) -> tuple[dict[str, Any], dict[str, dict[int, float]]]:
    """Produce all events while the observers watch: what the producer says, and when each probe was seen in a sink."""
    watch = {
        "brokers": places.brokers,
        "topic": places.totals,
        "dsn": places.dsn if "sql" in job.sinks else None,
        "pace": pace.to_json(),
    }
    write = {"brokers": places.brokers, "topic": places.events, "pace": pace.to_json()}
    with ExitStack() as stack:
        observers = start_process(OURS, "benchmarks.latency.observers", json.dumps(watch))
        stack.callback(end_process, observers)
        read_answer(observers)
        producer = start_process(OURS, "benchmarks.latency.producer", json.dumps(write))
        stack.callback(end_process, producer)
        produced = {**read_answer(producer), **read_answer(producer)}
        assert observers.stdin is not None
        observers.stdin.write(f"{_LAST_S}\n")
        observers.stdin.flush()
        seen = read_answer(observers)
    return produced, {sink: {int(p): at for p, at in times.items()} for sink, times in seen.items()}
