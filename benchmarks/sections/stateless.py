"""No state: a filter and a computed column into an exactly-once Delta table, against plain Parquet files."""

from __future__ import annotations

from typing import Any

from benchmarks.measuring import Run
from benchmarks.sections.keyed import endless
from benchmarks.sections.running import Side, compare


def stateless(quick: bool) -> dict[str, Any]:
    """The same rows, tasks and batches; ours commits every 5 s, the plain sink writes a file a task and batch."""
    run = Run("stateless", endless(1_000_000), seconds=12)
    return compare([Side("Delta, exactly once", "ours", run), Side("plain Parquet files", "jvm", run)], 2, quick)
