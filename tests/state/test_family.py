"""Families of rows against a dict of dicts, over any history of calls, flushes, restarts and moves of key groups."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt.errors import InvalidInputError, ProtocolBugError, UserFunctionError
from spark_ckpt.protocol.events import GroupManifest
from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.keys.keys import key_group_of
from spark_ckpt.state.keys.spark_hash import xxhash64
from spark_ckpt.state.lsm.compaction import CompactionPolicy
from spark_ckpt.state.lsm.family import Family, Found, row_hashes
from spark_ckpt.state.lsm.keyed_state import KeyedState
from spark_ckpt.state.lsm.layout import FamilyLayout
from spark_ckpt.state.lsm.ranges import KeyRange
from spark_ckpt.testing.memory_runs import MemoryRuns
from spark_ckpt.types import KEY_GROUP, KEY_HASH, TIMEOUT_MS
from tests.how_many import some

GROUPS = 8
KEY = pa.schema([("k", pa.int64())])
VALUES = pa.schema([("n", pa.int64()), ("items", pa.list_(pa.string()))])
NAN = float("nan")
Row = tuple[Any, ...]


def colliding(hashes: np.ndarray, bits: np.int64) -> tuple[int, int]:
    """Two places with the same ``bits`` of their hashes."""
    order = np.argsort(hashes & bits, kind="stable")
    same = np.flatnonzero(np.diff((hashes & bits)[order]) == 0)
    return int(order[same[0]]), int(order[same[0] + 1])


def key_hashes(keys: list[Any]) -> np.ndarray:
    return xxhash64([pa.array(keys, pa.int64())])


MANY = np.arange(300_000)
NEIGHBOURS = colliding(key_hashes(MANY.tolist()), np.int64(-1 << 32))
"""Two keys whose rows lie between each other's."""
ALIKE = colliding(row_hashes(np.repeat(key_hashes([7]), len(MANY)), [pa.array(MANY)]), np.int64(-1))
"""Two sub-keys with the same hash, of key 7."""
KEYS = [*NEIGHBOURS, 7, None, 1, 2]
SUBS: dict[str, tuple[pa.Schema, list[Row]]] = {
    "long": (pa.schema([("s", pa.int64())]), [(i,) for i in (*ALIKE, -5, 0, 1, 2**40, None)]),
    "double": (pa.schema([("s", pa.float64())]), [(x,) for x in (0.0, -1.5, 2.0, NAN, math.inf, -math.inf, None)]),
    "two columns": (
        pa.schema([("s", pa.string()), ("t", pa.int32())]),
        [("a", 1), ("a", 2), ("b", 1), ("", None), (None, 1), (None, None), ("ab", 1)],
    ),
}


def test_the_domain_has_rows_that_share_hashes() -> None:
    a, b = key_hashes(list(NEIGHBOURS))
    assert (a >> 32, a) == (b >> 32, a)
    assert a != b
    hashes = row_hashes(key_hashes([7, 7]), [pa.array(ALIKE)])
    assert hashes[0] == hashes[1]
    assert hashes[0] >> 32 == key_hashes([7])[0] >> 32


def canonical(row: Row) -> Row:
    return tuple("NaN" if isinstance(x, float) and math.isnan(x) else x for x in row)


def in_order(sub: Row) -> Any:
    """Spark's ascending order."""
    return [(x is not None, isinstance(x, float) and math.isnan(x), 0 if x is None or x != x else x) for x in sub]


def value_of(n: int, values: pa.Schema) -> dict[str, Any]:
    made = {"n": n if n % 5 else None, "items": [str(n)] * (n % 3) if n % 7 else None}
    return {name: made[name] for name in values.names}


class Model:
    """The tasks of one operator, and the dict of dicts (key -> sub-key -> value, time-out) their family must equal."""

    def __init__(self, kind: str, policy: CompactionPolicy, values: pa.Schema = VALUES) -> None:
        schema, self.subs = SUBS[kind]
        self.layout = FamilyLayout(KEY, schema, values, True)
        self.policy = policy
        self.runs = MemoryRuns()
        self.expected: dict[Any, dict[Row, tuple[dict[str, Any], int]]] = {k: {} for k in KEYS}
        self.files = self.epoch = 0
        self.checkpoint: tuple[dict[int, GroupManifest], Any, MemoryRuns] | None = None
        self.tasks = [self._open(r) for r in self._ranges(2)]

    def _ranges(self, tasks: int) -> list[KeyRange]:
        return [KeyRange(i * GROUPS // tasks, (i + 1) * GROUPS // tasks, GROUPS) for i in range(tasks)]

    def _open(self, groups: KeyRange, meta: Any = None, memtable: bytes | None = None) -> KeyedState:
        return KeyedState.open(self.layout.stored, groups, meta, memtable, self.runs, self.policy)

    def _families(self, keys: list[Any], now_ms: int | None = None) -> list[tuple[list[Any], Family]]:
        """Each task's share of ``keys``, in hash order, and its family."""
        hashes = key_hashes(keys)
        order = np.argsort(hashes, kind="stable")
        groups = key_group_of(hashes, GROUPS)
        found = []
        for task in self.tasks:
            mine = [i for i in order.tolist() if task.groups.first <= groups[i] < task.groups.end]
            names = [keys[i] for i in mine]
            table = pa.table({"k": pa.array(names, pa.int64())})
            found.append((names, Family(task, self.layout, hashes[mine], table, now_ms)))
        return found

    # -- steps -------------------------------------------------------------------------------------------------

    def get(self, rng: random.Random) -> None:
        """Ask for some rows, some of them twice, compare, then write, remove and leave a third each."""
        for names, family in self._families(rng.sample(KEYS, rng.randrange(len(KEYS) + 1))):
            wanted = [(rng.randrange(len(names)), rng.choice(self.subs)) for _ in range(rng.randrange(9)) if names]
            table = pa.table(list(zip(*(s for _, s in wanted))) or self.layout.sub_schema.empty_table().columns,
                             schema=self.layout.sub_schema)  # fmt: skip
            found = family.get(np.array([i for i, _ in wanted], np.int64), table)
            asked = [(names[i], canonical(sub)) for i, sub in wanted]
            rows = self._rows(found, names)
            assert [rows[place] for place in found.place.tolist()] == asked
            assert sorted(set(asked), key=repr) == sorted(rows, key=repr)
            self._compare(found, rows)
            self._change(family, found, rows, rng)

    def scan(self, rng: random.Random) -> None:
        """All rows of some keys, and what :meth:`get` does with them."""
        for names, family in self._families(rng.sample(KEYS, rng.randrange(len(KEYS) + 1))):
            index = np.flatnonzero([rng.random() < 0.7 for _ in names])
            everything = len(index) == len(names)
            found = family.scan(None if everything else index)
            rows = self._rows(found, names)
            assert found.exists.all()
            self._compare(found, rows)
            chosen = [names[i] for i in index.tolist()]
            assert [rows[i] for i in found.ordered().tolist()] == [
                (k, sub) for k in chosen for sub in sorted(self.expected[k], key=lambda s: in_order(self._raw(s)))
            ]
            self._change(family, found, rows, rng)

    def due(self, rng: random.Random) -> None:
        """Half of what has expired is removed or gets another time; the other half stays due."""
        now_ms = rng.randrange(110)
        for names, family in self._families(list(KEYS), now_ms):
            found = family.due()
            rows = self._rows(found, names)
            self._compare(found, rows)
            late = {(k, s) for k in names for s, v in self.expected[k].items() if NO_TIMEOUT < v[1] < now_ms}
            assert set(rows) == late
            self._change(family, found, rows, rng)

    def flush(self, rng: random.Random) -> None:
        for i, task in enumerate(self.tasks):
            if rng.random() < 0.6:
                self._flush(i, task)

    def end_tasks(self, _: random.Random) -> None:
        for i, task in enumerate(self.tasks):
            meta, memtable = task.seal()
            self.tasks[i] = self._open(task.groups, json.dumps(meta), memtable)

    def rescale(self, rng: random.Random) -> None:
        """A checkpoint, and other tasks that adopt it."""
        for i, task in enumerate(self.tasks):
            self._flush(i, task)
        manifests = {g: m for task in self.tasks for g, m in task.manifests({}).items()}
        self._check_files(manifests)
        frozen = MemoryRuns()
        frozen.files, frozen.dead = dict(self.runs.files), dict(self.runs.dead)
        self.checkpoint = manifests, {k: dict(rows) for k, rows in self.expected.items()}, frozen
        self._adopt(manifests, rng.choice([1, 2, 3, 8]))

    def restore(self, rng: random.Random) -> None:
        """Back to the last checkpoint, in other tasks."""
        if self.checkpoint is not None:
            manifests, expected, frozen = self.checkpoint
            self.expected = {k: dict(rows) for k, rows in expected.items()}
            self.runs.files, self.runs.dead = dict(frozen.files), dict(frozen.dead)
            self._adopt(manifests, rng.choice([1, 2, 3, 8]))

    # -- what they share ---------------------------------------------------------------------------------------

    def _flush(self, i: int, task: KeyedState) -> None:
        self.files, self.epoch = self.files + 1, self.epoch + 1
        appender = self.runs.appender(f"f{self.files}")
        self.runs.bury(task.flush(appender, self.epoch).dead)
        meta, memtable = task.seal()
        appender.close()
        self.tasks[i] = self._open(task.groups, meta, memtable)

    def _adopt(self, manifests: dict[int, GroupManifest], tasks: int) -> None:
        self.tasks = [self._open(r) for r in self._ranges(tasks)]
        for task in self.tasks:
            task.adopt({g: manifests[g] for g in task.groups})

    def _check_files(self, manifests: dict[int, GroupManifest]) -> None:
        """What a reader of the table sees is the family, in the key groups of its keys."""
        table = self.runs.live_rows()
        live = [] if table is None else table.to_pylist()
        names = self.layout.sub_schema.names
        found = {(r["k"], canonical(tuple(r[n] for n in names))): self._stored(r) for r in live}
        assert len(found) == len(live) == sum(m.keys for m in manifests.values())
        assert found == {(k, s): v for k, rows in self.expected.items() for s, v in rows.items()}
        hashes = key_hashes([r["k"] for r in live])
        assert [r[KEY_GROUP] for r in live] == key_group_of(hashes, GROUPS).tolist()
        assert [r[KEY_HASH] >> 32 for r in live] == (hashes >> 32).tolist()

    def _stored(self, row: dict[str, Any]) -> tuple[dict[str, Any], int]:
        return {n: row[n] for n in self.layout.value_schema.names}, row[TIMEOUT_MS]

    def _raw(self, sub: Row) -> Row:
        return tuple(NAN if x == "NaN" else x for x in sub)

    def _rows(self, found: Found, names: list[Any]) -> list[tuple[Any, Row]]:
        subs = [canonical(tuple(r.values())) for r in found.sub_keys.to_pylist()]
        keys = [names[i] for i in found.key_index.tolist()]
        rows = list(zip(keys, subs, strict=True))
        assert len(set(rows)) == len(rows)
        return rows

    def _compare(self, found: Found, rows: list[tuple[Any, Row]]) -> None:
        old = [self.expected[k].get(s) for k, s in rows]
        assert found.exists.tolist() == [o is not None for o in old]
        names = self.layout.value_schema.names
        assert found.state.num_rows == len(rows)
        if names:
            assert found.state.to_pylist() == [o[0] if o else dict.fromkeys(names) for o in old]
        assert found.timeout_ms.tolist() == [o[1] if o else NO_TIMEOUT for o in old]

    def _change(self, family: Family, found: Found, rows: list[tuple[Any, Row]], rng: random.Random) -> None:
        actions = [rng.choice("wr-") for _ in rows]
        values = [value_of(rng.randrange(999), self.layout.value_schema) for _ in rows]
        timeouts = [rng.choice([NO_TIMEOUT, rng.randrange(100)]) for _ in rows]
        write, remove = (np.array([a == kind for a in actions], bool) for kind in "wr")
        state = pa.Table.from_pylist(values, schema=VALUES) if self.layout.value_schema.names else None
        family.write(found, state, write, remove, np.array(timeouts, np.int64))
        for (key, sub), action, value, timeout in zip(rows, actions, values, timeouts, strict=True):
            if action == "w":
                self.expected[key][sub] = (value, timeout)
            elif action == "r":
                self.expected[key].pop(sub, None)
        assert sum(task.keys for task in self.tasks) == sum(map(len, self.expected.values()))


STEPS = ["get", "get", "get", "scan", "scan", "due", "flush", "end_tasks", "rescale", "restore"]
POLICIES = [
    CompactionPolicy(),
    CompactionPolicy(2, 2),
    CompactionPolicy(2, 2, budget_rows=4, pace_rows=2, pace=1, piece_rows=3),
    CompactionPolicy(3, 3, 2.0, 100.0, budget_rows=4, pace_rows=2, pace=1, piece_rows=3),
]


def play(model: Model, steps: list[tuple[str, int]]) -> None:
    for step, seed in [*steps, ("rescale", 0), ("scan", 0), ("due", 1), ("rescale", 2)]:
        getattr(model, step)(random.Random(seed))


@settings(max_examples=some(30))
@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9999)), max_size=25),
    st.sampled_from(POLICIES),
    st.sampled_from(list(SUBS)),
)
def test_a_family_equals_a_dict_of_dicts_after_any_history(
    steps: list[tuple[str, int]], policy: CompactionPolicy, kind: str
) -> None:
    play(Model(kind, policy), steps)


@pytest.mark.parametrize("kind", SUBS)
@pytest.mark.parametrize("values", [VALUES, pa.schema([])], ids=["values", "a set"])
def test_long_histories_of_every_kind(kind: str, values: pa.Schema) -> None:
    seed = list(SUBS).index(kind)
    rng = random.Random(seed)
    steps = [(rng.choice(STEPS), rng.randrange(9999)) for _ in range(60)]
    play(Model(kind, POLICIES[seed], values), steps)


# -- one by one ------------------------------------------------------------------------------------------------


def family(
    rows: dict[int, list[int]], now_ms: int | None = None, keys: list[int] | None = None
) -> tuple[KeyedState, Family]:
    """Long keys and sub-keys, time-out 10; ``keys``: those of the call, if not all."""
    layout = FamilyLayout(KEY, SUBS["long"][0], pa.schema([]), True)
    state = KeyedState.open(layout.stored, KeyRange(0, GROUPS, GROUPS), None, None, MemoryRuns())
    stored = _of_keys(state, layout, list(rows))
    index = [i for i, k in enumerate(sorted(rows, key=lambda k: int(key_hashes([k])[0]))) for _ in rows[k]]
    subs = [s for k in sorted(rows, key=lambda k: int(key_hashes([k])[0])) for s in rows[k]]
    found = stored.get(np.array(index, np.int64), pa.table({"s": subs}))
    stored.write(found, timeout_ms=np.full(len(found), 10))
    return state, _of_keys(state, layout, list(rows) if keys is None else keys, now_ms)


def _of_keys(state: KeyedState, layout: FamilyLayout, keys: list[int], now_ms: int | None = None) -> Family:
    hashes = key_hashes(keys)
    order = np.argsort(hashes)
    return Family(state, layout, hashes[order], pa.table({"k": np.array(keys)[order]}), now_ms)


def test_rows_of_neighbours_in_the_hash_are_told_apart() -> None:
    a, b = NEIGHBOURS
    _, one = family({a: [1, 2, 3], b: [2, 3, 4]}, keys=[b])
    assert sorted(one.scan().sub_keys.column("s").to_pylist()) == [2, 3, 4]
    one.remove(one.scan())
    assert len(one.scan()) == 0
    _, both = family({a: [1, 2, 3], b: [2, 3, 4]})
    found = both.scan()
    assert found.key_index[found.ordered()].tolist() == [0, 0, 0, 1, 1, 1]
    assert (np.diff(found.lookup.hashes) >= 0).all(), "or what is written of them would not be found again"


@pytest.mark.parametrize("last", [2**63 - 1, -(2**63)])
def test_the_first_and_the_last_hash_have_rows_like_any(last: int) -> None:
    layout, runs = FamilyLayout(KEY, SUBS["long"][0], pa.schema([])), MemoryRuns()
    state = KeyedState.open(layout.stored, KeyRange(0, GROUPS, GROUPS), None, None, runs)
    some = Family(state, layout, np.array([last]), pa.table({"k": [1]}))
    some.write(some.get(np.zeros(3, np.int64), pa.table({"s": [1, 2, 3]})))
    assert len(some.scan()) == 3
    state.flush(runs.appender("f"), 1)
    assert len(some.scan()) == 3


def test_both_zeros_are_one_sub_key_and_so_are_all_nans() -> None:
    layout = FamilyLayout(KEY, SUBS["double"][0], pa.schema([]))
    state = KeyedState.open(layout.stored, KeyRange(0, GROUPS, GROUPS), None, None, MemoryRuns())
    some = Family(state, layout, key_hashes([1]), pa.table({"k": [1]}))
    other_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    found = some.get(np.zeros(5, np.int64), pa.table({"s": np.array([-0.0, 0.0, NAN, other_nan, -0.0])}))
    assert len(found) == 2
    some.write(found)
    assert some.get(np.zeros(2, np.int64), pa.table({"s": np.array([0.0, other_nan])})).exists.all()


def test_nothing_is_due_in_a_call_for_rows() -> None:
    _, silent = family({1: [1]})
    assert len(silent.due()) == 0
    _, due = family({1: [1]}, now_ms=11)
    assert due.due().sub_keys.to_pylist() == [{"s": 1}]
    _, exactly = family({1: [1]}, now_ms=10)
    assert len(exactly.due()) == 0, "as Spark: strictly before"


def test_rows_that_expire_for_keys_the_call_does_not_have_are_a_bug() -> None:
    _, due = family({1: [1], 2: [2]}, now_ms=11, keys=[1])
    with pytest.raises(ProtocolBugError, match="1 rows expired of keys"):
        due.due()


def test_rows_found_before_a_write_cannot_be_written_behind_it() -> None:
    _, some = family({1: [1, 2]})
    found = some.scan()
    some.remove(found)
    with pytest.raises(ProtocolBugError, match="look the keys up again"):
        some.write(found)
    with pytest.raises(UserFunctionError, match="both written and removed"):
        some.write(some.get(np.zeros(1, np.int64), pa.table({"s": [9]})), None, np.ones(1, bool), np.ones(1, bool))


def test_names_and_types_that_no_table_could_have_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"found \['k'\] twice"):
        FamilyLayout(KEY, KEY, pa.schema([]))
    with pytest.raises(InvalidInputError, match="expected a boolean, number"):
        FamilyLayout(KEY, pa.schema([("s", pa.list_(pa.int64()))]), pa.schema([]))
    with pytest.raises(InvalidInputError, match="at least one key column"):
        FamilyLayout(pa.schema([]), pa.schema([]), VALUES)
