"""State variables and timers of a processor against dicts and lists, over any history of calls, flushes and moves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import Row

from spark_ckpt.state.lsm.compaction import CompactionPolicy
from spark_ckpt.state.processors import _call as calls
from spark_ckpt.state.processors import _maps as maps
from spark_ckpt.state.processors import _written as written
from tests.how_many import some
from tests.state.processors_harness import Operator, function, struct

TTL = 10
OUT = struct({"k": T.LongType(), "seen": T.StringType()})
OPS = pa.schema([("ops", pa.string())])
KEYS = [0, 1, 2, 3, 4, 5]


class Interpreter(StatefulProcessor):
    """Does what its rows say, and tells what it saw. Variables whose names begin with t have a TTL."""

    def __init__(self, timers: bool) -> None:
        self.timers = timers

    def init(self, handle: Any) -> None:
        self.handle, self.state = handle, {}
        for prefix, ttl in (("", None), ("t", TTL)):
            if ttl and not self.timers:
                continue
            self.state[prefix + "v"] = handle.getValueState(prefix + "v", struct({"x": T.LongType()}), ttl)
            self.state[prefix + "l"] = handle.getListState(prefix + "l", struct({"x": T.LongType()}), ttl)
            key = struct({"k": T.LongType()})
            self.state[prefix + "m"] = handle.getMapState(prefix + "m", key, struct({"x": T.StringType()}), ttl)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        seen = [do(self.state, self.handle, *op) for row in rows for op in json.loads(row.ops)]
        yield Row(k=key[0], seen=json.dumps(seen))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        time = expiredTimerInfo.getExpiryTimeInMs()
        seen = [["fired", time, list(self.handle.listTimers())], *(do(self.state, None, *op) for op in READS)]
        if time % 3 == 0:
            self.handle.registerTimer(time + 4)
            self.handle.registerTimer(time)
            self.state["v"].update((time,))
            self.state["l"].appendValue((time,))
        yield Row(k=key[0], seen=json.dumps(seen))


READS: list[list[Any]] = [["v", "get"], ["l", "get"], ["m", "items"]]


def do(state: Any, handle: Any, name: str, what: str, *args: Any) -> Any:
    """One step on variable ``name``, as a processor would write it."""
    if name == "timer":
        if what == "list":
            return list(handle.listTimers())
        return (handle.registerTimer if what == "add" else handle.deleteTimer)(args[0])
    variable = state[name]
    if what == "exists":
        return variable.exists()
    if what == "clear":
        return variable.clear()
    if name[-1] == "v":
        return variable.get() if what == "get" else variable.update((args[0],))
    if name[-1] == "l":
        if what == "get":
            return list(variable.get())
        return variable.appendValue((args[0],)) if what == "add" else getattr(variable, what)([(x,) for x in args[0]])
    if what == "items":
        assert list(zip(variable.keys(), variable.values(), strict=True)) == list(variable.iterator())
        return sorted(variable.iterator())
    if what == "set":
        return variable.updateValue((args[0],), (args[1],))
    return {"get": variable.getValue, "has": variable.containsKey, "del": variable.removeKey}[what]((args[0],))


class Oracle:
    """The same with dicts and lists: a value or an element is (what, until when)."""

    def __init__(self) -> None:
        self.now = 0
        self.state: dict[int, dict[str, Any]] = {
            k: {p + n: {} if n == "m" else [] for p in ("", "t") for n in "vlm"} for k in KEYS
        }
        self.timers: set[tuple[int, int]] = set()

    def do(self, k: int, name: str, what: str, *args: Any) -> Any:
        if name == "timer":
            if what == "list":
                return sorted(t for t, key in self.timers if key == k)
            return (self.timers.add if what == "add" else self.timers.discard)((args[0], k))
        until = self.now + TTL if name[0] == "t" else None
        state = self.state[k]
        live = [e for e in state[name].items() if self._live(e[1])] if name[-1] == "m" else [
            e for e in state[name] if self._live(e)
        ]  # fmt: skip
        if what == "exists":
            return bool(live)
        if what == "clear":
            state[name].clear()
            return None
        if name[-1] == "m":
            return self._map(state[name], dict(live), until, what, *args)
        if what == "get":
            return (live[0][0] if live else None) if name[-1] == "v" else [e[0] for e in live]
        values = args[0] if isinstance(args[0], list) else [args[0]]
        kept = [] if name[-1] == "v" or what == "put" else live
        state[name] = [*kept, *(((x,), until) for x in values)]
        return None

    def _map(self, entries: Any, live: Any, until: Any, what: str, *args: Any) -> Any:
        if what == "items":
            return sorted((k, v[0]) for k, v in live.items())
        key = (args[0],)
        if what == "set":
            entries[key] = ((args[1],), until)
        elif what == "del":
            entries.pop(key, None)
        else:
            found = live.get(key)
            return found is not None if what == "has" else found and found[0]
        return None

    def _live(self, value: Any) -> bool:
        return value[1] is None or value[1] > self.now

    def fire(self, clock: int) -> list[tuple[int, Any]]:
        out = []
        due = sorted(t for t in self.timers if t[0] <= clock)
        for time, k in due:
            seen = [["fired", time, self.do(k, "timer", "list")], *(self.do(k, *op) for op in READS)]
            if time % 3 == 0:
                self.timers |= {(time + 4, k)}
                self.do(k, "v", "set", time)
                self.do(k, "l", "add", time)
            self.timers.discard((time, k))
            out.append((k, json.loads(json.dumps(seen))))
        return out

    def rows(self, family: str) -> int:
        """What is left of it in a table."""
        if family == "_timers":
            return len(self.timers)
        if family == "_lists":
            return sum(self._count(state[name]) > 0 for state in self.state.values() for name in ("l", "tl"))
        return sum(self._count(state[family]) for state in self.state.values())

    def _count(self, stored: Any) -> int:
        return sum(self._live(e) for e in (stored.values() if isinstance(stored, dict) else stored))


small = st.integers(0, 4)


def steps(timers: bool) -> Any:
    prefixes = ["", "t"] if timers else [""]
    name = st.sampled_from(prefixes)
    value = st.tuples(name.map(lambda p: p + "v"), st.sampled_from(["get", "exists", "clear", "set"]), small)
    several = st.lists(small, min_size=1, max_size=3)
    lists = st.one_of(
        st.tuples(name.map(lambda p: p + "l"), st.sampled_from(["get", "exists", "clear", "add"]), small),
        st.tuples(name.map(lambda p: p + "l"), st.sampled_from(["put", "appendList"]), several),
    )
    what = st.sampled_from(["get", "has", "del", "set", "set", "set", "items", "exists", "clear"])
    entries = st.tuples(name.map(lambda p: p + "m"), what, small, st.sampled_from("xy"))
    timer = st.tuples(st.just("timer"), st.sampled_from(["add", "add", "del", "list"]), st.integers(0, 40))
    return st.one_of(value, lists, entries, *([timer] if timers else []))


def histories(timers: bool) -> Any:
    ops = st.lists(steps(timers), min_size=1, max_size=6)
    batch = st.lists(st.tuples(st.sampled_from(KEYS), ops), max_size=5)
    between = st.sampled_from(["", "", "flush", "rescale 1", "rescale 2", "rescale 3"])
    return st.lists(st.tuples(st.integers(0, 7), batch, between), max_size=10)


POLICIES = [CompactionPolicy(), CompactionPolicy(2, 2, budget_rows=4, pace_rows=2, pace=1, piece_rows=3)]


def play(history: Any, time_mode: str, policy: CompactionPolicy) -> None:
    timers = time_mode == "ProcessingTime"
    made = function(Interpreter(timers), OUT, time_mode, pandas=False, more=OPS)
    operator, oracle = Operator(made, policy, 2), Oracle()
    for step, batch, between in history:
        oracle.now += step
        expected = []
        for k in dict.fromkeys(key for key, _ in batch):
            seen = [oracle.do(k, *op) for key, ops in batch if key == k for op in ops]
            expected.append((k, json.loads(json.dumps(seen))))
        fired = oracle.fire(oracle.now) if timers else []
        out = operator.batch([(k, json.dumps(ops)) for k, ops in batch], oracle.now)
        found = [(k, json.loads(seen)) for k, seen in out]
        assert sorted(found, key=repr) == sorted([*expected, *fired], key=repr)
        assert {f: operator.stored(f) for f in made.families} == {f: oracle.rows(f) for f in made.families}
        if between:
            operator.flush() if between == "flush" else operator.rescale(int(between[-1]))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some maps are large, and most calls take several portions of keys."""
    monkeypatch.setattr(maps, "SMALL", 2)
    monkeypatch.setattr(maps, "_SAMPLE", 1)
    monkeypatch.setattr(calls, "PORTION_KEYS", 2)
    monkeypatch.setattr(written, "_MOST_TABLES", 1)


@settings(max_examples=some(12))
@given(histories(True), st.sampled_from(POLICIES))
def test_variables_timers_and_ttl_are_dicts_and_lists_after_any_history(history: Any, policy: Any) -> None:
    play(history, "ProcessingTime", policy)


@settings(max_examples=some(6))
@given(histories(False), st.sampled_from(POLICIES))
def test_variables_without_time_are_dicts_and_lists_after_any_history(history: Any, policy: Any) -> None:
    play(history, "None", policy)
