"""PySpark's own streaming operators, written once: the same lines run on plain Spark and on ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

DELAY, WINDOW = "10 seconds", "10 seconds"
STREAM_JOIN = "join, two streams"
WITHOUT_TIME = ("agg", "join, static")


@dataclass(frozen=True)
class Query:
    """``make`` takes a stream of ``k, v`` and, where the load has windows, ``ts``; and how many keys there are."""

    make: Callable[[Any, int], Any]
    mode: str = "append"


def _aggregate(rows: Any, _: int) -> Any:
    return rows.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"), F.max("v").alias("last"))


def _windows(rows: Any, _: int) -> Any:
    windows = rows.withWatermark("ts", DELAY).groupBy(F.window("ts", WINDOW), "k")
    return windows.agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def _distinct(rows: Any, _: int) -> Any:
    """Each pair of a key and a moment comes once; the state ends with the watermark."""
    return rows.withWatermark("ts", DELAY).dropDuplicates(["k", "ts"])


def _distinct_within_watermark(rows: Any, _: int) -> Any:
    return rows.withWatermark("ts", DELAY).dropDuplicatesWithinWatermark(["k"])


def _sessions(rows: Any, _: int) -> Any:
    sessions = rows.withWatermark("ts", DELAY).groupBy(F.session_window("ts", "5 seconds"), "k")
    return sessions.agg(F.count("*").alias("n"), F.sum("v").alias("total"))


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


QUERIES = {
    "agg": Query(_aggregate, "update"),
    "windows, append": Query(_windows),
    "windows, update": Query(_windows, "update"),
    "dropDuplicates": Query(_distinct),
    "dropDuplicatesWithinWatermark": Query(_distinct_within_watermark),
    "session_window": Query(_sessions),
    "join, static": Query(_static_join),
    STREAM_JOIN: Query(_stream_join),
}
