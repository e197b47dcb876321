"""Queries as Spark's guide has them: ``ckpt.readStream`` in place of ``spark.readStream``, and all else the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.sources.test_local_times import AS_IN_SPARK
from tests.spark.conftest import Job, ordered

SCHEMA = "device string, type string, signal double, time timestamp"


def devices(folder: Path) -> str:
    folder.mkdir()
    for file in range(2):
        rows = [
            {"device": f"d{n}", "type": f"t{n % 3}" if n % 5 else None, "signal": n * 1.5 if n != 7 else None,
             "time": f"2024-03-10T0{n % 5}:{n:02d}:00"}  # the session's clock leaves out 2 to 3 that night
            for n in range(10 * file, 10 * file + 10)
        ]  # fmt: skip
        (folder / f"{file}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


def filters(df: Any) -> list[Any]:
    """The guide's own, and others that look behind a projection."""
    twice = (F.col("signal") * 2).alias("signal")
    return [
        df.select("device").where("signal > 10"),
        df.select(F.upper("device").alias("device"), twice).where("signal > 10 and type is not null").drop("signal"),
        df.select("device", "type", "signal").select("device").where("signal > 10 and hour(time) > 2"),
    ]


def more_filters(df: Any) -> list[Any]:
    return [
        df.drop("signal", "time").where("signal > 10").where(F.col("type") == "t1").select("device"),
        df.select("device").withColumn("one", F.lit(1)).filter(F.col("signal") > 10).where("one = 1").drop("one"),
        df.select("device", F.explode(F.array(F.lit(1), F.lit(2))).alias("n")).where("signal > 10 and n = 2").drop("n"),
        df.withWatermark("time", "1 hour").select("device").where("signal > 10"),
        df.select(F.concat("device", F.lit(" "), F.col("time").cast("long")).alias("device")).where("type = 't1'"),
    ]


@pytest.mark.parametrize("made", [filters, pytest.param(more_filters, marks=pytest.mark.soak)])
def test_a_filter_finds_what_a_projection_left_out_and_times_are_those_of_the_session(
    spark: SparkSession, ckpt: Any, job: Job, tmp_path: Path, made: Callable[[Any], list[Any]]
) -> None:
    folder = devices(tmp_path / "in")

    def all_of(rows: Any) -> Any:
        numbered = [one.select(F.lit(n).alias("n"), "device") for n, one in enumerate(made(rows))]
        return reduce(lambda a, b: a.union(b), numbered)

    job.run(all_of(ckpt.readStream.schema(SCHEMA).json(folder)))
    expected = ordered(tuple(row) for row in all_of(spark.read.schema(SCHEMA).json(folder)).collect())
    assert {n for n, _ in expected} == set(range(3 if made is filters else 5))
    assert job.rows() == expected


def test_times_without_a_zone_are_what_spark_makes_of_them(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for zone, text, utc in AS_IN_SPARK:
        (tmp_path / "in" / "a.json").write_text(json.dumps({"t": text}))
        read = spark.read.schema("t timestamp").option("timeZone", zone).json(str(tmp_path / "in"))
        (row,) = read.select(F.expr("unix_micros(t)").alias("t")).collect()
        (wanted,) = spark.sql(f"SELECT unix_micros(TIMESTAMP '{utc}Z') AS t").collect()
        assert row == wanted, (zone, text)
