"""Rows placed by ranges and by numbers of tasks, beside Spark's own streams over the same files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkTypeError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.conftest import Input, Job, last_result, ordered

SCHEMA = "k string, v int"


def _by_range(df: Any) -> Any:
    return df.repartitionByRange(3, F.col("v").desc(), "k").withColumn("n", F.spark_partition_id() < 3)


def _by_id(df: Any) -> Any:
    return df.repartitionById(4, F.col("v") % 7).withColumn("n", F.spark_partition_id())


def _of_column(df: Any) -> Any:
    return df.where("v is not null").repartitionById(3, "v").withColumn("n", F.spark_partition_id())


@pytest.mark.parametrize("query", [_by_range, *(pytest.param(q, marks=pytest.mark.soak) for q in (_by_id, _of_column))])
def test_rows_are_placed_and_counted_as_in_spark(
    spark: SparkSession, ckpt: Any, job: Job, new_input: Callable[[str, str], Input], tmp_path: Path, query: Any
) -> None:
    made = new_input("in", SCHEMA)
    for batch in range(3):
        made.add(*(("ab"[v % 2], v - 4) for v in range(10 * batch)), (None, 5), ("a", None))
    placed = query(made.stream(ckpt)).groupBy("k", "n").agg(F.count("*").alias("m")).uid("m")
    job.run(placed, keys="k,n")
    plain = query(made.spark_stream(spark)).groupBy("k", "n").agg(F.count("*").alias("m"))
    theirs = last_result(plain, tmp_path / "plain")
    assert len(theirs) > 2
    assert job.rows() == ordered(theirs)


def test_what_spark_refuses_of_places_is_refused(ckpt: Any, new_input: Callable[[str, str], Input]) -> None:
    rows = new_input("in", SCHEMA).stream(ckpt)
    for wrong in (
        lambda: rows.repartitionByRange(3, "nothing"),
        lambda: rows.repartitionById(3, "k"),
        lambda: rows.repartitionById(3, F.col("v").cast("long")),
    ):
        with pytest.raises((AnalysisException, PySparkTypeError)):
            wrong()
