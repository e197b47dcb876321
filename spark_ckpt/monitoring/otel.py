"""OpenTelemetry (``spark.ckpt.otel``): the metrics, and a trace a checkpoint. Needs the extra ``otel``. Driver.

Providers are the user's: those that ``set_meter_provider`` and ``set_tracer_provider`` of OpenTelemetry were given, or
what its environment variables make. Without any, all of this does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from spark_ckpt.monitoring._measures import COUNTER, DURATION, GAUGE, JOB, METRICS, PHASE, WRITTEN, Metric, Sample
from spark_ckpt.monitoring.timeline import Bar, Lane, timeline_of
from spark_ckpt.storage.history import HistoryRow

_SCOPE = "spark_ckpt"
_NS = 1_000_000
"""Nanoseconds of a millisecond."""


class Telemetry:
    """One for a process. ``samples``: what is measured now; asked by the reader of the meter's provider."""

    def __init__(
        self, samples: Callable[[], Iterable[Sample]], meter: Meter | None = None, tracer: Tracer | None = None
    ) -> None:
        self._samples = samples
        self._meter = meter or metrics.get_meter(_SCOPE)
        self._tracer = tracer or trace.get_tracer(_SCOPE)
        for metric in METRICS:
            self._observe(metric)
        self._took, self._phase, self._written = (
            self._meter.create_histogram(m.name, m.unit, m.help) for m in (DURATION, PHASE, WRITTEN)
        )

    def _observe(self, metric: Metric) -> None:
        def observations(_: CallbackOptions) -> Iterator[Observation]:
            for sample in self._samples():
                if sample.metric is metric and isinstance(sample.value, int | float):
                    yield Observation(sample.value, dict(sample.labels))

        if metric.kind == GAUGE:
            self._meter.create_observable_gauge(metric.name, [observations], metric.unit, metric.help)
        elif metric.kind == COUNTER:
            self._meter.create_observable_counter(metric.name, [observations], metric.unit, metric.help)

    def tell(self, job: str, row: HistoryRow) -> str | None:
        """A checkpoint has ended: its figures and its trace. Returns the trace's id, None if nobody takes traces."""
        if row.duration_ms is not None:
            self._record(job, row)
        return self._trace(job, row)

    def _record(self, job: str, row: HistoryRow) -> None:
        self._took.record((row.duration_ms or 0) / 1000, {JOB: job})
        self._written.record(row.written_bytes, {JOB: job})
        timeline = timeline_of(row)
        longest: dict[str, int] = {}
        for bar in (bar for lane in timeline.lanes for bar in lane.bars) if timeline else ():
            longest[bar.phase] = max(longest.get(bar.phase, 0), bar.to_ms - bar.from_ms)
        for phase, took_ms in longest.items():
            self._phase.record(took_ms / 1000, {JOB: job, "phase": phase.removesuffix("_ms")})

    def _trace(self, job: str, row: HistoryRow) -> str | None:
        facts: dict[str, str | int] = {
            JOB: job,
            "checkpoint": row.id,
            "outcome": row.outcome,
            "generation": row.generation,
            "batch": row.batch,
        }
        root = self._tracer.start_span(
            row.kind or "checkpoint",
            trace.set_span_in_context(trace.INVALID_SPAN),  # of its own, whatever the caller's trace
            SpanKind.INTERNAL,
            facts,
            start_time=row.triggered_ms * _NS,
        )
        timeline = timeline_of(row)
        for lane in timeline.lanes if timeline else ():
            self._trace_lane(root, row.triggered_ms, lane)
        if row.completed_ms is None:
            root.set_status(Status(StatusCode.ERROR, row.outcome))
        took_ms = timeline.duration_ms if timeline else row.duration_ms or 0
        root.end((row.triggered_ms + took_ms) * _NS)
        context = root.get_span_context()
        return format(context.trace_id, "032x") if context.is_valid else None

    def _trace_lane(self, root: Span, triggered_ms: int, lane: Lane) -> None:
        """A span a bar, as the timeline shows it."""
        for bar in lane.bars:
            self._trace_bar(root, triggered_ms, lane, bar)

    def _trace_bar(self, root: Span, triggered_ms: int, lane: Lane, bar: Bar) -> None:
        span = self._tracer.start_span(
            bar.phase.removesuffix("_ms"),
            trace.set_span_in_context(root),
            SpanKind.INTERNAL,
            {"uid": lane.uid, "subtask": lane.subtask, "slowest": lane.slowest},
            start_time=(triggered_ms + bar.from_ms) * _NS,
        )
        span.end((triggered_ms + bar.to_ms) * _NS)
