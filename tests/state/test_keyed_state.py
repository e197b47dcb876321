"""Keyed state against a plain dict, with few hashes so that keys collide."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import random
import zlib
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.errors import CorruptStorageError, InvalidInputError, ProtocolBugError, TopologyError, UserFunctionError
from spark_ckpt.protocol.events import GroupManifest
from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.ipc import compress
from spark_ckpt.state.keys.grouping import group_rows
from spark_ckpt.state.keys.keys import NULL_HASH, injective, key_group_of
from spark_ckpt.state.lsm._dead_rows import DeadRows
from spark_ckpt.state.lsm.compaction import CompactionPolicy
from spark_ckpt.state.lsm.keyed_state import KeyedState
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.state.lsm.ranges import KeyRange
from spark_ckpt.testing.memory_runs import MemoryRuns
from spark_ckpt.types import KEY_GROUP, KEY_HASH, TIMEOUT_MS

VALUES = pa.schema(
    [
        ("n", pa.int64()),
        ("items", pa.list_(pa.string())),
        ("pair", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("counts", pa.map_(pa.string(), pa.int32())),
    ]
)
ALL = KeyRange(0, 4, 4)
RANGES = [KeyRange(0, 1, 1), KeyRange(0, 7, 7), KeyRange(0, 128, 128), KeyRange(50, 80, 128)]
"""Key groups of a state under test; the last is one of several."""
TINY = {"budget_rows": 4, "pace_rows": 2, "pace": 1, "piece_rows": 3}
"""Merges of more than a few rows are done some key groups at a time."""
DAY = dt.date(2024, 2, 29)
NOON = dt.datetime(2024, 2, 29, 12)
UTC_NOON = NOON.replace(tzinfo=dt.timezone.utc)
NAN = float("nan")
KEY_DOMAINS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), list(range(-9, 9))),
    "short": (pa.int16(), list(range(-900, 900, 100))),
    "int": (pa.int32(), list(range(-9, 9))),
    "long": (pa.int64(), [-(2**63), 2**63 - 1, *range(16)]),
    "float": (pa.float32(), [NAN, math.inf, -math.inf, 0.0, *(i / 4 for i in range(1, 12))]),
    "double": (pa.float64(), [NAN, math.inf, -math.inf, 0.0, *(i / 7 for i in range(1, 12))]),
    "string": (pa.string(), ["", "é", *"abcdefghijklmn"]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", *(bytes([i]) for i in range(1, 12))]),
    "short decimal": (pa.decimal128(10, 2), [Decimal(i) / 4 for i in range(-8, 8)]),
    "long decimal": (pa.decimal128(38, 5), [Decimal(10**30 + i) for i in range(16)]),
    "date": (pa.date32(), [DAY + dt.timedelta(i) for i in range(16)]),
    "timestamp": (pa.timestamp("us", "UTC"), [UTC_NOON + dt.timedelta(microseconds=i) for i in range(16)]),
    "timestamp_ntz": (pa.timestamp("us"), [NOON + dt.timedelta(days=i) for i in range(16)]),
}


def canonical(value: Any) -> Any:
    """What makes two key values equal in Spark's groupBy, as a Python value."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def value_of(n: int) -> dict[str, Any]:
    return {
        "n": n if n % 5 else None,
        "items": [str(n)] * (n % 3) if n % 7 else None,
        "pair": {"a": n, "b": None} if n % 2 else None,
        "counts": [("x", n)] if n % 3 else [],
    }


class Model:
    """A task's state and the dict it must equal. Small ``hashes`` make collisions; null keys are among the keys."""

    def __init__(self, kinds: list[str], policy: CompactionPolicy, groups: KeyRange, hashes: int = 3) -> None:
        self.groups = groups
        names = [f"k{i}" for i in range(len(kinds))]
        self.layout = StateLayout(
            pa.schema([(n, KEY_DOMAINS[k][0]) for n, k in zip(names, kinds, strict=True)]), VALUES, True
        )
        self.domain = [
            (v, *(KEY_DOMAINS[k][1][i % 2] for k in kinds[1:])) for i, v in enumerate(KEY_DOMAINS[kinds[0]][1])
        ]
        self.domain.append((None,) * len(kinds))
        self.hashes = hashes
        self.policy = policy
        self.runs = MemoryRuns()
        self.expected: dict[Any, tuple[dict[str, Any], int]] = {}
        self.epoch = self.tasks = 0
        self.checkpoint: tuple[dict[int, GroupManifest], dict[Any, Any], MemoryRuns] | None = None
        self.state = KeyedState.open(self.layout, groups, None, None, self.runs, policy)
        self.appender = self.runs.appender("f0")

    def hash_of(self, key: int) -> int:
        if not injective(self.layout.key_schema):
            return [42, -7, 2**59, -(2**59)][zlib.crc32(bytes([key])) % self.hashes]
        return NULL_HASH if key in (0, len(self.domain) - 1) else (key * 7919 - 50000) << 43

    def rows(self, keys: list[int]) -> tuple[np.ndarray, pa.Table]:
        """Distinct keys in the order the state wants them."""
        hashes = np.array([self.hash_of(k) for k in keys], np.int64)
        columns = zip(*(self.domain[k] for k in keys), strict=True) if keys else [()] * len(self.layout.key_schema)
        table = pa.Table.from_arrays(
            [pa.array(c, f.type) for c, f in zip(columns, self.layout.key_schema, strict=True)],
            schema=self.layout.key_schema,
        )
        first = group_rows(hashes, table).firsts()
        assert len(first) == len(keys)
        return hashes[first], table.take(pa.array(first))

    def update(self, keys: list[int], seed: int) -> None:
        """Look up, compare with the dict, then write a third, remove a third, leave a third."""
        lookup = self.state.touch(*self.rows(keys))
        names = [tuple(map(canonical, row.values())) for row in lookup.keys.to_pylist()]
        old = [self.expected.get(n) for n in names]
        assert lookup.exists.tolist() == [o is not None for o in old]
        assert lookup.state.to_pylist() == [o[0] if o else dict.fromkeys(VALUES.names) for o in old]
        assert lookup.timeout_ms.tolist() == [o[1] if o else NO_TIMEOUT for o in old]
        rng = random.Random(seed)
        actions = [rng.choice("wr-") for _ in names]
        new = [value_of(rng.randrange(1000)) for _ in names]
        timeouts = [rng.choice([NO_TIMEOUT, rng.randrange(100)]) for _ in names]
        write, remove = (np.array([a == kind for a in actions], bool) for kind in "wr")
        table = pa.Table.from_pylist(new, schema=VALUES)
        self.state.write(lookup, table, write, remove, np.array(timeouts, np.int64))
        for name, action, value, timeout in zip(names, actions, new, timeouts, strict=True):
            if action == "w":
                self.expected[name] = (value, timeout)
            elif action == "r":
                self.expected.pop(name, None)
        assert self.state.keys == len(self.expected)
        every = self.state.everything()
        assert self.as_dict(every.keys, every.state, every.timeout_ms.tolist()) == self.expected

    def due(self, now_ms: int) -> None:
        lookup = self.state.due(now_ms)
        assert lookup.exists.all()
        assert (np.diff(lookup.hashes) >= 0).all()
        found = self.as_dict(lookup.keys, lookup.state, lookup.timeout_ms.tolist())
        assert found == {k: v for k, v in self.expected.items() if NO_TIMEOUT < v[1] < now_ms}
        kept = np.arange(len(lookup)) % 2 == 0  # half lose their time-out, half are left alone and stay due
        self.state.write(lookup, lookup.state, kept, np.zeros(len(kept), bool), np.full(len(kept), NO_TIMEOUT))
        for name in [n for n, k in zip(found, kept, strict=True) if k]:
            self.expected[name] = (self.expected[name][0], NO_TIMEOUT)

    def flush(self) -> None:
        fresh = self.state.memtable_rows
        result = self.state.flush(self.appender, self.epoch)
        self.runs.bury(result.dead)
        assert self.state.memtable_rows == 0
        assert result.rows_written <= fresh + result.rows_merged

    def failed_flush(self) -> None:
        """Storage fails while it goes on, or when its file is written: nothing of it happened."""
        appends = random.Random(self.tasks + len(self.expected)).randrange(4)
        before, sealed = self.state.before_flush(), self.state.seal()
        with contextlib.suppress(OSError):
            self.state.flush(FailingAppender(self.runs.appender("lost"), appends), self.epoch)
        self.state.take_back(before, "lost")
        again = self.state.seal()
        assert again[1] == sealed[1]
        assert again[0] | {"dead": {}} == sealed[0] | {"dead": {}}
        assert DeadRows.from_json(again[0]["dead"]).take() == DeadRows.from_json(sealed[0]["dead"]).take()

    def end_task(self) -> None:
        """Seal, let the task's file appear, open again."""
        meta, memtable = self.state.seal()
        assert (memtable is None) == (self.state.memtable_rows == 0)
        self.appender.close()
        self.tasks += 1
        self.state = KeyedState.open(self.layout, self.groups, json.dumps(meta), memtable, self.runs, self.policy)
        self.appender = self.runs.appender(f"f{self.tasks}")

    def barrier(self) -> None:
        """Flush, end the task, and check that files minus dead rows are exactly the live keys."""
        self.flush()
        manifests = self.state.manifests({"s": 1})
        self.epoch += 1
        self.end_task()
        assert list(manifests) == list(self.groups)
        rows = self.runs.live_rows()
        assert sum(m.keys for m in manifests.values()) == len(self.expected) == (0 if rows is None else len(rows))
        if rows is not None:
            assert self.as_dict(rows, rows, rows.column(TIMEOUT_MS).to_pylist()) == self.expected
            own = rows.column(KEY_GROUP).to_numpy()
            assert own.tolist() == key_group_of(rows.column(KEY_HASH).to_numpy(), self.groups.total).tolist()
            assert all(m.keys == np.count_nonzero(own == g) for g, m in manifests.items())
        for group, manifest in manifests.items():
            for run in manifest.runs:
                assert set(self.runs.read(run).column(KEY_GROUP).to_pylist()) == {group}
            if self.policy.pace > 1:  # a flush may add a run of each kind
                assert len(manifest.runs) <= 2 * (self.policy.max_runs + 1)
        frozen = MemoryRuns()
        frozen.files, frozen.dead = dict(self.runs.files), dict(self.runs.dead)
        self.checkpoint = (manifests, dict(self.expected), frozen)

    def adopt(self) -> None:
        if self.checkpoint is None:
            return
        manifests, self.expected, frozen = self.checkpoint[0], dict(self.checkpoint[1]), self.checkpoint[2]
        self.runs.dead = dict(frozen.dead)
        self.runs.files = {f: t for f, t in self.runs.files.items() if f in frozen.files}
        self.state.adopt({g: m for g, m in manifests.items() if m.runs})
        found = self.state.manifests({"s": 1})
        assert found.keys() == manifests.keys()
        for group, manifest in manifests.items():
            assert rows_of(found[group]) == rows_of(manifest)
            assert found[group].keys == manifest.keys
        self.tasks += 1
        self.appender = self.runs.appender(f"f{self.tasks}")

    def as_dict(self, keys: pa.Table, values: pa.Table, timeouts: list[int]) -> dict[Any, Any]:
        names = self.layout.key_schema.names
        found = keys.select(names).to_pylist(), values.select(VALUES.names).to_pylist()
        result = {tuple(map(canonical, k.values())): (v, t) for k, v, t in zip(*found, timeouts, strict=True)}
        assert len(result) == len(timeouts)
        return result


class FailingAppender:
    """Raises after so many appends."""

    def __init__(self, appender: Any, appends: int) -> None:
        self._appender, self._left = appender, appends

    def append(self, rows: pa.Table) -> tuple[str, int]:
        if not self._left:
            raise OSError("no space")
        self._left -= 1
        return self._appender.append(rows)  # type: ignore[no-any-return]


def rows_of(manifest: GroupManifest) -> list[tuple[str, int, int, bool]]:
    """A key group's runs but for their time-out bounds, which neighbours share."""
    return [(r.file, r.start, r.count, r.tombstones) for r in manifest.runs]


def play(model: Model, steps: list[tuple[str, int]]) -> None:
    for step, seed in steps:
        if step == "update":
            rng = random.Random(seed)
            model.update(rng.sample(range(len(model.domain)), rng.randrange(len(model.domain) + 1)), seed)
        elif step == "due":
            model.due(seed % 110)
        else:
            getattr(model, step)()
    model.barrier()
    model.update(list(range(len(model.domain))), 0)


STEPS = ["update", "update", "update", "due", "flush", "failed_flush", "end_task", "barrier", "adopt"]


@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 999)), max_size=30),
    st.sampled_from(
        [
            CompactionPolicy(),
            CompactionPolicy(2, 2),
            CompactionPolicy(2, 2, **TINY),
            CompactionPolicy(3, 3, 2.0, 100.0, **TINY),
        ]
    ),
    st.sampled_from(RANGES),
)
def test_state_equals_a_dict_after_any_history(
    steps: list[tuple[str, int]], policy: CompactionPolicy, groups: KeyRange
) -> None:
    play(Model(["string", "double"], policy, groups), steps)


@pytest.mark.parametrize("kind", KEY_DOMAINS)
@pytest.mark.parametrize("seed", range(3))
def test_every_key_type_with_null_survives_long_histories(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    bounds = rng.choice([{}, TINY])
    policy = CompactionPolicy(rng.choice([2, 3, 4]), rng.choice([2, 4, 8]), rng.choice([0.5, 1.0, 2.0]), **bounds)
    play(Model([kind], policy, rng.choice(RANGES)), [(rng.choice(STEPS), rng.randrange(1000)) for _ in range(60)])


def test_a_key_found_in_an_old_run_is_read_without_reading_older_ones() -> None:
    runs, layout = MemoryRuns(), long_layout()
    state = KeyedState.open(layout, ALL, None, None, runs, CompactionPolicy(fan_out=9, max_garbage=99))
    for i in range(3):
        put(state, [i])
        appender = runs.appender(f"f{i}")
        state.flush(appender, i)
        appender.close()
    meta, memtable = state.seal()
    state = KeyedState.open(layout, ALL, meta, memtable, runs)
    assert runs.reads == []
    assert state.touch(*longs([1])).exists.all()
    assert [r.file for r in runs.reads] == ["f2", "f1"]


def test_removing_everything_leaves_no_run_and_no_live_row() -> None:
    runs, layout = MemoryRuns(), long_layout()
    state = KeyedState.open(layout, ALL, None, None, runs)
    appender = runs.appender("f")
    put(state, [1, 2, 3])
    runs.bury(state.flush(appender, 1).dead)
    lookup = state.touch(*longs([1, 2, 3]))
    state.write(lookup, lookup.state, np.zeros(3, bool), np.ones(3, bool))
    runs.bury(state.flush(appender, 1).dead)
    appender.close()
    assert state.manifests({}) == {g: GroupManifest() for g in ALL}
    rows = runs.live_rows()
    assert rows is not None
    assert len(rows) == 0


def test_a_stale_lookup_is_refused() -> None:
    state = KeyedState.open(long_layout(), ALL, None, None, MemoryRuns())
    lookup = state.touch(*longs([1]))
    put(state, [1])
    with pytest.raises(ProtocolBugError, match="look the keys up again"):
        state.write(lookup, lookup.state, np.ones(1, bool), np.zeros(1, bool))


def test_writing_and_removing_one_key_at_once_is_refused() -> None:
    state = KeyedState.open(long_layout(), ALL, None, None, MemoryRuns())
    lookup = state.touch(*longs([1]))
    with pytest.raises(UserFunctionError, match="both written and removed"):
        state.write(lookup, lookup.state, np.ones(1, bool), np.ones(1, bool))


def test_state_of_another_length_than_the_lookup_is_refused() -> None:
    state = KeyedState.open(long_layout(), ALL, None, None, MemoryRuns())
    lookup = state.touch(*longs([1, 2]))
    with pytest.raises(UserFunctionError, match="2 keys"):
        state.write(lookup, lookup.state.slice(1), np.ones(2, bool), np.zeros(2, bool))


def test_state_sealed_with_other_columns_is_refused() -> None:
    state = KeyedState.open(long_layout(), ALL, None, None, MemoryRuns())
    put(state, [1])
    meta, memtable = state.seal()
    other = StateLayout(pa.schema([("k", pa.int64())]), pa.schema([("v", pa.float64())]))
    with pytest.raises(TopologyError, match="new Spark checkpoint location"):
        KeyedState.open(other, ALL, meta, memtable, MemoryRuns())


@pytest.mark.parametrize("damage", [None, b"", b"\0" * 40, b"\xff" * 40, compress(b"\0" * 40)])
def test_a_damaged_memtable_is_corrupt_storage(damage: bytes | None) -> None:
    state = KeyedState.open(long_layout(), ALL, None, None, MemoryRuns())
    put(state, [1])
    meta, _ = state.seal()
    with pytest.raises(CorruptStorageError):
        KeyedState.open(long_layout(), ALL, meta, damage, MemoryRuns())


def test_a_manifest_of_unflushed_state_is_refused() -> None:
    state = KeyedState.open(long_layout(), ALL, None, None, MemoryRuns())
    put(state, [1])
    with pytest.raises(ProtocolBugError, match="unflushed"):
        state.manifests({})


def test_state_of_other_key_groups_is_refused() -> None:
    meta, _ = KeyedState.open(long_layout(), KeyRange(0, 2, 4), None, None, MemoryRuns()).seal()
    with pytest.raises(TopologyError, match=r"\[2, 4, 4\]"):
        KeyedState.open(long_layout(), KeyRange(2, 4, 4), meta, None, MemoryRuns())


def test_keys_and_manifests_of_other_key_groups_are_refused() -> None:
    state = KeyedState.open(long_layout(), KeyRange(0, 2, 4), None, None, MemoryRuns())
    with pytest.raises(ProtocolBugError, match="wrong task"):
        state.touch(*longs([1]))
    with pytest.raises(ProtocolBugError, match=r"key groups \[2\]"):
        state.adopt({1: GroupManifest(), 2: GroupManifest()})


def test_key_and_state_columns_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"\['k'\]"):
        StateLayout(pa.schema([("k", pa.int64())]), pa.schema([("k", pa.int64())]))


def test_nullability_inside_nested_state_does_not_matter() -> None:
    strict = pa.list_(pa.field("item", pa.int32(), nullable=False))
    layout = StateLayout(pa.schema([("k", pa.int64())]), pa.schema([("v", pa.list_(pa.int32()))]))
    state = KeyedState.open(layout, ALL, None, None, MemoryRuns())
    lookup = state.touch(*longs([1]))
    state.write(lookup, pa.table({"v": pa.array([[1, 2]], strict)}), np.ones(1, bool), np.zeros(1, bool))
    assert state.touch(*longs([1])).state.to_pylist() == [{"v": [1, 2]}]


@pytest.mark.parametrize(
    ("sizes", "new_rows", "live", "merged"),
    [
        ([], 10, 10, 0),
        ([10, 10], 10, 30, 0),  # three similar runs may stay
        ([10, 10, 10], 10, 40, 3),  # the fourth merges them
        ([1000, 10, 10, 10], 10, 1040, 3),  # the large old one is left alone
        ([1010, 1005, 1002], 1000, 5000, 3),  # parts of one batch differ a little between tasks
        ([40, 10, 10], 10, 70, 0),
        ([1000, 600, 300, 100, 50, 20, 9], 4, 2083, 0),
        ([1000, 600, 300, 100, 50, 20, 12, 5], 4, 2091, 1),  # too many runs: merge though not similar
        ([100], 100, 0, 1),  # mostly garbage: merge everything
    ],
)
def test_runs_merge_by_size_number_and_garbage(sizes: list[int], new_rows: int, live: int, merged: int) -> None:
    assert CompactionPolicy(fan_out=4, max_runs=8).levels_to_merge(sizes, new_rows, live) == merged


def test_each_row_is_rewritten_a_bounded_number_of_times() -> None:
    sizes: list[int] = []
    policy, written = CompactionPolicy(), 0
    for i in range(256):
        merged = policy.levels_to_merge(sizes, 10, 10 * (i + 1))
        size = 10 + sum(sizes[len(sizes) - merged :])
        sizes[len(sizes) - merged :] = [size]
        written += size
        assert len(sizes) <= policy.max_runs
    assert written <= 2560 * 8


def long_layout() -> StateLayout:
    return StateLayout(pa.schema([("k", pa.int64())]), pa.schema([("v", pa.int64())]))


def longs(values: list[int]) -> tuple[np.ndarray, pa.Table]:
    return np.array(values, np.int64) << 20, pa.table({"k": pa.array(values, pa.int64())})


def put(state: KeyedState, values: list[int]) -> None:
    lookup = state.touch(*longs(values))
    everything = np.ones(len(values), bool)
    state.write(lookup, pa.table({"v": pa.array(values, pa.int64())}), everything, ~everything)
