"""Expressions that fail where columns are null do so in data rows only: control rows, all of whose columns are null, do
not end a query that Spark's own stream runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from tests.spark.conftest import DEADLINE_S, Input, Job, last_result, ordered, rows_of_spark, wait_until

NewInput = Callable[[str, str], Input]
SCHEMA = "k string, v long, a array<string>"
ROWS = [[("1", 1, ["x"]), ("2", 2, [])], [("3", 3, None)]]


def columns() -> dict[str, Any]:
    """Each fails if ``k`` or ``v`` is null."""
    checked = F.when(F.col("v") > 0, F.col("v")).otherwise(F.raise_error("v has to be above 0"))
    one = F.create_map("k", "v")
    return {
        "m": one,
        "entries": F.map_from_entries(F.array(F.struct("k", "v"))),
        "arrays": F.map_from_arrays(F.array("k"), F.array("v")),
        "both": F.map_concat(F.create_map(F.lit("z"), F.col("v")), one),
        "keys": F.transform_keys(F.create_map(F.lit("z"), F.col("v")), lambda k, v: F.concat(k, F.col("k"))),
        "checked": checked,
        "asserted": F.assert_true(F.col("v") > 0),
        "number": F.coalesce("k", F.lit("none")).cast("int"),
        "in_sql": F.expr("if(v > 0, v, raise_error('v'))"),
        "size": F.size(one),
    }


def query(df: Any) -> Any:
    """In ``select`` with and without names, in ``withColumns``, behind each other, in generators and aggregates."""
    named = columns()
    wide = df.withColumns(named).withColumn("again", F.create_map("k", "checked"))
    # Maps and lists are texts: rows are compared in an order.
    texts = wide.select("k", *[F.to_json(F.struct(name)).alias(name) for name in (*named, "again")])
    unnamed = df.select("k", F.create_map("k", "v")).select("k", F.col("map(k, v)")["1"].alias("first"))
    several = df.select("k", F.explode(F.map_from_arrays(F.array("k"), F.array("v"))))
    key = F.when(F.col("v") < 3, "few").when(F.col("v") < 9, "more").otherwise(F.raise_error("9")).alias("key")
    totals = df.groupBy(key).agg(F.max(named["checked"]), F.sum(F.size(F.create_map("k", "v"))), F.max(1 / F.col("v")))
    filled = df.fillna({"v": 0, "k": "none"}).repartition(2, F.create_map("k", "v")[F.col("k")])
    parts = filled.select(F.col("k").cast("int").alias("n"), (F.lit(1) / F.col("v")).alias("part"))
    return texts, unnamed, several, totals, parts, _joined(df), _functions(df), _sorted(df)


def _joined(df: Any) -> Any:
    """With tables, by a look-up and by what each pair is asked, and with itself."""
    spark = df.sparkSession
    plus_one = F.udf(_one_more, LongType(), useArrow=False)
    words = spark.createDataFrame([(1, "one"), (2, "two")], "id long, word string")
    one = F.element_at(F.create_map("k", "v"), F.col("k"))
    found = df.join(words, (one == F.col("id")) & (F.size(F.create_map("k", "word")) > 0), "left")
    found = found.join(words.withColumnRenamed("id", "i"), plus_one("v") == F.col("i"), "left_anti")
    found = found.join(words.withColumnRenamed("id", "j"), F.when(one > 0, one) >= F.col("j"), "left_semi").drop("a")
    other = df.select(F.col("k").alias("k2"), F.col("v").alias("v2"))
    by = one == F.element_at(F.create_map("k2", "v2"), F.col("k2"))
    return found.join(other, by & (F.coalesce("k", F.lit("none")).cast("int") > 0))


def _sorted(df: Any) -> Any:
    one = F.element_at(F.create_map("k", "v"), F.col("k"))
    return df.groupBy("k").agg(F.sum("v").alias("v")).orderBy(one.desc(), F.create_map("k", "v")["x"]).limit(2)


def _one_more(v: int) -> int:
    return v + 1


def _two_more(v: pd.Series) -> pd.Series:
    return v + 2


def _functions(df: Any) -> Any:
    """What is around functions, and what they get."""
    plus_one, plus_two = F.udf(_one_more, LongType(), useArrow=False), F.pandas_udf(_two_more, LongType())
    one = F.element_at(F.create_map("k", "v"), F.col("k"))
    checked = F.when(plus_one("v") > 1, plus_two("v")).otherwise(F.raise_error("v"))
    pairs = F.explode(F.create_map(F.col("k"), plus_one("v"))).alias("key", "value")
    return df.select("k", plus_one(one), checked.alias("checked"), pairs).where(plus_two("value") > 3)


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=[] if n == 0 else [pytest.mark.soak], id=str(n)) for n in range(8)]
)
def test_what_fails_on_nulls_is_computed_for_data_rows_only(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path, number: int
) -> None:
    data = new_input("in", SCHEMA)
    for rows in ROWS:
        data.add(*rows)
    mode = {3: "update", 7: "complete"}.get(number, "append")
    plain = query(data.spark_stream(spark))[number]
    expected = last_result(plain, tmp_path / "spark") if number == 7 else rows_of_spark(plain, tmp_path / "spark", mode)
    ours = query(data.stream(ckpt))[number]
    assert ours.columns == query(data.spark_stream(spark))[number].columns
    running = job.start(ours, now=False, mode=mode)
    running.checkpoint()  # a barrier in the middle
    wait_until(lambda: running.checkpoint() and len(job.rows()) == len(expected), running)
    running.stop()
    assert job.rows() == ordered(expected)


def test_data_rows_still_fail(ckpt: Any, new_input: NewInput, job: Job) -> None:
    data = new_input("in", SCHEMA)
    data.add(("1", 0, None))
    running = job.start(data.stream(ckpt).withColumn("checked", columns()["checked"]))
    with pytest.raises(StreamingQueryException, match="v has to be above 0"):
        running.awaitTermination(DEADLINE_S)
