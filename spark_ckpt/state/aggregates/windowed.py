"""Aggregates of time windows, whose start is a key, and of event times: their state ends when the watermark passes."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Changed, Touched
from spark_ckpt.state.ipc import plain_array
from spark_ckpt.state.keys.spark_hash import hashes_of
from spark_ckpt.types import KEY_HASH


class WindowedAggregate(AggregateFunction):
    """``window`` is the key column with the windows' starts, ``size_us`` their length. Of length 0, the key is an event
    time itself: its group ends when the watermark reaches it. Rows without a time are a group that never ends.

    Spark's output modes: *update* puts out each window that a batch touched, *append* each one once, when the watermark
    passes its end. Rows of windows that end at or before the watermark are late. In mode *complete* no window ends, and
    no row is late.

    ``slide_us``: a row comes once, in the newest of its windows, of which one begins every so many microseconds. The
    rows of such a slice are added up first, and what came of them is put into each of the windows.
    """

    timeout = "EventTimeTimeout"
    late_by_key = True
    append = True
    waited = False
    """Some windows waited for their end in output mode append, and come out then though the mode is update now."""

    def __init__(self, *args: Any, window: str, size_us: int, slide_us: int | None = None, **kwargs: Any) -> None:
        self.window, self.size_us, self.slide_us = window, size_us, slide_us
        super().__init__(*args, **kwargs)

    def in_mode(self, mode: str) -> AggregateFunction:
        made = super().in_mode(mode)
        assert isinstance(made, WindowedAggregate)
        made.append = mode == "append"
        return made

    def with_waiting(self) -> WindowedAggregate:
        made = copy(self)
        made.waited = True
        return made

    def event_times(self, rows: pa.Table) -> pa.ChunkedArray:
        return pc.add(self._starts(rows), self.size_us)

    def _starts(self, rows: pa.Table) -> pa.ChunkedArray:
        return rows[self.window].cast(pa.timestamp("us", "UTC")).cast(pa.int64())

    def combine(self, rows: pa.Table) -> pa.Table:
        made = super().combine(rows)
        if self.slide_us is None or not made.num_rows:
            return made
        return self._added_up(self._in_each_window(made, self.slide_us))

    def _in_each_window(self, slices: pa.Table, slide_us: int) -> pa.Table:
        windows = self.size_us // slide_us
        starts = plain_array(self._starts(slices)).to_numpy()[:, None] - np.arange(windows) * slide_us
        rows = slices.take(pa.array(np.repeat(np.arange(slices.num_rows), windows)))
        rows = _with(rows, self.window, pa.array(starts.ravel()).view(pa.timestamp("us", "UTC")))
        hashes = hashes_of(plain_array(rows[name]) for name in self.key_schema.names)
        return _with(rows, KEY_HASH, pa.array(hashes))

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
        if self.append:
            return touched.timed_out
        emitted = super()._emitted(touched, has_rows)
        return emitted | touched.timed_out if self.waited else emitted


def _with(rows: pa.Table, column: str, values: pa.Array) -> pa.Table:
    at = rows.schema.get_field_index(column)
    return rows.set_column(at, rows.schema.field(at), values.cast(rows.schema.field(at).type))
