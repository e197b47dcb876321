"""The state of a keyed operator, computed of all rows at once by the operator's own function. Executor, in batch.

Rows come sorted by key, so a key is done when the next one begins. The function is called for portions of rows, with a
state in memory that has the keys of the portion only; what it leaves of them goes to state files. What it puts out goes
nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from spark_ckpt.protocol.events import Run
from spark_ckpt.runtime.operator._function_calls import FunctionCalls
from spark_ckpt.runtime.operator.pack import PackStage
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.runtime.state_writing import ROUTE, RunFiles, WrittenTable
from spark_ckpt.runtime.stateless import split_control
from spark_ckpt.state.ipc import conform, int64_view, one_batch
from spark_ckpt.state.lsm.keyed_state import KeyedState
from spark_ckpt.types import KEY_HASH

_PORTION_ROWS = 1 << 16
"""Rows for one call of the function; a key with more is called again, as with the next batch of a stream."""
_KEYS, _STATE_BYTES = 1 << 16, 1 << 25
"""So many keys, or so much state, wait in memory before they are written."""


@dataclass(frozen=True)
class RowsByKey:
    """The rows for the function, by place, with the route of their subtask. ``combined``: aggregated in each task
    first, as ahead of a shuffle in a stream; not where the order of rows is asked for."""

    spec: OperatorSpec
    hashes: bool
    combined: bool

    @property
    def schema(self) -> pa.Schema:
        return self.spec.packed_schema if self.combined else self.spec.rows_schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stage, subtasks = PackStage(self.spec, self.hashes), self.spec.run.subtasks
        for batch in batches:
            rows = pa.Table.from_batches([stage.needed(split_control(batch)[0])])
            made = one_batch(conform(self.spec.function.combine(rows) if self.combined else rows, self.schema))
            found = subtasks.subtask_of(int64_view(made.column(KEY_HASH)))
            routes = np.array(subtasks.routes, np.int32)[found]
            names = [*(f"c{at}" for at in range(len(self.schema))), ROUTE]
            yield pa.RecordBatch.from_arrays([*made.columns, pa.array(routes)], names=names)


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
    """What time it is to the function: before the first watermark, and behind the last row."""

    now_us: int | None
    meta: _Late = field(default_factory=_Late)


class _Calls(FunctionCalls):
    def _put_out(self, rows: pa.Table, epoch: int) -> None:
        """It is the past's."""


@dataclass(frozen=True)
class BootstrapState:
    """Computes the state of a task's keys, and writes it; reports each file. ``watermark_us``: the event time behind
    the last row of all, None without watermarks. ``now_ms``: the time of all rows."""

    rows: RowsByKey
    tables: Mapping[str, WrittenTable]
    watermark_us: int | None
    now_ms: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task: _Task | None = None
        for batch in batches:
            if not len(batch):
                continue
            if task is None:
                task = _Task(self, int(batch.column(len(batch.columns) - 1)[0].as_py()))
            rows = pa.RecordBatch.from_arrays(batch.columns[:-1], names=self.rows.schema.names)
            yield from task.take(one_batch(conform(rows, self.rows.schema)))
        if task is not None:
            yield from task.end()


class _Task:
    """One subtask."""

    def __init__(self, of: BootstrapState, route: int) -> None:
        self.of, self.spec = of, of.rows.spec
        subtasks = self.spec.run.subtasks
        self._subtask = subtasks.subtask_of_route[route]
        self._groups = subtasks.range_of(self._subtask)
        self._files = {family: RunFiles(table) for family, table in of.tables.items()}
        self._states: dict[str, _Share] = {}
        self._held: list[pa.RecordBatch] = []
        self._last: np.int64 | None = None
        self._begin()

    def take(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The last key's rows wait for the next ones, as long as they are not very many."""
        self._held.append(rows)
        if sum(map(len, self._held)) < _PORTION_ROWS:
            return
        held = one_batch(pa.Table.from_batches(self._held))
        uppers = _uppers(held)
        start = int(np.searchsorted(uppers, uppers[-1]))
        self._held = [held.slice(start)] if start else []
        yield from self._with_rows(held.slice(0, start) if start else held)

    def end(self) -> Iterator[pa.RecordBatch]:
        if self._held:
            yield from self._with_rows(one_batch(pa.Table.from_batches(self._held)))
        yield from self._write()
        for files in self._files.values():
            yield from files.end()

    def _with_rows(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        uppers = _uppers(rows)
        full = max(share.keyed.memtable_rows for share in self._states.values()) >= _KEYS
        full = full or sum(share.keyed.memtable_bytes for share in self._states.values()) >= _STATE_BYTES
        if full and uppers[0] != self._last:
            yield from self._write()
        self._last = uppers[-1]
        table = pa.Table.from_batches([rows])
        self._calls(None if self.of.watermark_us is None else 0).with_rows(
            table if self.of.rows.combined else self.spec.function.combine(table), 1
        )

    def _write(self) -> Iterator[pa.RecordBatch]:
        """All keys in memory are done: time-outs that are behind the last row fire, and the rest is written."""
        if self.spec.function.timeout == "EventTimeTimeout" and self.of.watermark_us is not None:
            self._calls(self.of.watermark_us).with_due(self.of.watermark_us // 1000, 1)
        for family, share in self._states.items():
            found = share.keyed.everything()
            columns = [*found.keys.columns, *found.state.columns]
            if share.keyed.layout.with_timeout:
                columns.append(pa.chunked_array([pa.array(found.timeout_ms)]))
            names = self.of.tables[family].form.given.names
            rows = pa.Table.from_arrays([*columns, pa.array(found.hashes)], names=[*names, KEY_HASH])
            yield from self._files[family].add(one_batch(rows))
        self._begin()

    def _begin(self) -> None:
        self._states = {
            family: _Share(KeyedState(table.form.layout, self._groups, _NoRuns()))
            for family, table in self.of.tables.items()
        }

    def _calls(self, now_us: int | None) -> FunctionCalls:
        states, time = self._states, _Time(now_us)
        return _Calls(self.spec, self._subtask, states, time, self.of.now_ms, lambda *_: None)  # type: ignore[arg-type]


def _uppers(rows: pa.RecordBatch) -> Any:
    """The half of the hash that a key's rows have in common in all of its tables."""
    return int64_view(rows.column(KEY_HASH)) >> 32
