"""Approximate distinct counts stay within their promised error, whatever the type and the way of merging."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from spark_ckpt import agg
from spark_ckpt.state.aggregates._hash import hash_column
from spark_ckpt.state.aggregates._hll import ApproxDistinct
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.keys.grouping import Segments
from tests.state.aggregates_harness import Operator

KEYS = pa.schema([("k", pa.string())])


def estimates(values: np.ndarray, sizes: list[int], rsd: float) -> list[int]:
    """Estimate for consecutive slices of the values of the given sizes."""
    sketch = ApproxDistinct("u", "v", pa.int64(), rsd)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    seg = Segments(None, starts, int(np.sum(sizes)))
    return sketch.result(sketch.merge(sketch.lift(pa.array(values), len(values)), seg)).to_pylist()


@pytest.mark.parametrize("rsd", [0.2, 0.05, 0.01])
@pytest.mark.parametrize("size", [1, 10, 100, 1000, 3000])
def test_the_error_over_many_keys_is_the_one_asked_for_and_has_no_bias(size: int, rsd: float) -> None:
    keys = 120
    values = np.random.default_rng(size).integers(-(2**63), 2**63 - 1, keys * size)
    error = np.array(estimates(values, [size] * keys, rsd)) / size - 1
    assert np.sqrt(np.mean(error**2)) <= rsd * 1.15
    assert abs(error.mean()) <= 3 * rsd / np.sqrt(keys) + 0.5 / size


def test_consecutive_numbers_are_as_good_as_random_ones() -> None:
    assert abs(estimates(np.arange(1_000_000), [1_000_000], 0.02)[0] / 1_000_000 - 1) < 0.06


def test_values_seen_before_do_not_count_again_in_later_batches_and_other_tasks() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    operator = Operator(AggregateFunction(KEYS, schema, {"u": agg.approx_count_distinct("v")}))
    rows = pa.table({"k": ["a"] * 500, "v": list(range(500))}, schema=schema)
    first = operator.batch(rows)[0]["u"]
    assert operator.batch(rows, rows.slice(100))[0]["u"] == first
    whole = Operator(operator.function).batch(rows)[0]["u"]
    cut = Operator(operator.function)
    assert [cut.batch(rows.slice(i, 100))[0]["u"] for i in range(0, 500, 100)][-1] == whole


def test_sketches_stay_small_for_few_values_and_bounded_for_many() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    operator = Operator(AggregateFunction(KEYS, schema, {"u": agg.approx_count_distinct("v")}))
    operator.batch(pa.table({"k": ["a"] * 3, "v": [1, 2, None]}, schema=schema))
    assert len(operator.state["{'k': 'a'}"]["u_hll"]) == 8
    operator.batch(pa.table({"k": ["a"] * 9000, "v": list(range(9000))}, schema=schema))
    assert len(operator.state["{'k': 'a'}"]["u_hll"]) == 512


@pytest.mark.parametrize(
    ("values", "distinct"),
    [
        (pa.array(["", "a", "abcdefgh", "abcdefghi", "a" * 300, "a" * 301, "é", "\x00", "\x00\x00", "a", None]), 9),
        (pa.array([b"x", b"y", b"x"], pa.large_binary()), 2),
        (pa.array([0.0, -0.0, float("nan"), -float("nan"), 1.0]), 3),
        (pa.array([1.5, 1.5, None], pa.float32()), 1),
        (pa.array([True, False, True]), 2),
        (pa.array([Decimal("1.10"), Decimal("1.1"), Decimal("-1.10")], pa.decimal128(38, 2)), 2),
        (pa.array([dt.date(2020, 1, 1), dt.date(1920, 1, 1)]), 2),
        (pa.array([dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1)]), 1),
        (pa.array([None, None], pa.int64()), 0),
    ],
)
def test_every_flat_type_is_counted_by_value(values: pa.Array, distinct: int) -> None:
    rows = pa.table({"k": ["a"] * len(values), "v": values})
    operator = Operator(AggregateFunction(KEYS, rows.schema, {"u": agg.approx_count_distinct("v", 0.01)}))
    assert operator.batch(rows.slice(0, 1), rows.slice(1))[0]["u"] == distinct


def test_hashes_are_the_same_in_every_process() -> None:
    program = (
        "import pyarrow as pa; from spark_ckpt.state.aggregates._hash import hash_column as h; "
        "print(h(pa.array(['', 'spark', 'x' * 400])).tolist(), h(pa.array([1.5, 0.0])).tolist())"
    )
    here = f"{hash_column(pa.array(['', 'spark', 'x' * 400])).tolist()} {hash_column(pa.array([1.5, 0.0])).tolist()}"
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert there.stdout.strip() == here
    assert hash_column(pa.array([0, 1])).tolist() == [16294208416658607535, 10451216379200822465]


def test_hashes_do_not_depend_on_where_an_array_begins() -> None:
    for values in (pa.array(["ab", "c", "defghijklm", ""]), pa.array([Decimal(i) for i in range(4)])):
        assert hash_column(values.slice(2)).tolist() == hash_column(values)[2:].tolist()
