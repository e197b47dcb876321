"""Settings of the session that change what a pandas function gets and returns, and where a query lives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.execution.session_confs import all_confs
from tests.spark.conftest import Input, Job, named, ordered, rows_of_spark

cloudpickle.register_pickle_by_value(sys.modules[__name__])

NewInput = Callable[[str, str], Input]
PREFER = "spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype"
COERCE = "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled"
ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"
QUOTED = "spark.sql.ansi.doubleQuotedIdentifiers"
OUT = "k string, seen string, n decimal(3,1)"


def _types(frame: pd.DataFrame) -> str:
    return str({c: str(t) for c, t in frame.dtypes.items()}) + str(frame["v"].tolist())


def _per_key(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield pd.DataFrame({"k": [key[0]], "seen": [_types(frame)], "n": [len(frame)]})


def _per_batch(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield pd.DataFrame({"k": ["-"], "seen": [_types(frame)], "n": [Decimal(1)]})
        yield pd.DataFrame({"k": frame["k"], "seen": ["ints"] * len(frame), "n": range(len(frame))})


def _both(df: Any) -> list[Any]:
    grouped = named(df.groupBy("k").applyInPandasWithState(_per_key, OUT, "n long", "append", "NoTimeout"), "both")
    return [grouped, df.mapInPandas(_per_batch, OUT)]


@pytest.mark.parametrize("on", ["true", pytest.param("false", marks=pytest.mark.soak)])
def test_conversions_are_those_the_session_asks_for(
    spark: SparkSession, ckpt: Any, new_input: NewInput, tmp_path: Path, on: str
) -> None:
    data = new_input("in", "k string, v long, i int")
    data.add(("a", 2**53 + 1, 1), ("a", None, 2), ("b", 7, None), ("c", None, None))
    spark.conf.set(PREFER, on)
    spark.conf.set(COERCE, on)
    try:
        queries = zip(_both(data.spark_stream(spark)), _both(data.stream(ckpt)), strict=True)
        for n, (plain, ours) in enumerate(queries):
            expected = _outcome(_of_spark, tmp_path / f"plain-{n}", plain)
            assert _outcome(_of_job, tmp_path / f"ours-{n}", ours) == expected
    finally:
        spark.conf.unset(PREFER)
        spark.conf.unset(COERCE)


def test_what_is_analysed_keeps_the_settings_it_was_made_with(
    spark: SparkSession, ckpt: Any, new_input: NewInput, tmp_path: Path
) -> None:
    """Where Spark does it, too: behind ``soundex`` nothing is in Python, and an aggregate's input may be in either."""
    data = new_input("in", "k string, v long, t timestamp")
    data.add(("7", 2**62, datetime(2026, 3, 28, 22, 30)), ("x", 2**62, datetime(2026, 3, 29, 1, 30)))

    def made(stream: Any) -> Any:
        spark.conf.set(ZONE, "Europe/Berlin")
        spark.conf.set(ANSI, "false")
        rows = stream.withColumn("s", F.soundex("k")).select("*", F.hour("t").alias("h"), F.expr("cast(k AS int) AS n"))
        spark.conf.set(ZONE, "Asia/Tokyo")
        rows = rows.select("n", "h", F.hour("t").alias("h2"), (F.col("v") + F.col("v")).alias("wraps"), "s")
        spark.conf.set(ZONE, "UTC")
        spark.conf.set(ANSI, "true")
        spark.conf.set(QUOTED, "true")
        rows = rows.selectExpr("n", "h", "h2", "wraps", 'coalesce("s", soundex(s)) AS s')
        spark.conf.set(QUOTED, "false")
        return rows

    expected = _of_spark(tmp_path / "plain", made(data.spark_stream(spark)))
    assert expected == [(7, 23, 7, -(2**63), "7"), (None, 3, 10, -(2**63), "X000")]
    assert _of_job(tmp_path / "ours", made(data.stream(ckpt))) == expected
    assert (spark.conf.get(ZONE), spark.conf.get(ANSI)) == ("UTC", "true")


def test_names_stand_for_what_they_stood_for_when_a_dataframe_was_made(
    spark: SparkSession, ckpt: Any, new_input: NewInput, tmp_path: Path
) -> None:
    """As those of a loop, each of which registers its own. Behind it the session has its last ones."""
    data = new_input("in", "k string")
    data.add(("a",), ("b",))

    def named(tag: str, k: str) -> None:
        spark.udf.register("tag", lambda text: tag + text)
        spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION tag2(x STRING) RETURNS STRING RETURN concat('{tag}', x)")
        spark.sql(f"DECLARE OR REPLACE VARIABLE tag3 = '{tag}'")
        spark.sql(f"SELECT '{k}' AS k").createOrReplaceTempView("one")
        spark.sql(f"SELECT '{k}' AS k").createOrReplaceGlobalTempView("one")

    def made(stream: Any) -> Any:
        several = []
        for tag, k in (("1", "a"), ("2", "b")):
            named(tag, k)
            rows = stream.where("k IN (SELECT k FROM one)").selectExpr("*", "(SELECT max(k) FROM global_temp.one) AS m")
            several.append(rows.select("*", F.call_udf("tag", "k"), F.expr("tag2(k)"), F.expr("tag3 || soundex(k)")))
        named("3", "none")
        spark.sql("DROP TEMPORARY FUNCTION tag2")
        spark.catalog.dropGlobalTempView("one")
        return several[0].toDF(*"kmxyz").union(several[1].toDF(*"kmxyz"))

    expected = _of_spark(tmp_path / "plain", made(data.spark_stream(spark)))
    assert expected == [("a", "a", "1a", "1a", "1A000"), ("b", "b", "2b", "2b", "2B000")]
    try:
        assert _of_job(tmp_path / "ours", made(data.stream(ckpt))) == expected
        assert spark.sql("SELECT tag(''), tag3, (SELECT k FROM one)").first() == ("3", "3", "none")
        assert not spark.catalog.functionExists("tag2")
    finally:
        for sql in ("FUNCTION tag", "VARIABLE tag3"):
            spark.sql(f"DROP TEMPORARY {sql}")
        spark.catalog.dropTempView("one")


def _outcome(run: Callable[[Path, Any], list[Any]], folder: Path, df: Any) -> Any:
    """The rows; or that it failed: each has its own words for it."""
    try:
        return run(folder, df)
    except Exception as e:  # noqa: BLE001
        return "decimal" in str(e)


def _of_job(folder: Path, df: Any) -> list[Any]:
    job = Job(folder)
    job.run(df, job=folder.name)
    return job.rows()


def _of_spark(folder: Path, df: Any) -> list[Any]:
    return ordered(rows_of_spark(df, folder))


def test_a_query_lives_where_the_session_says_as_in_spark(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    data = new_input("in", "k string")
    data.add(("a",))
    spark.conf.set("spark.sql.streaming.checkpointLocation", f"file://{tmp_path}/locations/")
    try:
        job.run(data.stream(ckpt))
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert (tmp_path / "locations" / "job" / "offsets" / "0").exists()
    assert not (tmp_path / "jobs" / "job" / "spark").exists()
    data.add(("b",))
    job.run(data.stream(ckpt))  # now at its own location: it goes on from the checkpoint
    assert job.rows() == [("a",), ("b",)]


def test_the_sessions_settings_are_what_pyspark_says_they_are(spark: SparkSession) -> None:
    """They are asked for at once, as a text."""
    odd = 'a "quoted" → value,\n{"of": [lines]} \\ \t'
    spark.conf.set("spark.ckpt.odd", odd)
    found = all_confs(spark.conf)
    assert found == spark.conf.getAll
    assert found["spark.ckpt.odd"] == odd
