"""Keyed count and sum on the peers that are no Spark, beside ours in the same run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.measuring import Run
from benchmarks.sections.keyed import FEW, MANY, M, endless
from benchmarks.sections.running import Side, compare, say
from benchmarks.slopes import Sizes, bytewax, flink

FLINK_SQL, PYFLINK, BYTEWAX, BYTEWAX_COMBINED = "Flink SQL", "PyFlink", "Bytewax", "Bytewax, combined with numpy"

ROWS_A_BATCH = {FEW: 16 * M, MANY: 2 * M}
"""Of ours: every engine may hold rows back for about a second here, as Flink's mini-batches do."""
MINI_BATCH = {FEW: 200_000, MANY: 0}
"""Of Flink SQL: the fastest out of 50 K, 200 K, 1 M and 5 M rows, and out of none, 5 K, 20 K, 50 K and more."""


def cases() -> dict[str, Callable[[bool], dict[str, Any]]]:
    """Each peer at each number of keys."""

    def sized(sizes: Sizes, run: Callable[[Sizes], dict[str, Any]]) -> Callable[[bool], dict[str, Any]]:
        return lambda quick: run(sizes.quick() if quick else sizes)

    def sql(keys: int) -> Callable[[Sizes], dict[str, Any]]:
        return lambda sizes: flink("flink_sql", sizes, backend="hashmap", mini_batch=MINI_BATCH[keys])

    def process(sizes: Sizes) -> dict[str, Any]:
        return flink("flink_process", sizes, backend="hashmap", mode="process")

    return {
        f"{FLINK_SQL}, {FEW} keys": sized(Sizes(FEW, 20 * M, 100 * M, 2), sql(FEW)),
        f"{FLINK_SQL}, {MANY} keys": sized(Sizes(MANY, M, 9 * M, 2), sql(MANY)),
        f"{PYFLINK}, {FEW} keys": sized(Sizes(FEW, 50_000, 450_000), process),
        # These are too slow to touch 1 M keys twice: slopes between two sizes that both bring new keys.
        f"{PYFLINK}, {MANY} keys": sized(Sizes(MANY, 20_000, 60_000), process),
        f"{BYTEWAX}, {FEW} keys": sized(Sizes(FEW, M, 4 * M), lambda s: bytewax(s, False)),
        f"{BYTEWAX}, {MANY} keys": sized(Sizes(MANY, 200_000, 600_000), lambda s: bytewax(s, False)),
        f"{BYTEWAX_COMBINED}, {FEW} keys": sized(Sizes(FEW, 2 * M, 16 * M), lambda s: bytewax(s, True)),
        f"{BYTEWAX_COMBINED}, {MANY} keys": sized(Sizes(MANY, 200_000, 600_000), lambda s: bytewax(s, True)),
    }


def peers(quick: bool) -> dict[str, Any]:
    """Ours, then every peer, then ours again."""
    found: dict[str, Any] = {}
    sides = [
        Side(f"ours, {keys} keys", "ours", Run("count", endless(keys, rows), seconds=12, warm_up=12))
        for keys, rows in ROWS_A_BATCH.items()
    ]
    before = compare(sides, 1, quick)
    for name, run in cases().items():
        say(name)
        found[name] = run(quick)
    after = compare(sides, 1, quick)
    for side in sides:
        a, b = before[side.name], after[side.name]
        found[side.name] = {**a, "rows_per_s": (a["rows_per_s"] + b["rows_per_s"]) / 2, "again": b}
    return found
