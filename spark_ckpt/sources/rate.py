"""The ``rate`` source: numbers with timestamps, the same ones every time.

Unlike Spark's, it has no clock: row *n* is ``(n, startTime + n / rowsPerSecond)`` whenever it is read. With ``numRows``
it is bounded, and then reports its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from spark_ckpt.errors import ConfigError
from spark_ckpt.sources._convert import MAX_BATCH_ROWS, arrow_schema
from spark_ckpt.sources._options import natural, parse_options, positive

OPTIONS = {
    "rowsPerBatch": positive(1000).means("Rows of a batch."),
    "numRows": natural().means("Rows in all; the source then reports its end. Without it there is none."),
    "startTime": natural(0, "milliseconds since 1970, a whole number of at least 0").means("Timestamp of row 0."),
    "rowsPerSecond": positive(1000).means("Sets the timestamps only: row n has startTime + n / rowsPerSecond."),
    "numSplits": positive(4).means("Splits of a batch."),
}

SCHEMA = StructType([StructField("value", LongType()), StructField("timestamp", TimestampType())])


class RateSource(DataSource):
    """Options: ``rowsPerBatch`` (1000), ``numRows`` (unbounded), ``startTime`` (0, epoch ms), ``rowsPerSecond``
    (1000, sets the timestamps only) and ``numSplits`` (4, splits of a batch)."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.parsed = parse_options("rate", OPTIONS, options)

    @classmethod
    def name(cls) -> str:
        return "rate"

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> RateReader:
        expected, found = [(f.name, f.dataType) for f in SCHEMA], [(f.name, f.dataType) for f in schema]
        if expected != found:
            raise ConfigError(
                f"source 'rate' has the fixed schema {SCHEMA.simpleString()}, found {schema.simpleString()}; "
                "leave .schema(...) out"
            )
        return RateReader(self.parsed)


class RateSplit(InputPartition):
    """The rows ``[start, end)``."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self.rows = end - start


class RateReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offset: ``{"value": n}``, the next row's number."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._one_batch = False
        self._pinned: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {"value": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options["rowsPerBatch"])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        at, total = start["value"], self._options["numRows"]
        if self._one_batch and self._pinned is None:
            self._pinned = at + self._options["rowsPerBatch"]
        bounds = [bound for bound in (total, self._pinned) if bound is not None]
        if not isinstance(limit, ReadAllAvailable) or not bounds:
            bounds.append(at + getattr(limit, "max_rows", self._options["rowsPerBatch"]))
        return {"value": max(at, min(bounds))}

    def prepareForTriggerAvailableNow(self) -> None:
        """All of ``numRows`` is there; of an endless stream, one batch is."""
        self._one_batch = self._options["numRows"] is None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        first, rows = start["value"], end["value"] - start["value"]
        parts = min(self._options["numSplits"], rows)
        edges = [first + rows * part // parts for part in range(parts + 1)]
        return [RateSplit(low, high) for low, high in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RateSplit)
        for low in range(partition.start, partition.end, MAX_BATCH_ROWS):
            yield self._rows(low, min(low + MAX_BATCH_ROWS, partition.end))

    def finished(self, offset: dict[str, Any]) -> bool:
        total = self._options["numRows"]
        return total is not None and offset["value"] >= total

    def _rows(self, low: int, high: int) -> pa.RecordBatch:
        target = arrow_schema(SCHEMA)
        value = np.arange(low, high, dtype=np.int64)
        micros = self._options["startTime"] * 1000 + value * 1_000_000 // self._options["rowsPerSecond"]
        columns = [pa.array(value), pa.array(micros).cast(target.field("timestamp").type)]
        return pa.RecordBatch.from_arrays(columns, schema=target)
