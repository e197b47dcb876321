"""Keyed work in large batches: count and sum, with a filter before it, in windows, per-key functions, skewed keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.loads import HOT, ZIPF, Load, Phase
from benchmarks.measuring import Run
from benchmarks.sections.running import Side, compare
from benchmarks.workers.processors import PROCESSORS

M = 1_000_000
FEW, MANY = 10_000, M
NO_CHECKPOINTS = {"spark.ckpt.interval": "1h", "spark.ckpt.initialDelay": "1h"}


def endless(keys: int, rows: int = M, **more: Any) -> Load:
    return Load(keys, (Phase(rows),), **more)


def keyed(quick: bool) -> dict[str, Any]:
    """Count and sum at 10 K and 1 M keys: ours with checkpoints every 5 s, ours with none, and the JVM."""
    sides = []
    for keys in (FEW, MANY):
        # The JVM compiles for some ten seconds. A batch of the JVM's aggregation takes 9 s with 1 M keys.
        run = Run("count", endless(keys), seconds=12, warm_up=35 if keys == FEW else 10, min_batches=2)
        sides += [
            Side(f"ours, {keys} keys", "ours", run),
            Side(f"ours without checkpoints, {keys} keys", "ours", replace(run, conf=NO_CHECKPOINTS)),
            Side(f"jvm, {keys} keys", "jvm", run if keys == FEW else replace(run, warm_up=2)),
        ]
    return compare(sides, 2, quick)


def pandas(quick: bool) -> dict[str, Any]:
    """Count and sum, one Python call a key. 1 M keys are sampled: 20 K rows of 1 M keys, each key once."""
    few = Run("count", endless(FEW), seconds=16, warm_up=40)
    many = Run("count", endless(MANY), seconds=16, warm_up=12)
    once = {"seconds": 1, "warm_up": 1, "min_batches": 2, "max_seconds": 90}
    sides = [
        Side(f"ours, {FEW} keys", "ours", few),
        Side(f"pandas, {FEW} keys", "pandas", replace(few, **once)),
        Side(f"ours, {MANY} keys", "ours", many),
        Side(f"pandas, {MANY} keys", "pandas", Run("count", endless(MANY, 20_000), **once)),
    ]
    return compare(sides, 1, quick)


def filtered(quick: bool) -> dict[str, Any]:
    """The same with Spark's own filter and computed column between source and groupBy."""
    sides = []
    for keys in (FEW, MANY):
        run = Run("filtered", endless(keys), seconds=12)
        sides += [Side(f"ours, {keys} keys", "ours", run), Side(f"jvm, {keys} keys", "jvm", run)]
    return compare(sides, 2, quick)


def windowed(quick: bool) -> dict[str, Any]:
    """Tumbling windows of 2 M rows (10 s of event time) and 100 K keys; state is kept on both sides."""
    run = Run("windowed", endless(100_000, window_rows=2 * M), seconds=15)
    return compare([Side("ours", "ours", run), Side("jvm", "jvm", run)], 1, quick)


def sessions(quick: bool) -> dict[str, Any]:
    """The same per-key function through applyInPandasWithState; plain Spark is sampled: 8 K keys a batch."""
    sides = [
        Side("ours, 100 K keys a batch", "ours", Run("sessions", endless(100_000, 100_000), seconds=15)),
        Side(
            "pandas, 8 K of the keys a batch",
            "pandas",
            Run("sessions", endless(100_000, 8_000), seconds=8, warm_up=2, min_batches=2),
        ),
    ]
    return compare(sides, 1, quick)


def processors(quick: bool) -> dict[str, Any]:
    """Count and sum by a StatefulProcessor: a batch of 10 K rows, each of another key, of 10 K keys and of 1 M."""
    sides: list[Side] = []
    for keys in (FEW, MANY):
        for name in PROCESSORS if keys == FEW else ["processor of rows"]:
            # A session's first run is its JVM's warm-up, too: of Spark's code, which all of them run.
            warm_up_s = 20 if sides else 60
            # Plain Spark takes minutes for all keys of 1 M: it is sampled, and never gets to store them.
            both = Run(name, endless(keys, FEW), seconds=5, warm_up_s=warm_up_s, min_batches=2, max_seconds=90)
            ours, plain = replace(both, load=endless(keys, keys), seconds=12, warm_up=2), both
            sides += [Side(f"ours, {name}, {keys} keys", "ours", ours)]
            sides += [Side(f"pandas, {name}, {keys} keys", "pandas", plain)]
    return compare(sides, 1, quick)


def skew(quick: bool) -> dict[str, Any]:
    """1 M keys: evenly, by Zipf's law with exponent 1.2, and half of the rows on one key."""
    loads = {"even": endless(MANY)}
    loads["Zipf 1.2"] = endless(MANY, spread=ZIPF, zipf=1.2)
    loads["one hot key"] = endless(MANY, spread=HOT)
    sides = [
        Side(f"{role}, {name}", role, Run("count", load, seconds=9, warm_up=12 if role == "ours" else 2, min_batches=2))
        for name, load in loads.items()
        for role in ("ours", "jvm")
    ]
    return compare(sides, 1, quick)
