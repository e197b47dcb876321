"""Types that older versions of PySpark have no class for."""

from __future__ import annotations

from pyspark.sql import types as T

DATETIME: tuple[type[T.DataType], ...] = (
    (T.DatetimeType,) if hasattr(T, "DatetimeType") else (T.DateType, T.TimestampType, T.TimestampNTZType)
)
"""Dates and times. Spark 4.1 has a class for all of them, and one of times of day."""
