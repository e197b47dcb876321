"""``foreachBatch`` and ``foreach``: each committed checkpoint once, again with the same id and rows after a failure."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from pickle import PicklingError
from typing import Any

import pytest
from pyspark.errors import PySparkAttributeError, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt import agg
from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sinks import memory
from tests.spark.conftest import DEADLINE_S, Input, Job, ordered

NewInput = Callable[[str, str], Input]
Calls = list[tuple[int, list[tuple[Any, ...]]]]


@pytest.fixture
def data(new_input: NewInput) -> Input:
    found = new_input("in", "k string, v long")
    found.add(("a", 1), ("b", 2))
    return found


def start(writer: Any, now: bool = True, name: str = "job") -> Any:
    trigger = {"availableNow": True} if now else {"processingTime": "0 seconds"}
    return writer.queryName(name).trigger(**trigger).start()


def end(query: Any) -> None:
    assert query.awaitTermination(DEADLINE_S)


def collecting(calls: Calls) -> Callable[[Any, int], None]:
    return lambda rows, checkpoint: calls.append((checkpoint, ordered(map(tuple, rows.collect()))))


def test_the_rows_have_the_streams_types_and_values_to_the_last_digit(
    ckpt: Any, spark: SparkSession, data: Input
) -> None:
    exprs = (
        "v as l", "if(v = 1, cast(v as decimal(38,18)) / 7, null) as d", "timestamp'1899-01-01 00:00:00.000001' as t",
        "timestamp_ntz'0001-01-01 00:00:00' as n", "date'1582-10-04' as day",
        "interval '1 2:03:04.5' day to second as i",
        "if(v = 1, x'00ff', null) as b",
        "map(coalesce(k, ''), array(struct(float('nan') as x, k as y), null)) as m",
        "if(v = 1, struct(1 as z, array(k || 'x', '') as zs), null) as st",
        "v = 1 as bo",
        "cast(v as tinyint) as by", "k || '\\u0000é😀' as s",
    )  # fmt: skip
    found: list[Any] = []

    def take(rows: Any, checkpoint: int) -> None:
        assert rows.sparkSession is spark
        assert not rows.isStreaming
        found.append((rows.schema, [str(r) for r in rows.sort("l").collect()], rows.where("bo").count()))

    end(start(data.stream(ckpt).selectExpr(*exprs).writeStream.foreachBatch(take)))
    expected = data.table(spark).selectExpr(*exprs)
    ((schema, rows, ones),) = found
    assert [(f.name, f.dataType) for f in schema] == [(f.name, f.dataType) for f in expected.schema]
    assert (rows, ones) == ([str(r) for r in expected.sort("l").collect()], 1)


def test_each_checkpoint_comes_once_with_its_id_beside_another_sink_that_has_it_already(
    ckpt: Any, data: Input, job: Job
) -> None:
    calls: Calls = []
    seen: list[int] = []

    def take(rows: Any, checkpoint: int) -> None:
        described = rows.sparkSession.sparkContext.getLocalProperty("spark.job.description")
        assert described == f"foreachBatch: rows of checkpoint {checkpoint}", "in Spark's UI"
        seen.append(len(job.rows()))
        collecting(calls)(rows, checkpoint)

    totals = data.stream(ckpt).groupBy("k").aggregate(n=agg.count()).uid("t")
    writer = totals.writeStream.outputMode("update").foreachBatch(take).alsoTo("memory", path=job.sink, mergeKeys="k")
    query = start(writer.alsoTo(collecting(calls), columns="k"), now=False)
    try:
        first = query.checkpoint()
        assert calls == [(first, [("a", 1), ("b", 1)]), (first, [("a",), ("b",)])]
        data.add(("a", 5))
        query.processAllAvailable()  # by a checkpoint, as it is Spark's
        second = first + 1
        assert calls[2:] == [(second, [("a", 2)]), (second, [("a",)])]
        query.checkpoint()  # without rows
        assert query.isActive
    finally:
        query.stop()
    assert not query.isActive
    assert len(calls) == 4
    assert seen == [2, 2]
    assert not list(Path(query.job.url, "deliveries", "rows").iterdir())


def test_a_function_that_raises_fails_the_query_with_its_place_and_gets_the_same_rows_again(
    ckpt: Any, data: Input, job: Job
) -> None:
    calls: Calls = []

    def fails(rows: Any, checkpoint: int) -> None:
        collecting(calls)(rows, checkpoint)
        raise ValueError("no")

    query = start(data.stream(ckpt).writeStream.foreachBatch(fails).alsoTo("memory", path=job.sink), now=False)
    conditions = r"^\[STREAM_FAILED\] \[FOREACH_BATCH_USER_FUNCTION_ERROR\] "
    with pytest.raises(StreamingQueryException, match=f"{conditions}.*ValueError: no"):
        query.processAllAvailable()
    with pytest.raises(StreamingQueryException, match=rf"{__file__}:\d+, in fails\): ValueError: no") as raised:
        query.awaitTermination()
    assert isinstance(raised.value.__cause__, ValueError)
    assert raised.value.getCondition() == "STREAM_FAILED"
    assert str(query.exception()) == str(raised.value)
    assert not query.isActive
    assert query.job.records.ended(query.generation).error == "FOREACH_BATCH_USER_FUNCTION_ERROR"
    data.add(("c", 3))
    # With other columns by now: what waits is what was written then.
    end(
        start(
            data.stream(ckpt)
            .selectExpr("k")
            .writeStream.foreachBatch(collecting(calls))
            .alsoTo("memory", path=f"{job.sink}2")
        )
    )
    assert calls == [(1, [("a", 1), ("b", 2)]), (1, [("a", 1), ("b", 2)]), (2, [("c",)])]
    assert job.rows() == [("a", 1), ("b", 2)]
    assert memory.read(f"{job.sink}2").to_pylist() == [{"k": "c"}]


def test_rows_that_wait_for_a_function_are_not_given_to_another_in_its_place(
    ckpt: Any, data: Input, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They were, in silence: functions are known by their places, if they have no uid."""
    calls: dict[str, Calls] = {"first": [], "second": []}
    broken = [True]

    def first(rows: Any, checkpoint: int) -> None:
        collecting(calls["first"])(rows, checkpoint)

    def second(rows: Any, checkpoint: int) -> None:
        if broken:
            raise ValueError("no")
        collecting(calls["second"])(rows, checkpoint)

    def written(location: str) -> Any:
        return data.stream(ckpt).writeStream.option("checkpointLocation", str(tmp_path / location))

    with pytest.raises(StreamingQueryException, match="ValueError: no"):
        end(start(written("a").foreachBatch(first).alsoTo(second)))
    broken.clear()
    end(start(written("b").foreachBatch(first)))
    assert re.search(r"of checkpoint\(s\) 1 wait for the function .*second, which the query has no more", caplog.text)
    with pytest.raises(ConfigError, match=r"1 wait for the function .*second, in whose place is .*first now"):
        start(written("c").foreachBatch(second).alsoTo(first))
    end(start(written("d").foreachBatch(second).option("uid", "foreachBatch-1").alsoTo(first, uid="foreachBatch")))
    assert calls["first"] == calls["second"] == [(1, [("a", 1), ("b", 2)])]


def test_a_function_that_is_alone_may_be_renamed_but_not_get_another_in_front(
    ckpt: Any, data: Input, tmp_path: Path
) -> None:
    calls: Calls = []

    def failing(rows: Any, checkpoint: int) -> None:
        raise ValueError("no")

    def written(location: str) -> Any:
        return data.stream(ckpt).writeStream.option("checkpointLocation", str(tmp_path / location))

    with pytest.raises(StreamingQueryException, match="ValueError: no"):
        end(start(written("a").foreachBatch(failing)))
    with pytest.raises(ConfigError, match=r"1 wait for the function .*failing, in whose place is .*Called now"):
        start(written("b").foreachBatch(Called()).alsoTo(failing))
    end(start(written("c").foreachBatch(collecting(calls))))
    assert calls == [(1, [("a", 1), ("b", 2)])]


class Called:
    def __call__(self, rows: Any, checkpoint: int) -> None: ...


def test_what_a_function_may_do_with_its_rows(ckpt: Any, spark: SparkSession, data: Input, tmp_path: Path) -> None:
    kept: list[Any] = []

    def use(rows: Any, checkpoint: int) -> None:
        rows.createOrReplaceTempView("delivered")
        assert spark.sql("select sum(v) from delivered").collect() == [(3,)]
        cached = rows.persist()
        assert cached.count() == 2
        cached.unpersist()
        static = spark.createDataFrame([("a", "x")], "k string, w string")
        assert rows.join(static, "k").collect() == [("a", 1, "x")]
        rows.write.mode("overwrite").partitionBy("k").parquet(str(tmp_path / "out"))
        rows.groupBy("k").agg(F.max("v")).write.mode("overwrite").json(str(tmp_path / "json"))
        kept.append(rows)

    end(start(data.stream(ckpt).writeStream.foreachBatch(use)))
    assert sorted(spark.read.parquet(str(tmp_path / "out")).collect()) == [(1, "a"), (2, "b")]
    with pytest.raises(Exception, match="only while the function of foreachBatch runs"):
        kept[0].collect()


class Recorder:
    """Writes what it was told into files of a folder; ``done`` is what it remembers to have processed."""

    def __init__(self, folder: Path, fail: bool = False) -> None:
        self.folder, self.fail = folder, fail

    def open(self, partition_id: int, epoch_id: int) -> bool:
        self.place = self.folder / f"{epoch_id}-{partition_id}"
        self.rows: list[str] = []
        return not self.place.exists()

    def process(self, row: Any) -> None:
        assert row.asDict() == {"k": row.k, "v": row.v}
        self.rows.append(f"{row.k}{row.v}")

    def close(self, error: Exception | None) -> None:
        if self.rows:
            self.place.write_text(" ".join(sorted(self.rows)))
        (self.folder / f"closed-{error}").touch()
        if self.fail:
            raise RuntimeError("after all was done")


def test_names_that_come_twice_reach_a_function_as_from_spark(ckpt: Any, spark: SparkSession, data: Input) -> None:
    """As behind a join by a condition. Rows that an earlier start left have the names they had then."""

    def joined(stream: Any) -> Any:
        right = data.table(spark).select("k", F.struct("v").alias("V"))
        return stream.alias("l").join(right.alias("r"), F.expr("l.k = r.k"))

    calls: list[Any] = []
    failing = iter([True, False])

    def take(rows: Any, checkpoint: int) -> None:
        if next(failing, False):
            raise RuntimeError("not now")
        calls.append((rows.columns, [f.dataType for f in rows.schema], ordered(map(tuple, rows.collect()))))

    with pytest.raises(StreamingQueryException, match="not now"):
        end(start(joined(data.stream(ckpt)).writeStream.foreachBatch(take)))
    end(start(joined(data.stream(ckpt)).writeStream.foreachBatch(take)))
    expected = joined(data.table(spark))
    types = [f.dataType for f in expected.schema]
    assert calls == [(["k", "v", "k", "V"], types, ordered(map(tuple, expected.collect())))]
    with pytest.raises(InvalidInputError, match="more than once"):
        start(joined(data.stream(ckpt)).writeStream.foreachBatch(take).alsoTo("memory", path="/nowhere"))


def test_foreach_calls_an_object_by_partition_and_checkpoint_and_the_same_ones_come_again(
    ckpt: Any, data: Input, tmp_path: Path
) -> None:
    folder = tmp_path / "recorded"
    folder.mkdir()
    query = start(data.stream(ckpt).writeStream.foreach(Recorder(folder, fail=True)))
    with pytest.raises(StreamingQueryException, match="after all was done"):
        query.awaitTermination()
    written = {p.name: p.read_text() for p in folder.iterdir()}
    assert written == {"1-0": "a1 b2", "closed-None": ""}
    end(start(data.stream(ckpt).writeStream.foreach(Recorder(folder))))
    assert {p.name: p.read_text() for p in folder.iterdir()} == written
    data.add(("c", 3))
    end(start(data.stream(ckpt).writeStream.foreach(lambda row: (folder / f"row-{row.v}").touch())))
    assert (folder / "row-3").exists()
    assert not (folder / "row-1").exists()


def test_what_is_no_function_of_rows_and_id_is_refused(ckpt: Any, data: Input) -> None:
    writer = data.stream(ckpt).writeStream
    for func in (None, "f", lambda rows: None, lambda: None):
        with pytest.raises(InvalidInputError, match=r"foreachBatch .*DataFrame and a checkpoint's id"):
            writer.foreachBatch(func)
    for f in (None, object(), type("W", (), {"process": print, "open": 1})()):
        with pytest.raises(PySparkAttributeError, match="ATTRIBUTE_NOT_CALLABLE"):
            writer.foreach(f)
    with pytest.raises(PicklingError):
        writer.foreach(lambda row: ckpt.spark.range(1))
    for name in ("foreachBatch", "foreach"):
        with pytest.raises(ConfigError, match="is a method and no format"):
            writer.format(name)
    with pytest.raises(ConfigError, match=r"foreachBatch: unknown option.* path"):
        writer.foreachBatch(lambda rows, k: None).queryName("job").start("somewhere")
    with pytest.raises(InvalidInputError, match="expected a column at least"):
        data.stream(ckpt).select().writeStream.foreachBatch(lambda rows, k: None).queryName("job").start()
