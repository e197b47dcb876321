"""Large state: batches, checkpoints and restores as it grows, and how fast a snapshot is written."""

from __future__ import annotations

from typing import Any

from benchmarks.loads import Load, Phase
from benchmarks.measuring import Run, SparkWorker, median_s, summary
from benchmarks.sections.running import say

M = 1_000_000
_FILL_ROWS = 2 * M
TOUCHED = 100_000
_OTHERS = ((1_000, 14), (10_000, 12), (M, 3))
"""Touched keys and batches of the phases between the filling and the measured one."""
_SIZES_M = (1, 10, 100)


def state(quick: bool) -> dict[str, Any]:
    """1 M, 10 M and 100 M keys stored: batches that touch 1 K to 1 M of them, checkpoints, a restore."""
    found = {}
    for size in _SIZES_M:
        # A session each, for its memory's sake.
        say(f"{size} M keys stored")
        run = growth_run(size * M)
        run = run.quick() if quick else run
        with SparkWorker("ours") as worker:
            answer = worker.run(run)
        found[f"{size} M"] = {**summary(answer, run), **_phases(answer, run), "stored": run.load.keys}
    return found


def growth_run(keys: int) -> Run:
    """Fill ``keys`` keys; touch 1 K, 10 K, 1 M a batch; then measure 100 K; then restore at a new Spark location.

    The warm-up lets what the filling left be merged, a bounded piece with each batch.
    """
    fill_rows = min(_FILL_ROWS, keys)
    fill = Phase(fill_rows, keys // fill_rows)
    phases = (fill, *(Phase(rows, batches) for rows, batches in _OTHERS), Phase(TOUCHED))
    return Run(
        "count",
        Load(keys, phases),
        seconds=18,
        warm_up=60,
        max_seconds=60,
        restore=True,
        conf={"spark.ckpt.retain": "2"},
    )


def _phases(answer: dict[str, Any], run: Run) -> dict[str, Any]:
    """By touched keys: the median batch, and what each checkpoint wrote and took."""
    by_phase: dict[int, list[Any]] = {}
    for batch in answer["batches"]:
        by_phase.setdefault(batch["phase"], []).append(batch)
    touched = {
        str(run.load.phases[phase].rows): {"median_s": median_s(batches[1:] or batches), "batches": len(batches)}
        for phase, batches in by_phase.items()
        if phase > 0
    }
    phase_of = {b["batch"]: b["phase"] for b in answer["batches"]}
    return {
        "touched": touched,
        "fill_s": sum(b["ms"] for b in by_phase[0]) / 1000,
        "history": [_checkpoint(c, phase_of, run) for c in answer["checkpoints"] if c["outcome"] == "completed"],
        "restore": answer["restore"],
        "disk_bytes": answer["disk_bytes"],
    }


def _checkpoint(checkpoint: dict[str, Any], phase_of: dict[int, int], run: Run) -> dict[str, Any]:
    phase = phase_of.get(checkpoint["batch"])
    wanted = ("id", "batch", "duration_ms", "commit_ms", "written_bytes", "written_rows", "keys")
    touched = None if phase in (None, 0) else run.load.phases[phase].rows
    return {**{k: checkpoint[k] for k in wanted}, "touched": touched}


def snapshot(quick: bool) -> dict[str, Any]:
    """A snapshot of 1 M changed keys against pyarrow writing the same rows, file by file."""
    run = Run("count", Load(M, (Phase(M),)), seconds=10, snapshot=True, conf={"spark.ckpt.retain": "3"})
    run = run.quick() if quick else run
    with SparkWorker("ours") as worker:
        answer = worker.run(run)
    found = answer["snapshot"]
    mine = next(c for c in answer["checkpoints"] if c["id"] == found["checkpoint"])
    stats = mine["stats"]["totals"]
    return {**found, "write_ms": stats["write_ms"], "duration_ms": mine["duration_ms"], "stats": stats}
