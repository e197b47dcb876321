"""A stream joined with a Delta table: each batch sees the table's newest version, as in plain Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spark_ckpt
from tests.spark.conftest import Input, Job, wait_until
from tests.storage.delta_jars import delta_session


@pytest.fixture(scope="module")
def delta() -> Iterator[SparkSession]:
    with delta_session() as session:
        yield session


@pytest.mark.soak  # a JVM of its own, with delta-spark
def test_each_batch_sees_the_newest_version_of_a_static_delta_table(delta: SparkSession, tmp_path: Path) -> None:
    conf = {"dir": "jobs", "interval": "1ms", "initialDelay": "0s", "maxParallelism": "2", "cache.dir": "cache"}
    for key, value in conf.items():
        delta.conf.set(f"spark.ckpt.{key}", str(tmp_path / value) if key.endswith("dir") else value)
    table, seen = str(tmp_path / "words"), list[Any]()

    def write(word: str) -> None:
        words = delta.createDataFrame([("a", word)], "k string, word string")
        words.write.format("delta").mode("overwrite").save(table)

    def joined(stream: Any) -> Any:
        return stream.join(delta.read.format("delta").load(table), "k", "left").select("n", "word")

    write("one")
    data, job = Input(tmp_path / "in", "k string, n int"), Job(tmp_path)
    data.add(("a", 1))
    plain = joined(data.spark_stream(delta)).writeStream.option("checkpointLocation", str(tmp_path / "plain"))
    plain = plain.foreachBatch(lambda rows, _: seen.extend(map(tuple, rows.collect()))).start()
    ours = job.start(joined(data.stream(spark_ckpt.enable(delta))), now=False)
    plain.processAllAvailable()
    wait_until(lambda: len(job.rows()) == 1, ours)
    write("two")
    data.add(("a", 2))
    plain.processAllAvailable()
    wait_until(lambda: len(job.rows()) == 2, ours)
    plain.stop()
    ours.stop()
    assert job.rows() == sorted(seen) == [(1, "one"), (2, "two")]
