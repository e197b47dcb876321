"""Nexmark's queries on its events, each beside batch SQL over the same events, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import spark_ckpt
from examples.nexmark import job
from examples.nexmark.oracle import SQL, expected
from examples.nexmark.queries import QUERIES
from examples.nexmark.source import NexmarkSource

DEADLINE_S = 280.0
QUICK = ("q5",)
SMALL = {"events": "6000", "eventsPerSecond": "150", "perBatch": "3000", "outOfOrder": "300"}
# In disorder across batches, by three seconds at most: less than the watermark's delay, so that no row is late.
DISORDER = {"events": "40000", "eventsPerSecond": "500", "perBatch": "4000", "outOfOrder": "500", "seed": "7"}
DISORDER |= {"delayed": "0.1", "delaySeconds": "2"}
# So late that rows are dropped.
LATE = {"events": "16000", "eventsPerSecond": "200", "perBatch": "2000", "outOfOrder": "500", "seed": "3"}
LATE |= {"delayed": "0.2", "delaySeconds": "25"}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    confs = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ckpt.dir": str(tmp_path_factory.mktemp("jobs")),
        "spark.ckpt.interval": "2s",
        "spark.ckpt.maxParallelism": "4",
        "spark.ckpt.lanes": "2",
    }
    SparkContext._ensure_initialized()
    session = SparkSession.builder.master("local[2]").config(map=confs).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def ended(query: Any) -> None:
    assert query.awaitTermination(DEADLINE_S), "the query did not come to its end"
    assert query.exception() is None


def test_every_query_but_6_is_there_and_has_its_oracle() -> None:
    assert list(QUERIES) == list(SQL)


@pytest.mark.soak  # with events in order; windows and their best rows: test_event_time.py
def test_windows_find_what_batch_sql_finds(spark: SparkSession, tmp_path: Path) -> None:
    ckpt = spark_ckpt.enable(spark)
    started = {name: job.start(ckpt, name, tmp_path, SMALL) for name in QUICK}
    for name, query in started.items():
        ended(query)
        rows, wrong = job.check(spark, name, tmp_path, SMALL)
        assert not wrong, f"{name}: {wrong}"
        assert rows.count() > 2, name


@pytest.mark.soak
@pytest.mark.parametrize("name", QUERIES)
def test_each_query_finds_what_batch_sql_finds_whatever_the_order_of_events(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    ended(job.start(spark_ckpt.enable(spark), name, tmp_path, DISORDER))
    rows, wrong = job.check(spark, name, tmp_path, DISORDER)
    assert not wrong
    assert not rows.isEmpty()


@pytest.mark.soak
@pytest.mark.parametrize("name", ["q7", "q8", "q11"])
def test_what_comes_late_counts_as_in_sparks_own_stream(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """The same function, over streams of Spark's own."""
    spark.dataSource.register(NexmarkSource)
    theirs = QUERIES[name].build(*job.views(spark.readStream.format("nexmark").options(**LATE).load()))
    wanted: list[Any] = []
    writer = theirs.writeStream.option("checkpointLocation", str(tmp_path / "spark")).trigger(availableNow=True)
    ended(writer.foreachBatch(lambda rows, _: wanted.extend(rows.collect())).start())
    events = spark_ckpt.enable(spark).readStream.format(NexmarkSource).options(**LATE).load()
    writer = QUERIES[name].build(*job.views(events)).writeStream.format("delta").queryName(f"late-{name}")
    ended(writer.option("path", str(tmp_path / name)).trigger(availableNow=True).start())
    rows = job.results(spark, name, tmp_path, theirs.schema).select(theirs.columns).collect()
    assert not job.differences(rows, wanted)
    assert wanted
    assert job.differences(rows, expected(job.table(spark, LATE), name).collect()), "nothing was late"


def test_a_row_too_many_or_too_few_is_a_difference() -> None:
    assert job.differences([(1, "a"), (2, "b")], [(2, "b"), (1, "a")]) == ""
    assert job.differences([(1, "a"), (1, "a")], [(1, "a")]) == "1 rows too many, such as (1, 'a')"
    assert job.differences([], [(1, "a"), (2, "b")]) == "2 rows missing, such as (1, 'a')"
