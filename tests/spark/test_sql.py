"""SQL over temporary views of streams, beside ``spark.sql`` over views of Spark's own streams of the same files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkValueError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt.errors import InvalidInputError
from tests.spark.conftest import Input, Job, last_result, ordered, rows_of_spark
from tests.spark.sql_texts import APPEND, COMPLETE, MORE_APPEND, MORE_COMPLETE

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
soak = pytest.mark.soak


def _rows(first: int, n: int) -> list[tuple[Any, ...]]:
    minutes = [timedelta(minutes=i + first) for i in range(n)]
    return [("abc"[i % 3] if i % 7 else None, i - 4, BEGIN + at, [i, 1]) for i, at in enumerate(minutes)]


@pytest.fixture
def inputs(spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input]) -> Any:
    """Views ``orders`` and ``pays`` of streams, theirs and ours, and ``labels`` of a table."""
    orders = new_input("orders", "k string, v int, t timestamp, xs array<int>")
    pays = new_input("pays", "k string, w int, u timestamp")
    for batch in range(3):
        orders.add(*_rows(30 * batch, 12))
        pays.add(*((k or "d", v, t + timedelta(minutes=1)) for k, v, t, _ in _rows(30 * batch, 6)))
    streams = ((orders.stream(ckpt), pays.stream(ckpt)), (orders.spark_stream(spark), pays.spark_stream(spark)))
    for one, other in streams:
        one.withWatermark("t", "5 minutes").createOrReplaceTempView("Orders")
        other.withWatermark("u", "5 minutes").createOrReplaceTempView("pays")
    labels = spark.createDataFrame([("a", "one"), ("b", "two"), ("z", None)], "k string, label string")
    labels.createOrReplaceTempView("labels")
    yield orders
    for view in ("orders", "pays", "labels"):
        spark.catalog.dropTempView(view)
        ckpt.dropTempView(view)


def _same(spark: SparkSession, ckpt: Any, job: Job, folder: Path, mode: str, text: str) -> None:
    mine, theirs = ckpt.sql(text), spark.sql(text)
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


@pytest.mark.parametrize("text", [*APPEND, *(pytest.param(q, marks=soak) for q in MORE_APPEND)])
def test_rows_are_those_of_spark(
    spark: SparkSession, ckpt: Any, job: Job, inputs: Any, tmp_path: Path, text: str
) -> None:
    _same(spark, ckpt, job, tmp_path, "append", text)


@pytest.mark.parametrize("text", [*COMPLETE, *(pytest.param(q, marks=soak) for q in MORE_COMPLETE)])
def test_whole_results_are_those_of_spark(
    spark: SparkSession, ckpt: Any, job: Job, inputs: Any, tmp_path: Path, text: str
) -> None:
    _same(spark, ckpt, job, tmp_path, "complete", text)


_UPDATE = ("SELECT DISTINCT k, v % 2 AS p FROM orders",)
_MORE_UPDATE = (
    "SELECT k, v % 3 FROM orders EXCEPT (SELECT k, length(label) - 3L FROM labels) MINUS SELECT k, 1 FROM labels",
    "SELECT k, v % 2 AS p FROM orders WHERE v > 0 UNION SELECT k, w % 2 FROM pays",
)


@pytest.mark.parametrize("text", [*_UPDATE, *(pytest.param(q, marks=soak) for q in _MORE_UPDATE)])
def test_distinct_rows_come_with_each_batch_that_brings_them_as_in_spark(
    spark: SparkSession, ckpt: Any, job: Job, inputs: Any, tmp_path: Path, text: str
) -> None:
    """DISTINCT, UNION and EXCEPT of SQL are aggregations of Spark's: in mode update a row comes again."""
    _same(spark, ckpt, job, tmp_path, "update", text)


def test_values_are_given_apart_and_state_goes_on(
    spark: SparkSession, ckpt: Any, job: Job, new_input: Callable[[str, str], Input]
) -> None:
    made = new_input("in", "k string, v int")
    text = """SELECT k, sum(v) AS s FROM {rows} WHERE k <> :other AND k <> {none}
              AND v IN (SELECT id FROM {few}) GROUP BY k"""
    few = spark.range(1, 7)
    for values in ((1, 2, 3), (4, 5, 6)):
        made.add(*zip("aab", values, strict=True), ("o'x", 7), ("{", 1))
        job.run(ckpt.sql(text, {"other": "o'x"}, rows=made.stream(ckpt), none="{", few=few), keys="k")
    assert job.rows() == [("a", 12), ("b", 9)]
    by_place = ckpt.sql("SELECT k FROM {rows} WHERE v > ? AND k < ?", [2, "b"], rows=made.stream(ckpt))
    assert by_place.columns == ["k"]
    rows = made.stream(ckpt)
    named = ckpt.sql("SELECT {k}, {v} FROM {rows} WHERE {v} > 1", rows=rows, k=F.col("k"), v=rows["v"])
    assert named.dtypes == rows.select("k", "v").dtypes
    with pytest.raises(PySparkValueError, match="VALUE_NOT_PLAIN_COLUMN_REFERENCE"):
        ckpt.sql("SELECT {more} FROM {rows}", rows=rows, more=rows["v"] + 1)


def test_tables_of_sub_queries_are_those_there_were(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input], job: Job
) -> None:
    made = new_input("in", "k string")
    made.add(("a",), ("b",))
    spark.range(1).selectExpr("'a' AS k").createOrReplaceTempView("kept")
    found = ckpt.sql("SELECT k FROM {rows} WHERE k IN (SELECT k FROM kept)", rows=made.stream(ckpt))
    spark.range(1).selectExpr("'b' AS k").createOrReplaceTempView("kept")
    job.run(found)
    spark.catalog.dropTempView("kept")
    assert job.rows() == [("a",)]


def test_views_come_and_go(spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input]) -> None:
    rows = new_input("in", "k string, v int").stream(ckpt)
    rows.createTempView("Mine")
    with pytest.raises(AnalysisException, match="TEMP_TABLE_OR_VIEW_ALREADY_EXISTS"):
        rows.createTempView("mine")
    rows.select("v").createOrReplaceTempView("mine")
    assert spark_ckpt.enable(spark).sql("SELECT * FROM mine").columns == ["v"]
    assert ckpt.dropTempView("MINE")
    assert not ckpt.dropTempView("mine")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        ckpt.sql("SELECT * FROM mine")


def test_a_view_is_made_of_a_query_and_other_commands_are_not_run(
    spark: SparkSession, ckpt: Any, inputs: Input
) -> None:
    assert ckpt.sql("CREATE OR REPLACE TEMP VIEW Big (a, b) AS SELECT k, v FROM orders WHERE v > 1").columns == []
    try:
        assert ckpt.sql("SELECT b FROM big").columns == ["b"]
        with pytest.raises(AnalysisException, match="TEMP_TABLE_OR_VIEW_ALREADY_EXISTS"):
            ckpt.sql("CREATE TEMPORARY VIEW big AS FROM orders |> WHERE v > 1")
    finally:
        assert ckpt.dropTempView("big")
    for text in ("DROP VIEW labels", "CREATE VIEW v AS SELECT * FROM orders", "FROM orders INSERT INTO t SELECT k"):
        with pytest.raises(InvalidInputError, match=f"found {text.split()[0]}: other commands are ckpt.spark.sql's"):
            ckpt.sql(text)
    assert spark.table("labels").count() == 3


def test_global_views_are_known_to_all_sessions(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input], job: Job
) -> None:
    made = new_input("in", "k string, v int")
    made.add(("a", 1), ("b", 2))
    rows = made.stream(ckpt)
    rows.createGlobalTempView("Everywhere")
    spark.range(1).selectExpr("'a' AS k").createOrReplaceGlobalTempView("static_one")
    try:
        with pytest.raises(AnalysisException, match="TEMP_TABLE_OR_VIEW_ALREADY_EXISTS"):
            rows.createGlobalTempView("everywhere")
        session = spark.newSession()
        session.conf.set("spark.ckpt.dir", spark.conf.get("spark.ckpt.dir") or "")
        other = spark_ckpt.enable(session)
        assert other.sql("SELECT v FROM global_temp.everywhere").columns == ["v"]
        assert other.table("global_temp.Everywhere") is rows
        assert ckpt.table("global_temp.static_one").collect()[0].k == "a"
        found = ckpt.sql(
            "SELECT everywhere.k, v, 'global_temp.everywhere' AS s FROM GLOBAL_TEMP.`everywhere` "
            "JOIN global_temp.static_one o ON o.k = everywhere.k"
        )
        job.run(found)
        assert job.rows() == [("a", 1, "global_temp.everywhere")]
        rows.select("v").createOrReplaceTempView("everywhere")
        with pytest.raises(InvalidInputError, match="there is a view everywhere of this session, too"):
            ckpt.sql("SELECT * FROM global_temp.everywhere")
    finally:
        ckpt.dropTempView("everywhere")
        spark.catalog.dropGlobalTempView("static_one")
        assert ckpt.dropGlobalTempView("everywhere")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        ckpt.table("global_temp.everywhere")


_REFUSED = {
    "SELECT k FROM orders WHERE": (ParseException, "PARSE_SYNTAX_ERROR"),
    "SELECT nothing FROM orders": (AnalysisException, "UNRESOLVED_COLUMN"),
    "SELECT k, v FROM orders GROUP BY k": (AnalysisException, "MISSING_AGGREGATION"),
    "SELECT 1 AS x FROM labels": (InvalidInputError, "no view of a checkpointed stream"),
    "SELECT o.k, w FROM orders o, LATERAL (SELECT w FROM pays p WHERE p.k = o.k)": (
        AnalysisException,
        "STREAMING_QUERY",
    ),
    "SELECT k, x FROM orders LATERAL VIEW explode(k) e AS x": (AnalysisException, "DATATYPE_MISMATCH"),
    "SELECT k FROM orders WHERE k IN (SELECT k FROM pays)": (AnalysisException, "STREAMING_QUERY"),
    "SELECT k FROM labels WHERE k IN (SELECT k FROM pays)": (AnalysisException, "STREAMING_QUERY"),
    "SELECT k FROM orders WHERE k IN (SELECT nothing FROM labels)": (AnalysisException, "UNRESOLVED_COLUMN"),
    "SELECT k, row_number() OVER (ORDER BY v) FROM orders": (InvalidInputError, "window function"),
    "SELECT k FROM orders EXCEPT SELECT k FROM pays": (AnalysisException, "on the right is not supported"),
    "SELECT k FROM labels EXCEPT SELECT k FROM orders": (AnalysisException, "on the right is not supported"),
    "SELECT k FROM orders EXCEPT ALL SELECT k FROM labels": (InvalidInputError, "EXCEPT ALL"),
    "SELECT k FROM labels LEFT JOIN orders USING (k)": (InvalidInputError, "a left join with a stream"),
    "SELECT k FROM orders TABLESAMPLE (10 PERCENT)": (InvalidInputError, r"TABLESAMPLE \(10 PERCENT\) of a stream"),
    "WITH RECURSIVE r(n) AS (SELECT v FROM orders UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r": (
        InvalidInputError,
        "RECURSIVE r: it reads a stream",
    ),
    "FROM orders |> SET v = 1": (InvalidInputError, "pipe operator SET"),
    "SELECT k FROM orders ORDER BY v": (InvalidInputError, "orderBy"),
    "SELECT count_min_sketch(v, 0.5d, 0.5d, 1) FROM orders": (InvalidInputError, "count_min_sketch"),
    "VALUES (1), (2)": (InvalidInputError, "reads no view of a checkpointed stream"),
    "SELECT k FROM orders UNION SELECT k FROM labels": (InvalidInputError, "UNION of a stream with a table"),
}


def test_what_is_not_there_is_named(spark: SparkSession, ckpt: Any, inputs: Any) -> None:
    for text, (error, words) in _REFUSED.items():
        with pytest.raises((error, InvalidInputError), match=f"(?i){words}"):
            ckpt.sql(text)


def test_a_table_may_stand_in_front_of_the_stream(spark: SparkSession, ckpt: Any, inputs: Input) -> None:
    joined = ckpt.sql("SELECT l.*, o.v FROM labels l RIGHT JOIN orders o ON l.k = o.k")
    assert joined.columns == ["k", "label", "v"]
