"""What is asked of Spark's analysis only to see whether it knows a name is not told as an error in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as F

from spark_ckpt.execution.spark_errors import _LOGGERS


@pytest.fixture
def written() -> Iterator[list[str]]:
    """Messages of the loggers that PySpark writes to whatever the analysis raises."""
    messages: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    handler = Handler()
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).addHandler(handler)
    yield messages
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).removeHandler(handler)


def test_joins_by_alias_and_windows_of_computed_columns_write_no_errors(ckpt: Any, written: list[str]) -> None:
    rate = ckpt.readStream.format("rate")
    a, b = (rate.option("uid", name).load().withWatermark("timestamp", "1 minute").alias(name) for name in "ab")
    soon = "b.timestamp BETWEEN a.timestamp AND a.timestamp + INTERVAL 1 HOUR"
    joined = a.join(b, (F.col("a.value") == F.col("b.value")) & F.expr(soon))
    joined.select("a.value", F.col("b.timestamp").alias("at"))
    a.join(ckpt.spark.range(3).alias("s"), F.col("a.value") == F.col("s.id"))
    computed = rate.load().withColumn("now", F.current_timestamp())
    computed.groupBy(F.window("now", "10 seconds"), (F.col("value") % 2).alias("even")).count()
    assert written == []
    with pytest.raises(AnalysisException):
        a.select("nothing")
    assert len(written) == 1, "what is wrong is still told"
