"""Structs with fields that are never null, and are null themselves: behind outer joins, in control rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.conftest import Input, Job, ordered

NewInput = Callable[[str, str], Input]


ROWS = [[("a", 1), ("b", None), (None, 3)], [("a", 5), ("c", 2)]]


def nested(df: Any, spark: SparkSession) -> Any:
    """Structs of every origin. ``df``: "k string, v int"."""
    known = spark.createDataFrame([("a",)], "k string").select("k", F.struct(F.lit(1).alias("one")).alias("known"))
    some = F.when(F.col("v") > 2, F.struct(F.lit("x").alias("x"), F.array(F.lit(1)).alias("y")))
    joined = df.join(known, "k", "left").withColumn("some", some).dropDuplicates(["k", "v"])
    set_of = F.collect_set(F.struct(F.coalesce("v", F.lit(0)).alias("v"), "k"))
    one = F.max("known").alias("known"), F.max("some.x").alias("x"), F.sort_array(set_of).alias("set")
    kept = joined.withColumn("one", F.col("known.one"))
    return kept.groupBy("k").agg(*one, F.max_by("some", "v").alias("some"), F.max("one").alias("one"))


def test_a_struct_whose_fields_are_never_null_may_be_null(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job
) -> None:
    data = new_input("in", "k string, v int")
    for batch in ROWS:
        data.add(*batch)
    expected = [row.asDict(recursive=True) for row in nested(data.table(spark), spark).collect()]  # toArrow fails, too
    job.run(nested(data.stream(ckpt), spark), "k", mode="update")
    assert job.rows() == ordered(tuple(row.values()) for row in expected)
    assert {row["k"]: row["some"] for row in expected} == {
        "a": {"x": "x", "y": [1]}, "b": None, None: {"x": "x", "y": [1]}, "c": None,
    }  # fmt: skip
