"""PySpark's own streaming operators, written once: the same lines run on plain Spark and on ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

DELAY, WINDOW = "10 seconds", "10 seconds"


@dataclass(frozen=True)
class Query:
    """``make`` takes a stream of ``k, v`` and, where the load has windows, ``ts``."""

    make: Callable[[Any], Any]
    mode: str = "append"


def _aggregate(rows: Any) -> Any:
    return rows.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"), F.max("v").alias("last"))


def _windows(rows: Any) -> Any:
    windows = rows.withWatermark("ts", DELAY).groupBy(F.window("ts", WINDOW), "k")
    return windows.agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def _distinct(rows: Any) -> Any:
    """Each pair of a key and a moment comes once; the state ends with the watermark."""
    return rows.withWatermark("ts", DELAY).dropDuplicates(["k", "ts"])


def _distinct_within_watermark(rows: Any) -> Any:
    return rows.withWatermark("ts", DELAY).dropDuplicatesWithinWatermark(["k"])


QUERIES = {
    "agg": Query(_aggregate, "update"),
    "windows, append": Query(_windows),
    "windows, update": Query(_windows, "update"),
    "dropDuplicates": Query(_distinct),
    "dropDuplicatesWithinWatermark": Query(_distinct_within_watermark),
}
