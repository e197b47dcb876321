"""The ``rate`` source: numbers at a rate, with the time of each, as Spark's.

The offset has the time of the start, so row *n* has the same timestamp whenever and wherever it is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spark_ckpt.clock import now_ms
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sources._ends import earlier
from spark_ckpt.sources._numbers import NumbersReader, NumbersSource
from spark_ckpt.sources._options import Option, positive, whole_seconds
from spark_ckpt.spark_versions.read_limits import ReadAllAvailable, ReadLimit

NAME = "rate"
OPTIONS: dict[str, Option] = {
    "rowsPerSecond": positive(1).means("Rows of a second."),
    "rampUpTime": whole_seconds(0).means("How long the rate grows from 0 to `rowsPerSecond`, in whole seconds."),
    "numPartitions": positive(4).means("Splits of a batch."),
}


class RateReader(NumbersReader):
    """Offset: ``{"startTime": ms, "second": s}``, when the stream began, and the next second to read.

    A second is there when it is over. One that passed while the query was down is read by its next start.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._rate, self._ramp_up = options["rowsPerSecond"], options["rampUpTime"]
        self._pinned_ms: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {"startTime": now_ms(), "second": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        at = _second(start)
        until_ms = now_ms() if self._pinned_ms is None else self._pinned_ms
        return {**start, "second": max(at, (until_ms - start["startTime"]) // 1000)}

    def ending_at(self, asked: str | dict[str, Any]) -> dict[str, Any] | None:
        return {"second": int(asked["second"])} if isinstance(asked, dict) else None

    def clipped(self, start: dict[str, Any], found: dict[str, Any], end: dict[str, Any]) -> dict[str, Any] | None:
        return earlier(lambda offset: int(offset["second"]), start, found, end)

    def prepareForTriggerAvailableNow(self) -> None:
        self._pinned_ms = now_ms()

    def value_at(self, offset: Mapping[str, Any]) -> int:
        return int(self._rows_before(np.array(_second(offset))))

    def times_ms(self, values: np.ndarray, start: Mapping[str, Any], end: Mapping[str, Any]) -> np.ndarray:
        # The first batch's start is made anew whenever it is read, with another time; its end is remembered.
        began, first = np.int64(end["startTime"]), int(start["second"])
        edges = self._edges(first, int(values[-1]))
        second = np.searchsorted(edges, values, side="right") - 1
        low, high = edges[second], edges[second + 1]
        within = np.floor((values - low) * 1000 / (high - low) + 0.5).astype(np.int64)
        return began + (first + second) * 1000 + within

    def _edges(self, second: int, last: int) -> np.ndarray:
        """The rows before each second, from ``second`` to the first behind the row ``last``."""
        count = 2
        while self._rows_before(np.array(second + count - 1)) <= last:
            count *= 2
        return self._rows_before(np.arange(second, second + count))

    def _rows_before(self, second: np.ndarray) -> np.ndarray:
        """By Spark's rule: the rate grows by the same whole number each second, and is ``rowsPerSecond`` then."""
        ramp = np.minimum(second, self._ramp_up)
        step = self._rate // (self._ramp_up + 1)
        return step * (ramp * (ramp + 1) // 2) + (second - ramp) * self._rate


class RateSource(NumbersSource):
    """Options: ``rowsPerSecond`` (1), ``rampUpTime`` (0s) and ``numPartitions`` (4, splits of a batch)."""

    NAME, OPTIONS, READER = NAME, OPTIONS, RateReader


def _second(offset: Mapping[str, Any]) -> int:
    if not {"startTime", "second"} <= offset.keys():
        raise InvalidInputError(
            f"source '{NAME}': expected an offset with startTime and second, found {dict(offset)}; numbers without a "
            "clock, which this source gave before, come from format('rate-micro-batch')"
        )
    return int(offset["second"])
