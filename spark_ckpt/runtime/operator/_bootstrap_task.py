"""A subtask of a keyed operator over rows that come sorted by key, in batch: a key is done when the next one begins.

The function is called for portions of rows, with a state in memory that has the keys of the portion only.

All rows of a portion are one batch, in front of which no time has passed, if that leaves the same state as other
batches of rows that are not late. It does not where a key's state may end by the event time and begin anew
(``StateFunction.ends_between_rows``): there rows come in the order of their event times, and time goes on with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.protocol.events import Run
from spark_ckpt.runtime.operator._function_calls import FunctionCalls
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.state.functions.distinct_rows import DistinctRows
from spark_ckpt.state.ipc import int64_view, one_batch, plain_array
from spark_ckpt.state.joins.function import StreamJoin
from spark_ckpt.state.lsm.keyed_state import KeyedState
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.types import EVENT_TIME, KEY_HASH

_PORTION_ROWS = 1 << 16
"""Rows for one call of the function; a key with more is called again, as with the next batch of a stream."""
_KEYS, _STATE_BYTES = 1 << 16, 1 << 25
"""So many keys, or so much state, wait in memory before they are put away."""


@dataclass(frozen=True)
class History:
    """The time of the rows. ``watermark_us``: behind the last row of all, None without watermarks; it is
    ``behind_us`` behind the event time of that row, and so it is at each row that comes in order. Rows of ``every_ms``
    of event time are one batch then. ``now_ms``: the processing time of all rows."""

    watermark_us: int | None
    behind_us: int
    every_ms: int
    now_ms: int

    def watermarks_ms(self, rows: pa.Table) -> np.ndarray:
        """Ahead of the batch that each row is in."""
        times = plain_array(rows[EVENT_TIME]).fill_null(0).to_numpy()
        found = np.maximum(0, (times - self.behind_us) // 1000)
        return np.asarray(found // self.every_ms * self.every_ms)


class _NoRuns:
    def read(self, run: Run) -> pa.RecordBatch:
        raise AssertionError(f"a state in memory has no file {run.file}")


@dataclass
class _Share:
    keyed: KeyedState


@dataclass
class _Late:
    late_us: int = 0


@dataclass
class _Time:
    """What time it is to the function."""

    now_us: int | None
    meta: _Late = field(default_factory=_Late)


class _Calls(FunctionCalls):
    out: Callable[[pa.Table], None]

    def _put_out(self, rows: pa.Table, epoch: int) -> None:
        self.out(rows)


class BootstrapTask:
    """``layouts`` are those of the operator's states, by family. ``combined``: rows are what ``combine`` makes.

    ``out`` gets what the function puts out, None if nobody wants it; ``away`` the state of keys that are done, by
    family: keys, values, the time-out if there is one, and the hash, by place.
    """

    def __init__(
        self,
        spec: OperatorSpec,
        route: int,
        layouts: Mapping[str, StateLayout],
        history: History,
        combined: bool,
        away: Callable[[str, pa.RecordBatch], Iterator[pa.RecordBatch]],
        out: Callable[[pa.Table], None] | None = None,
    ) -> None:
        self.spec, self.history, self._layouts, self._combined = spec, history, layouts, combined
        self._away, self._out = away, out
        subtasks = spec.run.subtasks
        self._subtask = subtasks.subtask_of_route[route]
        self._groups = subtasks.range_of(self._subtask)
        # The state alone of de-duplication needs no calls in between.
        state_only = isinstance(spec.function, DistinctRows) and out is None
        self._by_time = spec.function.ends_between_rows and not state_only
        self._states: dict[str, _Share] = {}
        self._held: list[pa.RecordBatch] = []
        self._last: np.int64 | None = None
        self._begin()

    def take(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The last key's rows wait for the next ones, as long as they are not very many."""
        self._held.append(rows)
        if sum(map(len, self._held)) < _PORTION_ROWS:
            return
        held = self._needed(pa.Table.from_batches(self._held))
        uppers = _uppers(held)
        start = int(np.searchsorted(uppers, uppers[-1])) if len(held) else 0
        alone = not start and len(held) >= _PORTION_ROWS
        self._held = [] if alone else [held.slice(start)]
        yield from self._with_rows(held if alone else held.slice(0, start))

    def end(self) -> Iterator[pa.RecordBatch]:
        if self._held:
            yield from self._with_rows(self._needed(pa.Table.from_batches(self._held)))
        yield from self._put_away()

    def _needed(self, rows: pa.Table) -> pa.RecordBatch:
        """Without those that leave nothing behind, if only the state is asked for."""
        function, history = self.spec.function, self.history
        if isinstance(function, DistinctRows) and function.ends_between_rows:
            rows = _on_time(self.spec, rows)
            if self._out is None:
                rows = function.last_passing(rows, history.watermarks_ms(rows))
        if isinstance(function, StreamJoin) and history.watermark_us is not None and self._out is None:
            rows = function.still_needed(rows, history.watermark_us // 1000)
        return one_batch(rows)

    def _with_rows(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not len(rows):
            return
        uppers = _uppers(rows)
        if self._full() and uppers[0] != self._last:
            yield from self._put_away()
        self._last = uppers[-1]
        table = pa.Table.from_batches([rows])
        on_time = _on_time(self.spec, table if self._combined else self.spec.function.combine(table))
        if self._by_time:
            self._in_time(on_time)
        elif on_time.num_rows:
            self._calls(None if self.history.watermark_us is None else 0).with_rows(on_time, 1)

    def _full(self) -> bool:
        """Keys whose time goes on with their rows are done with their portion: in the next one it begins anew."""
        states = [share.keyed for share in self._states.values()]
        rows, size = max(k.memtable_rows for k in states), sum(k.memtable_bytes for k in states)
        return self._by_time or rows >= _KEYS or size >= _STATE_BYTES

    def _in_time(self, rows: pa.Table) -> None:
        watermarks = self.history.watermarks_ms(rows)
        order = np.argsort(watermarks, kind="stable")
        found, starts = np.unique(watermarks[order], return_index=True)
        rows = rows.take(pa.array(order))
        for now_ms, start, end in zip(found.tolist(), starts, [*starts[1:], len(rows)], strict=True):
            self._pass_time(now_ms)
            self._calls(1000 * now_ms).with_rows(rows.slice(start, end - start), 1)

    def _pass_time(self, until_ms: int) -> None:
        """Time-outs fire one after the other, each as soon as the watermark has passed it."""
        now_ms, every_ms = 0, self.history.every_ms
        while (due_ms := self._next_due_ms()) is not None and due_ms < until_ms and now_ms < until_ms:
            # What a function sets behind the watermark does not hold time up.
            passed_ms = max(due_ms + 1, now_ms + 1)
            now_ms = min(until_ms, -(-passed_ms // every_ms) * every_ms)
            self._calls(1000 * now_ms).with_due(now_ms, 1)

    def _next_due_ms(self) -> int | None:
        bounds = [share.keyed.next_due_ms() for share in self._states.values()]
        return min((b for b in bounds if b is not None), default=None)

    def _put_away(self) -> Iterator[pa.RecordBatch]:
        """All keys in memory are done: time-outs that are behind the last row fire, and the rest is put away."""
        watermark_us = self.history.watermark_us
        if self.spec.function.timeout == "EventTimeTimeout" and watermark_us is not None:
            if self._by_time:
                self._pass_time(watermark_us // 1000)
            else:
                self._calls(watermark_us).with_due(watermark_us // 1000, 1)
        for family, share in self._states.items():
            found, layout = share.keyed.everything(), share.keyed.layout
            columns = [*found.keys.columns, *found.state.columns, pa.array(found.timeout_ms), pa.array(found.hashes)]
            if not layout.with_timeout:
                del columns[-2]
            names = [f"c{at}" for at in range(len(columns))]
            yield from self._away(family, one_batch(pa.Table.from_arrays(columns, names=names)))
        self._begin()

    def _begin(self) -> None:
        self._states = {
            family: _Share(KeyedState(layout, self._groups, _NoRuns())) for family, layout in self._layouts.items()
        }

    def _calls(self, now_us: int | None) -> FunctionCalls:
        time: Any = _Time(now_us)
        states: Any = self._states
        calls = _Calls(self.spec, self._subtask, states, time, self.history.now_ms, lambda *_: None)
        calls.out = self._out or (lambda _: None)
        return calls


def _on_time(spec: OperatorSpec, rows: pa.Table) -> pa.Table:
    """The watermark is never before 1970: rows of before then are late, whatever comes first."""
    if not spec.filters_late:
        return rows
    times = spec.function.event_times(rows) if spec.function.late_by_key else rows[EVENT_TIME]
    return rows.filter(pc.fill_null(pc.greater(times, 0), True))


def _uppers(rows: pa.RecordBatch) -> Any:
    """The half of the hash that a key's rows have in common in all of its tables."""
    return int64_view(rows.column(KEY_HASH)) >> 32
