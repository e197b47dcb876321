"""From when events were due and when they were seen to latencies. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from benchmarks.latency.events import Pace

EVERYWHERE = "all"


def latencies(pace: Pace, began: float, seen: Mapping[str, Mapping[int, float]]) -> dict[str, dict[str, Any]]:
    """The figures of each sink, and of all together: an event is there when the last of them shows it.

    Raises ``RuntimeError`` if a sink has not shown each measured probe: such a run measures nothing.
    """
    missing = {sink: sum(p not in times for p in pace.measured) for sink, times in seen.items()}
    if any(missing.values()):
        raise RuntimeError(f"of {len(pace.measured)} probes, so many were never seen: {missing}")
    waited = {s: [times[p] - began - pace.due_s(p) for p in pace.measured] for s, times in seen.items()}
    if len(waited) > 1:
        waited[EVERYWHERE] = [max(one) for one in zip(*waited.values())]
    return {sink: figures(seconds) for sink, seconds in waited.items()}


def figures(seconds: list[float]) -> dict[str, Any]:
    """``halves``: the median of the first and of the second half; where they differ, it fell behind."""
    half = len(seconds) // 2
    ordered = sorted(seconds)
    return {
        "probes": len(ordered),
        "p50_s": percentile(ordered, 0.5),
        "p99_s": percentile(ordered, 0.99),
        "max_s": ordered[-1],
        "halves_p50_s": [percentile(sorted(part), 0.5) for part in (seconds[:half], seconds[half:]) if part],
    }


def percentile(ordered: list[float], share: float) -> float:
    """The smallest value that so large a share is not above."""
    return ordered[max(1, math.ceil(share * len(ordered))) - 1]
