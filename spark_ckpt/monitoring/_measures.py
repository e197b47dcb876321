"""What is measured of a job, once for all that show it: Prometheus and OpenTelemetry. Pure.

A name is OpenTelemetry's, with dots, and a unit is UCUM's: ``s``, ``By``, ``{row}``. Prometheus' name follows from both
(:func:`spark_ckpt.monitoring.metrics.prometheus_name`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from spark_ckpt.jobs.statistics import PHASES
from spark_ckpt.monitoring.overview import Overview, State
from spark_ckpt.sources.places import counted_in
from spark_ckpt.storage.tally import HIT, MISS

JOB = "ckpt_job"
"""The label with the job's name. Prometheus has a label ``job`` of its own, and so has what OpenTelemetry writes."""
GAUGE, COUNTER, SUMMARY = "gauge", "counter", "summary"


@dataclass(frozen=True)
class Metric:
    """``kind``: a gauge, a counter that begins anew with the job or with its start, or a summary since the job
    began, which OpenTelemetry gets as a histogram of what it sees."""

    name: str
    kind: str
    unit: str
    help: str


@dataclass(frozen=True)
class Summary:
    """In the metric's unit. ``quantiles``: by ``"0.5"`` and so on."""

    count: float
    sum: float
    quantiles: Mapping[str, float]


@dataclass(frozen=True)
class Sample:
    metric: Metric
    labels: Mapping[str, str]
    value: float | Summary


JOB_STATE = Metric("spark_ckpt.job.state", GAUGE, "1", "1 for the state that the job is in, 0 for all others.")
STARTS = Metric("spark_ckpt.starts", GAUGE, "{start}", "How often the job was started.")
CHECKPOINTS = Metric("spark_ckpt.checkpoints", COUNTER, "{checkpoint}", "Checkpoints by outcome, since the job began.")
AGE = Metric("spark_ckpt.checkpoint.age", GAUGE, "s", "Time since the newest checkpoint was complete.")
INTERVAL = Metric("spark_ckpt.checkpoint.interval", GAUGE, "s", "Time between two triggers, as it is set.")
DURATION = Metric("spark_ckpt.checkpoint.duration", SUMMARY, "s", "From trigger to completion.")
PHASE = Metric("spark_ckpt.checkpoint.phase", SUMMARY, "s", "Phases of checkpoints.")
WRITTEN = Metric("spark_ckpt.checkpoint.written", SUMMARY, "By", "State files written by a checkpoint.")
STATE_KEYS = Metric("spark_ckpt.state.keys", GAUGE, "{key}", "Live keys of an operator at the newest checkpoint.")
STATE_SIZE = Metric("spark_ckpt.state.size", GAUGE, "By", "State files of an operator at the newest checkpoint.")
ROWS_READ = Metric("spark_ckpt.source.rows", COUNTER, "{row}", "Rows read by a source, since the newest start.")
SOURCE_BEHIND = Metric(
    "spark_ckpt.source.behind",
    GAUGE,
    "{item}",
    "What a source had not read when it planned its newest batch: rows, files, or what else the label counts says.",
)
ROWS_LATE = Metric("spark_ckpt.operator.late", COUNTER, "{row}", "Rows left out as late, since the newest start.")
WATERMARK_DELAY = Metric("spark_ckpt.watermark.delay", GAUGE, "s", "Now minus an operator's watermark.")
ROWS_WRITTEN = Metric("spark_ckpt.sink.rows", COUNTER, "{row}", "Rows given to a sink, since the newest start.")
SINK_BEHIND = Metric("spark_ckpt.sink.behind", GAUGE, "s", "Rows that came for so long may be missing.")
SINK_EVENT_TIME = Metric("spark_ckpt.sink.event_time.delay", GAUGE, "s", "Now minus the watermark that a sink shows.")
SINK_WAITING = Metric("spark_ckpt.sink.waiting", GAUGE, "{checkpoint}", "Complete checkpoints that a sink lacks.")
BATCH = Metric("spark_ckpt.batch.time", GAUGE, "s", "Where the time of the newest batch went; of drivers only.")
CACHE_READS = Metric(
    "spark_ckpt.state.cache.reads",
    COUNTER,
    "{read}",
    "Reads of state, by whether the cache had it, since the newest start.",
)
REQUESTS = Metric(
    "spark_ckpt.storage.requests", COUNTER, "{request}", "Requests to S3, by kind, since the newest start."
)
UNREADABLE = Metric("spark_ckpt.unreadable", GAUGE, "{record}", "Records of the job that cannot be read.")

METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
_QUANTILES = {"p50": "0.5", "p95": "0.95", "p99": "0.99"}


def measures(o: Overview, batch_s: Mapping[str, float] = MappingProxyType({})) -> Iterator[Sample]:
    """All that is known of one job; what is not is left out, not zero. ``batch_s``: where the time of its newest batch
    went, which its driver knows."""
    job, now_ms = {JOB: o.job}, o.facts.now_ms
    for state in State:
        yield Sample(JOB_STATE, {**job, "state": state.name.lower()}, float(o.state is state))
    yield Sample(STARTS, job, o.start)
    for outcome, count in o.counts.items():
        if outcome != "pending":
            yield Sample(CHECKPOINTS, {**job, "outcome": outcome}, count)
    if o.completed_ms is not None:
        yield Sample(AGE, job, (now_ms - o.completed_ms) / 1000)
    if o.interval_ms:
        yield Sample(INTERVAL, job, o.interval_ms / 1000)
    yield from _summaries(o, job)
    yield from _operators(o, job)
    yield from _sinks(o, job)
    yield from _rows(o, job)
    for part, seconds in batch_s.items():
        yield Sample(BATCH, {**job, "part": part}, seconds)
    yield Sample(UNREADABLE, job, len(o.facts.problems))


def _operators(o: Overview, job: Mapping[str, str]) -> Iterator[Sample]:
    for operator in o.operators:
        labels = {**job, "uid": operator.uid}
        yield Sample(STATE_KEYS, labels, operator.keys)
        yield Sample(STATE_SIZE, labels, operator.size_bytes)
        if operator.watermark_ms is not None:
            yield Sample(WATERMARK_DELAY, labels, (o.facts.now_ms - operator.watermark_ms) / 1000)


def _sinks(o: Overview, job: Mapping[str, str]) -> Iterator[Sample]:
    for sink in o.sinks:
        labels = {**job, "sink": sink.id}
        yield Sample(SINK_WAITING, labels, len(sink.waiting))
        if sink.behind_ms is not None:
            yield Sample(SINK_BEHIND, labels, sink.behind_ms / 1000)
        if sink.event_time_ms is not None:
            yield Sample(SINK_EVENT_TIME, labels, (o.facts.now_ms - sink.event_time_ms) / 1000)


def _rows(o: Overview, job: Mapping[str, str]) -> Iterator[Sample]:
    """As far as the newest start has recorded a batch."""
    start, newest = o.facts.newest, max(o.facts.batches, key=lambda b: b.batch, default=None)
    if newest is None or start is None:
        return
    figures = newest.figures
    for source in start.topology.sources:
        yield Sample(ROWS_READ, {**job, "source": source}, figures.read.get(source, 0))
    for source, rows in figures.behind.items():
        counts = counted_in(start.topology.reads.get(source, ""))
        yield Sample(SOURCE_BEHIND, {**job, "source": source, "counts": counts}, rows)
    for uid, rows in figures.late.items():
        yield Sample(ROWS_LATE, {**job, "uid": uid}, rows)
    for kind, count in figures.asked.items():
        metric, label = (CACHE_READS, "result") if kind in (HIT, MISS) else (REQUESTS, "kind")
        yield Sample(metric, {**job, label: kind}, count)
    for sink in start.topology.sinks:
        yield Sample(ROWS_WRITTEN, {**job, "sink": sink}, figures.written)


def _summaries(o: Overview, job: Mapping[str, str]) -> Iterator[Sample]:
    told = o.facts.statistics.get("checkpoints", {})
    asked: list[tuple[Metric, Mapping[str, str], str, float]] = [
        (DURATION, job, "duration_ms", 1000),
        (WRITTEN, job, "written_bytes", 1),
        *((PHASE, {**job, "phase": phase.removesuffix("_ms")}, phase, 1000.0) for phase in PHASES),
    ]
    for metric, labels, name, per in asked:
        found = _summary(told.get(name), per)
        if found is not None:
            yield Sample(metric, labels, found)


def _summary(told: Mapping[str, Any] | None, per: float) -> Summary | None:
    if not told or not told.get("count"):
        return None
    count, mean = told["count"], told["mean"] or 0
    return Summary(
        count, count * mean / per, {q: told[name] / per for name, q in _QUANTILES.items() if told.get(name) is not None}
    )
