"""The ``rate-micro-batch`` source: as many numbers in each batch, with timestamps, the same ones every time.

As Spark's of that name, it has no clock. With ``numRows``, which Spark does not have, it is bounded, and then reports
its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spark_ckpt.sources._ends import earlier, time_ms
from spark_ckpt.sources._numbers import NumbersReader, NumbersSource
from spark_ckpt.sources._options import natural, positive
from spark_ckpt.spark_versions.read_limits import ReadAllAvailable, ReadLimit, ReadMaxRows

NAME = "rate-micro-batch"
OPTIONS = {
    "rowsPerBatch": positive(1000).means("Rows of a batch. Spark has no default."),
    "numRows": natural().means("Rows in all; the source then reports its end. Without it there is none. Not in Spark."),
    "startTimestamp": natural(0, "milliseconds since 1970, a whole number of at least 0").means(
        "Timestamp of the first batch's rows."
    ),
    "advanceMillisPerBatch": natural(1000).means("Milliseconds from the timestamp of a batch to that of the next."),
    "numPartitions": positive(4).means("Splits of a batch."),
}


class RateMicroBatchReader(NumbersReader):
    """Offset: ``{"value": n}``, the next row's number."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._one_batch = False
        self._pinned: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {"value": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options["rowsPerBatch"])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        at, total = self.value_at(start), self._options["numRows"]
        if self._one_batch and self._pinned is None:
            self._pinned = at + self._options["rowsPerBatch"]
        bounds = [bound for bound in (total, self._pinned) if bound is not None]
        if not isinstance(limit, ReadAllAvailable) or not bounds:
            bounds.append(at + getattr(limit, "max_rows", self._options["rowsPerBatch"]))
        return {"value": max(at, min(bounds))}

    def ending_at(self, asked: str | dict[str, Any]) -> dict[str, Any] | None:
        """Of a time, in front of the first batch of that time or later."""
        time, o = time_ms(asked), self._options
        if time is None:
            return None
        batches = -(-max(0, time - o["startTimestamp"]) // max(1, o["advanceMillisPerBatch"]))
        return {"value": batches * o["rowsPerBatch"]}

    def clipped(self, start: dict[str, Any], found: dict[str, Any], end: dict[str, Any]) -> dict[str, Any] | None:
        return earlier(self.value_at, start, found, end)

    def prepareForTriggerAvailableNow(self) -> None:
        """All of ``numRows`` is there; of an endless stream, one batch is."""
        self._one_batch = self._options["numRows"] is None

    def finished(self, offset: dict[str, Any]) -> bool:
        total = self._options["numRows"]
        return total is not None and self.value_at(offset) >= total

    def value_at(self, offset: Mapping[str, Any]) -> int:
        return int(offset["value"])

    def times_ms(self, values: np.ndarray, start: Mapping[str, Any], end: Mapping[str, Any]) -> np.ndarray:
        batches = values // self._options["rowsPerBatch"]
        return self._options["startTimestamp"] + batches * self._options["advanceMillisPerBatch"]


class RateMicroBatchSource(NumbersSource):
    """Options: ``rowsPerBatch`` (1000), ``numRows`` (unbounded), ``startTimestamp`` (0, epoch ms),
    ``advanceMillisPerBatch`` (1000) and ``numPartitions`` (4, splits of a batch)."""

    NAME, OPTIONS, READER = NAME, OPTIONS, RateMicroBatchReader
