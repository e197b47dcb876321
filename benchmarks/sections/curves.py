"""One setting at a time: what the cost model is fitted to, and what it is checked on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.loads import Load, Phase
from benchmarks.measuring import CORES, OURS_CONF, Run, SparkWorker, summary
from benchmarks.sections.running import say

M = 1_000_000
_FILL_ROWS = 1_000_000


@dataclass(frozen=True)
class Point:
    """``held_out`` points are not fitted; the model is checked on them. ``curve`` is the plot it belongs to."""

    curve: str
    keys: int
    rows: int
    groups: int = 32
    lanes: int = CORES
    interval_s: float = 5
    held_out: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def touched(self) -> int:
        return min(self.rows, self.keys)

    def run(self) -> Run:
        fill = Phase(min(_FILL_ROWS, self.keys), max(1, self.keys // _FILL_ROWS))
        conf = {
            **OURS_CONF,
            "spark.ckpt.maxParallelism": str(self.groups),
            "spark.ckpt.lanes": str(self.lanes),
            "spark.ckpt.interval": f"{round(self.interval_s * 1000)}ms",
            **self.conf,
        }
        load = Load(self.keys, (fill, Phase(self.rows)), splits=max(CORES, self.lanes))
        return Run("count", load, seconds=max(8, min(2 * self.interval_s, 11)), warm_up=8, max_seconds=25, conf=conf)

    def settings(self) -> dict[str, Any]:
        fields = ("curve", "keys", "rows", "groups", "lanes", "interval_s", "held_out")
        return {**{k: getattr(self, k) for k in fields}, "touched": self.touched}


POINTS = (
    Point("touched", M, 10_000),
    Point("touched", M, 30_000, held_out=True),
    Point("touched", M, 100_000),
    Point("touched", M, 300_000, held_out=True),
    Point("touched", M, 1_000_000),
    Point("rows", 10_000, 100_000),
    Point("rows", 10_000, 500_000, held_out=True),
    Point("rows", 10_000, 1_000_000),
    Point("rows", 100_000, 1_000_000, held_out=True),
    Point("groups", M, 100_000, groups=8),
    Point("groups", M, 100_000, groups=64, held_out=True),
    Point("groups", M, 100_000, groups=128),
    Point("groups", M, 100_000, groups=256),
    Point("lanes", 10_000, 1_000_000, lanes=1),
    Point("lanes", 10_000, 1_000_000, lanes=4),
    Point("lanes", 10_000, 1_000_000, lanes=8, held_out=True),
    Point("interval", M, 300_000, interval_s=1),
    Point("interval", M, 300_000, interval_s=2, held_out=True),
    Point("interval", M, 300_000, interval_s=10),
    Point("interval", M, 300_000, interval_s=3600),
)


def curves(quick: bool) -> dict[str, Any]:
    """Mean batch time over one setting each; keys stored are in section ``state``."""
    found = []
    with SparkWorker("ours") as worker:
        for point in POINTS[:: 5 if quick else 1]:
            settings = point.settings()
            say(", ".join(f"{k} {v}" for k, v in settings.items()))
            run = point.run().quick() if quick else point.run()
            answer = worker.run(run)
            # Settings last: their rows are those of one batch.
            found.append({**summary(answer, run), **settings, "checkpoints": _in_window(answer, run)})
    return {"points": found}


def _in_window(answer: Mapping[str, Any], run: Run) -> int:
    """Checkpoints that completed in the measured batches."""
    last = len(run.load.phases) - 1
    batches = {b["batch"] for b in [b for b in answer["batches"] if b["phase"] == last][run.warm_up :]}
    return sum(c["batch"] in batches for c in answer["checkpoints"] if c["outcome"] == "completed")
