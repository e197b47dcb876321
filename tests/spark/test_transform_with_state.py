"""A ``StatefulProcessor`` written for Spark does here what it does there, on the same batches."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, IllegalArgumentException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import Row

import spark_ckpt
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.operators.functions_with_state import check_timer_method
from spark_ckpt.spark_versions import spark_version
from tests.spark.conftest import DEADLINE_S, Input, Job, ordered

cloudpickle.register_pickle_by_value(sys.modules[__name__])

NewInput = Callable[[str, str], Input]
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def through_spark(spark: SparkSession, df: Any, folder: Path, mode: str = "update") -> list[tuple[Any, ...]]:
    """Every batch's output of a plain query, all together."""
    seen: list[tuple[Any, ...]] = []

    def collect(batch: Any, number: int) -> None:
        seen.extend(tuple(row.values()) for row in batch.toArrow().to_pylist())

    provider = "spark.sql.streaming.stateStore.providerClass"
    spark.conf.set(provider, ROCKS)
    try:
        writer = df.writeStream.foreachBatch(collect).option("checkpointLocation", str(folder)).outputMode(mode)
        assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    finally:
        spark.conf.unset(provider)
    return ordered(seen)


def told(x: Any) -> str:
    if isinstance(x, tuple | list):
        return f"{type(x).__name__}[{', '.join(map(told, x))}]"
    return f"{type(x).__name__}:{x!r}"


# --- what a processor sees ------------------------------------------------------------------------------------------

COLUMNS = (
    "k int, s string, i int, f float, b boolean, t timestamp, d date, m decimal(9,2), a array<int>, z binary, "
    "st struct<x:int,y:string>, mp map<string,int>"
)
KEPT = (
    "l long, i int, s string, db double, bo boolean, t timestamp, d date, m decimal(9,2), a array<int>, "
    "st struct<x:int,y:string>, mp map<string,int>, z binary"
)
SUMMER = datetime(2024, 7, 1, 12)


class Looking(StatefulProcessor):
    """Tells all that it is given, and keeps values of every kind."""

    def __init__(self, pandas: bool) -> None:
        self.pandas = pandas

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("val", KEPT)
        self.list = handle.getListState("lst", "t timestamp, x int")
        self.map = handle.getMapState("mapped", "k string, t timestamp", "v double")
        self.other = handle.getValueState("other", "k int")
        handle.deleteIfExists("other")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        seen: list[Any] = [told(key), timerValues.getCurrentProcessingTimeInMs(), timerValues.getCurrentWatermarkInMs()]
        for part in rows:
            if self.pandas:
                seen.append({c: str(t) for c, t in part.dtypes.items()})
                seen += [str(part.index), *(told(tuple(r)) for r in part.itertuples(index=False))]
            else:
                seen.append(f"{told(tuple(part))} {part.__fields__}")
        seen += [self.value.exists(), told(self.value.get()), self.list.exists(), told(list(self.list.get()))]
        seen += [self.map.exists(), told(list(self.map.iterator())), told(list(self.map.keys()))]
        seen += [
            told(self.map.getValue(("a", SUMMER))),
            self.map.containsKey(("b", None)),
            told(list(self.map.values())),
        ]
        self._change(key[0])
        seen += [told(self.value.get()), told(list(self.list.get())), told(self.map.getValue(("b", None)))]
        out = {"k": key[0], "seen": json.dumps(seen)}
        yield pd.DataFrame({name: [value] for name, value in out.items()}) if self.pandas else Row(**out)

    def _change(self, key: Any) -> None:
        if key == 2:
            for state in (self.value, self.list, self.map):
                state.clear()
            return
        parts = [1, None, 3], Row(x=1, y="r"), {"a": 1}, b"\x01\x02"
        exact = date(2020, 1, 1), Decimal("2.50")
        self.value.update((2**40, np.int32(4), "text", np.float64(1.5), np.bool_(True), SUMMER, *exact, *parts))
        self.list.appendValue((SUMMER, np.int64(1)))
        self.list.appendList([(None, 2), (SUMMER, None)])
        self.map.updateValue(("a", SUMMER), (1.5,))
        self.map.updateValue(("b", None), (np.float32(2.5),))
        self.map.removeKey(("c", None))


def at(second: int) -> datetime:
    return datetime.fromtimestamp(1_700_000_000 + second, timezone.utc)


def looked_at(grouped: Any, pandas: bool) -> Any:
    if pandas:
        return grouped.transformWithStateInPandas(Looking(True), "k int, seen string", "update", "None")
    return grouped.transformWithState(Looking(False), "k int, seen string", "update", "None")


@pytest.mark.smoke
@pytest.mark.skipif(spark_version() < (4, 2), reason="Spark itself stores no Row inside of a value")
@pytest.mark.parametrize("pandas", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["pandas", "rows"])
def test_rows_keys_and_states_of_many_types_are_those_of_spark(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path, pandas: bool
) -> None:
    data = new_input("in", COLUMNS)
    nothing = (None,) * 10
    more = (1.5, True, at(0), date(2024, 1, 1), Decimal("1.10"), [1, 2], b"x", {"x": 1, "y": "q"}, [("p", 1)])
    data.add((1, "a", 1, *more), (1, "a", *nothing), (2, None, 2, *more[:6], None, None, [("p", None)]))
    data.add((1, "b", 5, *more), (2, "c", *nothing))
    data.add((2, "c", 6, *more))
    data.add((None, "d", 7, *more))  # beside it, Spark's 2 would be 2.0; here no key depends on its neighbours
    expected = through_spark(spark, looked_at(data.spark_stream(spark).groupBy("k"), pandas), tmp_path / "plain")
    assert len(expected) == 6
    job.run(looked_at(data.stream(ckpt).groupBy("k"), pandas).uid("tws"))
    assert job.rows() == expected


# --- time -----------------------------------------------------------------------------------------------------------


class Sessions(StatefulProcessor):
    """Timers behind the last row of a key, one for the watermark itself, one taken back; some register others."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.last = handle.getValueState("last", "v long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        times = [int(row.t.timestamp() * 1000) for row in rows]
        last = max([*times, self.last.get()[0] if self.last.exists() else 0])
        self.last.update((last,))
        self.handle.registerTimer(timerValues.getCurrentWatermarkInMs())
        for ahead in (5_000, 3_000, 5_000):
            self.handle.registerTimer(last + ahead)
        self.handle.deleteTimer(last + 3_000)
        self.handle.deleteTimer(last + 4_000)
        yield Row(k=key[0], what="rows", seen=json.dumps([sorted(times), *self._seen(timerValues)]))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        time = expiredTimerInfo.getExpiryTimeInMs()
        yield Row(k=key[0], what=f"timer {time}", seen=json.dumps(self._seen(timerValues)))
        if self.last.exists() and time > self.last.get()[0]:
            self.last.clear()
            self.handle.registerTimer(time + 100)
            self.handle.registerTimer(time)

    def _seen(self, times: Any) -> list[Any]:
        return [times.getCurrentWatermarkInMs(), sorted(self.handle.listTimers()), self.last.get()]


def test_event_time_timers_and_late_rows_are_those_of_spark(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    data = new_input("in", "k string, t timestamp")
    data.add(("a", at(20)), ("b", at(5)))
    data.add(("a", at(4)), ("b", at(31)))  # the watermark is 10: a's row is late
    data.add(("a", at(2)), ("a", at(25)), ("c", at(40)))
    data.add(("d", at(60)))
    data.add(("d", at(61)), ("a", at(49)))

    def query(df: Any) -> Any:
        grouped = df.withWatermark("t", "10 seconds").groupBy("k")
        return grouped.transformWithState(
            statefulProcessor=Sessions(), outputStructType="k string, what string, seen string", outputMode="Update",
            timeMode="EventTime",
        )  # fmt: skip

    expected = through_spark(spark, query(data.spark_stream(spark)), tmp_path / "plain")
    assert len(expected) > 12
    job.run(query(data.stream(ckpt)).uid("tws"))
    assert job.rows() == expected


class Totals(StatefulProcessor):
    """The sum of a key so far, at the time of its latest row, or always at the same ``time``."""

    def __init__(self, time: datetime | None = None) -> None:
        self.time = time

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "v long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        seen = list(rows)
        total = sum(row.v for row in seen) + (self.total.get() or (0,))[0]
        self.total.update((total,))
        yield Row(k=key[0], total=total, at=self.time or max(row.t for row in seen))


def by_output_time(df: Any, time: datetime | None = None) -> Any:
    """Windows of the time that the processor gives its rows."""
    grouped = df.withWatermark("t", "10 seconds").withColumnRenamed("t", "time").withColumnRenamed("time", "t")
    totals = grouped.groupBy("k").transformWithState(
        Totals(time), "k string, total long, at timestamp", "append", "none", eventTimeColumnName="AT"
    )
    windows = totals.select(F.col("at").alias("w"), "total").groupBy(F.window("w", "10 seconds"))
    return windows.agg(F.sum("total"), F.count("*")).select(F.unix_seconds("window.start"), "sum(total)", "count(1)")


def test_operators_behind_a_processor_go_by_the_time_that_it_gives_its_rows(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    data = new_input("in", "k string, v long, t timestamp")
    data.add(("a", 1, at(0)), ("b", 2, at(5)), ("a", 3, at(14)))
    data.add(("a", 4, at(31)), ("b", 5, at(2)), ("b", 6, at(12)))
    data.add(("a", 7, at(44)), ("b", 8, at(3)), ("b", 1, at(33)))
    data.add(("c", 1, at(90)))
    expected = through_spark(spark, by_output_time(data.spark_stream(spark)), tmp_path / "plain", "append")
    assert len(expected) == 4
    job.run(by_output_time(data.stream(ckpt)).uid("totals"))
    assert job.rows() == expected
    query = job.start(by_output_time(data.stream(ckpt), SUMMER.replace(year=2000)).uid("late"), job="late")
    with pytest.raises(StreamingQueryException, match=r"OLDER_THAN_WATERMARK_NOT_ALLOWED.*eventTime=2000"):
        query.awaitTermination(DEADLINE_S)


# --- through checkpoints --------------------------------------------------------------------------------------------


class Visits(StatefulProcessor):
    """A value, a list, a map and timers of each key."""

    def __init__(self, *more: str) -> None:
        self.more = more

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")
        self.all = handle.getListState("all", "v long")
        self.by_value = handle.getMapState("byValue", "v long", "n long")
        for name in self.more:
            setattr(self, name, handle.getValueState(name, "n long"))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        values = [v for frame in rows for v in frame["v"].tolist()]
        n = (self.count.get() or (0,))[0] + len(values)
        self.count.update((n,))
        self.all.appendList([(v,) for v in values])
        for v in values:
            self.by_value.updateValue((v,), ((self.by_value.getValue((v,)) or (0,))[0] + 1,))
        self.handle.registerTimer(10**15 + n)
        timers = [t - 10**15 for t in self.handle.listTimers()]
        seen = [[v for (v,) in self.all.get()], sorted((k[0], v[0]) for k, v in self.by_value.iterator()), timers]
        yield pd.DataFrame({"k": [key[0]], "n": [n], "seen": [json.dumps(seen)]})


def visits(source: Input, ckpt: Any, *more: str) -> Any:
    grouped = source.stream(ckpt).withWatermark("t", "1 hour").groupBy("k")
    out = "k string, n long, seen string"
    return grouped.transformWithStateInPandas(Visits(*more), out, "update", "eventTime").uid("visits")


def test_all_state_goes_on_at_the_same_location_and_is_restored_with_other_partitions(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    data = new_input("in", "k string, v long, t timestamp")
    data.add(("a", 1, at(0)), ("b", 2, at(0)), ("a", 1, at(0)))
    job.run(visits(data, ckpt), "k")
    data.add(("a", 3, at(0)), ("c", 4, at(0)))
    job.run(visits(data, ckpt), "k")
    data.add(("a", 1, at(0)), ("c", 4, at(0)))
    elsewhere = str(tmp_path / "elsewhere")
    spark.conf.set("spark.sql.shuffle.partitions", 3)
    try:
        job.run(visits(data, ckpt), "k", checkpointLocation=elsewhere)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", 2)
    rows = {k: (n, json.loads(seen)) for k, n, seen in job.rows()}
    assert rows == {
        "a": (4, [[1, 1, 3, 1], [[1, 3], [3, 1]], [2, 3, 4]]),
        "b": (1, [[2], [[2, 1]], [1]]),
        "c": (2, [[4, 4], [[4, 2]], [1, 2]]),
    }
    known = spark_ckpt.job(str(tmp_path / "jobs"), "job")
    tables = {"visits", *(f"visits.{t}" for t in ("count", "all", "byValue", "_timers", "_lists"))}
    assert set(known.completed()[-1].tables) == tables

    data.add(("b", 5, at(0)))
    job.run(visits(data, ckpt, "later"), "k", checkpointLocation=elsewhere)  # which begins empty
    assert ("b", 2, json.dumps([[2, 5], [[2, 1], [5, 1]], [1, 2]])) in job.rows()


# --- initial state ---------------------------------------------------------------------------------------------------


class Balance(StatefulProcessor):
    """What a key began with, and all its rows."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n long")

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:
        assert list(initialState.columns) == ["name", "start"]
        self.total.update((int(initialState["start"].sum()) + (self.total.get() or (0,))[0],))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        self.total.update((sum(int(frame["v"].sum()) for frame in rows) + (self.total.get() or (0,))[0],))
        yield pd.DataFrame({"k": [key[0]], "total": [self.total.get()[0]]})


def test_initial_state_is_that_of_spark_and_is_read_once(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    data = new_input("in", "k string, v long")
    data.add(("a", 1), ("b", 2), ("a", 3))
    data.add(("c", 1), ("a", 4))

    def query(df: Any, begin: int) -> Any:
        initial = spark.createDataFrame([("a", begin), ("c", 5), (None, 7), ("a", 100)], "name string, start long")
        return df.groupBy("k").transformWithStateInPandas(
            Balance(), "k string, total long", "update", "none", initial.groupBy("name")
        )

    expected = through_spark(spark, query(data.spark_stream(spark), 10), tmp_path / "plain")
    assert expected == [("a", 114), ("a", 118), ("b", 2), ("c", 6)]
    job.run(query(data.stream(ckpt), 10).uid("tws"))
    assert job.rows() == expected
    data.add((None, 1), ("a", 5))
    job.run(query(data.stream(ckpt), 99_999).uid("tws"), checkpointLocation=str(tmp_path / "elsewhere"))
    assert job.rows() == ordered([*expected, (None, 8), ("a", 123)])


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("update", "Foo"), "Unknown time mode Foo. Accepted timeMode modes are 'none', 'processingTime', 'eventTime'"),
        (("complete", "none"), "outputMode must be append or update, found 'complete'"),
        (("update", "eventTime"), r"EventTimeTimeout needs withWatermark\(...\) before groupBy"),
        (("update", "none", None, "t"), "Failed to find watermark definition in the streaming query"),
    ],
)
def test_what_cannot_work_is_refused_before_it_starts(ckpt: Any, new_input: NewInput, given: Any, message: str) -> None:
    grouped = new_input("in", "k string, t timestamp").stream(ckpt).groupBy("k")
    with pytest.raises((InvalidInputError, AnalysisException, IllegalArgumentException), match=message):
        ckpt.check(grouped.transformWithState(Sessions(), "k string", *given), "update")


class OddNames(Sessions):
    def handleExpiredTimer(self, key: Any, timers: Any, info: Any) -> Iterator[Row]:  # type: ignore[override]
        yield Row(k=key[0])


def test_a_timer_method_that_spark_could_not_call_is_refused_before_the_first_timer_is_due() -> None:
    with pytest.raises(InvalidInputError, match=r"OddNames\.handleExpiredTimer is called with .*, found \(key"):
        check_timer_method(OddNames(), "EventTime")
    check_timer_method(OddNames(), "None")  # never called
    check_timer_method(Sessions(), "EventTime")
