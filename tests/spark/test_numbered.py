"""``zipWithIndex``: each batch's rows are numbered from 0, and control rows take no number of theirs."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.conftest import Job, rows_of_spark
from tests.spark.test_window_columns import NewInput

AT = datetime(2024, 5, 1, tzinfo=timezone.utc)


@pytest.mark.soak
def test_rows_of_each_batch_have_the_numbers_that_spark_gives_them(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path
) -> None:
    """Of both, as what is counted has to be the number itself; in several tasks, around a barrier and a restart."""

    def counts(df: Any) -> Any:
        some = df.withWatermark("t", "1 hour").where("v >= 0").repartition(3).zipWithIndex("n.th")
        return some.groupBy("`n.th`").agg(F.count("*").alias("rows"), F.max("t"))

    made = new_input("in", "k string, v int, t timestamp")
    ours, plain = counts(made.stream(ckpt)), counts(made.spark_stream(spark))
    assert ours.schema.simpleString() == plain.schema.simpleString()
    for rows in ([5, 3], [0, 1]):
        for n in rows:
            made.add(*((None if i % 2 else "a", i - 1, AT) for i in range(n)))
        job.run(ours, keys="n.th")
    theirs = {row[0]: row[1] for row in rows_of_spark(plain, tmp_path / "plain", "update")}
    assert {row[0]: row[1] for row in job.rows()} == theirs == {0: 2, 1: 2, 2: 1, 3: 1}


@pytest.mark.soak
def test_rows_keep_their_columns_and_are_in_the_order_of_tasks(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path
) -> None:
    made = new_input("in", "k string, v int, t timestamp")
    for n in (4, 2):
        made.add(*(("a", i, AT) for i in range(n)))
    job.run(made.stream(ckpt, lanes=1).zipWithIndex().withColumn("v", F.col("v") + F.col("index")).drop("t"))
    theirs = rows_of_spark(made.spark_stream(spark).zipWithIndex().drop("t"), tmp_path / "plain")
    assert job.rows() == sorted((k, v + i, i) for k, v, i in theirs)


@pytest.mark.soak
def test_a_number_may_be_called_as_another_column(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    made = new_input("in", "k string, distributed_sequence_id int, t timestamp")
    made.add(*(("a", i, AT) for i in range(3)))
    ours, plain = (
        df.coalesce(1).zipWithIndex("k").toDF("k", "v", "t", "n")
        for df in (made.stream(ckpt), made.spark_stream(spark))
    )
    job.run(ours.drop("t"))
    assert job.rows() == sorted(map(tuple, rows_of_spark(plain.drop("t"), tmp_path / "plain")))
