"""Session windows against rows kept as they came: any order, gap, late rows, flushes, restarts and number of tasks."""

from __future__ import annotations

import random
import statistics
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
from tests.how_many import some

GROUPS = 4
KEY = pa.schema([("k", pa.string())])
INPUT = pa.schema([("v", pa.int64())])
Row = tuple[Any, int, int, int]
"""Key, start and end of its own session in microseconds, value."""


def _function(**aggregates: AggSpec) -> SessionAggregate:
    specs = aggregates or {"n": agg.count(), "total": agg.sum("v"), "most": agg.max("v")}
    return SessionAggregate(KEY, INPUT, specs, start="s_start", end="s_end")


class Tasks:
    """The tasks of an operator, called as the runtime calls it: each has the tables of all its families."""

    def __init__(self, tasks: int, **aggregates: AggSpec) -> None:
        self.function, self.runs, self.files = _function(**aggregates), MemoryRuns(), 0
        self.layouts = self.function.families
        self.tasks = [self._open(r) for r in self._ranges(tasks)]

    def _ranges(self, tasks: int) -> list[KeyRange]:
        return [KeyRange(i * GROUPS // tasks, (i + 1) * GROUPS // tasks, GROUPS) for i in range(tasks)]

    def _open(self, groups: KeyRange, sealed: Any = None) -> dict[str, KeyedState]:
        return {
            name: KeyedState.open(layout.stored, groups, *((sealed or {}).get(name, (None, None))), self.runs)
            for name, layout in self.layouts.items()
        }

    def rescale(self, tasks: int) -> None:
        manifests: dict[str, dict[int, Any]] = {name: {} for name in self.layouts}
        for task in self.tasks:
            for name, state in task.items():
                self.files += 1
                appender = self.runs.appender(f"f{self.files}")
                self.runs.bury(state.flush(appender, self.files).dead)
                manifests[name].update(state.manifests({}))
                appender.close()
        self.tasks = [self._open(r) for r in self._ranges(tasks)]
        for task in self.tasks:
            for name, state in task.items():
                state.adopt({g: m for g, m in manifests[name].items() if state.groups.first <= g < state.groups.end})

    def restart(self) -> None:
        self.tasks = [
            self._open(task[SESSIONS].groups, {name: state.seal() for name, state in task.items()})
            for task in self.tasks
        ]

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
            mine = task[SESSIONS].groups
            here = table.filter(pa.array((groups >= mine.first) & (groups < mine.end)))
            if here.num_rows:
                self._call(task, here)

    def _table(self, rows: list[Row]) -> pa.Table:
        names, starts, ends, values = (list(c) for c in zip(*rows, strict=True)) if rows else ([], [], [], [])
        keys = pa.array(names, pa.string())
        times = [pa.array(t, pa.int64()).view(TIME) for t in (starts, ends)]
        columns = [keys, pa.array(values, pa.int64()), *times, pa.array(xxhash64([keys]))]
        return pa.table(columns, ["k", "v", "s_start", "s_end", KEY_HASH])

    def _call(self, task: dict[str, KeyedState], rows: pa.Table) -> None:
        hashes = rows[KEY_HASH].to_numpy()
        distinct, first, index = np.unique(hashes, return_index=True, return_inverse=True)
        keys = rows.select(["k"]).take(pa.array(first))
        families = self._families(task, distinct, keys)
        assert self._process(families, keys, rows.drop_columns([KEY_HASH]), index, False) == []

    def _families(self, task: dict[str, KeyedState], hashes: Any, keys: pa.Table, now: Any = None) -> dict[str, Family]:
        return {name: Family(state, self.layouts[name], hashes, keys, now) for name, state in task.items()}

    def due(self, now_ms: int) -> list[tuple[Any, ...]]:
        out: list[tuple[Any, ...]] = []
        for task in self.tasks:
            keys = task[SESSIONS].due(now_ms).keys.select(["k"])
            hashes = xxhash64([keys["k"].combine_chunks()]) if keys.num_rows else np.empty(0, np.int64)
            distinct, first = np.unique(hashes, return_index=True)
            if len(distinct):
                keys = keys.take(pa.array(first))
                out += self._process(self._families(task, distinct, keys, now_ms), keys, None, None, True)
        return out

    def result(self) -> list[tuple[Any, ...]]:
        out: list[tuple[Any, ...]] = []
        for task in self.tasks:
            keys = task[self.function.keys_in].everything().keys.select(["k"])
            distinct, first = np.unique(xxhash64([keys["k"].combine_chunks()]), return_index=True)
            keys = keys.take(pa.array(first))
            n, none = len(distinct), np.zeros(len(distinct), bool)
            state = self.function.state_schema.empty_table().take(pa.array([None] * n, pa.int64()))
            every = Touched(keys, pa.table({}), np.empty(0, np.int64), state, none, none, np.full(n, NO_TIMEOUT))
            context = CallContext("u", 0, 1, 0, 0, self._families(task, distinct, keys))
            out += [_flat(row.values()) for row in self.function.result(context, every).to_pylist()]
        return out

    def _process(
        self, families: dict[str, Family], keys: pa.Table, rows: Any, index: Any, due: bool
    ) -> list[tuple[Any, ...]]:
        n = keys.num_rows
        if rows is None:
            rows, index = self.function.combine(self._table([])).drop_columns([KEY_HASH]), np.empty(0, np.int64)
        state = self.function.state_schema.empty_table().take(pa.array([None] * n, pa.int64()))
        none = np.zeros(n, bool)
        touched = Touched(keys, rows, index, state, none, none | due, np.full(n, NO_TIMEOUT))
        changed = self.function.process(CallContext("u", 0, 1, 0, 0, families), touched)
        assert not (changed.write | changed.remove).any(), "nothing is kept of a key but its sessions"
        assert changed.output.schema.equals(self.function.output_schema)
        return [_flat(row.values()) for row in changed.output.to_pylist()]

    def open(self, family: str = SESSIONS) -> int:
        return sum(len(task[family].scan(*_all_keys())[0]) for task in self.tasks)


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


@settings(max_examples=some(30), deadline=None)
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


@pytest.mark.parametrize("tasks", [1, 2])
def test_in_mode_complete_no_session_ends_and_all_are_the_result(tasks: int) -> None:
    """Those too that had an end in mode append, when they began."""
    rng, model, items = random.Random(tasks), Model(), {"items": AggSpec("collect_list", "v"), "n": agg.count()}
    made = Tasks(tasks, **items)
    for begun in range(6):
        rows = _some_rows(rng, begun * 4000)
        made.rows(rows, 0)
        model.rows(rows, 0)
        made.function = made.function.in_mode("complete" if begun else "append")  # type: ignore[assignment]
    assert made.due(10**6) == []
    expected = [(s[0][0], s[0][1], max(r[2] for r in s), sorted(r[3] for r in s), len(s)) for s in model.sessions()]
    assert sorted(map(_unordered, made.result()), key=repr) == sorted(expected, key=repr)
    assert sorted(map(_unordered, made.result()), key=repr) == sorted(expected, key=repr), "values stay"
    assert made.due(10**6) == []


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


# --- aggregates that keep values -------------------------------------------------------------------------------------

KEPT = {
    "items": AggSpec("collect_list", "v"),
    "set": AggSpec("collect_set", "v"),
    "different": agg.count_distinct("v"),
    "once": AggSpec("sum_distinct", "v"),
    "often": AggSpec("mode", "v"),
    "middle": AggSpec("percentile", "v", {"percentage": 0.5}),
    "n": agg.count(),
}


def _of_values(values: list[int]) -> tuple[Any, ...]:
    often = min(values, key=lambda v: (-values.count(v), v))
    distinct = sorted(set(values))
    return sorted(values), distinct, len(distinct), sum(distinct), often, statistics.median(values), len(values)


def _unordered(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*row[:3], sorted(row[3]), *row[4:])


@settings(max_examples=some(12), deadline=None)
@given(st.integers(0, 2**32))
def test_kept_values_are_those_of_the_rows_of_each_session_and_end_with_it(seed: int) -> None:
    rng = random.Random(seed)
    tasks, model = Tasks(rng.choice([1, 2, 4]), **KEPT), Model()
    late_ms = now_ms = 0

    def expected(now_ms: int) -> list[tuple[Any, ...]]:
        kept = {(s[0][0], s[0][1], max(r[2] for r in s)): _of_values([r[3] for r in s]) for s in model.sessions()}
        return sorted(((*row[:3], *kept[row[:3]]) for row in model.due(now_ms)), key=repr)

    for _ in range(rng.randrange(1, 12)):
        rows = [(k, s, e, v % 4) for k, s, e, v in _some_rows(rng, now_ms * 1000 + rng.randrange(4000))]
        tasks.rows(rows, late_ms * 1000)
        model.rows(rows, late_ms * 1000)
        assert sorted(map(_unordered, tasks.due(now_ms)), key=repr) == expected(now_ms)
        late_ms, now_ms = now_ms, now_ms + rng.choice([0, 1, 2, 4])
        rng.choice([tasks.restart, lambda: tasks.rescale(rng.choice([1, 2, 4])), lambda: None])()
        assert tasks.open("items") == len(model.kept)
    assert sorted(map(_unordered, tasks.due(10**6)), key=repr) == expected(10**6)
    assert {name: tasks.open(name) for name in tasks.layouts} == dict.fromkeys(tasks.layouts, 0), "none is left behind"


def test_a_list_is_in_order_of_arrival_and_that_of_a_later_session_comes_behind_when_they_merge() -> None:
    tasks = Tasks(1, items=AggSpec("collect_list", "v"))
    tasks.rows([("a", 5000, 6000, 1)], 0)
    tasks.rows([("a", 1000, 2000, 2)], 0)
    tasks.rows([("a", 5500, 6500, 3)], 0)
    tasks.rows([("a", 4000, 5000, 4)], 0)
    assert tasks.open("items") == 4
    tasks.rows([("a", 2000, 4000, 5)], 0)
    assert tasks.open() == 1
    assert tasks.due(7) == [("a", 1000, 6500, [2, 1, 3, 4, 5])]
    assert tasks.open("items") == 0


def test_an_aggregate_cannot_have_the_name_of_the_table_of_sessions() -> None:
    with pytest.raises(InvalidInputError, match="'sessions' is that of the sessions' own table"):
        _function(sessions=AggSpec("collect_list", "v"))
