"""Aggregates compared with the same aggregates in plain Python, over batches, tasks, nulls, NaN and every type."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import statistics
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt import agg
from spark_ckpt.agg import AggSpec
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.functions.base import Touched
from spark_ckpt.state.keys.grouping import group_rows
from tests.how_many import some
from tests.state.aggregates_harness import CTX, KEYS, NUMBERS, TYPES, Operator, by_key, expected, same, schema_of, table

EVERY_TYPE = {
    "n": agg.count(),
    "known": agg.count("v"),
    "low": agg.min("v"),
    "high": agg.max("v"),
    "first": agg.first("v"),
    "last": agg.last("v"),
    "first_known": agg.first("v", ignore_nulls=True),
    "last_known": agg.last("v", ignore_nulls=True),
    "some": agg.collect_list("v", max_items=3),
    "distinct": agg.count_distinct("v"),
}
NUMERIC = {"total": agg.sum("v"), "average": agg.mean("v"), "spread": agg.stddev("v")}


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, list[list[list[tuple[Any, Any]]]]]:
    """A column type, and batches of tasks of (key, value) rows."""
    name = draw(st.sampled_from(sorted(TYPES)))
    row = st.tuples(st.sampled_from(["a", "b", "", None]), st.none() | TYPES[name][1])
    task = st.lists(row, max_size=8)
    return name, draw(st.lists(st.lists(task, min_size=1, max_size=3), min_size=1, max_size=4))


def assert_matches(output: list[dict[str, Any]], rows: list[dict[str, Any]], specs: dict[str, Any], t: Any) -> None:
    groups = by_key(rows, "k")
    for out in output:
        mine = groups[repr({"k": out["k"]})]
        for name, spec in specs.items():
            want = expected(spec, mine, t)
            got = out[name]
            if isinstance(got, list):
                assert len(got) == len(want)
                assert all(map(same, got, want))
            else:
                assert same(got, want, scale=1e6), (name, got, want)


@settings(max_examples=some(75), deadline=None)
@given(histories())
def test_any_cut_into_batches_and_tasks_gives_what_all_rows_give(history: Any) -> None:
    name, batches = history
    type_ = TYPES[name][0]
    specs = EVERY_TYPE | (NUMERIC if name in NUMBERS else {})
    operator = Operator(AggregateFunction(KEYS, schema_of(type_), specs))
    seen: list[dict[str, Any]] = []
    for tasks in batches:
        tables = [table(rows, type_) for rows in tasks]
        output = operator.batch(*tables)
        arrived = pa.concat_tables(tables).to_pylist()
        seen += arrived
        assert sorted(by_key(output, "k")) == sorted(by_key(arrived, "k"))
        assert_matches(output, seen, specs, type_)


@pytest.mark.parametrize("portions", [1, 4])
@pytest.mark.parametrize("keys", [5, 60_000, 90_000])
def test_large_batches_match_whatever_way_of_grouping_is_chosen(keys: int, portions: int) -> None:
    rng = np.random.default_rng(keys)
    k = rng.integers(0, keys, 100_000)
    hashes = k * np.int64(-7046029254386353131)  # odd, so it maps different keys to different hashes
    rows = pa.table({"k": k, "v": rng.integers(-100, 100, len(k)), "_key_hash": hashes})
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    function = AggregateFunction(schema.remove(1), schema, {"n": agg.count(), "t": agg.sum("v"), "s": agg.stddev("v")})
    each = len(k) // portions
    combined = function.recombine([function.combine(rows.slice(i * each, each)) for i in range(portions)])
    distinct, index = np.unique(combined["k"].to_numpy(), return_inverse=True)
    none = np.zeros(len(distinct), bool)
    empty = function.state_schema.empty_table().take(pa.array([None] * len(distinct), pa.int64()))
    touched = Touched(pa.table({"k": distinct}), combined, index, empty, none, none, np.full(len(distinct), -1))
    output = function.process(CTX, touched).output.to_pandas().set_index("k")
    want = rows.to_pandas().groupby("k")["v"].agg(["count", "sum", "std"])
    np.testing.assert_array_equal(output["n"], want["count"])
    np.testing.assert_array_equal(output["t"], want["sum"])
    np.testing.assert_allclose(output["s"], want["std"], rtol=1e-9)


@pytest.mark.parametrize("key", ["a", 5, 2.5, Decimal("1.25"), dt.date(2024, 2, 29), True, b"\x00"])
def test_null_keys_and_keys_that_share_a_hash_stay_apart(key: Any) -> None:
    rows = pa.table({"k": pa.array([key, None, key, None, key]), "v": [1, 2, 3, 4, 5]})
    function = AggregateFunction(rows.schema.remove(1), rows.schema, {"t": agg.sum("v")})
    output = Operator(function, one_hash=True).batch(rows)
    assert {repr(r["k"]): r["t"] for r in output} == {repr(key): 9, "None": 6}


def test_keys_of_several_columns_are_told_apart_column_by_column() -> None:
    rows = pa.table({"a": ["x", "x", None, None, "x"], "b": [math.nan, 1.0, 1.0, None, math.nan], "v": [1, 2, 3, 4, 5]})
    keys = pa.schema([rows.schema.field("a"), rows.schema.field("b")])
    output = Operator(AggregateFunction(keys, rows.schema, {"t": agg.sum("v")}), one_hash=True).batch(rows)
    assert sorted(r["t"] for r in output) == [2, 3, 4, 6]


def test_combine_returns_one_row_a_key_in_hash_order() -> None:
    rows = pa.table({"k": [3, 1, 3, 2, 1] * 20, "v": range(100), "_key_hash": [30, -10, 30, 20, -10] * 20})
    function = AggregateFunction(rows.schema.remove(2).remove(1), rows.schema, {"n": agg.count()})
    combined = function.combine(rows)
    assert combined.to_pydict() == {"k": [1, 2, 3], "_key_hash": [-10, 20, 30], "n": [40, 20, 40]}
    again = function.recombine([combined, combined.slice(1)])
    assert again.to_pydict() == {"k": [1, 2, 3], "_key_hash": [-10, 20, 30], "n": [40, 40, 80]}


def test_rows_whose_keys_hardly_repeat_are_not_grouped_but_still_merge() -> None:
    hashes = np.arange(-(2**20), 2**20, 64)
    rows = pa.table({"k": hashes, "_key_hash": hashes, "v": np.ones(len(hashes), np.int64)})
    function = AggregateFunction(rows.schema.remove(2).remove(1), rows.schema, {"t": agg.sum("v")})
    assert function.combine(rows).num_rows == len(hashes)
    assert group_rows(hashes, rows.select(["k"])).order is None


@pytest.mark.parametrize(("value", "times"), [(2**62, 2), (-(2**62) - 1, 2), (2**53, 2**10)])
def test_a_sum_of_integers_raises_when_it_leaves_the_range_of_long(value: int, times: int) -> None:
    function = AggregateFunction(KEYS, schema_of(pa.int64()), {"t": agg.sum("v")})
    operator = Operator(function)
    assert operator.batch(table([("a", value)] * (times - 1), pa.int64()))[0]["t"] == value * (times - 1)
    with pytest.raises(InvalidInputError, match=r"'t'.*'v'.*int64.*Cast"):
        operator.batch(table([("a", value), ("b", 1)], pa.int64()))


def test_a_sum_may_reach_the_ends_of_the_range_of_long() -> None:
    function = AggregateFunction(KEYS, schema_of(pa.int64()), {"t": agg.sum("v")})
    rows = table([("a", 2**63 - 1), ("b", -(2**63)), ("a", 0), ("b", -1), ("b", 1)], pa.int64())
    assert {r["k"]: r["t"] for r in Operator(function).batch(rows)} == {"a": 2**63 - 1, "b": -(2**63)}


@pytest.mark.parametrize("value", ["9" * 38, "-" + "9" * 38])
def test_a_sum_of_decimals_raises_when_it_needs_more_than_38_digits(value: str) -> None:
    type_ = pa.decimal128(38, 0)
    operator = Operator(AggregateFunction(KEYS, schema_of(type_), {"t": agg.sum("v")}))
    assert operator.batch(table([("a", Decimal(value))], type_))[0]["t"] == Decimal(value)
    with pytest.raises(InvalidInputError, match="decimal128"):
        operator.batch(table([("a", Decimal(value))], type_))


@pytest.mark.parametrize(
    ("type_", "most"), [(pa.int64(), 2**63 - 1), (pa.decimal128(38, 0), Decimal("9" * 38)), (pa.int8(), 127)]
)
def test_a_tried_sum_that_left_its_range_is_null_whatever_comes_behind_it(type_: pa.DataType, most: Any) -> None:
    least = most.copy_negate() if isinstance(most, Decimal) else -most
    operator = Operator(AggregateFunction(KEYS, schema_of(type_), {"s": AggSpec("try_sum", "v")}))
    wide = type_ != pa.int8()
    batches: list[list[tuple[str, Any, Any]]] = [
        [("none", None, None), ("late", most, most)],
        [("late", most, None if wide else 2 * most), ("none", None, None)],
        [("late", least, None if wide else most), ("once", None, most), ("once", most, most)],
    ]
    for rows in batches:
        found = {r["k"]: r["s"] for r in operator.batch(table([(k, v) for k, v, _ in rows], type_))}
        assert found == {k: s for k, _, s in rows}
    found = {r["k"]: r["s"] for r in operator.batch(table([("in one", v) for v in (most, 1, least, 0)], type_))}
    assert found == {"in one": None if wide else 1}


def test_means_of_integers_do_not_overflow() -> None:
    operator = Operator(AggregateFunction(KEYS, schema_of(pa.int64()), {"m": agg.mean("v")}))
    assert operator.batch(table([("a", 2**62)] * 8, pa.int64()))[0]["m"] == float(2**62)


@pytest.mark.parametrize(("cents", "mean"), [(["1", "1", "2"], "1.333333"), (["0.01", "0.02", "0"], "0.010000")])
def test_means_of_decimals_have_four_more_digits(cents: list[str], mean: str) -> None:
    type_ = pa.decimal128(10, 2)
    function = AggregateFunction(KEYS, schema_of(type_), {"m": agg.avg("v")})
    assert function.output_schema.field("m").type == pa.decimal128(14, 6)
    rows = table([("a", Decimal(c)) for c in cents], type_)
    assert Operator(function).batch(rows)[0]["m"] == Decimal(mean)


def test_result_types_are_spark_s() -> None:
    schema = pa.schema([("k", pa.string()), ("i", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(35, 4))])
    function = AggregateFunction(
        KEYS,
        schema,
        {
            "n": agg.count(),
            "si": agg.sum("i"),
            "sf": agg.sum("f"),
            "sd": agg.sum("d"),
            "mi": agg.mean("i"),
            "md": agg.mean("d"),
            "lo": agg.min("f"),
            "dev": agg.stddev("d"),
            "u": agg.approx_count_distinct("k"),
            "c": agg.count_distinct("f"),
            "l": agg.collect_list("i", 2),
        },
    )
    types = [str(f.type) for f in function.output_schema]
    assert types == [
        "string", "int64", "int64", "double", "decimal128(38, 4)", "double", "decimal128(38, 8)", "float", "double",
        "int64", "int64", "list<element: int32>",
    ]  # fmt: skip


def test_state_columns_are_named_after_the_aggregate_and_typed() -> None:
    specs = {"n": agg.count(), "t": agg.sum("v"), "m": agg.mean("v"), "d": agg.stddev("v")}
    function = AggregateFunction(KEYS, schema_of(pa.int32()), specs)
    assert {f.name: str(f.type) for f in function.state_schema} == {
        "n": "int64", "t": "int64", "m_sum": "double", "m_count": "int64",
        "d_count": "int64", "d_mean": "double", "d_m2": "double",
    }  # fmt: skip


def test_distinct_values_are_kept_under_a_name_that_a_folder_can_have() -> None:
    function = AggregateFunction(KEYS, schema_of(pa.int64()), {"count(a*b)": agg.count_distinct("v")})
    assert list(function.families) == ["count(a-b)"]
    operator = Operator(function)
    operator.batch(table([("a", 1), ("a", 2), ("b", 1)], pa.int64()))
    assert operator.batch(table([("a", 2), ("a", 3)], pa.int64())) == [{"k": "a", "count(a*b)": 3}]


def test_a_call_without_rows_counts_nothing() -> None:
    """As the one for windows that end."""
    function = AggregateFunction(KEYS, schema_of(pa.int64()), {"d": agg.count_distinct("v")})
    operator = Operator(function)
    operator.batch(table([("a", 1), ("b", 1)], pa.int64()))
    keys = pa.table({"k": ["a", "b"]})
    none, rows = np.zeros(2, bool), function.packed_schema.empty_table()
    state = pa.table({"d": [1, 1]})
    touched = Touched(keys, rows, np.empty(0, np.int64), state, ~none, ~none, np.full(2, 5))
    changed = function.process(operator._context(keys), touched)
    assert changed.state.to_pylist() == state.to_pylist()
    assert len(changed.output) == 0


def test_nested_values_can_be_kept_and_collected() -> None:
    type_ = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    function = AggregateFunction(KEYS, schema_of(type_), {"f": agg.first("v"), "all": agg.collect_list("v", 2)})
    operator = Operator(function)
    one, two = {"x": 1, "y": ["a", None]}, {"x": None, "y": None}
    operator.batch(table([("a", one), ("a", None)], type_))
    assert operator.batch(table([("a", two), ("a", one)], type_)) == [{"k": "a", "f": one, "all": [one, two]}]


def test_a_function_survives_pickling() -> None:
    function = pickle.loads(pickle.dumps(AggregateFunction(KEYS, schema_of(pa.int64()), {"t": agg.sum("v")})))
    assert Operator(function).batch(table([("a", 1), ("a", 2)], pa.int64())) == [{"k": "a", "t": 3}]


def test_an_empty_batch_changes_nothing() -> None:
    operator = Operator(AggregateFunction(KEYS, schema_of(pa.int64()), EVERY_TYPE | NUMERIC))
    assert operator.batch(table([], pa.int64())) == []
    assert operator.state == {}


@pytest.mark.parametrize("emit", ["update", "rows"])
@pytest.mark.parametrize("value", [0.1, 3.3, 1e9 + 0.1, -1e-300, 1e200])
def test_equal_values_deviate_by_nothing_however_they_are_cut(value: float, emit: str) -> None:
    operator = Operator(AggregateFunction(KEYS, schema_of(pa.float64()), {"d": agg.stddev("v")}, emit=emit))
    for n in (1, 2, 7, 1000):
        output = operator.batch(*[table([("a", value)] * n + [("a", None)], pa.float64())] * 2)
    assert output[-1]["d"] == 0.0


@pytest.mark.parametrize("emit", ["update", "rows"])
@pytest.mark.parametrize("offset", [0, 10**9, -(10**12)])
@pytest.mark.parametrize("first", [0, 50])
def test_a_deviation_keeps_its_digits_far_from_zero_in_every_cut(offset: int, first: int, emit: str) -> None:
    rng = np.random.default_rng(1)
    values = [offset + first, *(offset + rng.integers(0, 100, 400)).tolist()]
    operator = Operator(AggregateFunction(KEYS, schema_of(pa.int64()), {"d": agg.stddev("v")}, emit=emit))
    for start in range(0, len(values), 37):
        rows = [("a", v) for v in values[start : start + 37]]
        output = operator.batch(table(rows[:20], pa.int64()), table(rows[20:], pa.int64()))
    rel_tol = 1e-9 if offset == abs(offset) else 1e-6  # the stored mean has an error of 1e-4 there
    assert math.isclose(output[-1]["d"], statistics.stdev(map(Fraction, values)), rel_tol=rel_tol)


@pytest.mark.parametrize("emit", ["update", "rows"])
@pytest.mark.parametrize("zeros", [[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0], [None, -0.0, 0.0, None]])
def test_of_equal_zeros_the_first_is_kept_and_no_sum_is_minus_zero(zeros: list[Any], emit: str) -> None:
    specs = {"low": agg.min("v"), "high": agg.max("v"), "total": agg.sum("v"), "mean": agg.mean("v")}
    first = next(repr(z) for z in zeros if z is not None)
    for cut in range(len(zeros) + 1):
        operator = Operator(AggregateFunction(KEYS, schema_of(pa.float64()), specs, emit=emit))
        outputs = [operator.batch(table([("a", z) for z in part], pa.float64())) for part in (zeros[:cut], zeros[cut:])]
        out = [row for output in outputs for row in output][-1]
        assert [repr(out[name]) for name in specs] == [first, first, "0.0", "0.0"]
