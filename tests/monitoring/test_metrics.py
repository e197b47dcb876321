"""The metrics of ``spark-ckpt ui``, as Prometheus' own parser reads them, and what is built on their names."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from spark_ckpt.monitoring._measures import METRICS
from spark_ckpt.monitoring.metrics import exposition
from spark_ckpt.monitoring.overview import overview_of
from spark_ckpt.protocol.events import TimeSeen
from spark_ckpt.protocol.records import BatchRecord, Figures, TableRef
from spark_ckpt.storage.history import UidSize
from tests.monitoring.facts_harness import NOW_MS, complete, facts, row

EXAMPLES = Path(__file__).parents[2] / "examples/monitoring"
FIGURES = Figures(read={"in": 70}, late={"totals": 3}, written=60, behind={"in": 9}, asked={"put": 5, "hit": 8})
STATISTICS = {
    "counts": {"completed": 7, "expired": 1, "pending": 1, "restored": 2},
    "checkpoints": {
        "duration_ms": {"count": 7, "min": 100, "mean": 500, "p50": 450, "p95": 900, "p99": 990, "max": 1000},
        "alignment_ms": {"count": 7, "min": 0, "mean": 20, "p50": 10, "p95": 40, "p99": 50, "max": 60},
        "written_bytes": {"count": 7, "min": 0, "mean": 1e6, "p50": 1e6, "p95": 2e6, "p99": 3e6, "max": 4e6},
        "flush_ms": {"count": 0, "min": None, "mean": None, "p50": None, "p95": None, "p99": None, "max": None},
    },
}


def _seen(**what):
    times = {3: (TimeSeen("totals", (NOW_MS - 8000) * 1000, 0),)}
    done = replace(complete(3, 5000), tables={"totals": TableRef(1, "m")})
    told = {
        "completions": (done,),
        "state": {"totals": UidSize(42, 4096, 1)},
        "history": (row(3),),
        "statistics": STATISTICS,
    }
    return overview_of(facts(**{**told, "batches": (BatchRecord(1, 3, 1, times=times, figures=FIGURES),), **what}))


def _samples(*overviews):
    families = text_string_to_metric_families(exposition(overviews))
    return {(s.name, *sorted(s.labels.items())): s.value for family in families for s in family.samples}


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("spark_ckpt_job_state", {"state": "running"}, 1),
        ("spark_ckpt_job_state", {"state": "failed"}, 0),
        ("spark_ckpt_checkpoints_total", {"outcome": "completed"}, 7),
        ("spark_ckpt_checkpoint_age_seconds", {}, 5),
        ("spark_ckpt_checkpoint_duration_seconds", {"quantile": "0.95"}, 0.9),
        ("spark_ckpt_checkpoint_duration_seconds_count", {}, 7),
        ("spark_ckpt_checkpoint_duration_seconds_sum", {}, 3.5),
        ("spark_ckpt_checkpoint_phase_seconds", {"phase": "alignment", "quantile": "0.5"}, 0.01),
        ("spark_ckpt_checkpoint_written_bytes_sum", {}, 7e6),
        ("spark_ckpt_state_keys", {"uid": "totals"}, 42),
        ("spark_ckpt_state_size_bytes", {"uid": "totals"}, 4096),
        ("spark_ckpt_watermark_delay_seconds", {"uid": "totals"}, 8),
        ("spark_ckpt_sink_behind_seconds", {"sink": "out"}, 6),
        ("spark_ckpt_sink_waiting", {"sink": "out"}, 0),
        ("spark_ckpt_sink_event_time_delay_seconds", {"sink": "out"}, 8),
        ("spark_ckpt_checkpoint_interval_seconds", {}, 10),
        ("spark_ckpt_source_rows_total", {"source": "in"}, 70),
        ("spark_ckpt_source_behind", {"source": "in", "counts": "files"}, 9),
        ("spark_ckpt_operator_late_total", {"uid": "totals"}, 3),
        ("spark_ckpt_sink_rows_total", {"sink": "copy"}, 60),
        ("spark_ckpt_state_cache_reads_total", {"result": "hit"}, 8),
        ("spark_ckpt_storage_requests_total", {"kind": "put"}, 5),
    ],
)
def test_each_figure_has_its_name_unit_and_labels(name, labels, value):
    key = (name, *sorted({"ckpt_job": "orders", **labels}.items()))
    assert _samples(_seen())[key] == pytest.approx(value)


def test_what_is_not_known_is_left_out():
    nothing = _samples(_seen(starts=(), heard=None, completions=(), committed=frozenset(), statistics={}, batches=()))
    assert {name for name, *_ in nothing} == {"spark_ckpt_job_state", "spark_ckpt_starts", "spark_ckpt_unreadable"}
    assert not [name for name in _samples(_seen()) if ("phase", "flush") in name]


def test_names_of_jobs_are_quoted():
    evil = _seen()
    object.__setattr__(evil, "job", 'a"b\\c\nd')
    assert _samples(evil)["spark_ckpt_starts", ("ckpt_job", 'a"b\\c\nd')] == 1


def test_both_conventions_of_names_and_units_are_kept():
    """Prometheus: base units at the end, counters with ``_total`` behind them, no label that it has itself.
    OpenTelemetry: dotted names without units, UCUM."""
    families = list(text_string_to_metric_families(exposition([_seen()])))
    assert len(families) > 15
    for family in families:
        assert family.name.endswith(f"_{family.unit}") or not family.unit
        assert {s.name for s in family.samples} <= {f"{family.name}{end}" for end in ("", "_total", "_count", "_sum")}
        assert not [s for s in family.samples if {"job", "instance"} & set(s.labels)]
    assert len({m.name for m in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"spark_ckpt(\.[a-z_]+)+", metric.name)
        assert re.fullmatch(r"s|By|1|\{[a-z]+\}", metric.unit)
        assert metric.help.endswith(".")
        assert not metric.name.endswith(("total", "seconds", "bytes"))


def test_the_alerts_and_the_dashboard_name_metrics_that_there_are():
    there = {name for name, *_ in _samples(_seen())}
    rules = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"][0]["rules"]
    panels = json.loads((EXAMPLES / "dashboard.json").read_text())["panels"]
    asked = [rule["expr"] for rule in rules] + [panel["targets"][0]["expr"] for panel in panels]
    assert len(asked) > 15
    assert {name for text in asked for name in re.findall(r"spark_ckpt_\w+", text)} <= there


def test_the_page_names_every_metric():
    page = (EXAMPLES.parents[1] / "docs/monitoring.md").read_text()
    families = text_string_to_metric_families(exposition([_seen()]))
    assert not [f.name for f in families if f.name not in page]
