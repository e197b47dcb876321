"""Streaming operators, written once: the same lines run on plain Spark and on ours. Top-N is on ours only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

DELAY, WINDOW, SLIDE = "10 seconds", "10 seconds", "5 seconds"


@dataclass(frozen=True)
class Query:
    """``make`` takes a stream of ``k, v, ts`` and how many keys there are. ``columns`` of what comes out are what the
    engines are compared by: what does not depend on which of several rows came first."""

    make: Callable[[Any, int], Any]
    columns: tuple[str, ...]
    mode: str = "append"


def _aggregate(rows: Any, _: int) -> Any:
    return rows.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"), F.max("v").alias("last"))


def _windowed(rows: Any, window: Any) -> Any:
    windows = rows.withWatermark("ts", DELAY).groupBy(window.alias("window"), "k")
    return windows.agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def _windows(rows: Any, _: int) -> Any:
    return _windowed(rows, F.window("ts", WINDOW))


def _sliding_windows(rows: Any, _: int) -> Any:
    return _windowed(rows, F.window("ts", WINDOW, SLIDE))


def _sessions(rows: Any, _: int) -> Any:
    return _windowed(rows, F.session_window("ts", "5 seconds"))


def _distinct(rows: Any, _: int) -> Any:
    """Each pair of a key and a moment comes once; the state ends with the watermark."""
    return rows.withWatermark("ts", DELAY).dropDuplicates(["k", "ts"])


def _distinct_within_watermark(rows: Any, _: int) -> Any:
    return rows.withWatermark("ts", DELAY).dropDuplicatesWithinWatermark(["k"])


def _static_join(rows: Any, keys: int) -> Any:
    """Half of the keys have a row in a table of as many rows as there are keys."""
    table = SparkSession.active().range(keys).select((F.col("id") * 2).alias("k"), F.col("id").alias("price"))
    return rows.join(table, "k")


def _stream_join(rows: Any, keys: int) -> Any:
    """Every other round of all keys is of the other stream: each row meets one, of the same key and moment."""
    round_ = F.floor(F.col("v") / keys) % 2
    left = rows.where(round_ == 0).withWatermark("ts", DELAY)
    right = rows.where(round_ == 1).withWatermark("ts", DELAY).withColumnRenamed("v", "w")
    return left.join(right, ["k", "ts"])


def _top(rows: Any, _: int) -> Any:
    priced = rows.withColumn("price", F.col("v") * 7919 % 1000003)
    return priced.groupBy("k").topN(3, F.desc("price"), "v", rank="place")


STREAM_JOIN, WITHIN_WATERMARK, TOP_N = "join, two streams", "dropDuplicatesWithinWatermark", "top-N"
_WINDOWED = ("window", "k", "n", "total")
QUERIES = {
    "agg": Query(_aggregate, ("k", "n", "total", "last"), "update"),
    "windows, tumbling": Query(_windows, _WINDOWED),
    "windows, sliding": Query(_sliding_windows, _WINDOWED),
    "session_window": Query(_sessions, _WINDOWED),
    "dropDuplicates": Query(_distinct, ("k", "ts")),
    WITHIN_WATERMARK: Query(_distinct_within_watermark, ("k",)),
    "join, static": Query(_static_join, ("k", "v", "price")),
    STREAM_JOIN: Query(_stream_join, ("k", "ts", "v", "w")),
    TOP_N: Query(_top, ("k", "place", "price", "v")),
}
GROUPS = {
    "aggregates": ("agg",),
    "windows": ("windows, tumbling", "windows, sliding"),
    "session_windows": ("session_window",),
    "deduplication": ("dropDuplicates", WITHIN_WATERMARK),
    "joins": ("join, static", STREAM_JOIN),
    "topn": (TOP_N,),
}
"""Sections of the suite."""
