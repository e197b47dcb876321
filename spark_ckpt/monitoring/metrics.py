"""Overviews as metrics in the text format of OpenMetrics, for Prometheus and whatever reads that. Pure.

Names and units follow Prometheus' conventions: base units (seconds, bytes), and ``_total`` for counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from spark_ckpt.jobs.statistics import PHASES
from spark_ckpt.monitoring.overview import Overview, State

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_QUANTILES = {"p50": "0.5", "p95": "0.95", "p99": "0.99"}


@dataclass
class _Family:
    """``kind``: gauge, counter or summary, as OpenMetrics has them."""

    name: str
    kind: str
    help: str
    unit: str = ""
    samples: list[str] = field(default_factory=list)

    def add(self, value: float, labels: Mapping[str, str], suffix: str = "") -> None:
        told = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        self.samples.append(f"{self.name}{suffix}{{{told}}} {value:g}")

    def lines(self) -> Iterator[str]:
        if self.samples:
            yield f"# TYPE {self.name} {self.kind}"
            if self.unit:
                yield f"# UNIT {self.name} {self.unit}"
            yield f"# HELP {self.name} {self.help}"
            yield from self.samples


def exposition(overviews: Iterable[Overview]) -> str:
    """One text of all ``overviews``; what is not known of a job is left out, not zero."""
    families = _families()
    for overview in overviews:
        _add(families, overview)
    return "\n".join([line for f in families.values() for line in f.lines()] + ["# EOF", ""])


def _families() -> dict[str, _Family]:
    found = (
        _Family("spark_ckpt_job_state", "gauge", "1 for the state that the job is in, 0 for all others."),
        _Family("spark_ckpt_starts", "gauge", "How often the job was started."),
        _Family("spark_ckpt_checkpoints", "counter", "Checkpoints since the job began, by how they ended."),
        _Family(
            "spark_ckpt_checkpoint_age_seconds", "gauge", "Time since the newest checkpoint was complete.", "seconds"
        ),
        _Family("spark_ckpt_checkpoint_duration_seconds", "summary", "From trigger to completion.", "seconds"),
        _Family("spark_ckpt_checkpoint_phase_seconds", "summary", "Phases of checkpoints.", "seconds"),
        _Family("spark_ckpt_checkpoint_written_bytes", "summary", "State files written by a checkpoint.", "bytes"),
        _Family("spark_ckpt_state_keys", "gauge", "Live keys of an operator at the newest checkpoint."),
        _Family("spark_ckpt_state_bytes", "gauge", "State files of an operator at the newest checkpoint.", "bytes"),
        _Family("spark_ckpt_watermark_delay_seconds", "gauge", "Now minus an operator's watermark.", "seconds"),
        _Family("spark_ckpt_sink_behind_seconds", "gauge", "Rows that came for so long may be missing.", "seconds"),
        _Family("spark_ckpt_sink_waiting", "gauge", "Complete checkpoints that a sink has not committed."),
        _Family("spark_ckpt_unreadable", "gauge", "Records of the job that cannot be read."),
    )
    return {family.name.removeprefix("spark_ckpt_"): family for family in found}


def _add(families: Mapping[str, _Family], o: Overview) -> None:
    job, now_ms = {"job": o.job}, o.facts.now_ms
    for state in State:
        families["job_state"].add(float(o.state is state), {**job, "state": state.name.lower()})
    families["starts"].add(o.start, job)
    for outcome, count in o.counts.items():
        if outcome != "pending":
            families["checkpoints"].add(count, {**job, "outcome": outcome}, "_total")
    if o.completed_ms is not None:
        families["checkpoint_age_seconds"].add((now_ms - o.completed_ms) / 1000, job)
    _add_summaries(families, o, job)
    for operator in o.operators:
        labels = {**job, "uid": operator.uid}
        families["state_keys"].add(operator.keys, labels)
        families["state_bytes"].add(operator.size_bytes, labels)
        if operator.watermark_ms is not None:
            families["watermark_delay_seconds"].add((now_ms - operator.watermark_ms) / 1000, labels)
    for sink in o.sinks:
        labels = {**job, "sink": sink.id}
        families["sink_waiting"].add(len(sink.waiting), labels)
        if sink.behind_ms is not None:
            families["sink_behind_seconds"].add(sink.behind_ms / 1000, labels)
    families["unreadable"].add(len(o.facts.problems), job)


def _add_summaries(families: Mapping[str, _Family], o: Overview, job: Mapping[str, str]) -> None:
    told = o.facts.statistics.get("checkpoints", {})
    _summary(families["checkpoint_duration_seconds"], told.get("duration_ms"), job, 1000)
    _summary(families["checkpoint_written_bytes"], told.get("written_bytes"), job, 1)
    for phase in PHASES:
        labels = {**job, "phase": phase.removesuffix("_ms")}
        _summary(families["checkpoint_phase_seconds"], told.get(phase), labels, 1000)


def _summary(family: _Family, told: Mapping[str, float | None] | None, labels: Mapping[str, str], per: int) -> None:
    if not told or not told.get("count"):
        return
    count, mean = told["count"] or 0, told["mean"] or 0
    for name, quantile in _QUANTILES.items():
        value = told.get(name)
        if value is not None:
            family.add(value / per, {**labels, "quantile": quantile})
    family.add(count, labels, "_count")
    family.add(count * mean / per, labels, "_sum")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
