"""The statistics of a job's checkpoints as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spark_ckpt.cli._text_table import text_table
from spark_ckpt.jobs.statistics import PHASES
from spark_ckpt.monitoring.words import instant_text, size_text

_VALUES = ("min", "mean", "p50", "p99", "max")
"""Those that fit 80 columns; ``--json`` has more."""
_ORDER = ("duration_ms", *PHASES, "written_bytes", "full_bytes", "held_back_bytes", "written_rows", "keys")


def counts_text(found: Mapping[str, Any]) -> str:
    """``12 completed, 1 failed, ...``, what never happened left out."""
    counts = found["counts"]
    rest = ", ".join(f"{n} {name}" for name, n in counts.items() if n and name != "completed")
    since = found["since_ms"]
    text = f"{counts['completed']} completed" + (f", {rest}" if rest else "")
    return text if since is None else f"{text}, since {instant_text(since)} UTC"


def statistics_text(found: Mapping[str, Any], subtasks: bool) -> str:
    """``found`` as :meth:`spark_ckpt.Job.statistics` returns it: a table for all checkpoints, and one an operator."""
    return "\n\n".join(f"{name}\n{_metrics(metrics)}" for name, metrics in _parts(found, subtasks))


def _metrics(metrics: Mapping[str, Any]) -> str:
    lines = [m for m in _ORDER if m in metrics] + sorted(metrics.keys() - set(_ORDER))
    rows = [[_words(m), *(_shown(m, metrics[m][v]) for v in _VALUES)] for m in lines]
    return text_table(("", *_VALUES), rows, left=("",))


def restored_text(found: Mapping[str, Any]) -> str:
    rows = [
        [
            str(r["start"] or r["generation"]),
            f"checkpoint {r['checkpoint']}",
            instant_text(r["started_ms"]),
            f"{r['took_ms'] / 1000:.2f} s",
        ]
        for r in found["restored"]
    ]
    return text_table(("start", "restored", "began (UTC)", "took"), rows, left=("start",))


def _parts(found: Mapping[str, Any], subtasks: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "checkpoints", found["checkpoints"]
    for uid, operator in found["operators"].items():
        yield uid, operator["all"]
        for number, metrics in operator["subtasks"].items() if subtasks else ():
            yield f"{uid} {number}", metrics


def _words(metric: str) -> str:
    return metric.removesuffix("_ms").removesuffix("_bytes").replace("_", " ")


def _shown(metric: str, value: float | None) -> str:
    if value is None:
        return ""
    if metric.endswith("_ms"):
        return f"{value / 1000:.2f} s" if value >= 1000 else f"{value:.0f} ms"
    return size_text(round(value)) if metric.endswith("_bytes") else f"{value:,.0f}"
