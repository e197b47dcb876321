"""``readStream.spark`` over Delta's own connector: the stream goes on at an empty location from the version that a
checkpoint remembers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from tests.spark.conftest import Job
from tests.storage.delta_jars import delta_session


@pytest.fixture(scope="module")
def delta() -> Iterator[SparkSession]:
    with delta_session() as session:
        yield session


@pytest.mark.soak  # a JVM of its own, with delta-spark
def test_a_delta_stream_of_sparks_goes_on_elsewhere_from_the_version_of_the_checkpoint(
    delta: SparkSession, tmp_path: Path
) -> None:
    conf = {"dir": "jobs", "interval": "1h", "initialDelay": "1h", "maxParallelism": "2", "cache.dir": "cache"}
    for key, value in conf.items():
        delta.conf.set(f"spark.ckpt.{key}", str(tmp_path / value) if key.endswith("dir") else value)
    table, given = str(tmp_path / "orders"), list[Any]()

    def write(first: int) -> None:
        delta.range(first, first + 10).withColumn("k", F.col("id") % 3).write.format("delta").mode("append").save(table)

    def orders(position: Any) -> Any:
        given.append(position)
        assert position is None or position["index"] == -1, "the checkpoint is at the beginning of a version"
        start = {} if position is None else {"startingVersion": str(position["reservoirVersion"])}
        return delta.readStream.format("delta").options(**start).load(table)

    ckpt, job = spark_ckpt.enable(delta), Job(tmp_path)

    def run(**options: Any) -> None:
        rows = ckpt.readStream.spark(orders).groupBy("k").agg(F.count("*").alias("n"), F.sum("id").alias("total"))
        job.run(rows, "k", mode="update", **options)

    write(0)
    run()
    write(10)
    run()
    write(20)
    run(checkpointLocation=str(tmp_path / "elsewhere"))
    write(30)
    run(checkpointLocation=str(tmp_path / "elsewhere"))
    assert [None if p is None else p["reservoirVersion"] for p in given] == [None] * 5 + [2, None, None]
    expected = {k: [v for v in range(40) if v % 3 == k] for k in range(3)}
    assert job.rows() == [(k, len(v), sum(v)) for k, v in expected.items()]
