"""Aggregates of time windows, whose start is a key, and of event times: their state ends when the watermark passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Changed, Touched


class WindowedAggregate(AggregateFunction):
    """``window`` is the key column with the windows' starts, ``size_us`` their length. Of length 0, the key is an event
    time itself: its group ends when the watermark reaches it. Rows without a time are a group that never ends.

    Spark's output modes: *update* puts out each window that a batch touched, *append* each one once, when the watermark
    passes its end. Rows of windows that end at or before the watermark are late. In mode *complete* no window ends, and
    no row is late.
    """

    timeout = "EventTimeTimeout"
    late_by_key = True
    append = True

    def __init__(self, *args: Any, window: str, size_us: int, **kwargs: Any) -> None:
        self.window, self.size_us = window, size_us
        super().__init__(*args, **kwargs)

    def in_mode(self, mode: str) -> AggregateFunction:
        made = super().in_mode(mode)
        assert isinstance(made, WindowedAggregate)
        made.append = mode == "append"
        return made

    def event_times(self, rows: pa.Table) -> pa.ChunkedArray:
        return pc.add(rows[self.window].cast(pa.timestamp("us", "UTC")).cast(pa.int64()), self.size_us)

    def process(self, ctx: CallContext, touched: Touched) -> Changed:
        changed = super().process(ctx, touched)
        if self.complete:  # all windows stay, those too that an earlier start's output mode had set an end for
            return replace(changed, write=changed.write | touched.timed_out)
        # Watermarks are whole milliseconds, and a time-out fires strictly before one: the first that reaches the end.
        ends = self.event_times(touched.keys)
        timeouts = -(-pc.fill_null(ends, 0).to_numpy() // 1000) - 1
        if ends.null_count:
            timeouts[ends.is_null().to_numpy()] = NO_TIMEOUT
        return Changed(changed.output, changed.state, changed.write, touched.timed_out, timeouts)

    def _emitted(self, touched: Touched, has_rows: np.ndarray) -> np.ndarray:
        return touched.timed_out if self.append else super()._emitted(touched, has_rows)
