"""``readStream.spark`` over Delta's own connector: beside other streams, and at an empty location from the version that
a checkpoint remembers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt import starting_options
from tests.spark.conftest import Input, Job, ordered, wait_until
from tests.storage.delta_jars import delta_session


@pytest.fixture(scope="module")
def delta() -> Iterator[SparkSession]:
    with delta_session() as session:
        yield session


@pytest.fixture
def ckpt(delta: SparkSession, tmp_path: Path) -> Any:
    conf = {"dir": "jobs", "interval": "1h", "initialDelay": "1h", "maxParallelism": "2", "cache.dir": "cache"}
    for key, value in conf.items():
        delta.conf.set(f"spark.ckpt.{key}", str(tmp_path / value) if key.endswith("dir") else value)
    return spark_ckpt.enable(delta)


def _write(delta: SparkSession, table: Path, first: int) -> None:
    rows = delta.range(first, first + 10).withColumn("k", F.col("id") % 3)
    rows.write.format("delta").mode("append").save(str(table))


@pytest.mark.soak  # a JVM of its own, with delta-spark
def test_a_delta_stream_of_sparks_goes_on_elsewhere_from_the_version_of_the_checkpoint(
    delta: SparkSession, ckpt: Any, tmp_path: Path
) -> None:
    table, given, job = tmp_path / "orders", list[Any](), Job(tmp_path)

    def orders(position: Any) -> Any:
        given.append(position)
        return delta.readStream.format("delta").options(**starting_options(position)).load(str(table))

    def run(**options: Any) -> None:
        rows = ckpt.readStream.spark(orders).groupBy("k").agg(F.count("*").alias("n"), F.sum("id").alias("total"))
        job.run(rows, "k", mode="update", **options)

    _write(delta, table, 0)
    run()
    _write(delta, table, 10)
    run()
    elsewhere = {"checkpointLocation": str(tmp_path / "elsewhere")}
    with pytest.raises(StreamingQueryException, match=r"Cannot time travel Delta table to version 2"):
        run(**elsewhere)  # it is to begin behind the newest
    _write(delta, table, 20)
    run(**elsewhere)
    _write(delta, table, 30)
    run(**elsewhere)
    assert [None if p is None else p["reservoirVersion"] for p in given] == [None] * 5 + [2, None, 2, None, None]
    expected = {k: [v for v in range(40) if v % 3 == k] for k in range(3)}
    assert job.rows() == [(k, len(v), sum(v)) for k, v in expected.items()]


@pytest.mark.soak  # a JVM of its own, with delta-spark
def test_a_delta_stream_of_sparks_is_joined_with_files_that_we_read(
    delta: SparkSession, ckpt: Any, tmp_path: Path
) -> None:
    table, names, job = tmp_path / "orders", Input(tmp_path / "names", "key long, name string"), Job(tmp_path)
    for first in (0, 10, 20):
        _write(delta, table, first)
        names.add(*((key, f"{key}-{first}") for key in (0, 1, 5)))
        orders = ckpt.readStream.spark(delta.readStream.format("delta").load(str(table)), uid="orders")
        job.run(orders.join(names.stream(ckpt), F.expr("k = key")).select("id", "name"))
        batch = delta.read.format("delta").load(str(table)).join(names.table(delta), F.expr("k = key"))
        assert job.rows() == ordered(map(tuple, batch.select("id", "name").collect()))
    assert len(job.rows()) == 60


@pytest.mark.soak  # a JVM of its own, with delta-spark
def test_delta_rate_and_files_that_spark_reads_are_in_one_query_and_go_on_where_they_were(
    delta: SparkSession, ckpt: Any, tmp_path: Path
) -> None:
    table, files, job = tmp_path / "orders", Input(tmp_path / "files", "v long"), Job(tmp_path)
    rate = delta.readStream.format("rate").option("rowsPerSecond", 20).load()

    def values(kind: str) -> list[int]:
        return sorted(row[1] for row in job.rows() if row[0] == kind)

    for round_ in range(3):
        _write(delta, table, 10 * round_)
        files.add(*((v,) for v in range(10 * round_, 10 * round_ + 10)))
        orders = delta.readStream.format("delta").load(str(table))
        read = {"delta": (orders, "id"), "rate": (rate, "value"), "theirs": (files.spark_stream(delta), "v")}
        streams = [
            ckpt.readStream.spark(df.selectExpr(f"'{kind}' AS kind", f"{column} AS v"), uid=kind)
            for kind, (df, column) in read.items()
        ]
        ours = files.stream(ckpt).selectExpr("'ours' AS kind", "v")
        query = job.start(streams[0].union(ours).union(streams[1]).union(streams[2]), now=False)
        before, done = len(values("rate")), list(range(10 * round_ + 10))

        def all_read(before: int = before, done: list[int] = done, query: Any = query) -> bool:
            query.savepoint(str(tmp_path / f"savepoint-{uuid4()}"))
            return all(values(k) == done for k in ("delta", "ours", "theirs")) and len(values("rate")) > before

        wait_until(all_read, query)
        query.stop()
        assert values("rate") == list(range(len(values("rate")))), "each value once, and none is missing"
    assert query.job.verify() == []
