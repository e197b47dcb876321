"""``readStream.spark``: streams that Spark's own sources read, under barriers, beside the same streams without them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.errors import CkptError, ControlColumnsError, InvalidInputError, TopologyError
from spark_ckpt.sources.base import open_source
from spark_ckpt.sources.spark_stream import SparkStream, followed, position_of
from tests.spark.conftest import DEADLINE_S, Input, Job, ordered, wait_until

NewInput = Callable[[str, str], Input]
BASE = datetime(2026, 3, 29, 0, 30, tzinfo=timezone.utc)
SCHEMA = "k string, v int, t timestamp"


def some_rows(file: int) -> list[tuple[Any, ...]]:
    """Of one file: a null key, and times that go back."""
    times = [BASE + timedelta(seconds=60 * file + 17 * n - (200 if n == 3 else 0)) for n in range(5)]
    return [(None if n == 4 else "ab"[n % 2], 10 * file + n, times[n]) for n in range(5)]


def stateless(df: Any) -> Any:
    return df.where("v % 3 != 1").withColumn("w", F.col("v") * 2 + 1).drop("t")


def counted(df: Any) -> Any:
    return df.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def windows(df: Any) -> Any:
    grouped = df.withWatermark("t", "1 minute").groupBy(F.window("t", "1 minute"), "k")
    return grouped.agg(F.sum("v").alias("total")).select("window.start", "k", "total")


def distinct(df: Any) -> Any:
    return df.withWatermark("t", "1 minute").dropDuplicatesWithinWatermark(["k"]).drop("t")


class Plain:
    """The same query on plain Spark, with what it has put out so far; in update mode, the last row of each key."""

    def __init__(self, spark: SparkSession, folder: Path, mode: str) -> None:
        self.spark, self.folder, self.mode = spark, folder, mode
        self._rows: dict[Any, tuple[Any, ...]] = {}

    def run(self, df: Any) -> None:
        def take(batch: Any, _: int) -> None:
            for row in map(tuple, batch.collect()):
                self._rows[row[0] if self.mode == "update" else len(self._rows)] = row

        writer = df.writeStream.outputMode(self.mode).option("checkpointLocation", str(self.folder))
        query = writer.foreachBatch(take).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S)

    def rows(self) -> list[tuple[Any, ...]]:
        zone = timezone.utc
        naive = [
            tuple(v.astimezone(zone) if isinstance(v, datetime) else v for v in row) for row in self._rows.values()
        ]
        return ordered(naive)


@pytest.mark.parametrize(
    ("query", "mode"),
    [(stateless, "append"), (counted, "update"), (windows, "append"), (distinct, "append")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_stream_of_sparks_own_gives_sparks_rows_through_a_restart(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path, query: Any, mode: str
) -> None:
    data, plain = new_input("in", SCHEMA), Plain(spark, tmp_path / "plain", mode)
    keys = "k" if mode == "update" else None
    done = 0
    for files in (3, 5):
        for file in range(done, files):
            data.add(*some_rows(file))
        done = files
        plain.run(query(data.spark_stream(spark)))
        ours = job.run(query(ckpt.readStream.spark(data.spark_stream(spark))), keys, mode=mode)
        assert job.rows() == plain.rows()
        assert sum(p.numInputRows for p in ours.recentProgress) == 5 * (3 if files == 3 else 2)
    assert len(job.rows()) > 2
    assert ours.job.verify() == []


def test_rows_of_a_batch_are_in_the_checkpoint_whose_barrier_it_has_and_nothing_is_shown_before_it(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job
) -> None:
    data = new_input("in", SCHEMA)
    data.add(*some_rows(0))
    stream = stateless(ckpt.readStream.spark(data.spark_stream(spark), uid="orders"))
    query = job.start(stream, now=False)
    wait_until(lambda: query.lastProgress and query.lastProgress.batchId >= 0, query)
    assert job.rows() == []
    query.savepoint(str(Path(job.sink).parent / "savepoint"))
    assert [row[1] for row in job.rows()] == [v for _, v, _ in some_rows(0) if v % 3 != 1]
    data.add(*some_rows(1))
    wait_until(lambda: query.lastProgress.batchId >= 2 or data_read(query) == 10, query)
    with pytest.raises(CkptError, match="cannot be drained"):
        query.stop(drain=True, timeout_s=60)
    query.stop(savepoint=str(Path(job.sink).parent / "second"))
    assert len(job.rows()) == len([v for f in (0, 1) for _, v, _ in some_rows(f) if v % 3 != 1])
    recorded = max(query.job.records.completions(), key=lambda c: c.checkpoint).sources["orders"]
    assert position_of(recorded["inner"]) == {"logOffset": 1}


def data_read(query: Any) -> int:
    return sum(p.numInputRows for p in query.recentProgress)


def test_at_an_empty_location_a_function_gets_the_position_and_a_dataframe_is_refused(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    data, seen = new_input("in", SCHEMA), list[Any]()
    data.add(*some_rows(0))

    def orders(position: Any) -> Any:
        seen.append(position)
        read = 0 if position is None else position["logOffset"] + 1
        # Spark's file source cannot begin in the middle: what a real one would leave out is left out here.
        return data.spark_stream(spark).where(f"v >= {10 * read}")

    job.run(counted(ckpt.readStream.spark(orders)), "k", mode="update")
    assert seen == [None, None]
    data.add(*some_rows(1))
    elsewhere = {"checkpointLocation": str(tmp_path / "elsewhere")}
    with pytest.raises(InvalidInputError, match=r'begin at \{"logOffset": 0\}.*Give readStream.spark a function'):
        job.run(counted(ckpt.readStream.spark(data.spark_stream(spark))), "k", mode="update", **elsewhere)
    job.run(counted(ckpt.readStream.spark(orders)), "k", mode="update", **elsewhere)
    assert seen[2:] == [None, {"logOffset": 0}]
    expected = counted(data.table(spark)).collect()
    assert job.rows() == ordered(map(tuple, expected))


def test_what_is_not_one_stream_without_state_is_refused(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job
) -> None:
    data = new_input("in", SCHEMA)
    data.add(*some_rows(0))
    stream, read = data.spark_stream(spark), ckpt.readStream
    with pytest.raises(InvalidInputError, match="streaming DataFrame"):
        read.spark(spark.range(3))
    with pytest.raises(InvalidInputError, match="one stream, found 2"):
        read.spark(stream.union(data.spark_stream(spark)))
    with pytest.raises(InvalidInputError, match="EventTimeWatermark"):
        read.spark(stream.withWatermark("t", "1 minute"))
    with pytest.raises(InvalidInputError, match="Aggregate"):
        read.spark(stream.groupBy("k").count())
    with pytest.raises(ControlColumnsError, match="__ckpt_tag"):
        read.spark(stream.withColumn("__ckpt_tag", F.lit(1)))
    ours = read.spark(stream)
    with pytest.raises(TopologyError, match="no other source can stand in the same query"):
        ours.union(data.stream(ckpt))
    given = iter([stream, stream, stream.drop("k")])
    with pytest.raises(InvalidInputError, match="the same columns"):
        job.run(read.spark(lambda _: next(given)) and read.spark(lambda _: next(given)))


def test_one_stream_twice_in_a_query_is_read_once(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job
) -> None:
    data = new_input("in", SCHEMA)
    data.add(*some_rows(0))
    ours = ckpt.readStream.spark(data.spark_stream(spark))
    job.run(counted(ours.where("v < 2").union(ours.where("v >= 1"))), "k", mode="update")
    batch = data.table(spark)
    expected = counted(batch.where("v < 2").union(batch.where("v >= 1"))).collect()
    assert job.rows() == ordered(map(tuple, expected))


# --- without Spark --------------------------------------------------------------------------------------------------


def _log(folder: Path, batch: int, offset: str, ours: bool = True) -> None:
    (folder / "offsets").mkdir(exist_ok=True, parents=True)
    own = json.dumps({"origin": 1, "inner": {}, "epoch": 2})
    (folder / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", *([own] if ours else []), offset]))


def test_the_offset_follows_what_spark_logs_one_batch_behind_and_stands_still_at_the_end(tmp_path: Path) -> None:
    location = tmp_path / "location"
    source = open_source(SparkStream, followed(str(location), True), None, str(tmp_path))._source
    reader: Any = source.streamReader(None)
    reader.prepareForTriggerAvailableNow()
    at = reader.initialOffset()
    first = reader.latestOffset(at, None)
    assert first == {"streams": [], "looks": 1}, "a batch is made to see whether there are rows"
    _log(location, 0, '{"n":5}')
    second = reader.latestOffset(first, None)
    assert second == {"streams": ['{"n":5}'], "looks": 1}
    _log(location, 1, '{"n":5}')
    assert reader.recorded(second) == second
    reader.batch_ended()
    assert reader.latestOffset(second, None) == second, "no rows came with the last batch"
    assert position_of(second) == {"n": 5}
    assert position_of({"streams": ["-"], "looks": 1}) is None


def test_a_location_without_the_batchs_offsets_is_an_error_and_no_empty_position(tmp_path: Path) -> None:
    reader: Any = open_source(SparkStream, followed(str(tmp_path / "gone"), False), None, "")._source.streamReader(None)
    with pytest.raises(CkptError, match="expected the offsets of the batch"):
        reader.recorded(reader.initialOffset())
