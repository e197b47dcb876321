"""Random queries, of which Spark's own streams are asked: the same texts on both, the same rows, names and types.

Windows at any place, grouping sets, sub-queries, SQL, joins of streams, event time, all output modes; half of them go
on behind a restart, here from an empty location with other partitions. ``make soak CHAINS=2000 SEED=7`` tries more.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from spark_ckpt.plan.analysed._nodes import plan_class
from spark_ckpt.plan.analysed.translate import HANDLERS
from tests.generated.lab import Lab
from tests.generated.queries import FILTERS, GROUPS, JOINS, ROWS, TEXTS, TEXTS_OF_GROUPS, TIMES, QueryMaker
from tests.generated.query_checks import check_queries, made_sides, shrunk
from tests.generated.query_joins import IN_SQL
from tests.generated.test_generated_chains import SEED, SOAKED, Tally
from tests.generated.two_sides import Query, differing

IN_A_UNION = 4
"""Of queries whose rows stand by themselves: others have watermarks, of which Spark has one for all."""
METHODS = [
    *("agg", "applyInArrow", "applyInPandas", "array", "cogroup", "create_map", "crossJoin", "cube", "describe"),
    *("dropDuplicates", "dropDuplicatesWithinWatermark", "distinct", "drop", "dropna", "exists", "explode"),
    *("explode_outer", "fillna", "grouping_id", "groupingSets", "hint", "isin", "join", "lateralJoin", "limit"),
    *("mapInArrow", "mapInPandas", "orderBy", "posexplode", "raise_error", "repartitionByRange", "replace", "rollup"),
    *("scalar", "session_window", "sql", "struct", "subtract", "summary", "union", "unionByName", "where", "window"),
    *("window_time", "withWatermark"),
]
SHOWN = (
    "WHERE",
    "GROUP BY",
    "CUBE",
    "ROLLUP",
    "GROUPING SETS",
    "HAVING",
    "LATERAL VIEW",
    "LATERAL explode",
    "UNION ALL",
)
SHOWN += (
    " IN (SELECT",
    "NOT EXISTS (SELECT",
    "(SELECT max",
    "WITH q",
    "LEFT JOIN",
    "EXCEPT",
    "ORDER BY",
    "DISTINCT",
    "|>",
    "PIVOT",
    "INTERSECT",
    "FILTER (",
    "NATURAL JOIN",
    "LEFT JOIN LATERAL",
)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "seed"), [(TIMES, 23), (GROUPS, 19), (JOINS, 109), (JOINS, 130), (JOINS, 135), (FILTERS, 4)]
)
def test_a_random_query_gives_what_it_gives_in_spark(lab: Lab, kind: str, seed: int) -> None:
    check_queries(lab.spark, lab.folder, seed, kind)


def test_random_queries_of_rows_give_what_they_give_in_spark(lab: Lab) -> None:
    check_queries(lab.spark, lab.folder, 3, ROWS, IN_A_UNION)


@pytest.mark.soak
def test_many_random_queries_give_what_they_give_in_spark(lab: Lab) -> None:
    tally = Tally()
    for seed in itertools.islice(itertools.count(SEED * 1000), max(1, SOAKED // 20)):
        for kind, count in ((GROUPS, 1), (TIMES, 1), (JOINS, 1), (FILTERS, 1), (ROWS, IN_A_UNION)):
            tally.count(count, lambda made=(seed, kind, count): check_queries(lab.spark, lab.folder, *made))  # type: ignore[misc]
    assert not tally.wrong, "\n\n".join(tally.wrong)


@pytest.mark.soak
def test_many_sql_texts_give_what_they_give_in_spark(lab: Lab) -> None:
    tally = Tally()
    for seed in itertools.islice(itertools.count(SEED * 1000), max(1, SOAKED // 80)):
        for kind, count in ((TEXTS, 16), *[(TEXTS_OF_GROUPS, 1)] * 4):
            made = (seed * 5 + tally.chains % 20, kind, count)
            tally.count(count, lambda made=made: check_queries(lab.spark, lab.folder, *made))  # type: ignore[misc]
    assert not tally.wrong, "\n\n".join(tally.wrong)


@pytest.mark.soak
def test_every_operation_is_in_a_query_that_spark_takes(lab: Lab) -> None:
    plain, steps = made_sides(lab.spark, lab.folder / "every", random.Random(1)).plain, list[str]()
    for seed, kind in itertools.product(range(150), (ROWS, GROUPS, TIMES)):
        steps += QueryMaker(f"{seed}/{kind}", plain).query(kind).steps
    whole = "\n".join(steps)
    assert [name for name in METHODS if f".{name}(" not in whole and f"{name}(" not in whole] == []
    assert [text for text in SHOWN if text not in whole] == []


STREAM = r"(\.join\((other|third|df)|sql\(df.*=(other|third)\()"
"""A join with another stream, or of one with itself."""
SHAPES = {
    "two in a row": f"{STREAM}.*\n.*{STREAM}",
    "three in a row": f"{STREAM}.*\n.*{STREAM}.*\n.*{STREAM}",
    "with itself behind another": rf"{STREAM}.*\n.*\.join\(df",
    "a static table between": rf"{STREAM}.*\n.*(static|words).*\n.*{STREAM}",
    "rows once in front": rf"dropDuplicates.*\n.*{STREAM}",
    "windows behind two": rf"{STREAM}(?s:.*){STREAM}.*\n.*groupBy\(F.window",
    "windows in front": rf"df = df\.groupBy\(F.window.*\n.*{STREAM}",
    "by windows": r"window` = w_",
    "by names": rf"{STREAM}.*withColumnRenamed",
} | {how: f"'{how}'\\)|{text} o ON" for how, text in IN_SQL.items() if how != "left_anti"}
TRIED = {"left_anti": r"'left_anti'\)|LEFT ANTI JOIN o"}
"""Refused by Spark, and so here."""


@pytest.mark.soak
def test_joins_in_a_row_are_of_every_shape(lab: Lab) -> None:
    plain = made_sides(lab.spark, lab.folder / "every join", random.Random(1), True).plain
    makers = [QueryMaker(f"{seed}/{JOINS}", plain) for seed in range(100)]
    whole = "\n\n".join(repr(maker.query(JOINS)) for maker in makers)
    refused = "\n".join(steps[-1] for maker in makers for steps in maker.refused)
    assert [name for name, shape in SHAPES.items() if not re.search(shape, whole)] == []
    assert [name for name, shape in TRIED.items() if not re.search(shape, refused)] == []


# -- the net itself --------------------------------------------------------------------------------------------------

PLAIN = ([("k", "string"), ("c", "bigint")], [[[("a", 1)], [("a", 2)]]])


@pytest.mark.parametrize(
    ("ours", "mode", "shown"),
    [
        ((PLAIN[0], [[[("a", 1)], [("a", 3)]]]), "update", r"in Spark alone: .*2.*here alone: .*3"),
        ((PLAIN[0], [[[("a", 1)]]]), "update", r"in Spark alone: .*2.*here alone: \[\]"),
        ((PLAIN[0], [[[("a", 2)], [("a", 1)]]]), "complete", r"in Spark alone: .*2.*here alone: .*1"),
        (([("k", "string"), ("c", "int")], PLAIN[1]), "update", r"columns of Spark: .*bigint.*here: .*'int'"),
        (([("k", "string"), ("n", "bigint")], PLAIN[1]), "update", r"columns of Spark"),
        (ValueError("no"), "update", "Spark runs it, here: ValueError: no"),
    ],
)
def test_what_differs_from_spark_is_told(ours: Any, mode: str, shown: str) -> None:
    assert differing(PLAIN, PLAIN, mode, False) is None
    with pytest.raises(AssertionError, match=f"(?s){shown}"):
        raise AssertionError(differing(PLAIN, ours, mode, False))


def test_other_errors_than_sparks_are_told() -> None:
    spark, other = ValueError("[UNRESOLVED_COLUMN] k"), ValueError("[MISSING_AGGREGATION] k")
    assert differing(spark, ValueError("[UNRESOLVED_COLUMN.WITH_SUGGESTION] k"), "append", False) is not None
    assert differing(spark, other, "append", False) is not None
    assert differing(spark, ValueError("here: [UNRESOLVED_COLUMN] k"), "append", False) is None


DEFECTS: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "late rows are kept": ("withWatermark", "watermark", lambda true: lambda walk, node: walk.rows(node.child())),
    "a filter is lost": ("where", "filter", lambda true: lambda walk, node: walk.rows(node.child())),
    "a set is left out": ("groupingSets", "expand", lambda true: lambda walk, node: true(walk, without_last(node))),
}
"""What is wrong -> the method that shows it, and the translation of its node, broken."""


def without_last(node: Any) -> Any:
    """An ``Expand`` without its last projection."""
    return plan_class("Expand")(node.projections().dropRight(1), node.output(), node.child())


HOURS = "F.window('t', '1 hour')"
BROKEN = Query(
    (
        "df.withWatermark('t', '20 minutes')",
        "df.where(F.hour('t') % 2 == 0)",
        "df.fillna('none', ['`s`'])",
        "df.dropDuplicates(['s', 'k', 't'])",
        f"df.groupingSets([[{HOURS}, 'k'], [{HOURS}]], {HOURS}, 'k').agg(F.count('*'))",
    )
)


@pytest.mark.soak
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_shown_in_a_short_query(lab: Lab, monkeypatch: pytest.MonkeyPatch, defect: str) -> None:
    sides = made_sides(lab.spark, lab.folder / defect.replace(" ", "-"), random.Random(1))
    assert sides.difference([BROKEN]) is None
    method, handler, broken = DEFECTS[defect]
    monkeypatch.setitem(HANDLERS, handler, broken(HANDLERS[handler]))
    small = shrunk(BROKEN, lambda query: sides.difference([query]))
    assert method in repr(small)
    assert len(small.steps) < len(BROKEN.steps)
