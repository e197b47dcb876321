"""When a Delta table showed the row of each probe: read when the run is over, so that nothing watches it before."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.latency.events import Pace


def seen_in_delta(table: Path, pace: Pace) -> dict[int, float]:
    """Probe -> seconds since 1970: the time at which the log's file of the version that has it got its name.

    A reader sees a version as soon as that file is there, and the system notes when a file is given its name (ctime).
    """
    seen: dict[int, float] = {}
    for version in sorted((table / "_delta_log").glob("*.json")):
        shown = version.stat().st_ctime
        actions = [json.loads(line) for line in version.read_text().splitlines()]
        for path in (a["add"]["path"] for a in actions if "add" in a):
            rows = pq.read_table(table / path, columns=["k", "n", "total"])
            for row in rows.filter(pc.less(rows["k"], 0)).to_pylist():
                seen.setdefault(pace.probe_of(row["k"], row["n"], row["total"]), shown)
    return seen
