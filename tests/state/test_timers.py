"""Time-outs: who is due, and that runs in which nothing is due are left alone."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from spark_ckpt.errors import UserFunctionError
from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.lsm.compaction import CompactionPolicy
from spark_ckpt.state.lsm.keyed_state import KeyedState
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.state.lsm.ranges import KeyRange
from spark_ckpt.testing.memory_runs import MemoryRuns

LAYOUT = StateLayout(pa.schema([("k", pa.int64())]), pa.schema([("v", pa.int64())]), with_timeout=True)
KEYS = KeyRange(0, 64, 64)
NEVER_MERGE = CompactionPolicy(fan_out=99, max_runs=99, max_garbage=1e9)


class Group:
    """A key group whose tasks end at once."""

    def __init__(self) -> None:
        self.runs = MemoryRuns()
        self.state = KeyedState.open(LAYOUT, KEYS, None, None, self.runs, NEVER_MERGE)
        self.files = 0

    def put(self, timeouts: dict[int, int]) -> None:
        self._change(timeouts, remove=False)

    def remove(self, *keys: int) -> None:
        self._change(dict.fromkeys(keys, NO_TIMEOUT), remove=True)

    def _change(self, timeouts: dict[int, int], remove: bool) -> None:
        keys = np.array(sorted(timeouts), np.int64)
        lookup = self.state.touch(keys << 20, pa.table({"k": keys}))
        chosen = np.ones(len(keys), bool)
        write, end = (~chosen, chosen) if remove else (chosen, ~chosen)
        self.state.write(
            lookup, pa.table({"v": keys}), write, end, np.array([timeouts[int(k)] for k in keys], np.int64)
        )

    def flush(self) -> None:
        appender = self.runs.appender(f"f{self.files}")
        self.files += 1
        self.state.flush(appender, 1)
        appender.close()
        self.reopen()

    def reopen(self) -> None:
        meta, memtable = self.state.seal()
        self.runs.reads.clear()
        self.state = KeyedState.open(LAYOUT, KEYS, json.dumps(meta), memtable, self.runs, NEVER_MERGE)

    def due(self, now_ms: int) -> list[int]:
        keys: list[int] = self.state.due(now_ms).keys.column("k").to_pylist()
        return keys


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.mark.parametrize("flushed", [False, True])
def test_a_time_out_fires_strictly_after_its_moment(group: Group, flushed: bool) -> None:
    group.put({1: 10, 2: 11, 3: NO_TIMEOUT, 4: 0})
    if flushed:
        group.flush()
    assert group.due(0) == []
    assert group.due(10) == [4]
    assert group.due(11) == [1, 4]
    assert group.due(10**15) == [1, 2, 4]


def test_due_keys_come_with_their_state_and_where_it_is(group: Group) -> None:
    group.put({2: 20, 5: 10})
    group.flush()
    group.put({1: 5, 5: 15})
    lookup = group.state.due(30)
    assert lookup.keys.column("k").to_pylist() == lookup.state.column("v").to_pylist() == [1, 2, 5]
    assert lookup.timeout_ms.tolist() == [5, 20, 15]
    assert lookup.exists.all()


def test_overridden_and_removed_versions_do_not_fire(group: Group) -> None:
    group.put({1: 10, 2: 10, 3: 10, 4: 10})
    group.flush()
    group.put({1: 50})
    group.remove(2)
    group.flush()
    group.put({3: NO_TIMEOUT})
    group.remove(4)
    assert group.due(40) == []
    assert group.due(60) == [1]


def test_a_run_with_nothing_due_is_not_read(group: Group) -> None:
    group.put({1: 100, 2: NO_TIMEOUT})
    group.flush()
    group.put({3: NO_TIMEOUT})
    group.flush()
    assert group.due(100) == []
    assert group.runs.reads == []
    assert group.due(101) == [1]


def test_a_searched_run_is_not_read_again_before_its_next_time_out(group: Group) -> None:
    group.put({1: 10, 2: 20, 3: 30})
    group.flush()
    group.put({2: 99})  # dead in the run, so the next time-out there is 30
    assert group.due(15) == [1]
    group.put({1: NO_TIMEOUT})
    group.reopen()
    assert [run.due_ms for run in group.state.runs] == [30]
    assert group.due(30) == []
    assert group.runs.reads == []
    assert group.due(31) == [3]


def test_due_keys_that_were_left_alone_stay_due(group: Group) -> None:
    group.put({1: 10, 2: 10})
    group.flush()
    assert group.due(15) == [1, 2]
    group.put({1: NO_TIMEOUT})
    group.reopen()
    assert group.due(15) == [2]
    group.remove(2)
    group.reopen()
    assert [run.due_ms for run in group.state.runs] == [None]


def test_the_bound_is_raised_by_a_flush_too(group: Group) -> None:
    group.put({1: 10, 2: 40})
    group.flush()
    assert group.due(15) == [1]
    group.remove(1)
    group.flush()
    assert [(run.due_ms, run.tombstones) for run in group.state.runs] == [(40, False), (None, True)]


def test_the_next_time_out_is_found_behind_many_dead_ones(group: Group) -> None:
    group.put({k: 100 + k for k in range(3000)})
    group.flush()
    group.put(dict.fromkeys(range(1, 2900), NO_TIMEOUT))
    assert group.due(101) == [0]
    group.remove(0)
    group.reopen()
    assert group.state.runs[0].due_ms == 3000
    group.put(dict.fromkeys(range(2900, 3000), NO_TIMEOUT))
    assert group.due(10**6) == []
    group.reopen()
    assert group.state.runs[0].due_ms is None


def test_the_next_time_out_is_known_without_reading_runs(group: Group) -> None:
    assert group.state.next_due_ms() is None
    group.put({1: 50, 2: 20, 3: NO_TIMEOUT})
    assert group.state.next_due_ms() == 20
    group.flush()
    group.put({4: 30})
    assert group.state.next_due_ms() == 20
    assert group.due(25) == [2]
    group.put({2: NO_TIMEOUT})
    group.remove(4)
    group.reopen()
    assert group.state.next_due_ms() == 50
    assert group.runs.reads == []


def test_state_without_time_outs_is_never_due() -> None:
    layout = StateLayout(LAYOUT.key_schema, LAYOUT.value_schema)
    state = KeyedState.open(layout, KEYS, None, None, MemoryRuns())
    assert len(state.due(10**15)) == 0
    assert state.next_due_ms() is None


def test_writing_without_time_outs_where_they_are_used_is_refused(group: Group) -> None:
    lookup = group.state.touch(np.array([1]), pa.table({"k": [1]}))
    for timeouts in (None, np.empty(0, np.int64)):
        with pytest.raises(UserFunctionError, match="timeout_ms"):
            group.state.write(lookup, pa.table({"v": [1]}), np.ones(1, bool), np.zeros(1, bool), timeouts)
