"""What OpenTelemetry gets, by its own exporters in memory: metrics by its names, and a trace a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Histogram, InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from spark_ckpt.monitoring._measures import measures
from spark_ckpt.monitoring.otel import Telemetry
from spark_ckpt.monitoring.overview import overview_of
from spark_ckpt.monitoring.timeline import timeline_of
from tests.monitoring.facts_harness import facts, row

DONE = row(7, took_ms=400)
DONE = replace(
    DONE,
    written_bytes=4096,
    phases={
        "acknowledged_ms": DONE.triggered_ms + 220,
        "driver": {"commit_state_ms": 100, "commit_sinks_ms": 30},
        "operators": {"totals": {"0": {"start_delay_ms": 5, "write_ms": 20}, "1": {"alignment_ms": 9, "flush_ms": 40}}},
    },
)


class Told:
    def __init__(self) -> None:
        self.reader, self.exporter = InMemoryMetricReader(), InMemorySpanExporter()
        tracers, self.meters = TracerProvider(), MeterProvider([self.reader])
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.telemetry = Telemetry(
            lambda: list(measures(overview_of(facts(statistics={"counts": {"completed": 7}})))),
            self.meters.get_meter("t"),
            tracers.get_tracer("t"),
        )

    def metrics(self):
        data = self.reader.get_metrics_data()
        return {m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}


@pytest.fixture
def told():
    made = Told()
    yield made
    made.meters.shutdown()


def test_metrics_have_opentelemetrys_names_units_and_the_same_values(told):
    found = told.metrics()
    assert found["spark_ckpt.checkpoint.age"].unit == "s"
    (age,) = found["spark_ckpt.checkpoint.age"].data.data_points
    assert (age.value, dict(age.attributes)) == (5, {"ckpt_job": "orders"})
    (completed,) = found["spark_ckpt.checkpoints"].data.data_points
    assert (completed.value, found["spark_ckpt.checkpoints"].data.is_monotonic) == (7, True)
    states = {p.attributes["state"]: p.value for p in found["spark_ckpt.job.state"].data.data_points}
    assert {name for name, value in states.items() if value} == {"running"}


def test_durations_are_histograms_of_the_checkpoints_that_ended(told):
    told.telemetry.tell("orders", DONE)
    told.telemetry.tell("orders", row(8, outcome="expired"))
    found = told.metrics()
    took = found["spark_ckpt.checkpoint.duration"].data
    assert isinstance(took, Histogram)
    assert [(p.count, p.sum) for p in took.data_points] == [(1, 0.4)]
    phases = {p.attributes["phase"]: p.sum for p in found["spark_ckpt.checkpoint.phase"].data.data_points}
    assert phases == {
        "start_delay": 0.005, "write": 0.02, "alignment": 0.009, "flush": 0.04, "commit_state": 0.1,
        "commit_sinks": 0.03,
    }  # fmt: skip
    (written,) = found["spark_ckpt.checkpoint.written"].data.data_points
    assert written.sum == 4096


def test_a_trace_has_the_bars_of_the_timeline_as_spans(told):
    trace_id = told.telemetry.tell("orders", DONE)
    *spans, root = told.exporter.get_finished_spans()
    assert root.name == "checkpoint"
    assert root.parent is None
    assert format(root.context.trace_id, "032x") == trace_id
    assert {k: root.attributes[k] for k in ("ckpt_job", "checkpoint", "outcome")} == {
        "ckpt_job": "orders", "checkpoint": 7, "outcome": "completed"
    }  # fmt: skip
    assert {(s.parent.span_id, s.context.trace_id) for s in spans} == {(root.context.span_id, root.context.trace_id)}
    at_ms = DONE.triggered_ms
    shown = {
        (
            s.attributes["uid"],
            s.attributes["subtask"],
            s.name,
            s.start_time // 10**6 - at_ms,
            s.end_time // 10**6 - at_ms,
        )
        for s in spans
    }
    timeline = timeline_of(DONE)
    assert shown == {
        (lane.uid, lane.subtask, bar.phase.removesuffix("_ms"), bar.from_ms, bar.to_ms)
        for lane in timeline.lanes
        for bar in lane.bars
    }
    assert len(shown) == 6
    assert root.start_time == at_ms * 10**6 <= min(s.start_time for s in spans)
    assert root.end_time >= max(s.end_time for s in spans)


def test_a_checkpoint_that_was_given_up_is_a_trace_with_an_error_and_its_cause(told):
    first, second = (told.telemetry.tell("orders", row(k, outcome="expired", reason="too slow")) for k in (8, 9))
    spans = told.exporter.get_finished_spans()
    assert [(s.status.status_code, s.status.description) for s in spans] == [(StatusCode.ERROR, "expired")] * 2
    assert first != second


def test_without_a_provider_nothing_is_traced():
    assert Telemetry(list).tell("orders", DONE) is None
