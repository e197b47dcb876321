"""Users' stateful processors, unchanged between plain Spark and ours: count and sum of each key, in a value state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

OUT, STATE = "k long, n long, total long", "n long, total long"


class CountRows(StatefulProcessor):
    """For ``transformWithState``."""

    def init(self, handle: Any) -> None:
        self.state = handle.getValueState("totals", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        n, total = self.state.get() or (0, 0)
        for row in rows:
            n, total = n + 1, total + row.v
        self.state.update((n, total))
        yield Row(k=key[0], n=n, total=total)


class CountFrames(CountRows):
    """For ``transformWithStateInPandas``."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        n, total = self.state.get() or (0, 0)
        for frame in rows:
            n, total = n + len(frame), total + int(frame["v"].sum())
        self.state.update((n, total))
        yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total]})


class CountWithTimers(CountRows):
    """The same, and a timer a key, which moves on with each batch that has rows of it."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 3_600_000)
        yield from super().handleInputRows(key, rows, timerValues)


def _rows(stream: Any) -> Any:
    return stream.groupBy("k").transformWithState(CountRows(), OUT, "update", "none")


def _frames(stream: Any) -> Any:
    return stream.groupBy("k").transformWithStateInPandas(CountFrames(), OUT, "update", "none")


def _timers(stream: Any) -> Any:
    return stream.groupBy("k").transformWithState(CountWithTimers(), OUT, "update", "processingTime")


PROCESSORS: dict[str, Callable[[Any], Any]] = {
    "processor of rows": _rows,
    "processor of DataFrames": _frames,
    "processor with timers": _timers,
}
"""By workload: from a stream of ``k, v`` to the query, which puts out rows of output mode update."""
