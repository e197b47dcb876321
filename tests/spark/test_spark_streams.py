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
from pyspark.sql.types import StructType

from spark_ckpt import starting_options
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
    [
        pytest.param(stateless, "append", marks=pytest.mark.soak),
        # With two such streams: test_two_streams_of_sparks_and_one_of_ours_are_counted_together_through_a_restart.
        pytest.param(counted, "update", marks=pytest.mark.soak),
        (windows, "append"),
        pytest.param(distinct, "append", marks=pytest.mark.soak),
    ],
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
    recorded = max(query.job.records.completions(), key=lambda c: c.checkpoint).sources["spark-streams"]
    assert position_of(recorded["inner"], "orders") == {"logOffset": 1}


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
    with pytest.raises(InvalidInputError, match=r'stream-0 is to begin at \{"logOffset": 0\}.*format\("files"\)'):
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
    with pytest.raises(TopologyError, match=r"several readStream.spark\(...\) have the uid a"):
        job.run(read.spark(stream, uid="a").union(read.spark(stream, uid="a")))
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


# --- several, and other sources beside them ---------------------------------------------------------------------------


@pytest.mark.soak
def test_two_streams_of_sparks_and_one_of_ours_are_counted_together_through_a_restart(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job
) -> None:
    a, b, c = inputs = [new_input(name, SCHEMA) for name in "abc"]
    for files in ((3, 1, 2), (1, 4, 1)):
        for data, more in zip(inputs, files, strict=True):
            for _ in range(more):
                data.add(*some_rows(data._files))
        one, two = (stateless(ckpt.readStream.spark(data.spark_stream(spark))) for data in (a, b))
        ours = job.run(counted(one.union(stateless(c.stream(ckpt))).union(two)), "k", mode="update")
        batch = [stateless(data.table(spark)) for data in inputs]
        assert job.rows() == ordered(map(tuple, counted(batch[0].union(batch[1]).union(batch[2])).collect()))
        assert sum(p.numInputRows for p in ours.recentProgress) == 5 * sum(files)
    assert ours.job.verify() == []
    recorded = max(ours.job.records.completions(), key=lambda done: done.checkpoint).sources
    assert set(recorded) == {"files-0", "spark-streams"}
    streams = recorded["spark-streams"]["inner"]
    assert [position_of(streams, f"stream-{n}") for n in (0, 1)] == [{"logOffset": 3}, {"logOffset": 4}]


@pytest.mark.soak
@pytest.mark.parametrize("second", ["spark", "ours"])
def test_a_join_of_two_streams_gives_sparks_rows_whoever_reads_the_second(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path, second: str
) -> None:
    left, right, plain = new_input("l", SCHEMA), new_input("r", SCHEMA), Plain(spark, tmp_path / "plain", "append")

    def joined(one: Any, two: Any) -> Any:
        one = one.withWatermark("t", "1 minute").selectExpr("k AS lk", "v AS lv", "t AS lt")
        # Spark itself would look for such keys in front of the watermark.
        two = two.where("k IS NOT NULL").withWatermark("t", "2 minutes").selectExpr("k AS rk", "v AS rv", "t AS rt")
        near = F.expr("lk = rk AND rt BETWEEN lt AND lt + INTERVAL 30 SECONDS")
        return one.join(two, near, "left").select("lk", "lv", "rv")

    for files in (range(4), range(4, 6)):
        for file in files:
            left.add(*some_rows(file))
            right.add(*(row for row in some_rows(file) if row[1] % 4))
        plain.run(joined(left.spark_stream(spark), right.spark_stream(spark)))
        two = ckpt.readStream.spark(right.spark_stream(spark)) if second == "spark" else right.stream(ckpt)
        job.run(joined(ckpt.readStream.spark(left.spark_stream(spark)), two))
    assert job.rows() == plain.rows()
    assert {row[2] is None for row in job.rows()} == {True, False}


@pytest.mark.soak
def test_rows_without_operators_beside_ours_are_in_the_checkpoint_whose_position_has_them(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    theirs, ours, savepoints = new_input("theirs", SCHEMA), new_input("ours", SCHEMA), []
    for file in range(3):
        theirs.add(*some_rows(file))
        ours.add(*some_rows(10 + file))
    read = ckpt.readStream.spark(theirs.spark_stream(spark), uid="theirs")
    both = read.union(ours.stream(ckpt, uid="ours")).drop("t")
    query = job.start(both, now=False)
    for file in range(3, 8):
        theirs.add(*some_rows(file))
        ours.add(*some_rows(10 + file))
        query.savepoint(str(tmp_path / f"savepoint-{file}"))
        found = sorted(query.job.records.completions(), key=lambda done: done.checkpoint)[-1]
        position = position_of(found.sources["spark-streams"]["inner"], "theirs")
        savepoints.append(0 if position is None else position["logOffset"] + 1)
        read_by_then = [10 * f + n for f in range(savepoints[-1]) for n in range(5)]
        assert sorted(v for _, v in job.rows() if v < 100) == read_by_then
    query.stop()
    job.run(both)
    assert sorted(v for _, v in job.rows()) == sorted(10 * f + n for f in (*range(8), *range(10, 18)) for n in range(5))
    assert savepoints == sorted(savepoints)


@pytest.mark.soak
def test_elsewhere_each_stream_gets_its_own_position_and_ours_goes_on_by_itself(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    inputs, seen = {name: new_input(name, SCHEMA) for name in ("a", "b", "c")}, dict[str, Any]()
    for name, data in inputs.items():
        for _ in range(ord(name) - ord("a") + 1):
            data.add(*some_rows(data._files))

    def begins(name: str) -> Any:
        def make(position: Any) -> Any:
            seen[name] = position
            read = 0 if position is None else position["logOffset"] + 1
            # Spark's file source cannot begin in the middle: what a real one would leave out is left out here.
            return inputs[name].spark_stream(spark).where(f"v >= {10 * read}")

        return make

    def query(*order: str) -> Any:
        streams = {name: ckpt.readStream.spark(begins(name), uid=name) for name in ("a", "b")}
        streams["c"] = inputs["c"].stream(ckpt, uid="c")
        one, two, three = (streams[name] for name in order)
        return counted(one.union(two).union(three))

    job.run(query("a", "b", "c"), "k", mode="update")
    for data in inputs.values():
        data.add(*some_rows(data._files))
    job.run(query("c", "b", "a"), "k", mode="update", checkpointLocation=str(tmp_path / "elsewhere"))
    assert seen == {"a": {"logOffset": 0}, "b": {"logOffset": 1}}
    batch = [data.table(spark) for data in inputs.values()]
    assert job.rows() == ordered(map(tuple, counted(batch[0].union(batch[1]).union(batch[2])).collect()))


# --- without Spark --------------------------------------------------------------------------------------------------


def _log(folder: Path, batch: int, *lines: Any) -> None:
    (folder / "offsets").mkdir(exist_ok=True, parents=True)
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", *text]))


def _reader(location: Path, *names: str, event_time: bool = True) -> Any:
    source = open_source(SparkStream, followed(str(location), event_time, names), None, str(location.parent))
    return source._source.streamReader(StructType())


OWN = {"origin": 1, "inner": {"streams": {}, "looks": 0}, "epoch": 2}


def test_the_offset_follows_what_spark_logs_one_batch_behind_and_stands_still_at_the_end(tmp_path: Path) -> None:
    location = tmp_path / "location"
    reader = _reader(location, "a", "b")
    reader.prepareForTriggerAvailableNow()
    at = reader.initialOffset()
    first = reader.latestOffset(at, None)
    assert first == {"streams": {}, "looks": 1}, "a batch is made to see whether there are rows"
    _log(location, 0, OWN, '{"n":5}', "-")
    second = reader.latestOffset(first, None)
    assert second == {"streams": {"a": '{"n":5}', "b": "-"}, "looks": 1}
    _log(location, 1, OWN, '{"n":5}', "-")
    assert reader.recorded(second) == second
    reader.batch_ended()
    assert reader.latestOffset(second, None) == second, "no rows came with the last batch"
    assert position_of(second, "a") == {"n": 5}
    assert [position_of(second, "b"), position_of(second, "c"), position_of(None, "a")] == [None] * 3


def test_what_all_others_have_injected_is_read_in_sparks_log_whatever_stands_between(tmp_path: Path) -> None:
    reader = _reader(tmp_path, "a", event_time=False)
    assert reader.injected() == 0
    ours = {"origin": 1, "inner": [3], "epoch": 7}
    _log(tmp_path, 0, ours, '{"epoch":1,"n":5}', OWN, {**ours, "epoch": 6})
    assert reader.injected() == 5
    _log(tmp_path, 1, ours, '{"epoch":1,"n":5}', OWN, ours)
    assert reader.injected() == 5, "nobody has said that there is another batch"
    reader.batch_ended()
    assert reader.injected() == 6


def test_a_log_of_another_query_is_an_error_and_no_wrong_position(tmp_path: Path) -> None:
    _log(tmp_path, 0, OWN, "3", "4")
    with pytest.raises(CkptError, match="expected offsets of what Spark reads, a, found 3, 4"):
        _reader(tmp_path, "a").recorded({"streams": {}, "looks": 0})
    assert _reader(tmp_path, "a", "b").recorded({"looks": 0})["streams"] == {"a": "3", "b": "4"}
    with pytest.raises(CkptError, match="expected offsets of what Spark reads, a, a, found 3, 4"):
        _reader(tmp_path, "a", "a").recorded({"looks": 0})


def test_a_location_without_the_batchs_offsets_is_an_error_and_no_empty_position(tmp_path: Path) -> None:
    reader = _reader(tmp_path / "gone", "a", event_time=False)
    with pytest.raises(CkptError, match="expected the offsets of the batch"):
        reader.recorded(reader.initialOffset())


def test_each_connectors_offset_becomes_its_options_or_the_reason_why_there_are_none() -> None:
    assert starting_options(None) == {}
    kafka = {"orders": {"0": 17, "11": 0}, "late": {"0": 3}}
    assert json.loads(starting_options(kafka)["startingOffsets"]) == kafka
    delta = {"sourceVersion": 1, "reservoirId": "x", "reservoirVersion": 3, "index": -1, "isStartingVersion": False}
    assert starting_options(delta) == {"startingVersion": "3"}
    for position, reason in [
        ({**delta, "index": 0}, "inside of version 3"),
        ({**delta, "isStartingVersion": True}, "still reading the table as it was at version 3"),
        ({"logOffset": 3}, "file source remembers"),
        (17, "rate source"),
        ({}, "expected an offset of Kafka or Delta"),
        ({"orders": {"first": 1}}, "expected an offset of Kafka or Delta"),
    ]:
        with pytest.raises(InvalidInputError, match=reason):
            starting_options(position)
