"""SQL over temporary views of streams, beside ``spark.sql`` over views of Spark's own streams of the same files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_ckpt.errors import InvalidInputError
from tests.spark.conftest import Input, Job, last_result, ordered, rows_of_spark
from tests.spark.sql_texts import APPEND, COMPLETE, MORE_APPEND, MORE_COMPLETE

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
soak = pytest.mark.soak


def _rows(first: int, n: int) -> list[tuple[Any, ...]]:
    minutes = [timedelta(minutes=i + first) for i in range(n)]
    return [("abc"[i % 3] if i % 7 else None, i - 4, BEGIN + at, [i, 1]) for i, at in enumerate(minutes)]


Query = Callable[..., Any]


@pytest.fixture
def query(spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input]) -> Iterator[Query]:
    """``spark.sql`` over views ``orders`` and ``pays`` of our streams, or of Spark's own, and ``labels`` of a table."""
    orders = new_input("orders", "k string, v int, t timestamp, xs array<int>")
    pays = new_input("pays", "k string, w int, u timestamp")
    for batch in range(3):
        orders.add(*_rows(30 * batch, 12))
        pays.add(*((k or "d", v, t + timedelta(minutes=1)) for k, v, t, _ in _rows(30 * batch, 6)))
    ours, theirs = (orders.stream(ckpt), pays.stream(ckpt)), (orders.spark_stream(spark), pays.spark_stream(spark))
    labels = spark.createDataFrame([("a", "one"), ("b", "two"), ("z", None)], "k string, label string")
    labels.createOrReplaceTempView("labels")

    def sql(text: str, of_spark: bool = False) -> Any:
        one, other = theirs if of_spark else ours
        one.withWatermark("t", "5 minutes").createOrReplaceTempView("Orders")
        other.withWatermark("u", "5 minutes").createOrReplaceTempView("pays")
        return spark.sql(text)

    yield sql
    for view in ("orders", "pays", "labels"):
        spark.catalog.dropTempView(view)


def _same(query: Query, job: Job, folder: Path, mode: str, text: str) -> None:
    mine, theirs = query(text), query(text, of_spark=True)
    assert mine.dtypes == theirs.dtypes
    job.run(mine, mode=mode)
    read = last_result(theirs, folder / "plain") if mode == "complete" else None
    wanted = rows_of_spark(theirs, folder / "plain", mode) if read is None else read
    assert wanted
    assert _flat(job.rows()) == _flat(wanted)


def _flat(rows: Any) -> list[Any]:
    return ordered([tuple(map(_value, row)) for row in rows])


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.timestamp() if value.tzinfo else value.replace(tzinfo=UTC).timestamp()
    if isinstance(value, dict):
        return tuple(map(_value, value.values()))
    return tuple(map(_value, value)) if isinstance(value, tuple | list) else value


SHORT = (APPEND[0], APPEND[2], COMPLETE[0])
"""In the test command. Joins of streams in SQL are in test_front_door.py, too."""


def _in_the_test_command(*texts: str) -> list[Any]:
    return [q if q in SHORT else pytest.param(q, marks=soak) for q in texts]


@pytest.mark.parametrize("text", _in_the_test_command(*APPEND, *MORE_APPEND))
def test_rows_are_those_of_spark(query: Query, job: Job, tmp_path: Path, text: str) -> None:
    _same(query, job, tmp_path, "append", text)


@pytest.mark.parametrize("text", _in_the_test_command(*COMPLETE, *MORE_COMPLETE))
def test_whole_results_are_those_of_spark(query: Query, job: Job, tmp_path: Path, text: str) -> None:
    _same(query, job, tmp_path, "complete", text)


_UPDATE = ("SELECT DISTINCT k, v % 2 AS p FROM orders",)
_MORE_UPDATE = (
    "SELECT k, v % 3 FROM orders EXCEPT (SELECT k, length(label) - 3L FROM labels) MINUS SELECT k, 1 FROM labels",
    "SELECT k, v % 2 AS p FROM orders WHERE v > 0 UNION SELECT k, w % 2 FROM pays",
)


@pytest.mark.parametrize("text", [*_UPDATE, *(pytest.param(q, marks=soak) for q in _MORE_UPDATE)])
def test_distinct_rows_come_with_each_batch_that_brings_them_as_in_spark(
    query: Query, job: Job, tmp_path: Path, text: str
) -> None:
    """DISTINCT, UNION and EXCEPT of SQL are aggregations of Spark's: in mode update a row comes again."""
    _same(query, job, tmp_path, "update", text)


_LOOKED_AT = ("ROLLUP(window", "GROUPING SETS ((window", "LEFT JOIN LATERAL (SELECT length")


def test_windows_in_grouping_sets_filters_behind_lateral_joins_and_distinct_rows_of_those_are_translated(
    ckpt: Any, query: Query
) -> None:
    """Their rows are compared by the soak tests."""
    for text in (one for one in MORE_APPEND if any(part in one for part in _LOOKED_AT)):
        ckpt.check(query(text))
    ckpt.check(query(_MORE_UPDATE[0]), "update")


def test_values_are_given_apart_and_state_goes_on(
    spark: SparkSession, ckpt: Any, job: Job, new_input: Callable[[str, str], Input]
) -> None:
    made = new_input("in", "k string, v int")
    text = """SELECT k, sum(v) AS s FROM {rows} WHERE k <> :other AND k <> {none}
              AND v IN (SELECT id FROM {few}) GROUP BY k"""
    few = spark.range(1, 7)
    for values in ((1, 2, 3), (4, 5, 6)):
        made.add(*zip("aab", values, strict=True), ("o'x", 7), ("{", 1))
        job.run(spark.sql(text, {"other": "o'x"}, rows=made.stream(ckpt), none="{", few=few), keys="k")
    assert job.rows() == [("a", 12), ("b", 9)]


def test_tables_of_sub_queries_are_those_there_were(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input], job: Job
) -> None:
    made = new_input("in", "k string")
    made.add(("a",), ("b",))
    spark.range(1).selectExpr("'a' AS k").createOrReplaceTempView("kept")
    found = spark.sql("SELECT k FROM {rows} WHERE k IN (SELECT k FROM kept)", rows=made.stream(ckpt))
    spark.range(1).selectExpr("'b' AS k").createOrReplaceTempView("kept")
    job.run(found)
    spark.catalog.dropTempView("kept")
    assert job.rows() == [("a",)]


def test_views_that_statements_make_and_global_ones_are_streams_still(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input], job: Job
) -> None:
    """In another session, too."""
    made = new_input("in", "k string, v int")
    made.add(("a", 1), ("b", 2))
    made.stream(ckpt).createOrReplaceTempView("some")
    session = spark.newSession()
    session.conf.set("spark.ckpt.dir", spark.conf.get("spark.ckpt.dir") or "")
    try:
        spark.sql("CREATE TEMP VIEW big (a, b) AS SELECT k, v FROM some WHERE v > 1")
        spark.table("big").createGlobalTempView("everywhere")
        rows = session.sql("SELECT e.a, o.k, b FROM global_temp.everywhere e JOIN VALUES ('b', 'x') o(a, k) USING (a)")
        job.run(rows.unionAll(spark.sql("SELECT a, 'here', b FROM big")))
    finally:
        spark.catalog.dropGlobalTempView("everywhere")
        for view in ("big", "some"):
            spark.catalog.dropTempView(view)
    assert job.rows() == [("b", "here", 2), ("b", "x", 2)]


_REFUSED = {
    "SELECT nothing FROM orders": (AnalysisException, "UNRESOLVED_COLUMN"),
    "SELECT 1 AS x FROM labels": (InvalidInputError, "expected a DataFrame that reads a stream"),
    "SELECT o.k, w FROM orders o, LATERAL (SELECT w FROM pays p WHERE p.k = o.k)": (
        AnalysisException,
        "STREAMING_QUERY",
    ),
    "SELECT k FROM labels WHERE k IN (SELECT k FROM pays)": (AnalysisException, "STREAMING_QUERY"),
    "SELECT k, row_number() OVER (ORDER BY v) FROM orders": (
        AnalysisException,
        r"NON_TIME_WINDOW.*row_number\(\) OVER .*QUALIFY",
    ),
    "SELECT k FROM orders EXCEPT SELECT k FROM pays": (AnalysisException, "on the right are not supported"),
    "SELECT k FROM labels EXCEPT SELECT k FROM orders": (AnalysisException, "on the right is not supported"),
    "SELECT k FROM orders EXCEPT ALL SELECT k FROM labels": (AnalysisException, "Except All.*write EXCEPT"),
    "SELECT k FROM labels LEFT JOIN orders USING (k)": (AnalysisException, "LeftOuter join with a streaming"),
    "WITH RECURSIVE r(n) AS (SELECT v FROM orders UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r": (
        InvalidInputError,
        "a recursive WITH over a stream would not end",
    ),
    "SELECT k FROM orders ORDER BY v": (AnalysisException, "Sorting is not supported"),
    "SELECT count_min_sketch(v, 0.5d, 0.5d, 1) FROM orders": (InvalidInputError, "count_min_sketch"),
    "SELECT k FROM orders UNION SELECT k FROM labels": (AnalysisException, "Union between streaming and batch"),
}


def test_what_is_not_there_is_named(ckpt: Any, query: Query) -> None:
    for text, (error, words) in _REFUSED.items():
        with pytest.raises(error, match=words):
            ckpt.check(query(text))
