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

from spark_ckpt.errors import InvalidInputError
from tests.spark.conftest import Input, Job, rows_of_spark
from tests.spark.test_window_columns import BASE, SCHEMA, _flat

NewInput = Callable[[str, str], Input]


def _windows(df: Any, **uid: str) -> Any:
    """A value without rows has no result, not a count of 0; null is a value."""
    late = df.withWatermark("t", "1 minute").groupBy(F.window("t", "10 minutes"), (F.col("v") % 2).alias("odd"))
    return late.pivot("k", ["b", "x", None]).agg(F.sum("v").alias("s"), F.count(F.lit(1)), F.avg("v") > 3, **uid)


def _event_times(df: Any, **uid: str) -> Any:
    return df.withWatermark("t", "1 minute").groupBy("t").pivot("k", ["a", "b"]).sum("v", **uid)


@pytest.mark.parametrize("query", [_windows, pytest.param(_event_times, marks=pytest.mark.soak)])
def test_each_value_has_the_columns_that_spark_gives_it(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, query: Any
) -> None:
    made = new_input("in", SCHEMA)
    for minutes in ((0, 4, 7, 3), (31, 12, 59), (3, 90, 191)):
        rows = [(BASE + timedelta(minutes=m), "abc"[m % 3], m) for m in minutes]
        made.add(*rows, (None, "a", 0), (BASE + timedelta(minutes=minutes[0]), None, 1))
    ours, plain = query(made.stream(ckpt), uid="wide"), query(made.spark_stream(spark))
    assert ours.schema.simpleString() == plain.schema.simpleString()
    job.run(ours)
    theirs = rows_of_spark(plain, tmp_path / "plain")
    assert len(theirs) > 4
    assert _flat(job.rows()) == _flat(row.asDict(recursive=True).values() for row in theirs)


def test_what_spark_refuses_of_a_pivot_is_refused_with_what_to_write(ckpt: Any, new_input: NewInput) -> None:
    rows = new_input("in", SCHEMA).stream(ckpt)
    windows = rows.withWatermark("t", "1 minute").groupBy(F.window("t", "10 minutes"))
    for wrong, kind, said in (
        (lambda: rows.groupBy("v").pivot("k"), AnalysisException, "_LEGACY_ERROR_TEMP_3063.*give them"),
        (lambda: rows.groupBy("v").pivot("k", ["a"]).count(), AnalysisException, "Without one, one aggregate for each"),
        (lambda: windows.pivot("nope", ["a"]), AnalysisException, "UNRESOLVED_COLUMN"),
        (lambda: windows.pivot("k", ["a"]).agg(F.max("k")), InvalidInputError, "has type string"),
    ):
        with pytest.raises(kind, match=said):
            wrong()
