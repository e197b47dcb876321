"""Key groups move between tasks, and large merges are spread over many flushes."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt.protocol.events import GroupManifest, Run
from spark_ckpt.state.keys.keys import key_group_of
from spark_ckpt.state.lsm._manifests import joined, layered, sliced
from spark_ckpt.state.lsm.compaction import CompactionPolicy
from spark_ckpt.state.lsm.keyed_state import FlushResult, KeyedState
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.state.lsm.ranges import KeyRange, RangeRun, blocks, offsets
from spark_ckpt.testing.memory_runs import MemoryRuns
from tests.how_many import some

LAYOUT = StateLayout(pa.schema([("k", pa.int64())]), pa.schema([("v", pa.int64())]))
GROUPS = 16


def hash_of(keys: np.ndarray) -> np.ndarray:
    """Spread over all key groups; the upper bits of a product with an odd number."""
    return (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.int64)


def ranges(tasks: int, groups: int = GROUPS) -> list[KeyRange]:
    return [KeyRange(i * groups // tasks, (i + 1) * groups // tasks, groups) for i in range(tasks)]


class Job:
    """The tasks of one operator, and the dict that their states together must equal."""

    def __init__(self, tasks: int, policy: CompactionPolicy, groups: int = GROUPS) -> None:
        self.policy, self.groups = policy, groups
        self.runs = MemoryRuns()
        self.expected: dict[int, int] = {}
        self.files = 0
        self.results: list[FlushResult] = []
        self.states = [self._open(r) for r in ranges(tasks, groups)]

    def _open(self, r: KeyRange, meta: object = None, memtable: bytes | None = None) -> KeyedState:
        return KeyedState.open(LAYOUT, r, meta, memtable, self.runs, self.policy)  # type: ignore[arg-type]

    def change(self, keys: np.ndarray, value: int, remove: bool = False) -> None:
        hashes = hash_of(keys)
        order = np.argsort(hashes)
        keys, hashes = keys[order], hashes[order]
        owner = key_group_of(hashes, self.groups)
        for state in self.states:
            mine = (owner >= state.groups.first) & (owner < state.groups.end)
            self._change(state, keys[mine], hashes[mine], value, remove)

    def _change(self, state: KeyedState, keys: np.ndarray, hashes: np.ndarray, value: int, remove: bool) -> None:
        lookup = state.touch(hashes, pa.table({"k": keys}))
        assert lookup.state.column("v").to_pylist() == [self.expected.get(k) for k in keys.tolist()]
        chosen, values = np.ones(len(keys), bool), pa.table({"v": np.full(len(keys), value)})
        state.write(lookup, values, ~chosen if remove else chosen, chosen if remove else ~chosen)
        for k in keys.tolist():
            self.expected.pop(k, None)
            if not remove:
                self.expected[k] = value

    def flush(self) -> None:
        """Every task flushes and ends."""
        for i, state in enumerate(self.states):
            self.files += 1
            appender = self.runs.appender(f"f{self.files}")
            result = state.flush(appender, self.files)
            appender.close()
            self.runs.bury(result.dead)
            self.results.append(result)
            self.states[i] = self._open(state.groups, *state.seal())

    def manifests(self) -> dict[int, GroupManifest]:
        return {g: m for state in self.states for g, m in state.manifests({}).items()}

    def rescale(self, tasks: int) -> None:
        self.flush()
        manifests = self.manifests()
        self.states = [self._open(r) for r in ranges(tasks, self.groups)]
        for state in self.states:
            state.adopt({g: manifests[g] for g in state.groups})
        assert self.expected.keys() == self.live()

    def live(self) -> set[int]:
        rows = self.runs.live_rows()
        found = [] if rows is None else rows.column("k").to_pylist()
        assert len(found) == len(set(found)) == sum(state.keys for state in self.states)
        return set(found)


POLICIES = [
    CompactionPolicy(),
    CompactionPolicy(2, 2, budget_rows=40, pace_rows=10, pace=1, piece_rows=30),
    CompactionPolicy(3, 4, budget_rows=0, pace_rows=0, pace=1, piece_rows=9),
]


@settings(max_examples=some(20))
@given(st.integers(0, 10**6), st.sampled_from(POLICIES))
def test_rescaling_keeps_every_key_and_the_order_of_its_versions(seed: int, policy: CompactionPolicy) -> None:
    rng = random.Random(seed)
    job = Job(1, policy)
    for tasks in (4, 2, 3, 16, 1):
        for value in range(rng.randrange(6)):
            keys = np.array(rng.sample(range(100), rng.randrange(100)), np.int64)
            job.change(keys, value, remove=rng.random() < 0.3)
            if rng.random() < 0.7:
                job.flush()
        job.rescale(tasks)
        job.change(np.arange(100), 7) if rng.random() < 0.2 else job.change(np.arange(0, 100, 3), 8)


def test_a_key_group_that_arrives_without_a_manifest_is_empty() -> None:
    job = Job(1, CompactionPolicy())
    job.change(np.arange(100), 1)
    job.flush()
    manifests = job.manifests()
    state = job.states[0]
    state.adopt({3: manifests[3]})
    assert state.keys == manifests[3].keys > 0
    assert {g: m.keys for g, m in state.manifests({}).items() if m.keys} == {3: manifests[3].keys}
    assert state.touch(np.sort(hash_of(np.arange(100))), pa.table({"k": np.arange(100)})).exists.sum() <= state.keys


def test_neighbours_side_by_side_in_a_file_become_one_run_again() -> None:
    job = Job(1, CompactionPolicy())
    job.change(np.arange(1000), 1)
    job.flush()
    job.change(np.arange(0, 1000, 4), 1, remove=True)
    job.flush()
    before = job.states[0].runs
    job.rescale(1)
    assert [r.run for r in job.states[0].runs] == [r.run for r in before]
    assert len(before) == 2


def test_no_flush_merges_more_than_its_budget() -> None:
    policy = CompactionPolicy(fan_out=3, budget_rows=400, pace_rows=200, pace=8, piece_rows=300)
    job, groups, rng = Job(1, policy, 64), 64, random.Random(1)
    for value in range(150):
        job.change(np.array(rng.sample(range(6000), 50)), value)
        counts = np.zeros(groups, np.int64)
        for run in job.states[0].runs:
            run.add_counts(counts, job.states[0].groups)
        job.flush()
        assert job.results[-1].rows_merged <= max(400, 8 * 50, counts.max())
    stack = [len(m.runs) for m in job.manifests().values()]
    assert max(stack) <= policy.max_runs + 2 * policy.fan_out
    assert sum(r.rows_merged for r in job.results) < 150 * 50 * 12
    assert job.expected.keys() == job.live()


def test_what_is_merged_in_pieces_ends_up_as_one_layer() -> None:
    policy = CompactionPolicy(fan_out=2, budget_rows=300, pace_rows=300, pace=1)
    job = Job(1, policy, 64)
    job.change(np.arange(4000), 0)
    job.flush()
    job.change(np.arange(0, 4000, 2), 1)
    job.flush()
    job.change(np.arange(0, 4000, 2), 2)
    job.flush()
    for value in range(40):
        job.change(np.arange(4000, 4010), value)
        job.flush()
    state = job.states[0]
    assert max(len(m.runs) for m in job.manifests().values()) <= 4
    assert len({r.file for r in state.runs}) > 5
    job.change(np.arange(4010), 3)


def test_a_flush_that_holds_every_live_key_reads_nothing() -> None:
    job = Job(1, CompactionPolicy())
    job.change(np.arange(500), 0)
    job.flush()
    job.change(np.arange(500), 1)
    job.runs.reads.clear()
    job.flush()
    assert job.runs.reads == []
    assert [r.count for r in job.states[0].runs] == [500]
    assert job.expected.keys() == job.live()


@given(st.integers(1, 300), st.data())
def test_bounds_are_where_the_key_group_changes(total: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, total - 1))
    groups = KeyRange(first, data.draw(st.integers(first + 1, total)), total)
    inner = groups.bounds[:-1]
    assert key_group_of(inner, groups.total).tolist() == list(groups)
    assert key_group_of(inner[1:] - 1, groups.total).tolist() == list(groups)[:-1]
    assert groups.cuts(inner).tolist() == list(range(len(groups) + 1))
    last = groups.bounds[-1:] if groups.end == total else groups.bounds[-1:] - 1
    assert groups.holds(np.append(inner, last))
    assert groups.count(last).tolist() == [0] * (len(groups) - 1) + [1]
    assert first == 0 or not groups.holds(inner[:1] - 1)
    assert groups.end == total or not groups.holds(groups.bounds[-1:])


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=8), min_size=1, max_size=8),
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 3, 1000]),
)
def test_joining_any_lists_of_runs_keeps_each_key_groups_order(shape: list[list[int]], seed: int, most: int) -> None:
    """Files are cut at random, so that runs also happen to lie side by side that never belonged together."""
    rng, groups = random.Random(seed), KeyRange(2, 2 + len(shape), 100)
    starts = dict.fromkeys(range(6), 0)
    manifests = {}
    for group, files in zip(groups, shape, strict=True):
        runs = []
        for file in files:
            count = rng.randrange(3)
            runs.append(Run(f"f{file}", starts[file], count, 1, file % 2 > 0, None))
            starts[file] += count
        manifests[group] = GroupManifest(tuple(runs))
    order = joined(manifests, most)
    assert all(run.count <= most or run.end == run.first + 1 for run in order)
    expected = {g: tuple(r for r in m.runs if r.count) for g, m in manifests.items()}
    assert sliced(order, groups) == expected
    assert sliced([r for layer in layered(order, groups) for r in layer], groups) == expected


@pytest.mark.parametrize(
    ("rows", "limit", "expected"),
    [
        ([3, 3, 3], 6, [(5, 7), (7, 8)]),
        ([9, 1, 9], 6, [(5, 6), (6, 7), (7, 8)]),
        ([0, 0, 1, 0], 0, [(5, 7), (7, 8), (8, 9)]),
        ([], 5, []),
    ],
)
def test_blocks_hold_as_many_key_groups_as_fit(rows: list[int], limit: int, expected: list[tuple[int, int]]) -> None:
    assert list(blocks(np.array(rows, np.int64), 5, limit)) == expected


def test_runs_of_narrow_rows_are_joined_to_longer_ones_and_those_of_strings_are_not() -> None:
    key = pa.schema([("k", pa.int64())])
    narrow, wide = (StateLayout(key, pa.schema([(f"v{i}", pa.int64()) for i in range(n)])) for n in (1, 500))
    text = StateLayout(key, pa.schema([("v", pa.string())]))
    assert narrow.joined_rows == 2**27 // 28
    assert wide.joined_rows == text.joined_rows == 2**19


def test_a_range_run_survives_json_and_gives_its_parts() -> None:
    run = RangeRun("f", 10, 4, offsets(np.array([2, 0, 3])), 7, True, None)
    again = RangeRun.from_json(run.to_json())
    assert (again.run, again.first, again.end, again.cuts.tolist()) == (run.run, 4, 7, [0, 2, 2, 5])
    assert run.part(0, 5).run == Run("f", 10, 2, 7, True, None)  # type: ignore[union-attr]
    assert run.part(5, 6) is None
    assert run.part(7, 9) is None
    assert run.part(0, 99) is run
    assert dict(run.slices()) == {4: Run("f", 10, 2, 7, True, None), 6: Run("f", 12, 3, 7, True, None)}
