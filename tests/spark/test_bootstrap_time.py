"""Operators that go by the event time, bootstrapped: live they go on as behind a stream that has read the history."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from tests.spark.conftest import Input, Job, named, ordered

SCHEMA = "k string, v long"
BRANCHES = ("windows", "sessions", "duplicates", "within", "function", "processor")
"""The result of each is the same however these rows are cut into batches."""
_DELAY_S, _GAP_S = 10, 30


def bursts() -> list[tuple[str, int]]:
    """Six keys that come three times in 5 s, and again after more than a minute. No row is late in any batches."""
    rows = [(f"k{key}", 100 + 13 * key + 70 * burst + at) for key in range(6) for burst in range(6) for at in (0, 2, 5)]
    return sorted(rows, key=lambda row: row[1] + (row[1] * 7) % 4)


class Visit:
    """How many rows came until none came for a while of event time."""

    def __call__(self, key: Any, frames: Any, state: Any) -> Any:
        if state.hasTimedOut:
            n, last = state.get
            state.remove()
            yield pd.DataFrame({"k": [key[0]], "value": [f"{n} until {last}"]})
            return
        n, last = state.get if state.exists else (0, 0)
        for frame in frames:
            n, last = n + len(frame), max(last, int(frame["v"].max()))
        state.update((n, last))
        state.setTimeoutTimestamp((last + _GAP_S) * 1000)


class Timed(StatefulProcessor):
    """The same by timers; each row's timer takes the place of the one before."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.visit = handle.getValueState("visit", "n long, last long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        n, last = self.visit.get() if self.visit.exists() else (0, 0)
        for frame in rows:
            n, last = n + len(frame), max(last, int(frame["v"].max()))
        self.visit.update((n, last))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer((last + _GAP_S) * 1000)
        yield from ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        n, last = self.visit.get()
        self.visit.clear()
        yield pd.DataFrame({"k": [key[0]], "value": [f"{n} until {last}"]})


def by_time(df: Any) -> Any:
    rows = df.withColumn("at", F.timestamp_seconds("v")).withWatermark("at", f"{_DELAY_S} seconds")
    value = "k string, value string"
    visit = rows.groupBy("k").applyInPandasWithState(Visit(), value, "n long, last long", "append", "EventTimeTimeout")
    made = [
        named(rows.groupBy(F.window("at", "20 seconds"), "k").agg(F.sum("v").alias("n")), "windows")
        .select("k", F.concat_ws(" ", F.unix_seconds("window.start"), "n")),
        named(rows.groupBy(F.session_window("at", "8 seconds").alias("s"), "k").agg(F.sum("v").alias("n")), "sessions")
        .select("k", F.concat_ws(" ", F.unix_seconds("s.start"), "n")),
        named(rows.dropDuplicates(["k", "at"]), "duplicates").select("k", F.col("v").cast("string")),
        named(rows.dropDuplicatesWithinWatermark(["k"]), "within").select("k", F.col("v").cast("string")),
        named(visit, "function").select("k", "value"),
        named(rows.groupBy("k").transformWithStateInPandas(Timed(), value, "append", "EventTime"), "processor")
        .select("k", "value"),
    ]  # fmt: skip
    tagged = [m.toDF("k", "value").withColumn("kind", F.lit(kind)) for m, kind in zip(made, BRANCHES, strict=True)]
    return reduce(lambda one, other: one.unionByName(other), tagged)


def test_operators_by_event_time_that_are_bootstrapped_put_out_what_a_stream_puts_out_behind_the_history(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input], tmp_path: Path
) -> None:
    rows, cut = bursts(), 61
    past, live, whole = (new_input(name, SCHEMA) for name in ("past", "live", "whole"))
    spark.conf.set("spark.ckpt.dir", str(tmp_path / "whole-jobs"))
    job = Job(tmp_path / "of-whole")
    past.add(*reversed(rows[:cut]))
    for at in range(0, cut, 10):
        whole.add(*rows[at : min(at + 10, cut)])
    job.run(by_time(whole.stream(ckpt)))
    before = job.rows()
    for at in range(cut, len(rows), 10):
        for into in (live, whole):
            into.add(*rows[at : at + 10])
    job.run(by_time(whole.stream(ckpt)))
    expected = list(job.rows())
    for row in before:
        expected.remove(row)
    spark.conf.set("spark.ckpt.dir", str(tmp_path / "live-jobs"))
    query = by_time(live.stream(ckpt))
    writer = ckpt.savepoint_writer(query)
    for uid in BRANCHES:
        writer.bootstrap(uid, past.table(spark))
    made = writer.write(str(tmp_path / "made"))
    job = Job(tmp_path / "of-live")
    job.run(query, spark__ckpt__restore=made.path)
    for kind in BRANCHES:
        found = [row for row in job.rows() if row[2] == kind]
        assert found == ordered(row for row in expected if row[2] == kind), kind
        assert found, kind
