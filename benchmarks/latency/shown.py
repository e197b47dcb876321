"""The section's table and aims, from its figures. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.latency.figures import EVERYWHERE

HEAD = (
    "engine",
    "interval",
    "events/s",
    "shown by",
    "p50, s",
    "p99, s",
    "longest, s",
    "checkpoints/s",
    "producer late, p99, s",
)
_SINKS = {EVERYWHERE: "all three", "kafka": "Kafka", "sql": "PostgreSQL", "delta": "Delta"}
AIMS_S = {"1s": (0.8, 1.4), "100ms": (0.4, 0.7)}
"""p50 and p99 of ours in all sinks, by interval."""


def rows(data: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A line a sink of each run, that of all sinks first."""
    return [line for name, run in data.items() for line in _lines(name, run)]


def _lines(name: str, run: Mapping[str, Any]) -> list[tuple[str, ...]]:
    engine, interval, rate = name.split(", ")
    first = "spark_ckpt" if engine == "ours" else engine
    place = (first, interval, f"{int(rate.split()[0]):,}")
    if "failed" in run:
        return [(*place, "failed: " + run["failed"].replace("|", "/").splitlines()[0][:120], *["-"] * 5)]
    more = (_checkpoints_per_s(run), f"{run['producer']['late_p99_s']:.3f}")
    return [(*place, _SINKS[sink], *_seconds(run["sinks"][sink]), *more) for sink in _SINKS if sink in run["sinks"]]


def _seconds(figures: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{figures[name]:.2f}" for name in ("p50_s", "p99_s", "max_s"))


def _checkpoints_per_s(run: Mapping[str, Any]) -> str:
    """Of ours; Flink's are not asked for."""
    found = run.get("checkpoints_per_s")
    return "-" if found is None else f"{found:.1f}"
