"""Windows in columns, beside Spark's own streams over the same files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.conftest import Input, Job, ordered, rows_of_spark

NewInput = Callable[[str, str], Input]
BASE = datetime(2024, 3, 10, 12, tzinfo=timezone.utc)
SCHEMA = "t timestamp, k string, v int"


def _one(df: Any) -> Any:
    """All forms that need no other rows, one behind the other; each shows what Spark calls it."""
    sliding = F.window("t", "10 minutes", "4 minutes", "1 minute")
    several = df.select("*", sliding).withColumn("w", F.window(F.col("t") + F.expr("interval 1 day"), "1 hour"))
    timed = several.withColumn("wt", F.window_time("w")).drop("t").select("k", "v", "window", "w", "wt")
    return timed.selectExpr("k", "v", "window", "date_format(window(wt, '2 hours').end, 'HH:mm') as text", "w.start")


def _gaps(df: Any) -> Any:
    return df.select(F.session_window("t", F.when(F.col("v") > 50, "0 seconds").otherwise("5 minutes")), "v")


def _named(df: Any) -> Any:
    return df.select(F.window("t", "10 minutes").start, "k", F.struct(F.window("t", "10 minutes").alias("w"), "v"))


def _counted(df: Any) -> Any:
    """By event time: windows come out when the watermark passes their end, and rows of those are late."""
    windows = df.withWatermark("t", "1 minute").select("k", F.window("t", "10 minutes", "5 minutes").alias("w"))
    return windows.where("k is not null").groupBy("w", "k").agg(F.count("*").alias("n"))


def _where(df: Any) -> Any:
    """The window is then among the columns, which no projection has left out."""
    late = (F.window("t", "10 minutes", "5 minutes").end > F.lit(BASE)) & (F.col("v") > 3)
    behind = (
        df.withWatermark("t", "1 minute")
        .where(late)
        .select("*", F.window_time("window").alias("wt"))
        .drop("t", "window")
    )
    return behind[F.expr("window(wt, '1 hour').start") < F.lit(BASE + timedelta(hours=1))]


def _left_out(df: Any) -> Any:
    late = F.session_window("t", "5 minutes").end > F.lit(BASE + timedelta(minutes=10))
    return df.select("v").where(late).alias("b").where(F.col("b.v") > 3).select("b.v")


def _by_alias(df: Any) -> Any:
    named = df.alias("a").where(F.window("a.t", "10 minutes").start >= F.lit(BASE)).select("a.k", "a.v", "a.t")
    return named.alias("b").select("b.v", F.window("b.t", "1 hour").start, "b.k")


def _within_keys(df: Any) -> Any:
    """And within aggregates."""
    window = F.window("t", "10 minutes", "5 minutes")
    text, late = F.date_format(window.start, "HH:mm").alias("from"), df.withWatermark("t", "1 minute")
    return late.groupBy(window.end, text, "k").agg(F.count("*").alias("n"), F.max(window.start), F.sum("v"))


def _beside_itself(df: Any) -> Any:
    """Windows come out when they end."""
    window = F.window("t", "10 minutes")
    text = F.date_format(F.window_time(window), "mm:ss")
    timed = df.withWatermark("t", "1 minute").groupBy(window.alias("w"), window.start.alias("s"), text, window)
    return timed.agg(F.count("*").alias("n"))


def _theirs(df: Any, folder: Path, mode: str = "append") -> list[tuple[Any, ...]]:
    return _flat(row.asDict(recursive=True).values() for row in rows_of_spark(df, folder, mode))


def _flat(rows: Any) -> list[tuple[Any, ...]]:
    """Times as moments: those of Spark's rows have no zone."""
    return ordered(tuple(map(_plain, row)) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(_plain(part) for part in value.values())
    return value.timestamp() if isinstance(value, datetime) else value


SOAKED = (_gaps, _named, _left_out, _by_alias, _beside_itself)


@pytest.mark.parametrize(
    "query", [_one, _where, _within_keys, *(pytest.param(q, marks=pytest.mark.soak) for q in (_counted, *SOAKED))]
)
def test_rows_are_in_the_windows_that_spark_puts_them_into(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, query: Any
) -> None:
    made = new_input("in", SCHEMA)
    for minutes in ((0, 4, 5), (31, 12, 59), (3, 90, 91)):
        made.add(*((BASE + timedelta(minutes=m), "ab"[m % 2], m) for m in minutes), (None, "a", 0))
    ours, plain = query(made.stream(ckpt)), query(made.spark_stream(spark))
    assert ours.schema.simpleString() == plain.schema.simpleString()
    mode = "update" if query is _within_keys else "append"
    job.run(ours, mode=mode)
    theirs = _theirs(plain, tmp_path / "plain", mode)
    assert len(theirs) > 3
    assert _flat(job.rows()) == theirs


def test_an_earlier_window_inside_aggregates_is_the_rows_own(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path
) -> None:
    made = new_input("in", SCHEMA)
    for minutes in ((0, 4, 31, 12), (59, 150)):
        made.add(*((BASE + timedelta(minutes=m), "ab"[m % 2], m) for m in minutes))

    def hours(df: Any) -> Any:
        timed = df.withWatermark("t", "1 minute").groupBy(F.window("t", "10 minutes")).agg(F.count("*").alias("n"))
        ends = F.max("window.end").alias("end"), F.sum("n").alias("n")
        return timed.groupBy(F.window(F.window_time("window"), "1 hour")).agg(*ends)

    job.run(hours(made.stream(ckpt)))
    theirs = _theirs(hours(made.spark_stream(spark)), tmp_path / "plain")
    assert [row[-1] for row in theirs] == [5]
    assert _flat(job.rows()) == theirs


def test_what_spark_refuses_of_windows_in_columns_is_refused(ckpt: Any, new_input: NewInput) -> None:
    rows = new_input("in", SCHEMA).stream(ckpt)
    for wrong, said in (
        (lambda: rows.select(F.window("t", "1 hour"), F.window("t", "2 hours").alias("b")), "cartesian product"),
        (lambda: rows.select(F.window("x", "1 hour")), "UNRESOLVED_COLUMN"),
        (lambda: rows.where(F.window("x", "1 hour").start > F.lit(BASE)), "UNRESOLVED_COLUMN"),
        (lambda: rows.where(F.window("t", "1 hour").start), "FILTER_NOT_BOOLEAN"),
        (
            lambda: rows.groupBy(F.window("t", "1 hour").start, F.window("t", "2 hours").end).count(),
            "cartesian product",
        ),
        (lambda: rows.groupBy(F.window("t", "1 hour").x).count(), "FIELD_NOT_FOUND"),
    ):
        with pytest.raises(AnalysisException, match=said):
            wrong()
