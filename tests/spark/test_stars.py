"""A star inside a function: the user's columns and no others, as in Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.conftest import Input, Job, ordered

NewInput = Callable[[str, str], Input]

ROWS = {
    "struct": lambda df: df.select(F.to_json(F.struct("*")).alias("value")),
    "column": lambda df: df.withColumn("hash", F.xxhash64("*")),
    "text": lambda df: df.selectExpr("k", "to_json(struct(*)) AS value"),
    "texts": lambda df: df.select(F.expr("concat_ws('-', *)").alias("x"), "*"),
    "several": lambda df: df.select("*", F.struct(F.col("*")).getField("v").alias("again"), F.hash("*") % 7),
    "filter": lambda df: df.where(F.hash("*") == F.hash("k", "v")).where("xxhash64(*) <> 0"),
    "alias": lambda df: df.alias("a").select(F.to_json(F.struct("a.*")).alias("x"), "a.*"),
    "alias of a struct": lambda df: df.alias("a").select(F.struct("a.*").alias("a")).where("a.v > 1").select("a.*"),
    "product": lambda df: df.select((F.col("v") * 2).alias("twice")),
}
GROUPS = {
    "aggregate": lambda df: df.groupBy("k").agg(F.max(F.struct("*")).alias("m"), F.count("*").alias("n")),
    "counts": lambda df: df.groupBy("k").agg(
        F.count("*").alias("n"), F.expr("count(*)").alias("m"), F.expr("count(DISTINCT *)").alias("d")
    ),
}


QUICK = ("struct", "alias of a struct", "counts")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.soak) for n in ROWS | GROUPS])
def test_a_star_inside_a_function_stands_for_the_users_columns(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, name: str
) -> None:
    data, query = new_input("in", "k string, v int"), {**ROWS, **GROUPS}[name]
    data.add(("a", 1), ("b", None), (None, 3), ("a", 1))
    stream, wanted = query(data.stream(ckpt)), query(data.table(spark))
    assert stream.columns == wanted.columns
    mode = {"mode": "update"} if name in GROUPS else {}
    job.run(stream, wanted.columns[0] if name in GROUPS else None, **mode)
    found = [tuple(tuple(v.values()) if isinstance(v, dict) else v for v in row) for row in job.rows()]
    expected = [tuple(tuple(v) if isinstance(v, tuple) else v for v in row) for row in wanted.collect()]
    assert ordered(found) == ordered(expected)
