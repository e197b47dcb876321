"""Small batches: 1 K rows and 1 K keys, where the floor of a batch is everything."""

from __future__ import annotations

from typing import Any

from benchmarks.loads import Load, Phase
from benchmarks.measuring import Run
from benchmarks.sections.running import Side, compare


def small(quick: bool) -> dict[str, Any]:
    """Count and sum on all three Spark engines."""
    run = Run("count", Load(1000, (Phase(1000),)), seconds=10, warm_up=15)
    return compare([Side(role, role, run) for role in ("ours", "jvm", "pandas")], 2, quick)
