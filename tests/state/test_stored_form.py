"""State that is read by a query with other aggregates than the one that wrote it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt.errors import TopologyError
from spark_ckpt.protocol.evolution import carried_over
from spark_ckpt.protocol.records import Topology
from spark_ckpt.state.keys.keys import NULL_HASH
from spark_ckpt.state.lsm.compaction import CompactionPolicy
from spark_ckpt.state.lsm.keyed_state import KeyedState
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.state.lsm.ranges import KeyRange
from spark_ckpt.state.lsm.stored_form import FormReader, StoredForm
from spark_ckpt.testing.memory_runs import MemoryRuns
from tests.how_many import some

KEYS = pa.schema([("k", pa.int64())])
BEGINS = {"a": 0, "b": None, "c": -1}
GROUPS = KeyRange(0, 1, 1)


def layout(columns: Iterable[str]) -> StateLayout:
    return StateLayout(KEYS, pa.schema([(c, pa.int64()) for c in columns]))


def form(columns: str, names: dict[str, str] | None = None) -> StoredForm:
    return StoredForm(layout(columns), names or {}, lambda: {c: pa.scalar(BEGINS[c], pa.int64()) for c in columns})


class Query:
    """One query after another over the same state: batches of rows that are added to what is stored."""

    def __init__(self, columns: str) -> None:
        self.runs, self.files = MemoryRuns(), 0
        self.sealed: tuple[Any, bytes | None] = (None, None)
        self.groups: Any = None
        self.topology = self._topology(columns)
        self.columns, self.generation, self.sealed_in = columns, 1, 1
        self.model: dict[int, dict[str, int | None]] = {}

    def _topology(self, columns: str) -> Topology:
        types = dict.fromkeys(columns, "int64")
        return Topology(1, 1, (), {"u": {"types": types, "made_of": {c: c for c in columns}}}, ())

    @property
    def _facts(self) -> Any:
        return self.topology.operators["u"]

    def state(self) -> KeyedState:
        made = form(self.columns, self._facts.get("stored"))
        fresh = frozenset(c for c, begun in self._facts.get("since", {}).items() if self.sealed_in < begun)
        reader = FormReader(self.runs, made)
        policy = CompactionPolicy(2)
        return KeyedState.open(
            made.layout, GROUPS, *self.sealed, reader, policy, lambda rows: made.carried(rows, fresh)
        )

    def change(self, columns: str, here: bool) -> None:
        """``here``: at the same Spark location; else from the last flush."""
        self.generation += 1
        if not here:
            self.checkpoint()
        self.topology = carried_over(self.topology, self._topology(columns), self.generation if here else None)
        for row in self.model.values():
            for c in set(self.columns) - set(columns):
                del row[c]
            row.update({c: BEGINS[c] for c in columns if c not in self.columns})
        self.columns = columns
        if not here:
            state = self.state_of_nothing()
            state.adopt(self.groups)
            self.sealed, self.sealed_in = state.seal(), self.generation

    def state_of_nothing(self) -> KeyedState:
        self.sealed = (None, None)
        return self.state()

    def add(self, keys: list[int], flush: bool) -> None:
        state, distinct = self.state(), sorted(set(keys))
        found = state.touch(np.array(distinct, np.int64), pa.table({"k": distinct}, schema=KEYS))
        rows = []
        for key, exists, row in zip(distinct, found.exists.tolist(), found.state.to_pylist(), strict=True):
            assert exists == (key in self.model)
            if exists:
                assert row == self.model[key]
            rows.append({c: ((row[c] if exists else BEGINS[c]) or 0) + keys.count(key) for c in self.columns})
            self.model[key] = dict(rows[-1])
        every = np.ones(len(distinct), bool)
        state.write(found, pa.Table.from_pylist(rows, schema=state.layout.value_schema), every, ~every)
        if flush:
            self._flush(state)
        self.sealed, self.sealed_in = state.seal(), self.generation

    def _flush(self, state: KeyedState) -> None:
        made = form(self.columns, self._facts.get("stored"))
        self.files += 1
        appender, name = self.runs.appender(f"{self.files}"), f"{self.files}"
        state.flush(appender, self.files)
        appender.close()
        if name in self.runs.files:
            self.runs.files[name] = made.written(self.runs.files[name])
        self.groups = state.manifests({})

    def checkpoint(self) -> None:
        state = self.state()
        self._flush(state)
        self.sealed, self.sealed_in = state.seal(), self.generation

    def check(self) -> None:
        if self.model:
            state, keys = self.state(), sorted(self.model)
            found = state.touch(np.array(keys, np.int64), pa.table({"k": keys}, schema=KEYS))
            assert found.state.to_pylist() == [self.model[k] for k in keys]


_COLUMNS = st.sampled_from(["a", "ab", "ba", "abc", "ac", "ca", "acb"])
_ROWS = st.tuples(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.booleans())
_STEP = _ROWS | st.tuples(_COLUMNS, st.booleans())


@settings(max_examples=some(30), deadline=None)
@given(_COLUMNS, st.lists(_STEP, max_size=14))
def test_a_column_has_what_was_added_since_it_came(first: str, steps: list[Any]) -> None:
    query = Query(first)
    for what, flag in steps:
        if isinstance(what, str):
            query.change(what, flag)
        else:
            query.add(what, flag)
        query.check()


def test_an_older_checkpoint_is_read_by_its_own_query_whatever_came_behind_it() -> None:
    query = Query("ab")
    query.add([1, 2, 2], flush=True)
    old, groups, model = query.topology, query.groups, {k: dict(v) for k, v in query.model.items()}
    query.change("a", here=True)
    query.add([1], flush=True)
    query.change("ab", here=True)
    query.add([2], flush=True)
    query.topology = carried_over(old, query._topology("ab"), None)
    state = query.state_of_nothing()
    state.adopt(groups)
    query.sealed, query.sealed_in, query.model, query.columns = state.seal(), query.generation, model, "ab"
    query.check()


def test_without_leave_other_columns_are_refused() -> None:
    one = KeyedState.open(layout("ab"), GROUPS, None, None, MemoryRuns())
    found = one.touch(np.array([NULL_HASH]), pa.table({"k": [1]}, schema=KEYS))
    one.write(found, pa.table({"a": [1], "b": [2]}), np.array([True]), np.array([False]))
    meta, memtable = one.seal()
    with pytest.raises(TopologyError, match="other key or state columns"):
        KeyedState.open(layout("a"), GROUPS, meta, memtable, MemoryRuns())
    del meta["schema"]  # as an earlier version sealed it
    with pytest.raises(TopologyError, match="other key or state columns"):
        KeyedState.open(layout("a"), GROUPS, meta, memtable, MemoryRuns(), None, lambda rows: rows)
    assert KeyedState.open(layout("ab"), GROUPS, meta, memtable, MemoryRuns()).memtable_rows == 1


def test_what_a_task_keeps_that_was_not_called_in_between_is_not_taken_for_new() -> None:
    query = Query("ab")
    query.add([1, 2, 2], flush=False)
    query.change("a", here=True)
    query.change("ab", here=True)
    query.check()
    query.add([2], flush=True)
    query.check()
