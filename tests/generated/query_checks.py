"""Generated queries, run and explained: what differs, in the shortest query in which it does."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.generated import query_rows
from tests.generated.queries import FILTERS, JOINS, ROWS, TEXTS, QueryMaker
from tests.generated.two_sides import Query, TwoSides

BATCHES = 4
_PLAIN = ((query_rows.COLUMNS, 6), (query_rows.OTHER, 4))

Differs = Callable[[Query], str | None]


def check_queries(spark: Any, folder: Path, seed: int, kind: str, count: int = 1) -> None:
    """Queries of ``seed``, several of them in one union. Raises ``AssertionError`` with the shortest that differs."""
    chosen = random.Random(f"queries {seed}")
    sides = made_sides(spark, folder / f"queries-{seed}-{kind}", chosen, kind == JOINS, kind == FILTERS)
    spark.conf.set("spark.ckpt.interval", chosen.choice(["1ms", "1h"]))
    queries = [QueryMaker(f"{seed}/{number}/{kind}", sides.plain).query(kind) for number in range(count)]
    try:
        found = sides.difference(queries)
        if found is not None:
            why = explained(sides, queries) if kind in (ROWS, TEXTS) or count == 1 else ""
            raise AssertionError(f"queries {seed} of {kind}, lives {sides.lives}:\n{found}\n{why}")
    finally:
        spark.conf.set("spark.ckpt.interval", "1ms")
        shutil.rmtree(sides.folder, ignore_errors=True)


def made_sides(spark: Any, folder: Path, chosen: random.Random, paced: bool = False, ahead: bool = False) -> TwoSides:
    """``paced``: for joins, with more rows. ``ahead``: for filters, with rows that are far ahead."""
    sizes = ((query_rows.COLUMNS, 12), (query_rows.OTHER, 8), (query_rows.THIRD, 8)) if paced else _PLAIN
    tables = [query_rows.batches(chosen, columns, BATCHES, rows, paced, ahead) for columns, rows in sizes]
    return TwoSides(spark, folder, tables, lives=chosen.choice([1, 2]))


def explained(sides: TwoSides, queries: Sequence[Query]) -> str:
    def differs(query: Query) -> str | None:
        return sides.difference([query])

    for query in queries:
        if differs(query) is not None:
            small = shrunk(query, differs)
            return f"The shortest query that differs:\n{small!r}\n{differs(small)}"
    return "No query of it differs alone."


def shrunk(query: Query, differs: Differs) -> Query:
    """Steps are left out as long as it still differs."""
    for at in range(len(query.steps) - 1, -1, -1):
        candidate = replace(query, steps=(*query.steps[:at], *query.steps[at + 1 :]))
        if candidate.steps and differs(candidate) is not None:
            return shrunk(candidate, differs)
    return query
