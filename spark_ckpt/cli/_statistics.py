"""The statistics of a job's checkpoints as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from rich import box
from rich.table import Table

from spark_ckpt.cli.history import size_text
from spark_ckpt.jobs.statistics import PHASES

WIDTH = 110
"""A figure that is cut off is none: a narrow terminal wraps lines instead."""

_VALUES = ("min", "mean", "p50", "p90", "p95", "p99", "p99.9", "max")
_ORDER = ("duration_ms", *PHASES, "written_bytes", "full_bytes", "held_back_bytes", "written_rows", "keys")


def counts_text(found: Mapping[str, Any]) -> str:
    """``12 completed, 1 failed, ...``, what never happened left out."""
    counts = found["counts"]
    rest = ", ".join(f"{n} {name}" for name, n in counts.items() if n and name != "completed")
    since = found["since_ms"]
    text = f"{counts['completed']} completed" + (f", {rest}" if rest else "")
    return text if since is None else f"{text}, since {_time(since)} UTC"


def statistics_table(found: Mapping[str, Any], subtasks: bool) -> Table:
    """``found`` as :meth:`spark_ckpt.Job.statistics` returns it: one line for each thing measured."""
    table = _table("of", "what", *_VALUES)
    for name, metrics in _parts(found, subtasks):
        lines = [m for m in _ORDER if m in metrics] + sorted(metrics.keys() - set(_ORDER))
        for i, metric in enumerate(lines):
            values = [_shown(metric, metrics[metric][v]) for v in _VALUES]
            table.add_row(name if i == 0 else "", _words(metric), *values, end_section=i == len(lines) - 1)
    return table


def restored_table(found: Mapping[str, Any]) -> Table:
    table = _table("start", "restored", "began", "took", left=1)
    for r in found["restored"]:
        start = str(r["start"] or r["generation"])
        table.add_row(start, f"checkpoint {r['checkpoint']}", _time(r["started_ms"]), f"{r['took_ms'] / 1000:.2f} s")
    return table


def _table(*columns: str, left: int = 2) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i < left else "right", no_wrap=True)
    return table


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


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S}"
