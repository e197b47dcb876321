"""Keyed count and sum on the peers that are no Spark, beside ours in the same run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.measuring import Run
from benchmarks.sections.keyed import FEW, MANY, M, endless
from benchmarks.sections.running import Side, compare, say
from benchmarks.slopes import Sizes, bytewax, flink

FLINK_SQL, PYFLINK, BYTEWAX, BYTEWAX_COMBINED = "Flink SQL", "PyFlink", "Bytewax", "Bytewax, combined with numpy"


def cases() -> dict[str, Callable[[bool], dict[str, Any]]]:
    """Each peer at each number of keys."""

    def sized(sizes: Sizes, run: Callable[[Sizes], dict[str, Any]]) -> Callable[[bool], dict[str, Any]]:
        return lambda quick: run(sizes.quick() if quick else sizes)

    def sql(sizes: Sizes) -> dict[str, Any]:
        return flink("flink_sql", sizes, backend="hashmap")

    def process(sizes: Sizes) -> dict[str, Any]:
        return flink("flink_process", sizes, backend="hashmap", mode="process")

    return {
        f"{FLINK_SQL}, {FEW} keys": sized(Sizes(FEW, 5 * M, 40 * M), sql),
        f"{FLINK_SQL}, {MANY} keys": sized(Sizes(MANY, M, 3 * M), sql),
        f"{PYFLINK}, {FEW} keys": sized(Sizes(FEW, 50_000, 450_000), process),
        # These are too slow to touch 1 M keys twice: slopes between two sizes that both bring new keys.
        f"{PYFLINK}, {MANY} keys": sized(Sizes(MANY, 20_000, 60_000), process),
        f"{BYTEWAX}, {FEW} keys": sized(Sizes(FEW, M, 4 * M), lambda s: bytewax(s, False)),
        f"{BYTEWAX}, {MANY} keys": sized(Sizes(MANY, 200_000, 600_000), lambda s: bytewax(s, False)),
        f"{BYTEWAX_COMBINED}, {FEW} keys": sized(Sizes(FEW, M, 8 * M), lambda s: bytewax(s, True)),
        f"{BYTEWAX_COMBINED}, {MANY} keys": sized(Sizes(MANY, 200_000, 600_000), lambda s: bytewax(s, True)),
    }


def peers(quick: bool) -> dict[str, Any]:
    """Ours, then every peer, then ours again."""
    found: dict[str, Any] = {}
    sides = [Side(f"ours, {keys} keys", "ours", Run("count", endless(keys), seconds=12)) for keys in (FEW, MANY)]
    before = compare(sides, 1, quick)
    for name, run in cases().items():
        say(name)
        found[name] = run(quick)
    after = compare(sides, 1, quick)
    for side in sides:
        a, b = before[side.name], after[side.name]
        found[side.name] = {**a, "rows_per_s": (a["rows_per_s"] + b["rows_per_s"]) / 2, "again": b}
    return found
