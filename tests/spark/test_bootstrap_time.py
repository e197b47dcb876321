"""Operators that go by the event time, bootstrapped: live they go on as behind a stream that has read the history."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from spark_ckpt.errors import InvalidInputError
from tests.spark.conftest import Input, Job, named

SCHEMA = "k string, v long"
BRANCHES = ("windows", "sessions", "duplicates", "within", "function", "processor", "joined", "chained")
"""The result of each is the same however these rows are cut into batches."""
UIDS = (*BRANCHES, "first")
TICK = "tick"
_DELAY_S, _GAP_S, _CUT = 10, 30, 30


def round_of(number: int) -> list[tuple[str, int]]:
    """Six keys, one after the other, that come three times in 5 s; then, long after all, the event time alone."""
    begin = 100 + 400 * number
    rows = [(f"k{key}", begin + 13 * key + at) for key in range(6) for at in (0, 2, 5)]
    return [*rows, (TICK, begin + 200), (TICK, begin + 350)]


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
    left, right = rows.selectExpr("k", "v", "at"), rows.selectExpr("k AS rk", "v AS rv", "at AS rat")
    on = F.expr("k = rk AND rat BETWEEN at AND at + INTERVAL 4 SECONDS AND v < rv")
    first = named(rows.dropDuplicatesWithinWatermark(["k"]), "first")
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
        named(left.join(right, on, "leftOuter"), "joined").select("k", F.concat_ws(" ", "v", "rv")),
        named(first.groupBy(F.window("at", "20 seconds"), "k").agg(F.count("*").alias("n")), "chained")
        .select("k", F.concat_ws(" ", F.unix_seconds("window.start"), "n")),
    ]  # fmt: skip
    tagged = [m.toDF("k", "value").withColumn("kind", F.lit(kind)) for m, kind in zip(made, BRANCHES, strict=True)]
    return reduce(lambda one, other: one.unionByName(other), tagged)


def expected(history: list[tuple[str, int]], live: list[tuple[str, int]]) -> dict[str, set[tuple[str, str]]]:
    """What comes out behind the history, of any stream whose batches are short: its first round is long over."""
    late = max(v for _, v in history) - _DELAY_S
    rows = [(k, v) for k, v in (*history[len(round_of(0)) :], *live) if k != TICK]
    visits = {k: [v for key, v in rows if key == k] for k, _ in rows}
    windows: dict[tuple[str, int], int] = {}
    for k, v in rows:
        windows[k, v // 20 * 20] = windows.get((k, v // 20 * 20), 0) + v
    firsts = {(k, vs[0] // 20 * 20) for k, vs in visits.items()}
    pairs = {(k, v, w) for k, v in rows for w in visits[k] if v < w <= v + 4}
    alone = {(k, v) for k, v in rows if not any(p[:2] == (k, v) for p in pairs) and v + 4 > late}
    counted = {(k, f"{len(vs)} until {vs[-1]}") for k, vs in visits.items() if vs[-1] + _GAP_S >= late}
    return {
        "windows": {(k, f"{start} {n}") for (k, start), n in windows.items() if start + 20 > late},
        "sessions": {(k, f"{vs[0]} {sum(vs)}") for k, vs in visits.items() if vs[-1] + 8 > late},
        "duplicates": {(k, str(v)) for k, v in live if k != TICK},
        "within": {(k, str(vs[0])) for k, vs in visits.items() if (k, vs[0]) in live},
        "function": counted,
        "processor": counted,
        "joined": {(k, f"{v} {w}") for k, v, w in pairs if (k, w) in live} | {(k, str(v)) for k, v in alone},
        "chained": {(k, f"{start} 1") for k, start in firsts if start + 20 > late},
    }


def test_operators_by_event_time_that_are_bootstrapped_put_out_what_a_stream_puts_out_behind_the_history(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input], job: Job, tmp_path: Path
) -> None:
    """The history ends in the middle of a visit, and its rows come in no order."""
    rows = [*round_of(0), *round_of(1)]
    history, live = rows[:_CUT], rows[_CUT:]
    past, source = new_input("past", SCHEMA), new_input("live", SCHEMA)
    past.add(*reversed(history))
    for part in (live[:-2], live[-2:-1], live[-1:]):
        source.add(*part)
    query = by_time(source.stream(ckpt))
    writer = ckpt.savepoint_writer(query)
    for uid in UIDS:
        writer.bootstrap(uid, past.table(spark))
    made = writer.write(str(tmp_path / "made"))
    assert made.verify() == []
    job.run(query, spark__ckpt__restore=made.path)
    found = [row for row in job.rows() if row[0] != TICK]
    assert len(found) == len(set(found))
    for kind, wanted in expected(history, live).items():
        assert {row[:2] for row in found if row[2] == kind} == wanted, kind
        assert wanted, kind


def test_what_cannot_be_known_from_rows_in_any_batches_is_refused_and_given_by_hand(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input], tmp_path: Path
) -> None:
    past, source = new_input("past", SCHEMA), new_input("live", SCHEMA)
    past.add(("a", 1))
    rows = source.stream(ckpt).withColumn("at", F.timestamp_seconds("v")).withWatermark("at", "10 seconds")
    visit = rows.groupBy("k").applyInPandasWithState(
        Visit(), "k string, value string", "n long, last long", "append", "EventTimeTimeout"
    )
    seen = named(named(visit, "visits").dropDuplicates(["k"]), "seen")
    writer = ckpt.savepoint_writer(seen)
    with pytest.raises(InvalidInputError, match=r"'seen'.*rows come from 'visits'.*by with_operator"):
        writer.bootstrap("seen", past.table(spark))
    made = writer.bootstrap("visits", past.table(spark)).with_operator("seen", None).write(str(tmp_path / "made"))
    assert made.state("visits").get("a")[0]["n"] == 1
    with pytest.raises(InvalidInputError, match=r"every='soon': expected a duration"):
        writer.bootstrap("visits", past.table(spark), every="soon")


def test_sliding_windows_are_in_their_key_groups_whatever_order_is_asked_for(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input], tmp_path: Path
) -> None:
    past, source = new_input("past", SCHEMA), new_input("live", SCHEMA)
    past.add(*((f"k{i}", 12) for i in range(9)), ("last", 25))
    rows = source.stream(ckpt).withColumn("at", F.timestamp_seconds("v")).withWatermark("at", "10 seconds")
    sliding = named(rows.groupBy(F.window("at", "20 seconds", "10 seconds"), "k").agg(F.sum("v").alias("n")), "sliding")
    made = ckpt.savepoint_writer(sliding).bootstrap("sliding", past.table(spark), "v").write(str(tmp_path / "made"))
    state = made.state("sliding")
    found = state.arrow().to_pylist()
    assert sorted(r["sum_v"] for r in found) == [12] * 18 + [25] * 2
    assert all(state.get(r["window_start"], r["k"]) == [r] for r in found)
