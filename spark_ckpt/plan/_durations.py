"""Durations as Spark reads them in ``withWatermark``: ``10 seconds``, ``1 hour 30 minutes``, ``interval '1' day``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._trying import unlogged

_MS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000}
_SIMPLE = re.compile(rf"\s*(\d+)\s+({'|'.join(_MS)})s?\s*", re.IGNORECASE)
_DAYS_PER_MONTH = 31
"""As Spark takes a month in a delay (``EventTimeWatermark.getDelayMs``)."""


def delay_ms(spark: Any, text: str) -> int:
    """Milliseconds. What is not one number and one unit is read by Spark's own parser.

    Raises ``InvalidInputError`` for what Spark does not read, and for less than nothing.
    """
    simple = simple_ms(text)
    if simple is not None:
        return simple
    try:
        with unlogged():
            found = _read_by_spark(spark, text)
    except PySparkException as e:
        raise InvalidInputError(
            f"withWatermark expects a delay such as '10 seconds' or '1 hour 30 minutes', found {text!r}: {e}"
        ) from e
    if found is None or found < 0:
        what = "less than nothing" if found is not None else "no interval"
        raise InvalidInputError(f"withWatermark expects a delay such as '10 seconds', found {text!r}, which is {what}")
    return found


def simple_ms(text: str) -> int | None:
    """Milliseconds of one number and one unit; None for anything else."""
    simple = _SIMPLE.fullmatch(text) if isinstance(text, str) else None
    return int(simple[1]) * _MS[simple[2].lower()] if simple else None


def _read_by_spark(spark: Any, text: str) -> int | None:
    """As ``IntervalUtils.fromIntervalString``: SQL behind the word interval, else numbers and units."""
    column = F.expr(text) if text.strip().lower().startswith("interval") else F.lit(text).try_cast("interval")
    one = spark.range(1)
    kind = one.select(column).schema[0].dataType.simpleString()
    if kind.startswith(("interval year", "interval month")):
        months = one.select(column.cast("interval month").cast("int")).first()[0]
        return int(months) * _DAYS_PER_MONTH * _MS["day"]
    if kind != "interval":
        value = one.select(column).first()[0]
        return value // timedelta(milliseconds=1) if isinstance(value, timedelta) else None
    parts = [F.date_part(F.lit(p), column) for p in ("year", "month", "day", "hour", "minute", "second")]
    found = one.select(*parts).first()
    if found[0] is None:
        return None
    years, months, days, hours, minutes = map(int, found[:5])
    whole_days = (years * 12 + months) * _DAYS_PER_MONTH + days
    return ((whole_days * 24 + hours) * 60 + minutes) * 60_000 + int(found[5] * 1000 // 1)
