"""State that is written from rows: a running operator finds each row, and its time-out, where it looks for it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_ckpt.protocol.events import GroupManifest, groups_from_json
from spark_ckpt.runtime import state_writing
from spark_ckpt.runtime.state_writing import HashRows, WriteRuns, WrittenTable
from spark_ckpt.state.keys.spark_hash import hashes_of, xxhash64
from spark_ckpt.state.lsm.family import Family
from spark_ckpt.state.lsm.keyed_state import KeyedState
from spark_ckpt.state.lsm.layout import FamilyLayout, StateLayout
from spark_ckpt.state.lsm.ranges import KeyRange
from spark_ckpt.state.lsm.written_rows import WrittenRows
from spark_ckpt.state.subtasks import Subtasks
from spark_ckpt.storage.run_cache import RunCache

GROUPS = 5
KEY = pa.schema([("k", pa.string()), ("d", pa.float64())])
VALUES = pa.schema([("n", pa.int64()), ("list", pa.list_(pa.string()))])
NAN = float("nan")


def written(form: WrittenRows, rows: pa.RecordBatch, folder: Path, partitions: int = 3) -> tuple[KeyedState, int]:
    """The state of all key groups, as a restore takes it up, and how many rows repeat a key. Spark's part, the shuffle
    and the sort, is done here."""
    table = WrittenTable("u", str(folder), form, 1)
    hashed = next(HashRows(form, Subtasks(GROUPS, partitions))(iter([rows])))
    groups, repeated = {g: GroupManifest() for g in range(GROUPS)}, 0
    for route in sorted(set(hashed.column("_route").to_pylist())):
        mine = hashed.filter(pa.array(hashed.column("_route").to_numpy() == route))
        order = sorted(range(len(mine)), key=lambda i: (mine.column("_key_hash")[i].as_py(), repr(mine.slice(i, 1))))
        mine = mine.take(pa.array(order))
        for report in WriteRuns(table)(mine.slice(at, 7) for at in range(0, len(mine), 7)):
            told = report.to_pylist()[0]
            repeated += told["repeated"]
            for group, part in groups_from_json(json.loads(told["groups"])).items():
                known = groups[group]
                groups[group] = GroupManifest((*known.runs, *part.runs), known.keys + part.keys)
    state = KeyedState(form.layout, KeyRange(0, GROUPS, GROUPS), RunCache(str(folder), str(folder / "cache"), 1 << 20))
    state.adopt(groups)
    return state, repeated


def some_rows(form: WrittenRows, seed: int) -> pa.RecordBatch:
    rng = random.Random(seed)
    keys = [*((f"k{i}", float(i)) for i in range(60)), ("", NAN), (None, -0.0), ("x", None), (None, None)]
    rng.shuffle(keys)
    rows = [(*key, i, [str(i)] * (i % 3), rng.choice([None, -1, 10**6 + i])) for i, key in enumerate(keys)]
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), form.given, strict=False)]
    return pa.RecordBatch.from_arrays(columns, schema=form.given)


@pytest.mark.parametrize(("timed", "file_rows"), [(False, 1 << 19), (True, 20)])
def test_an_operator_finds_each_row_that_was_written_under_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timed: bool, file_rows: int
) -> None:
    monkeypatch.setattr(state_writing, "_FILE_ROWS", file_rows)
    form = WrittenRows(StateLayout(KEY, VALUES, timed), GROUPS)
    rows = some_rows(form, 1)
    state, repeated = written(form, rows, tmp_path)
    assert (state.keys, repeated) == (len(rows), 0)
    everything = state.everything()
    found = dict(zip(everything.hashes.tolist(), everything.state.to_pylist(), strict=True))
    expected = rows.select(VALUES.names).to_pylist()
    hashes = hashes_of(rows.select(KEY.names).columns).tolist()
    assert found == dict(zip(hashes, expected, strict=True))
    # As an operator looks it up: by hash and by key.
    order = np.argsort(hashes)
    keys = pa.table([c.take(pa.array(order)) for c in form.normalised_keys(rows)], names=KEY.names)
    assert state.touch(np.array(hashes)[order], keys).exists.all()
    if timed:
        due = [t for t in rows.column("_timeout_ms").to_pylist() if t not in (None, -1)]
        assert sorted(state.due(10**7).timeout_ms.tolist()) == sorted(due)
        assert state.next_due_ms() == min(due)


def test_the_rows_of_a_family_are_found_by_key_and_by_sub_key(tmp_path: Path) -> None:
    layout = FamilyLayout(KEY, pa.schema([("sub", pa.float64())]), VALUES)
    form = WrittenRows(layout.stored, GROUPS, len(KEY))
    rng, keys = random.Random(2), [("a", 1.0), ("b", NAN), (None, -0.0)]
    rows = [(*rng.choice(keys), float(i), i, None) for i in range(200)]
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), form.given, strict=True)]
    state, repeated = written(form, pa.RecordBatch.from_arrays(columns, schema=form.given), tmp_path)
    assert repeated == 0
    wanted = WrittenRows(StateLayout(KEY, VALUES), GROUPS)
    table = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(zip(*keys, strict=True), KEY, strict=True)], schema=KEY
    )
    named = wanted.normalised_keys(table)
    order = np.argsort(xxhash64(named))
    named = [c.take(pa.array(order)) for c in named]
    family = Family(state, layout, xxhash64(named), pa.table(named, KEY.names))
    found = family.scan()
    at = [keys[i][0] for i in order]
    seen = {(at[k], n) for k, n in zip(found.key_index, found.state.column("n").to_pylist(), strict=True)}
    assert seen == {(k, n) for k, _, _, n, _ in rows}
    one = family.get(np.array([at.index(rows[9][0])]), pa.table({"sub": [9.0]}))
    assert one.state.column("n").to_pylist() == [9]


def test_rows_that_repeat_a_key_are_counted_across_batches_and_for_equal_zeros_and_nans(tmp_path: Path) -> None:
    form = WrittenRows(StateLayout(pa.schema([("d", pa.float64())]), pa.schema([("n", pa.int64())])), GROUPS)
    values: list[Any] = [0.0, -0.0, NAN, -NAN, None, None, *[7.0] * 20, 1.0, 2.0]
    rows = pa.RecordBatch.from_arrays([pa.array(values), pa.array(range(len(values)))], schema=form.given)
    assert written(form, rows, tmp_path)[1] == 3 + 19


def test_a_task_that_is_repeated_writes_the_same_files(tmp_path: Path) -> None:
    form = WrittenRows(StateLayout(KEY, VALUES), GROUPS)
    for _ in range(2):
        written(form, some_rows(form, 3), tmp_path, partitions=1)
        assert len(list(tmp_path.glob("*.parquet"))) == 1
