"""The checkpoint of a plain Spark query, imported: the query goes on here as plain Spark itself goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from spark_ckpt.errors import InvalidInputError
from tests.spark.conftest import Input, Job, named, ordered, rows_of_spark

NewInput = Callable[[str, str], Input]
SCHEMA = "k string, v long, d double, c decimal(10,2), w decimal(30,4)"
STORES = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@pytest.fixture
def source(new_input: NewInput) -> Input:
    made = new_input("input", SCHEMA)
    for at in (0, 20):
        made.add(*rows(at))
    return made


@pytest.fixture
def only_with_rows(spark: SparkSession) -> Iterator[None]:
    """Where the processing time goes on, Spark makes batches without rows for ever, also with ``availableNow``."""
    spark.conf.set(NO_DATA, "false")
    yield
    spark.conf.unset(NO_DATA)


def rows(at: int) -> list[tuple[Any, ...]]:
    found = [(f"k{i % 4}", at + i, i / 4, None if i % 3 == 0 else i, at + i) for i in range(12)]
    return [*found, (None, at + 3, None, None, None), ("only null", None, None, None, None)]


def aggregates(df: Any) -> Any:
    sums = [F.sum(c).alias(f"s{c}") for c in "vdcw"] + [F.avg(c).alias(f"a{c}") for c in "vdcw"]
    others = [F.min("d"), F.max("c"), F.first("v"), F.last("v", ignorenulls=True), F.stddev("d"), F.var_pop("v")]
    named_ = [column.alias(f"o{at}") for at, column in enumerate(others)]
    both = (F.sum("v") + F.count("d")).alias("both")  # Spark keeps the sum once
    return named(df.groupBy("k").agg(F.count("*").alias("n"), *sums, both, *named_), "totals")


class Count:
    """The sum of the values and how many there were, which comes out when the event time passes the last one."""

    def __call__(self, key: Any, frames: Any, state: Any) -> Any:
        if state.hasTimedOut:
            n, total = state.get
            state.remove()
            yield pd.DataFrame({"k": [key[0]], "value": [f"{n} {total}"]})
            return
        n, total = state.get if state.exists else (0, "0")
        for frame in frames:
            values = frame["v"].dropna()
            n, total = n + len(values), str(int(total) + int(values.sum()))
        state.update((n, total))
        state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 15_000)


class Seen:
    """How many rows came, until none comes for an hour."""

    def __call__(self, key: Any, frames: Any, state: Any) -> Any:
        (n,) = state.get if state.exists else (0,)
        n += sum(len(frame) for frame in frames)
        state.update((n,))
        state.setTimeoutDuration(3_600_000)
        yield pd.DataFrame({"k": [key[0]], "value": [str(n)]})


def kinds(df: Any) -> Any:
    """Several operators with state in one query: what is whose is told by their order in the plan."""
    timed = df.withColumn("at", F.timestamp_seconds("v")).withWatermark("at", "5 seconds")
    window = F.window("at", "10 seconds")
    windows = named(timed.groupBy(window, "k").agg(F.sum("v").alias("total")), "windows")
    function = timed.groupBy("k").applyInPandasWithState(
        Count(), "k string, value string", "n long, total string", "append", "EventTimeTimeout"
    )
    sums = [F.sum("v").alias("total"), F.avg("w").alias("mean"), F.count("*").alias("n")]
    sessions = named(timed.groupBy("k", F.session_window("at", "3 seconds").alias("s")).agg(*sums), "sessions")
    made = [
        sessions.select(
            "k", F.concat_ws(" ", F.unix_seconds("s.start"), F.unix_seconds("s.end"), "total", "mean", "n")
        ),
        windows.select("k", F.concat_ws(" ", F.col("window.start").cast("string"), F.col("total").cast("string"))),
        named(timed.dropDuplicates(["k", "at"]), "times").select("k", F.col("v").cast("string")),
        named(timed.dropDuplicatesWithinWatermark(["k"]), "within").select("k", F.col("v").cast("string")),
        named(function, "function").select("k", "value"),
    ]
    tagged = [m.toDF("k", "value").withColumn("kind", F.lit(f"{at}")) for at, m in enumerate(made)]
    return reduce(lambda one, other: one.unionByName(other), tagged)


def goes_on_alike(
    spark: SparkSession, ckpt: Any, source: Input, job: Job, tmp_path: Path, query: Any, mode: str, keys: str | None
) -> None:
    location = tmp_path / "plain"
    rows_of_spark(query(source.spark_stream(spark)), location, mode)
    df = query(source.stream(ckpt))
    made = ckpt.import_spark(str(location), df, str(tmp_path / "imported"), outputMode=mode)
    assert made.verify() == []
    source.add(*rows(40))
    source.add(*rows(65))
    expected = rows_of_spark(query(source.spark_stream(spark)), location, mode)
    job.run(df, keys, mode=mode, **{"spark.ckpt.restore": made.path})
    found = {r if keys is None else r[0]: r for r in map(tuple, expected)}
    assert job.rows() == ordered(found.values() if keys else map(tuple, expected))


def joins(df: Any) -> Any:
    """Of one stream with itself: of each pair of rows of a key, where the later one comes within 10 s."""
    timed = df.withColumn("at", F.timestamp_seconds("v")).withWatermark("at", "5 seconds")
    left = timed.select(
        F.col("k").alias("lk"), F.col("v").alias("lv"), F.col("c").alias("lc"), F.col("at").alias("lat")
    )
    right = timed.select(F.col("k").alias("rk"), F.col("v").alias("rv"), F.col("at").alias("rat"))
    on = F.expr("lk = rk AND rat BETWEEN lat AND lat + INTERVAL 10 SECONDS AND lv < rv")
    made = [named(left.join(right, on, how), how) for how in ("inner", "leftOuter")]
    shown = [m.select(F.lit(at).alias("kind"), "lk", "lv", "lc") for at, m in enumerate(made)]
    return reduce(lambda one, other: one.unionByName(other), shown)


def test_joins_go_on_with_the_rows_that_wait_in_plain_spark_and_know_which_have_found_another(
    spark: SparkSession, ckpt: Any, source: Input, job: Job, tmp_path: Path
) -> None:
    spark.conf.set(PROVIDER, STORES["hdfs"])
    goes_on_alike(spark, ckpt, source, job, tmp_path, joins, "append", None)


@pytest.mark.parametrize("store", ["hdfs", pytest.param("rocksdb", marks=pytest.mark.soak)])
def test_aggregates_go_on_from_what_plain_spark_kept_of_them(
    spark: SparkSession, ckpt: Any, source: Input, job: Job, tmp_path: Path, store: str
) -> None:
    spark.conf.set(PROVIDER, STORES[store])
    goes_on_alike(spark, ckpt, source, job, tmp_path, aggregates, "update", "k")


@pytest.mark.parametrize("store", ["rocksdb", pytest.param("hdfs", marks=pytest.mark.soak)])
def test_windows_sessions_duplicates_and_functions_with_state_go_on_where_plain_spark_stood_and_at_its_watermark(
    spark: SparkSession, ckpt: Any, source: Input, job: Job, tmp_path: Path, store: str
) -> None:
    spark.conf.set(PROVIDER, STORES[store])
    spark.conf.set(CHANGELOG, "true")
    goes_on_alike(spark, ckpt, source, job, tmp_path, kinds, "append", None)


class Remember(StatefulProcessor):
    """A variable of each kind, and a timer, which comes out when the event time has reached it."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "n long")
        self.seen = handle.getListState("seen", "v long, text string")
        self.parity = handle.getMapState("parity", "odd boolean", "n long, last long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        for frame in rows:
            for value in frame["v"].dropna():
                v = int(value)
                self.total.update(((self.total.get()[0] if self.total.exists() else 0) + v,))
                self.seen.appendValue((v, str(v)))
                odd = (v % 2 == 1,)
                n = self.parity.getValue(odd)[0] if self.parity.containsKey(odd) else 0
                self.parity.updateValue(odd, (n + 1, v))
        self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 20_000)
        yield pd.DataFrame({"k": [key[0]], "value": [self._told()]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        yield pd.DataFrame({"k": [key[0]], "value": [f"timer {expiredTimerInfo.getExpiryTimeInMs()} {self._told()}"]})

    def _told(self) -> str:
        total = self.total.get()[0] if self.total.exists() else None
        entries = sorted((k[0], tuple(v)) for k, v in self.parity.iterator())
        return f"{total} {[tuple(s) for s in self.seen.get()]} {entries}"


def processor(df: Any) -> Any:
    timed = df.withColumn("at", F.timestamp_seconds("v")).withWatermark("at", "5 seconds")
    made = timed.groupBy("k").transformWithStateInPandas(Remember(), "k string, value string", "append", "EventTime")
    return named(made, "remembered")


def test_variables_and_timers_of_a_processor_go_on_from_those_of_plain_spark(
    spark: SparkSession, ckpt: Any, source: Input, job: Job, tmp_path: Path
) -> None:
    spark.conf.set(PROVIDER, STORES["rocksdb"])
    goes_on_alike(spark, ckpt, source, job, tmp_path, processor, "append", None)


class Lately(StatefulProcessor):
    """A variable of each kind, each of which is forgotten after an hour."""

    def init(self, handle: Any) -> None:
        hour = 3_600_000
        self.total = handle.getValueState("total", "n long", hour)
        self.seen = handle.getListState("seen", "v long", hour)
        self.parity = handle.getMapState("parity", "odd boolean", "n long", hour)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        for frame in rows:
            for value in frame["v"].dropna():
                v, odd = int(value), (int(value) % 2 == 1,)
                self.total.update(((self.total.get()[0] if self.total.exists() else 0) + v,))
                self.seen.appendValue((v,))
                self.parity.updateValue(
                    odd, ((self.parity.getValue(odd)[0] if self.parity.containsKey(odd) else 0) + 1,)
                )
        entries = sorted((k[0], v[0]) for k, v in self.parity.iterator())
        total = self.total.get()[0] if self.total.exists() else None
        yield pd.DataFrame({"k": [key[0]], "value": [f"{total} {[s[0] for s in self.seen.get()]} {entries}"]})


def lately(df: Any) -> Any:
    made = df.groupBy("k").transformWithStateInPandas(Lately(), "k string, value string", "append", "ProcessingTime")
    seen = df.groupBy("k").applyInPandasWithState(
        Seen(), "k string, value string", "n long", "append", "ProcessingTimeTimeout"
    )
    return named(made, "lately").unionByName(named(seen, "seen"))


@pytest.mark.soak
def test_variables_that_are_forgotten_and_time_outs_of_the_processing_time_go_on_from_those_of_plain_spark(
    spark: SparkSession, ckpt: Any, source: Input, job: Job, tmp_path: Path, only_with_rows: None
) -> None:
    spark.conf.set(PROVIDER, STORES["rocksdb"])
    goes_on_alike(spark, ckpt, source, job, tmp_path, lately, "append", None)


def test_what_is_not_the_query_that_wrote_the_checkpoint_is_refused_by_name(
    spark: SparkSession, ckpt: Any, source: Input, tmp_path: Path
) -> None:
    def counted(df: Any, *keys: str) -> Any:
        return named(df.groupBy(*keys).agg(F.count("*").alias("n"), F.collect_list("v").alias("all")), "totals")

    location = tmp_path / "plain"
    rows_of_spark(counted(source.spark_stream(spark), "k"), location, "update")
    df = source.stream(ckpt)
    path = str(tmp_path / "made")
    for query, told in (
        (counted(df, "k"), "what Spark keeps of .*not understood here"),
        (named(df.groupBy("k").agg(F.sum("d")), "totals"), r"expected Spark's buffers sum for sum\(d\), found count"),
        (named(df.groupBy("d").agg(F.count("*")), "totals"), "expected keys d double in Spark's checkpoint"),
        (named(df.dropDuplicates(["k"]), "seen"), "expected the same kind"),
        (df, "expected the state of 0 operators"),
    ):
        with pytest.raises(InvalidInputError, match=told):
            ckpt.import_spark(str(location), query, path)
    with pytest.raises(InvalidInputError, match="with a committed batch"):
        ckpt.import_spark(str(tmp_path / "nowhere"), df, path)
    assert not Path(path).exists()
