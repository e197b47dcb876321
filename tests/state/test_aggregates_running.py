"""``emit="rows"``: every input row with its key's aggregates up to and including it."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt import agg
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.functions.base import Touched
from tests.how_many import some
from tests.state.aggregates_harness import CTX, KEYS, NUMBERS, TYPES, Operator, expected, same, schema_of, table

ANY = {"n": agg.count(), "known": agg.count("v"), "low": agg.min("v"), "high": agg.max("v")}
NUMERIC = {"total": agg.sum("v"), "average": agg.mean("v"), "spread": agg.stddev("v")}


@st.composite
def batches(draw: st.DrawFn) -> tuple[str, list[list[tuple[Any, Any]]]]:
    name = draw(st.sampled_from(sorted(TYPES)))
    row = st.tuples(st.sampled_from(["a", "b", None]), st.none() | TYPES[name][1])
    return name, draw(st.lists(st.lists(row, max_size=10), min_size=1, max_size=4))


@settings(max_examples=some(75), deadline=None)
@given(batches())
def test_each_row_carries_the_aggregates_up_to_itself(history: Any) -> None:
    name, rows_of_batches = history
    type_ = TYPES[name][0]
    specs = ANY | (NUMERIC if name in NUMBERS else {})
    operator = Operator(AggregateFunction(KEYS, schema_of(type_), specs, emit="rows"))
    seen: list[dict[str, Any]] = []
    for rows in rows_of_batches:
        output = operator.batch(table(rows, type_))
        assert len(output) == len(rows)
        for out, row in zip(output, table(rows, type_).to_pylist()):
            seen.append(row)
            mine = [r for r in seen if r["k"] == row["k"]]
            assert out["k"] == row["k"]
            assert same(out["v"], row["v"])
            for aggregate, spec in specs.items():
                assert same(out[aggregate], expected(spec, mine, type_), scale=1e6), (aggregate, out)


def test_rows_are_taken_in_order_of_a_column_and_ties_in_order_of_arrival() -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.timestamp("us")), ("v", pa.int64())])
    at = [dt.datetime(2024, 1, d) for d in (3, 1, 2, 1)]
    rows = pa.table({"k": ["a", "a", "b", "a", "b"], "t": [*at, None], "v": [1, 10, 100, 1000, 7]}, schema=schema)
    operator = Operator(AggregateFunction(KEYS, schema, {"s": agg.sum("v")}, emit="rows", order_by="t"))
    assert [(r["v"], r["s"]) for r in operator.batch(rows)] == [(7, 7), (10, 10), (1000, 1010), (100, 107), (1, 1011)]
    assert {k: r["s"] for k, r in operator.state.items()} == {"{'k': 'a'}": 1011, "{'k': 'b'}": 107}


def test_nan_is_ordered_last() -> None:
    rows = table([("a", math.nan), ("a", None), ("a", 1.0), ("a", -math.inf)], pa.float64())
    function = AggregateFunction(KEYS, rows.schema, {"n": agg.count()}, emit="rows", order_by="v")
    assert [repr(r["v"]) for r in Operator(function).batch(rows)] == ["None", "-inf", "1.0", "nan"]


def test_output_has_the_input_columns_then_the_aggregates() -> None:
    function = AggregateFunction(KEYS, pa.schema([("v", pa.int8())]), {"n": agg.count()}, emit="rows")
    assert function.output_schema.names == ["k", "v", "n"]
    assert AggregateFunction(KEYS, schema_of(pa.int8()), {"n": agg.count()}, "rows").output_schema.names == list("kvn")


@pytest.mark.parametrize("length", [63, 64, 65, 500])
def test_running_float_sums_do_not_depend_on_where_batches_are_cut(length: int) -> None:
    rng = np.random.default_rng(length)
    values = rng.normal(size=length) * 10.0 ** rng.integers(-8, 9, length)
    rows = table([("a", v) for v in values], pa.float64())
    one = AggregateFunction(KEYS, rows.schema, {"s": agg.sum("v"), "m": agg.mean("v")}, emit="rows")
    whole = Operator(one).batch(rows)
    operator = Operator(one)
    cut = [row for start in range(0, length, 7) for row in operator.batch(rows.slice(start, 7))]
    assert cut == whole
    assert [r["s"] for r in whole] == np.cumsum(values).tolist()


def test_nan_of_one_key_does_not_reach_another() -> None:
    rows = table([("a", math.nan), ("b", 1.0), ("a", 2.0), ("b", 2.0)] * 100, pa.float64())
    function = AggregateFunction(KEYS, rows.schema, {"s": agg.sum("v"), "d": agg.stddev("v")}, emit="rows")
    of_b = [r for r in Operator(function).batch(rows) if r["k"] == "b"]
    assert [r["s"] for r in of_b] == np.cumsum([1.0, 2.0] * 100).tolist()
    assert not any(math.isnan(r["d"]) for r in of_b[1:])


def test_running_deviation_keeps_its_digits_far_from_zero() -> None:
    values = [1e9 + d for d in (4.0, 7.0, 13.0, 16.0)]
    rows = table([("a", v) for v in values], pa.float64())
    operator = Operator(AggregateFunction(KEYS, rows.schema, {"d": agg.stddev("v")}, emit="rows"))
    operator.batch(rows.slice(0, 2))
    assert math.isclose(operator.batch(rows.slice(2))[-1]["d"], math.sqrt(30), rel_tol=1e-9)


def test_a_running_sum_raises_where_it_passes_the_range_of_long_even_if_it_comes_back() -> None:
    rows = table([("a", 2**63 - 1), ("a", 1), ("a", -5)], pa.int64())
    function = AggregateFunction(KEYS, rows.schema, {"s": agg.sum("v")}, emit="rows")
    assert [r["s"] for r in Operator(function).batch(rows.take([0, 2, 1]))][-1] == 2**63 - 5
    with pytest.raises(InvalidInputError, match="int64"):
        Operator(function).batch(rows)


def test_many_keys_and_long_keys_match_a_loop() -> None:
    rng = np.random.default_rng(1)
    k = np.where(rng.random(5000) < 0.3, 0, rng.integers(1, 900, 5000))
    v = rng.integers(-9, 9, 5000)
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    function = AggregateFunction(schema.remove(1), schema, {"s": agg.sum("v"), "h": agg.max("v")}, emit="rows")
    keys, index = np.unique(k, return_inverse=True)
    none = np.zeros(len(keys), bool)
    empty = function.state_schema.empty_table().take(pa.array([None] * len(keys), pa.int64()))
    rows = pa.table({"k": k, "v": v}, schema=schema)
    touched = Touched(pa.table({"k": keys}), rows, index, empty, none, none, np.full(len(keys), -1))
    output = function.process(CTX, touched).output.to_pandas()
    groups = rows.to_pandas().groupby("k")["v"]
    np.testing.assert_array_equal(output["s"], groups.cumsum())
    np.testing.assert_array_equal(output["h"], groups.cummax())
