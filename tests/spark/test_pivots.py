"""``pivot`` with its values, beside Spark's own streams over the same files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.conftest import Input, Job, batches_of_spark, rows_of_spark
from tests.spark.test_window_columns import BASE, SCHEMA, _flat

NewInput = Callable[[str, str], Input]


def _windows(df: Any) -> Any:
    """A value without rows has no result, not a count of 0; null is a value."""
    late = df.withWatermark("t", "1 minute").groupBy(F.window("t", "10 minutes"), (F.col("v") % 2).alias("odd"))
    return late.pivot("k", ["b", "x", None]).agg(F.sum("v").alias("s"), F.count(F.lit(1)), F.avg("v") > 3)


def _event_times(df: Any) -> Any:
    return df.withWatermark("t", "1 minute").groupBy("t").pivot("k", ["a", "b"]).sum("v")


def _others(df: Any) -> Any:
    """Aggregated once, as some are no numbers: a value without rows has a count of 0, and no elements."""
    late = df.withWatermark("t", "1 minute").groupBy(F.window("t", "10 minutes"), (F.col("v") % 2).alias("odd"))
    text, late_text = F.concat("k", F.col("v").cast("string")), F.expr("nullif(concat(k, v), 'a0')")
    return late.pivot("k", ["b", None, 1.5]).agg(
        *(F.max(text).alias("m"), F.first(late_text), F.last(late_text), F.min("t"), F.max(F.struct("v", text))),
        *(F.count(F.lit(1)), F.sum("v"), F.expr("count(1) FILTER (WHERE v > 9)")),
        *(F.collect_list("v"), F.expr("collect_list(k) RESPECT NULLS"), F.expr("first(k) FILTER (WHERE v > 9)")),
        *(F.max(F.make_dt_interval(F.lit(1), F.col("v"))), F.max(F.array("v")), F.concat(F.max(text), F.min(text))),
    )


@pytest.mark.parametrize(
    "query", [_windows, *(pytest.param(q, marks=pytest.mark.soak) for q in (_others, _event_times))]
)
def test_each_value_has_the_columns_that_spark_gives_it(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, query: Any
) -> None:
    made = new_input("in", SCHEMA)
    for minutes in ((0, 4, 7, 3), (31, 12, 59), (3, 90, 191)):
        rows = [(BASE + timedelta(minutes=m), "abc"[m % 3], m) for m in minutes]
        made.add(*rows, (None, "a", 0), (BASE + timedelta(minutes=minutes[0]), None, 1))
    ours, plain = query(made.stream(ckpt)).uid("wide"), query(made.spark_stream(spark))
    assert ours.schema.simpleString() == plain.schema.simpleString()
    job.run(ours)
    theirs = rows_of_spark(plain, tmp_path / "plain")
    assert len(theirs) > 4
    assert _flat(job.rows()) == _flat(row.asDict(recursive=True).values() for row in theirs)


def _without_windows(df: Any) -> Any:
    """By a value of another type than the column, which Spark casts to it: 1.5 is 1."""
    return df.groupBy("k").pivot("v", [1.5, "0", None]).agg(F.max("t"), F.any_value("v").isNotNull())


@pytest.mark.parametrize("mode", ["complete", pytest.param("update", marks=pytest.mark.soak)])
def test_results_that_are_no_numbers_need_no_windows(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, mode: str
) -> None:
    made = new_input("in", SCHEMA)
    for minutes in ((0, 1, 7, 3), (1, 0, 2)):
        made.add(*((BASE + timedelta(minutes=m + 9), "ab"[m % 2], m) for m in minutes), (BASE, "a", None))
    ours, plain = _without_windows(made.stream(ckpt)), _without_windows(made.spark_stream(spark))
    assert ours.schema.simpleString() == plain.schema.simpleString()
    job.run(ours, mode=mode)
    batches = batches_of_spark(plain, tmp_path / "plain", mode)
    theirs = batches[-1] if mode == "complete" else [row for batch in batches for row in batch]
    assert theirs
    assert _flat(job.rows()) == _flat(row.asDict(recursive=True).values() for row in theirs)


def test_what_spark_refuses_of_a_pivot_is_refused_with_what_to_write(ckpt: Any, new_input: NewInput) -> None:
    rows = new_input("in", SCHEMA).stream(ckpt)
    windows = rows.withWatermark("t", "1 minute").groupBy(F.window("t", "10 minutes"))
    for wrong, kind, said in (
        (lambda: rows.groupBy("v").pivot("k"), AnalysisException, "pivot is not supported on a streaming"),
        (
            lambda: rows.groupBy("v").pivot("k", ["a"]).count(),
            AnalysisException,
            "Without one, write one aggregate",
        ),
        (lambda: windows.pivot("nope", ["a"]), AnalysisException, "UNRESOLVED_COLUMN"),
        (lambda: rows.groupBy("v").pivot("k", ["a"]).agg(F.listagg("k")), AnalysisException, "NON_FOLDABLE_INPUT"),
    ):
        with pytest.raises(kind, match=said):
            ckpt.check(wrong(), "update")
