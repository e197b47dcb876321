"""Aggregates that keep values in families, of pairs, and moments: any cut into batches and tasks, against Python."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from operator import and_, or_, xor
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt.agg import AggSpec
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.lsm.stored_form import completed
from spark_ckpt.testing.memory_runs import MemoryRuns
from tests.how_many import some
from tests.state.aggregates_harness import KEYS, TYPES, Operator, is_nan, same

Oracle = Callable[[list[Any]], Any]
"""Of a key's values that are not null, in order of arrival."""


def _plain(value: Any) -> Any:
    """What Spark's groupBy takes for one value, as one value that can be sorted."""
    if isinstance(value, dict):
        return (2, tuple(_plain(v) for v in value.values()))
    if isinstance(value, list):
        return (2, tuple(map(_plain, value)))
    if value is None:
        return (0,)
    return (2,) if is_nan(value) else (1, value)


def _distinct(values: list[Any]) -> list[Any]:
    return [v for _, v in sorted({_plain(v): v for v in reversed(values)}.items())]


def _mode(values: list[Any], descending: bool = False) -> Any:
    if not values:
        return None
    often = Counter(map(_plain, values))
    order = _distinct(values)[::-1] if descending else _distinct(values)
    return next(v for v in order if often[_plain(v)] == max(often.values()))


def _percentile(share: float) -> Oracle:
    def of(values: list[Any]) -> Any:
        if not values:
            return None
        ordered = sorted(map(float, values))
        position = (len(ordered) - 1) * share
        low, high = math.floor(position), math.ceil(position)
        return ordered[low] if low == high else (high - position) * ordered[low] + (position - low) * ordered[high]

    return of


def _ranked(*shares: float) -> Oracle:
    return lambda vs: [sorted(vs)[max(math.ceil(s * len(vs)), 1) - 1] for s in shares] if vs else None


def _moment(power: int, values: list[Any]) -> Fraction:
    mean = Fraction(sum(values), len(values))
    return sum(((v - mean) ** power for v in values), Fraction(0))


def _shape(of: Callable[[int, float, float], float], power: int) -> Oracle:
    def value(values: list[Any]) -> Any:
        if len(set(values)) < 2:
            return None
        return of(len(values), float(_moment(2, values)), float(_moment(power, values)))

    return value


ANY: dict[str, tuple[AggSpec, Oracle]] = {
    "items": (AggSpec("collect_list", "v"), lambda vs: vs),
    "set": (AggSpec("collect_set", "v"), _distinct),
    "often": (AggSpec("mode", "v"), _mode),
    "often, descending": (AggSpec("mode", "v", {"descending": True}), lambda vs: _mode(vs, descending=True)),
    "different": (AggSpec("count_distinct", "v"), lambda vs: len(_distinct(vs))),
}
INTEGERS: dict[str, tuple[AggSpec, Oracle]] = {
    "and": (AggSpec("bit_and", "v"), lambda vs: reduce(and_, vs) if vs else None),
    "or": (AggSpec("bit_or", "v"), lambda vs: reduce(or_, vs) if vs else None),
    "xor": (AggSpec("bit_xor", "v"), lambda vs: reduce(xor, vs) if vs else None),
    "xors": (AggSpec("bit_xor_distinct", "v"), lambda vs: reduce(xor, set(vs)) if vs else None),
    "product": (AggSpec("product", "v"), lambda vs: float(math.prod(vs)) if vs else None),
    "once": (AggSpec("sum_distinct", "v"), lambda vs: sum(set(vs)) if vs else None),
    "mean": (AggSpec("mean_distinct", "v"), lambda vs: sum(set(vs)) / len(set(vs)) if vs else None),
    "var": (AggSpec("variance", "v"), lambda vs: float(_moment(2, vs) / (len(vs) - 1)) if len(vs) > 1 else None),
    "pop": (AggSpec("var_pop", "v"), lambda vs: float(_moment(2, vs) / len(vs)) if vs else None),
    "dev": (AggSpec("stddev_pop", "v"), lambda vs: math.sqrt(_moment(2, vs) / len(vs)) if vs else None),
    "skew": (AggSpec("skewness", "v"), _shape(lambda n, m2, m3: math.sqrt(n) * m3 / math.sqrt(m2**3), 3)),
    "kurt": (AggSpec("kurtosis", "v"), _shape(lambda n, m2, m4: n * m4 / (m2 * m2) - 3, 4)),
    "middle": (AggSpec("percentile", "v", {"percentage": 0.5}), _percentile(0.5)),
    "shares": (
        AggSpec("percentile", "v", {"percentage": [0.0, 0.3, 1.0]}),
        lambda vs: [_percentile(s)(vs) for s in (0.0, 0.3, 1.0)] if vs else None,
    ),
    "down": (AggSpec("percentile", "v", {"percentage": 0.25, "descending": True}), _percentile(0.75)),
    "disc": (
        AggSpec("percentile_disc", "v", {"percentage": [0.0, 0.25, 1.0]}),
        lambda vs: list(map(float, _ranked(0.0, 0.25, 1.0)(vs))) if vs else None,
    ),
    "disc down": (
        AggSpec("percentile_disc", "v", {"percentage": 0.25, "descending": True}),
        lambda vs: float(sorted(vs, reverse=True)[max(math.ceil(len(vs) * 0.25), 1) - 1]) if vs else None,
    ),
    "rank": (
        AggSpec("percentile_approx", "v", {"percentage": [0.25, 0.9], "accuracy": 10_000}),
        _ranked(0.25, 0.9),
    ),
}


@st.composite
def histories(draw: st.DrawFn, kinds: tuple[str, ...]) -> tuple[str, list[list[list[tuple[Any, Any]]]]]:
    """A column type, and batches of tasks of (key, value) rows. Values repeat."""
    name = draw(st.sampled_from(kinds))
    pool = draw(st.lists(TYPES[name][1], min_size=1, max_size=5))
    row = st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.sampled_from(pool))
    return name, draw(st.lists(st.lists(st.lists(row, max_size=8), min_size=1, max_size=3), min_size=1, max_size=4))


def check(history: Any, type_: pa.DataType, specs: dict[str, tuple[AggSpec, Oracle]], one_hash: bool = False) -> None:
    schema = pa.schema([("k", pa.string()), ("v", type_)])
    operator = Operator(AggregateFunction(KEYS, schema, {n: s for n, (s, _) in specs.items()}), one_hash=one_hash)
    seen: dict[Any, list[Any]] = {}
    for tasks in history:
        tables = [pa.Table.from_pylist([{"k": k, "v": v} for k, v in rows], schema=schema) for rows in tasks]
        output = operator.batch(*tables)
        arrived = pa.concat_tables(tables).to_pylist()
        for row in arrived:
            seen.setdefault(row["k"], []).append(row["v"])
        assert {r["k"] for r in output} == {r["k"] for r in arrived}
        for row in output:
            known = [v for v in seen[row["k"]] if v is not None]
            for name, (_, oracle) in specs.items():
                assert alike(row[name], oracle(known)), (name, row[name], oracle(known), known)


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    return same(a, b) if isinstance(a, float) else _plain(a) == _plain(b) if a is not None else b is None


@settings(max_examples=some(20), deadline=None)
@given(histories(tuple(TYPES)))
def test_values_in_families_are_all_that_came(history: Any) -> None:
    name, batches = history
    check(batches, TYPES[name][0], ANY)


@settings(max_examples=some(20), deadline=None)
@given(histories(("long", "byte")))
def test_moments_percentiles_and_distinct_values_are_those_of_all_rows(history: Any) -> None:
    name, batches = history
    check(batches, TYPES[name][0], INTEGERS | ANY)


def _pairs(history: Any) -> tuple[list[Any], pa.DataType]:
    batches = [[[(k, pair) for k, pair in rows] for rows in tasks] for tasks in history]
    return batches, pa.struct([("x", pa.int64()), ("y", pa.int64())])


def _known(pairs: list[Any]) -> list[tuple[int, int]]:
    return [(p["x"], p["y"]) for p in pairs if p["x"] is not None and p["y"] is not None]


def _by(largest: bool) -> Oracle:
    def value(pairs: list[Any]) -> Any:
        known = [p for p in pairs if p["y"] is not None]
        if not known:
            return None
        best = (max if largest else min)(p["y"] for p in known)
        return [p for p in known if p["y"] == best][-1]["x"]

    return value


def _first_by(k: int, largest: bool) -> Oracle:
    def values(pairs: list[Any]) -> Any:
        known = [p for p in pairs if p["y"] is not None]
        return [p["x"] for p in sorted(known, key=lambda p: -p["y"] if largest else p["y"])[:k]] or None

    return values


def _co(of: Callable[[int, Fraction, Fraction, Fraction], Any], least: int = 1) -> Oracle:
    def value(pairs: list[Any]) -> Any:
        known = _known(pairs)
        if len(known) < least:
            return None
        n, xs, ys = len(known), [x for x, _ in known], [y for _, y in known]
        mx, my = Fraction(sum(xs), n), Fraction(sum(ys), n)
        return of(n, _moment(2, xs), _moment(2, ys), sum(((x - mx) * (y - my) for x, y in known), Fraction(0)))

    return value


PAIRS: dict[str, tuple[AggSpec, Oracle]] = {
    "least": (AggSpec("min_by", "v"), _by(False)),
    "most": (AggSpec("max_by", "v"), _by(True)),
    "least three": (AggSpec("min_by", "v", {"k": 3}), _first_by(3, False)),
    "most two": (AggSpec("max_by", "v", {"k": 2}), _first_by(2, True)),
    "pop": (AggSpec("covar_pop", "v"), _co(lambda n, xx, yy, xy: float(xy / n))),
    "samp": (AggSpec("covar_samp", "v"), _co(lambda n, xx, yy, xy: float(xy / (n - 1)), 2)),
    "corr": (
        AggSpec("corr", "v"),
        _co(lambda n, xx, yy, xy: float(xy) / math.sqrt(xx * yy) if xx * yy else None, 2),
    ),
    "slope": (AggSpec("regr_slope", "v"), _co(lambda n, xx, yy, xy: float(xy / xx) if xx else None)),
    "max": (AggSpec("max", "v"), lambda pairs: max(pairs, key=_plain) if pairs else None),
    "min": (AggSpec("min", "v"), lambda pairs: min(pairs, key=_plain) if pairs else None),
    **ANY,
}
_NUMBER = st.none() | st.integers(-9, 9)
_PAIR = st.none() | st.fixed_dictionaries({"x": _NUMBER, "y": _NUMBER})


@settings(max_examples=some(20), deadline=None)
@given(
    st.lists(
        st.lists(st.lists(st.tuples(st.sampled_from(["a", "b"]), _PAIR), max_size=8), min_size=1, max_size=3),
        min_size=1,
        max_size=4,
    )
)
def test_aggregates_of_two_columns_and_of_structs(history: Any) -> None:
    check(*_pairs(history), PAIRS)


@settings(max_examples=some(20), deadline=None)
@given(
    st.lists(
        st.lists(
            st.lists(
                st.tuples(
                    st.sampled_from("ab"),
                    st.none() | st.fixed_dictionaries({"x": st.integers(-9, 9), "y": st.integers(1, 5)}),
                ),
                max_size=8,
            ),
            min_size=1,
            max_size=3,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_values_count_as_often_as_they_say(history: Any) -> None:
    def repeated(pairs: list[Any]) -> Any:
        return _percentile(0.3)([p["x"] for p in pairs for _ in range(p["y"])])

    check(*_pairs(history), {"p": (AggSpec("weighed_percentile", "v", {"percentage": 0.3}), repeated)})


def test_a_negative_frequency_is_an_error_as_in_spark() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.struct([("x", pa.int64()), ("y", pa.int64())]))])
    operator = Operator(AggregateFunction(KEYS, schema, {"p": AggSpec("weighed_percentile", "v", {"percentage": 0.3})}))
    with pytest.raises(InvalidInputError, match=r"NEGATIVE_VALUES_IN_FREQUENCY_EXPRESSION.*'p'.*-2"):
        operator.batch(pa.Table.from_pylist([{"k": "a", "v": {"x": 1, "y": -2}}], schema=schema))


_NESTED = pa.struct([("a", pa.list_(pa.float64())), ("s", pa.struct([("b", pa.string())]))])
_ITEMS = st.none() | st.lists(st.sampled_from([None, 0.0, -0.0, 1.5, math.nan]), max_size=3)


@settings(max_examples=some(20), deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from("ab"),
                st.none()
                | st.fixed_dictionaries(
                    {"a": _ITEMS, "s": st.none() | st.fixed_dictionaries({"b": st.sampled_from([None, "", "x"])})}
                ),
            ),
            max_size=8,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_arrays_and_structs_are_values_of_their_own(history: Any) -> None:
    check([[rows] for rows in history], _NESTED, ANY)
    lists = [[[(k, v and v["a"]) for k, v in rows]] for rows in history]
    check(lists, pa.list_(pa.field("element", pa.float64())), ANY)


def _bits(of: set[int]) -> bytes:
    return sum(1 << at for at in of).to_bytes(4096, "little")


@pytest.mark.parametrize("step", [3, 700])  # so many bits that the bitmap itself is kept, and so few that it is not
def test_bitmaps_have_the_bits_of_all_rows(step: int) -> None:
    places = [*range(0, 2**15, step), None, 0, 2**15 - 1]
    rows = [[[("a", p) for p in places[at::3]], [("b", None)], [("a", 5), ("c", at)]] for at in range(3)]
    spec = AggSpec("bitmap_construct_agg", "v")
    check(rows, pa.int32(), {"bits": (spec, lambda vs: _bits(set(vs)))})
    given = [b"", b"\x0f\xff", b"\x07" * 5000, bytes(range(256)) * 16]

    def folded(of: Callable[[int, int], int], empty: int) -> Oracle:
        numbers = [int.from_bytes(g[:4096], "little") for g in given]
        return lambda vs: reduce(of, (numbers[given.index(v)] for v in vs), empty).to_bytes(4096, "little")

    oracles = {
        "or": (AggSpec("bitmap_or_agg", "v"), folded(or_, 0)),
        "and": (AggSpec("bitmap_and_agg", "v"), folded(and_, 2**32768 - 1)),
    }
    check(
        [[[("a", given[2]), ("b", None), ("a", given[1])], [("a", given[3])]], [[("a", given[0])]]],
        pa.binary(),
        oracles,
    )


@pytest.mark.parametrize("place", [-1, 2**15])
def test_a_position_out_of_a_bitmap_is_an_error_as_in_spark(place: int) -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    operator = Operator(AggregateFunction(KEYS, schema, {"b": AggSpec("bitmap_construct_agg", "v")}))
    with pytest.raises(InvalidInputError, match=rf"INVALID_BITMAP_POSITION.*'b'.*{place} is out of bounds"):
        operator.batch(pa.Table.from_pylist([{"k": "a", "v": place}], schema=schema))


def test_keys_that_share_a_hash_keep_values_of_their_own() -> None:
    check([[[("a", 1), ("b", 1), ("a", 2)]], [[("b", 2), ("b", 2), (None, 1)]]], pa.int64(), ANY, one_hash=True)


def test_a_value_is_written_once_and_a_list_never_again() -> None:
    """What a batch writes into a family are the values that it brought."""
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    specs = {"items": AggSpec("collect_list", "v"), "set": AggSpec("collect_set", "v")}
    operator = Operator(AggregateFunction(KEYS, schema, specs))
    for start in (0, 1000):
        rows = [{"k": "a", "v": v} for v in range(start, start + 1000)]
        operator.batch(pa.Table.from_pylist(rows, schema=schema))
    for name, state in operator.families.items():
        runs = state._levels._reader
        assert isinstance(runs, MemoryRuns)
        appender = runs.appender(name)
        state.flush(appender, 1)
        appender.close()
    operator.batch(pa.Table.from_pylist([{"k": "a", "v": 7}, {"k": "a", "v": 5000}], schema=schema))
    assert {name: f.memtable_rows for name, f in operator.families.items()} == {"items": 2, "set": 1}


@pytest.mark.parametrize("name", ["v" * 300, "ü" * 200])
def test_a_long_name_still_names_a_folder(name: str) -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    made = [AggregateFunction(KEYS, schema, {n: AggSpec("collect_set", "v")}) for n in (name, f"{name}!")]
    one, other = (next(iter(f.families)) for f in made)
    assert one != other
    assert max(len(one.encode()), len(other.encode())) <= 110


@pytest.mark.parametrize(
    ("kind", "options", "type_"),
    [
        ("collect_set", {}, pa.list_(pa.map_(pa.int64(), pa.int64()))),
        ("mode", {}, pa.struct([("a", pa.duration("us"))])),
        ("max", {}, pa.struct([("a", pa.map_(pa.int64(), pa.int64()))])),
        ("max_by", {}, pa.struct([("x", pa.int64()), ("y", pa.map_(pa.string(), pa.string()))])),
        ("corr", {}, pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ("bit_and", {}, pa.float64()),
        ("percentile", {"percentage": 0.5}, pa.string()),
        ("sum_distinct", {}, pa.string()),
    ],
)
def test_types_that_cannot_be_kept_are_refused(kind: str, options: dict[str, Any], type_: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match=r"'x': .*does not support column 'v'.*Supported"):
        AggregateFunction(KEYS, pa.schema([("k", pa.string()), ("v", type_)]), {"x": AggSpec(kind, "v", options)})


@pytest.mark.parametrize("type_", [pa.int64(), pa.struct([("x", pa.int64()), ("y", pa.int64())])])
def test_what_an_aggregate_begins_with_changes_nothing(type_: pa.DataType) -> None:
    """A key that is there already when the aggregate comes, and rows that were packed before."""
    more = {n: AggSpec(k, "v") for n, k in {"sum": "sum", "avg": "mean", "dev": "stddev", "low": "min"}.items()}
    more |= {"n": AggSpec("count"), "hll": AggSpec("approx_count_distinct", "v", {"rsd": 0.05})}
    more |= {
        "some": AggSpec("collect_list", "v", {"max_items": 3}),
        "last": AggSpec("last", "v", {"ignore_nulls": False}),
    }
    pairs = pa.types.is_struct(type_)
    specs = {n: s for n, (s, _) in (PAIRS if pairs else INTEGERS | ANY).items()} | ({} if pairs else more)
    schema = pa.schema([("k", pa.string()), ("v", type_)])
    function = AggregateFunction(KEYS, schema, specs)
    assert set(function.begins() or ()) == set(function.state_schema.names)
    values = [{"x": v, "y": v % 3} if pairs else v for v in (4, 7, 4)]
    rows = pa.Table.from_pylist([{"k": "a", "v": v} for v in values], schema=schema)
    fresh, late = Operator(function), Operator(function)
    late.state[repr({"k": "a"})] = {c: v.as_py() for c, v in (function.begins() or {}).items()}
    assert repr(late.batch(rows)) == repr(fresh.batch(rows))
    packed = function.combine(late.with_hash(rows))
    begins = pa.RecordBatch.from_pylist([{"k": "a", "_key_hash": packed["_key_hash"][0].as_py()}], packed.schema)
    begins = completed(begins.select(["k", "_key_hash"]), packed.schema, function.packed_begins)
    both = function.recombine([pa.Table.from_batches([begins]), packed])
    assert both.to_pylist() == packed.to_pylist()


def test_structs_that_compare_as_equal_keep_the_signs_of_their_own_key() -> None:
    type_ = pa.struct([("x", pa.float64())])
    schema = pa.schema([("k", pa.string()), ("v", type_)])
    operator = Operator(AggregateFunction(KEYS, schema, {"low": AggSpec("min", "v"), "high": AggSpec("max", "v")}))
    for signs in ((-0.0, 0.0), (0.0, -0.0)):
        rows = [{"k": k, "v": {"x": v}} for k, v in zip("pq", signs, strict=True)]
        output = operator.batch(pa.Table.from_pylist(rows, schema=schema))
        found = {r["k"]: (repr(r["low"]["x"]), repr(r["high"]["x"])) for r in output}
        assert found == {"p": ("-0.0", "-0.0"), "q": ("0.0", "0.0")}
