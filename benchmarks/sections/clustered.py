"""The ratios on a standalone cluster: two executors of one core, which share nothing but the disk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.cluster import EXECUTORS, standalone_cluster
from benchmarks.measuring import Run
from benchmarks.sections.keyed import FEW, MANY, endless
from benchmarks.sections.running import Side, compare


def cluster(quick: bool) -> dict[str, Any]:
    """Two executors of one core; one engine at a time, as each takes both."""
    once = {"seconds": 1, "warm_up": 1, "min_batches": 2, "max_seconds": 90}
    found: dict[str, Any] = {}
    few = Run("count", endless(FEW), seconds=12)
    many = Run("count", endless(MANY), seconds=12)
    sides = {
        "ours": [few, many],
        "jvm": [few, many],
        "pandas": [replace(few, **once), Run("count", endless(MANY, 20_000), **once)],
    }
    with standalone_cluster() as running:
        for role, runs in sides.items():
            named = [Side(f"{role}, {run.load.keys} keys", role, run) for run in runs]
            session = {"master": running.url, "conf": EXECUTORS, "watch": (running.worker_pid,)}
            found |= compare(named, 1, quick, **session)
    return found
