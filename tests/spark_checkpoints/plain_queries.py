"""Queries with state, of plain Spark and of streams here: what they have kept in plain Spark is imported by tests.

Nothing of ``spark_ckpt`` is imported: ``make.py`` runs them on other versions of PySpark.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

SCHEMA = "k string, v long, d double, c decimal(10,2), w decimal(30,4)"
BEFORE, BEHIND = (0, 20), (40, 65)
"""Where the rows of each file begin: of those that plain Spark has read, and of those behind them."""


def named(df: Any, uid: str) -> Any:
    """``df.uid(uid)``, where it is a stream of ours."""
    asked = getattr(df, "uid", None)
    return asked(uid) if callable(asked) else df


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


def _sides(df: Any) -> tuple[Any, Any, Any]:
    """Of one stream with itself: of each pair of rows of a key, where the later one comes within 10 s."""
    timed = df.withColumn("at", F.timestamp_seconds("v")).withWatermark("at", "5 seconds")
    left = timed.select(
        F.col("k").alias("lk"), F.col("v").alias("lv"), F.col("c").alias("lc"), F.col("at").alias("lat")
    )
    right = timed.select(F.col("k").alias("rk"), F.col("v").alias("rv"), F.col("at").alias("rat"))
    return left, right, F.expr("lk = rk AND rat BETWEEN lat AND lat + INTERVAL 10 SECONDS AND lv < rv")


def joins(df: Any) -> Any:
    left, right, on = _sides(df)
    made = [named(left.join(right, on, how), how) for how in ("inner", "leftOuter")]
    shown = [m.select(F.lit(at).alias("kind"), "lk", "lv", "lc") for at, m in enumerate(made)]
    return reduce(lambda one, other: one.unionByName(other), shown)


def semi(df: Any) -> Any:
    left, right, on = _sides(df)
    return named(left.join(right, on, "leftSemi"), "semi").select("lk", "lv", "lc")


def collected(df: Any) -> Any:
    """Elements of each form that Spark has of them: of one to eight bytes, of any length, and decimals of both."""
    small = F.col("v").cast("byte")
    lists = [F.collect_list(c).alias(f"l{c}") for c in "kvdcw"]
    sets = [F.sort_array(F.collect_set(F.col("v") % 5)).alias("sv"), F.sort_array(F.collect_set("c")).alias("sc")]
    others = [
        F.collect_list(small),
        F.collect_list(small > 3),
        F.collect_list(F.timestamp_seconds("v")).cast("array<string>"),
    ]
    named_ = [column.alias(f"o{at}") for at, column in enumerate(others)]
    return named(df.groupBy("k").agg(F.count("*").alias("n"), *lists, *sets, *named_), "collected")


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
