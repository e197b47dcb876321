"""Session windows against rows kept as they came: any order, gap, late rows, flushes, restarts and number of tasks."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt import agg
from spark_ckpt.agg import AggSpec
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.aggregates.sessions import SESSIONS, TIME, SessionAggregate
from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Touched
from spark_ckpt.state.keys.keys import key_group_of
from spark_ckpt.state.keys.spark_hash import xxhash64
from spark_ckpt.state.lsm.family import Family
from spark_ckpt.state.lsm.keyed_state import KeyedState
from spark_ckpt.state.lsm.ranges import KeyRange
from spark_ckpt.testing.memory_runs import MemoryRuns
from spark_ckpt.types import KEY_HASH

GROUPS = 4
KEY = pa.schema([("k", pa.string())])
INPUT = pa.schema([("v", pa.int64())])
Row = tuple[Any, int, int, int]
"""Key, start and end of its own session in microseconds, value."""


def _function(**aggregates: AggSpec) -> SessionAggregate:
    specs = aggregates or {"n": agg.count(), "total": agg.sum("v"), "most": agg.max("v")}
    return SessionAggregate(KEY, INPUT, specs, start="s_start", end="s_end")


class Tasks:
    """The tasks of an operator, called as the runtime calls it."""

    def __init__(self, tasks: int) -> None:
        self.function, self.runs, self.files = _function(), MemoryRuns(), 0
        self.layout = self.function.families[SESSIONS]
        self.tasks = [self._open(r) for r in self._ranges(tasks)]

    def _ranges(self, tasks: int) -> list[KeyRange]:
        return [KeyRange(i * GROUPS // tasks, (i + 1) * GROUPS // tasks, GROUPS) for i in range(tasks)]

    def _open(self, groups: KeyRange, meta: Any = None, memtable: bytes | None = None) -> KeyedState:
        return KeyedState.open(self.layout.stored, groups, meta, memtable, self.runs)

    def rescale(self, tasks: int) -> None:
        manifests = {}
        for task in self.tasks:
            self.files += 1
            appender = self.runs.appender(f"f{self.files}")
            self.runs.bury(task.flush(appender, self.files).dead)
            manifests.update(task.manifests({}))
            appender.close()
        self.tasks = [self._open(r) for r in self._ranges(tasks)]
        for task in self.tasks:
            task.adopt({g: m for g, m in manifests.items() if task.groups.first <= g < task.groups.end})

    def restart(self) -> None:
        self.tasks = [self._open(task.groups, *task.seal()) for task in self.tasks]

    def rows(self, rows: list[Row], late_us: int) -> None:
        """In two tasks before the shuffle, in two portions each."""
        parts = [rows[i::4] for i in range(4)]
        combined = [self.function.recombine([self.function.combine(self._table(p)) for p in parts[i:i + 2]])
                    for i in (0, 2)]  # fmt: skip
        table = pa.concat_tables(combined)
        table = table.filter(pa.array(self.function.event_times(table).to_numpy() > late_us))
        hashes = table[KEY_HASH].to_numpy()
        groups = key_group_of(hashes, GROUPS)
        for task in self.tasks:
            mine = table.filter(pa.array((groups >= task.groups.first) & (groups < task.groups.end)))
            if mine.num_rows:
                self._call(task, mine)

    def _table(self, rows: list[Row]) -> pa.Table:
        names, starts, ends, values = (list(c) for c in zip(*rows, strict=True)) if rows else ([], [], [], [])
        keys = pa.array(names, pa.string())
        times = [pa.array(t, pa.int64()).view(TIME) for t in (starts, ends)]
        columns = [keys, pa.array(values, pa.int64()), *times, pa.array(xxhash64([keys]))]
        return pa.table(columns, ["k", "v", "s_start", "s_end", KEY_HASH])

    def _call(self, task: KeyedState, rows: pa.Table) -> None:
        hashes = rows[KEY_HASH].to_numpy()
        distinct, first, index = np.unique(hashes, return_index=True, return_inverse=True)
        keys = rows.select(["k"]).take(pa.array(first))
        family = Family(task, self.layout, distinct, keys)
        assert self._process(family, keys, rows.drop_columns([KEY_HASH]), index, False) == []

    def due(self, now_ms: int) -> list[tuple[Any, ...]]:
        out: list[tuple[Any, ...]] = []
        for task in self.tasks:
            keys = task.due(now_ms).keys.select(["k"])
            hashes = xxhash64([keys["k"].combine_chunks()]) if keys.num_rows else np.empty(0, np.int64)
            distinct, first = np.unique(hashes, return_index=True)
            if len(distinct):
                keys = keys.take(pa.array(first))
                out += self._process(Family(task, self.layout, distinct, keys, now_ms), keys, None, None, True)
        return out

    def _process(self, family: Family, keys: pa.Table, rows: Any, index: Any, due: bool) -> list[tuple[Any, ...]]:
        n = keys.num_rows
        if rows is None:
            rows, index = self.function.combine(self._table([])).drop_columns([KEY_HASH]), np.empty(0, np.int64)
        state = self.function.state_schema.empty_table().take(pa.array([None] * n, pa.int64()))
        none = np.zeros(n, bool)
        touched = Touched(keys, rows, index, state, none, none | due, np.full(n, NO_TIMEOUT))
        changed = self.function.process(CallContext("u", 0, 1, 0, 0, {SESSIONS: family}), touched)
        assert not (changed.write | changed.remove).any(), "nothing is kept of a key but its sessions"
        assert changed.output.schema.equals(self.function.output_schema)
        return [_flat(row.values()) for row in changed.output.to_pylist()]

    def open(self) -> int:
        return sum(len(task.scan(*_all_keys())[0]) for task in self.tasks)


def _all_keys() -> tuple[np.ndarray, pa.RecordBatch]:
    keys = pa.record_batch([pa.array(["a", "b", None])], schema=KEY)
    hashes = xxhash64([keys.column(0)])
    order = np.argsort(hashes)
    return hashes[order], keys.take(pa.array(order))


def _flat(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(round(v.timestamp() * 1_000_000) if hasattr(v, "timestamp") else v for v in values)


class Model:
    """Rows as they came, of the sessions that are open."""

    def __init__(self) -> None:
        self.kept: list[Row] = []

    def rows(self, rows: list[Row], late_us: int) -> None:
        self.kept += [row for row in rows if row[2] > late_us]

    def sessions(self) -> list[list[Row]]:
        found: list[list[Row]] = []
        for row in sorted(self.kept, key=lambda r: (repr(r[0]), r[1])):
            last = found[-1] if found else []
            if last and last[0][0] == row[0] and row[1] <= max(r[2] for r in last):
                last.append(row)
            else:
                found.append([row])
        return found

    def due(self, now_ms: int) -> list[tuple[Any, ...]]:
        over = [s for s in self.sessions() if max(r[2] for r in s) <= now_ms * 1000]
        self.kept = [row for row in self.kept if not any(row in s for s in over)]
        return [(s[0][0], s[0][1], max(r[2] for r in s), len(s), sum(r[3] for r in s), max(r[3] for r in s))
                for s in over]  # fmt: skip


def _some_rows(rng: random.Random, now_us: int) -> list[Row]:
    rows = []
    for number in range(rng.choice([0, 1, 2, 5, 30])):
        start = max(0, now_us + rng.choice([0, 500, 1000, 2000, 3500, -1500, -4000, 9000]) + rng.randrange(2))
        rows.append((rng.choice(["a", "b", None]), start, start + rng.choice([1, 500, 1000, 1000, 6000]), number))
    return rows


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_sessions_are_those_of_the_rows_however_they_come_and_go_when_the_watermark_passes(seed: int) -> None:
    rng = random.Random(seed)
    tasks, model = Tasks(rng.choice([1, 2, 4])), Model()
    late_ms = now_ms = 0
    for _ in range(rng.randrange(1, 12)):
        rows = _some_rows(rng, now_ms * 1000 + rng.randrange(4000))
        tasks.rows(rows, late_ms * 1000)
        model.rows(rows, late_ms * 1000)
        assert tasks.open() == len(model.sessions())
        assert sorted(tasks.due(now_ms), key=repr) == sorted(model.due(now_ms), key=repr)
        late_ms, now_ms = now_ms, now_ms + rng.choice([0, 1, 2, 4])
        rng.choice([tasks.restart, lambda: tasks.rescale(rng.choice([1, 2, 4])), lambda: None])()
    assert sorted(tasks.due(10**6), key=repr) == sorted(model.due(10**6), key=repr)
    assert tasks.open() == 0, "no state is left behind"


def test_touching_sessions_are_one_and_a_row_between_two_joins_them() -> None:
    tasks = Tasks(1)
    tasks.rows([("a", 1000, 2000, 1), ("a", 2000, 3000, 2), ("a", 3001, 4000, 4)], 0)
    assert tasks.open() == 2
    tasks.rows([("a", 2500, 3001, 8)], 0)
    assert tasks.open() == 1
    assert tasks.due(4) == [("a", 1000, 4000, 4, 15, 8)]


def test_a_session_that_reaches_further_than_later_ones_holds_them() -> None:
    tasks = Tasks(1)
    tasks.rows([("a", 1000, 9000, 1), ("a", 2000, 2500, 2)], 0)
    tasks.rows([("a", 8999, 9001, 4)], 0)
    assert tasks.due(9) == []
    assert tasks.due(10) == [("a", 1000, 9001, 3, 7, 4)]


def test_rows_of_one_session_are_combined_before_the_shuffle_and_others_are_not() -> None:
    function, tasks = _function(), Tasks(1)
    same = [("a", 1000, 2000, 1)] * 3
    assert function.combine(tasks._table(same)).num_rows == 1
    assert function.combine(tasks._table([*same, ("a", 1500, 2500, 1), ("b", 1000, 2000, 1)])).num_rows == 3


def test_distinct_values_cannot_be_merged_and_the_message_names_what_can() -> None:
    with pytest.raises(InvalidInputError, match="approx_count_distinct"):
        _function(n=agg.count_distinct("v"))
