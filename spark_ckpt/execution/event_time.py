"""Event times: which columns are, as Spark notes it, and how far a watermark is behind them. Driver."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.execution.spark_errors import RefusedAsInSparkError
from spark_ckpt.types import STREAM_MASK, TAG

_MS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000}
_SIMPLE = re.compile(rf"\s*(\d+)\s+({'|'.join(_MS)})s?\s*", re.IGNORECASE)


def simple_ms(text: str) -> int | None:
    """Milliseconds of one number and one unit; None for anything else."""
    simple = _SIMPLE.fullmatch(text) if isinstance(text, str) else None
    return int(simple[1]) * _MS[simple[2].lower()] if simple else None


SparkDF = Any

DELAY_KEY = "spark.watermarkDelayMs"
"""What Spark notes of a column that is an event time (``EventTimeWatermark.delayKey``)."""


@dataclass(frozen=True)
class EventTimeColumn:
    """A column by which rows are late, and by how much the watermark is behind it."""

    name: str
    delay_us: int


def without_notes(schema: T.StructType) -> T.StructType:
    """``schema`` without that."""
    fields = [
        T.StructField(f.name, f.dataType, f.nullable, {k: v for k, v in f.metadata.items() if k != DELAY_KEY})
        for f in schema.fields
    ]
    return T.StructType(fields)


def event_times(schema: T.StructType) -> list[EventTimeColumn]:
    """Those of a DataFrame, in its columns' order. A window is none: its ``window_time`` is."""
    return [
        EventTimeColumn(f.name, int(f.metadata[DELAY_KEY]) * 1000)
        for f in schema.fields
        if DELAY_KEY in f.metadata and isinstance(f.dataType, T.TimestampType)
    ]


def late_by_window(schema: T.StructType) -> str | None:
    """The window by whose end rows are late, as in Spark: the first one of an event time, where that is left out."""
    timed = [f for f in schema.fields if DELAY_KEY in f.metadata]
    if any(isinstance(f.dataType, T.TimestampType) for f in timed):
        return None
    return next((f.name for f in timed if isinstance(f.dataType, T.StructType)), None)


def event_time(schema: T.StructType, what: str) -> EventTimeColumn | None:
    """The one by which ``what`` tells late rows. Raises ``RefusedAsInSparkError`` for several, as Spark does."""
    return _the_only(event_times(schema), what)


def event_time_among(
    schema: T.StructType, what: str, asked: Collection[str], behind_operator: bool
) -> EventTimeColumn | None:
    """The same, of several the one that ``what`` asks for, among other columns. None, behind an operator, whose rows
    are told by the watermark that comes with them: it asks for none of them."""
    found = event_times(schema)
    named = [time for time in found if time.name in asked]
    return _the_only(found if len(found) == 1 or not (named or behind_operator) else named, what)


def _the_only(found: list[EventTimeColumn], what: str) -> EventTimeColumn | None:
    if len(found) > 1:
        raise RefusedAsInSparkError(
            f"More than one event time columns are available in {what}: {[t.name for t in found]}. Please ensure there "
            "is at most one event time column per stream: select one of them in front of it, or compute the others, as "
            'in withColumn("x", F.col("x") + F.expr("interval 0 seconds"))',
            "_LEGACY_ERROR_TEMP_3077",
            {"eventTimeCols": str([t.name for t in found])},
        )
    return found[0] if found else None


def kept_by_name(out: T.StructType, before: T.StructType) -> T.StructType:
    """``out``, what a function of the user's makes of rows of ``before``, where an event time that keeps its name is
    one."""
    times = {t.name: {DELAY_KEY: t.delay_us // 1000} for t in event_times(before)}
    fields = [
        T.StructField(f.name, f.dataType, f.nullable, times[f.name] | (f.metadata or {}))
        if f.name in times and isinstance(f.dataType, T.TimestampType)
        else f
        for f in out.fields
    ]
    return T.StructType(fields)


def passed_on(out: T.StructType, before: T.StructType) -> T.StructType:
    """``out``, rows of ``before`` that an operator hands on, with all that is noted of their columns: windows, too."""
    notes = {f.name: f.metadata for f in before.fields}
    fields = [T.StructField(f.name, f.dataType, f.nullable, notes.get(f.name, f.metadata)) for f in out.fields]
    return T.StructType(fields)


def noted_as(fields: list[T.StructField], shown: list[T.StructField]) -> list[T.StructField]:
    """``fields``, the first of which are what ``shown`` says, with what is noted of those."""
    noted = [T.StructField(f.name, f.dataType, f.nullable, s.metadata) for f, s in zip(fields, shown)]
    return [*noted, *fields[len(noted) :]]


def mark_stream(df: SparkDF, number: int) -> SparkDF:
    """``df``, whose rows have the number of their watermark's stream."""
    cleared = F.col(TAG).bitwiseAND(F.lit(~STREAM_MASK).cast("long"))
    return df.withColumn(TAG, cleared.bitwiseOR(F.lit(number).cast("long")))
