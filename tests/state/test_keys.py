"""Keys by hash and equality: grouping, matching, key groups."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.keys import grouping, spark_hash
from spark_ckpt.state.keys.grouping import group_rows
from spark_ckpt.state.keys.keys import (
    NULL_HASH,
    check_key_schema,
    equal_keys,
    equal_rows,
    injective,
    is_one_value,
    key_group_of,
    match,
)

NAN = float("nan")
HASHES = st.sampled_from([-(2**63), -5, 0, NULL_HASH, 2**63 - 1])
KEYS = st.sampled_from([None, "", "a", "b", "c"])
PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
WORD = 2**64


def arrays(rows: list[tuple[int, str | None]]) -> tuple[np.ndarray, pa.Table]:
    return np.array([h for h, _ in rows], np.int64), pa.table({"k": pa.array([k for _, k in rows], pa.string())})


def grouped(hashes: np.ndarray, keys: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each key, and each row's key; checked against the order of rows in their segments."""
    seg = group_rows(hashes, keys)
    places = seg.places()
    order = np.arange(seg.rows) if seg.order is None else seg.order
    assert order.tolist() == np.lexsort((np.arange(seg.rows), places)).tolist()
    assert seg.counts.tolist() == np.bincount(places, minlength=len(seg.starts)).tolist()
    return seg.firsts(), places


@given(st.lists(st.tuples(HASHES, KEYS), max_size=40))
def test_rows_group_by_hash_and_key_and_the_first_arrival_stands_for_each(rows: list[tuple[int, str | None]]) -> None:
    first, inverse = grouped(*arrays(rows))
    expected: dict[tuple[int, str | None], int] = {}
    for i, row in enumerate(rows):
        expected.setdefault(row, i)
    assert sorted(first.tolist()) == sorted(expected.values())
    assert [rows[i] for i in first[inverse]] == rows
    order = [(rows[i][0], i) for i in first.tolist()]
    assert order == sorted(order)


@pytest.mark.parametrize("many", [1_000, 10_000])
@pytest.mark.parametrize("pieces", [1, 2, 300])
def test_long_inputs_group_alike_whether_they_come_sorted_or_not(
    pieces: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "_MANY", many)
    rng = random.Random(pieces)
    rows = [(rng.randrange(-500, 500) << 40, rng.choice("ab")) for _ in range(3000)]
    size = len(rows) // pieces
    rows = [row for i in range(pieces) for row in sorted(rows[i * size : (i + 1) * size])]
    first, inverse = grouped(*arrays(rows))
    assert [rows[i] for i in first] == sorted(set(rows), key=lambda r: (r[0], rows.index(r)))
    assert [rows[i] for i in first[inverse]] == rows


@pytest.mark.parametrize("limit", [2, 300, 1 << 16, 70_000, 1 << 40, 1 << 60])
@pytest.mark.parametrize("pieces", [1, 2, 7, 0])
def test_integers_are_ordered_stably_however_large_they_are(limit: int, pieces: int) -> None:
    rng = np.random.default_rng(limit % 1000 + pieces)
    index = rng.integers(0, limit, 4000)
    index[:1000] = index[2000:3000]
    index = np.concatenate([np.sort(piece) for piece in np.array_split(index, pieces)]) if pieces else index
    before, order = index.copy(), grouping.stable_order(index, limit)
    assert (order is None) == (pieces == 1)
    assert pieces == 1 or (order is not None and order.tolist() == np.argsort(index, kind="stable").tolist())
    assert index.tolist() == before.tolist()


@pytest.mark.parametrize("upper_halves", [1, 50, 100_000])
def test_hashes_that_share_their_upper_half_group_alike(upper_halves: int) -> None:
    rng = np.random.default_rng(3)
    hashes = (rng.integers(-upper_halves, upper_halves, 5000) << 32) + rng.integers(0, 2**32, 5000)
    hashes[:700] = hashes[3000:3700]
    first, inverse = grouped(hashes, pa.table({"k": hashes}))
    distinct, wanted_first, wanted_inverse = np.unique(hashes, return_index=True, return_inverse=True)
    assert first.tolist() == wanted_first.tolist()
    assert inverse.tolist() == wanted_inverse.tolist()
    assert hashes[first].tolist() == distinct.tolist()


@given(st.lists(st.tuples(HASHES, KEYS), max_size=30), st.lists(st.tuples(HASHES, KEYS), max_size=30, unique=True))
def test_match_finds_exactly_the_equal_key(
    wanted: list[tuple[int, str | None]], stored: list[tuple[int, str | None]]
) -> None:
    stored = sorted(stored, key=lambda r: r[0])
    hashes, keys = arrays(wanted)
    found = match(hashes, keys, *arrays(stored))
    assert found.tolist() == [stored.index(w) if w in stored else -1 for w in wanted]
    backwards = np.arange(len(wanted))[::-1].copy()
    assert match(hashes[backwards], keys, *arrays(stored), rows=backwards).tolist() == found[::-1].tolist()


def test_nulls_equal_nulls_and_nan_equals_nan_and_zeros_are_one() -> None:
    a = pa.table({"x": [None, NAN, 0.0, None, 1.0, NAN], "y": [None, "a", "b", "", None, "c"]})
    b = pa.table({"x": [None, NAN, -0.0, 0.0, 1.0, None], "y": [None, "a", "b", "", "a", "c"]})
    rows = np.arange(6)
    assert equal_rows(a, rows, b, rows).tolist() == [True, True, True, False, False, False]


def test_key_groups_are_those_of_the_unsigned_hash_scaled_and_monotone() -> None:
    rng = np.random.default_rng(0)
    hashes = np.sort(
        np.concatenate([rng.integers(-(2**63), 2**63, 500), [-(2**63), -1, 0, 2**63 - 1]]).astype(np.int64)
    )
    for groups in (1, 7, 128, 32768):
        found = key_group_of(hashes, groups)
        assert found.tolist() == [(((int(h) >> 32) + 2**31) * groups) >> 32 for h in hashes]
        assert found.dtype == np.int32
        assert (found[0], found[-1]) == (0, groups - 1)
        assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int8(), pa.int64(), pa.float64(), pa.date32(), pa.decimal128(18, 2)])
def test_one_short_fixed_width_column_hashes_injectively(kind: pa.DataType) -> None:
    assert injective(pa.schema([("k", kind)]))
    assert not injective(pa.schema([("k", kind), ("l", kind)]))


@pytest.mark.parametrize("varying", [0, 1])
def test_keys_of_which_one_column_varies_are_told_apart_by_their_whole_hash_and_by_nothing_less(varying: int) -> None:
    """As those of a batch whose rows are all in one window. A family's hash has half of the bits."""
    numbers = np.arange(3000) % 1000
    columns = [pa.chunked_array([np.full(1000, 7)] * 3), pa.chunked_array([numbers[:2500], numbers[2500:]])]
    keys = pa.table({str(i): columns[i if varying else 1 - i] for i in range(2)})
    hashes = spark_hash.xxhash64([c.combine_chunks() for c in keys.columns])
    seg = group_rows(hashes, keys, whole=True)
    assert len(seg.starts) == 1000
    assert (numbers[seg.order].reshape(1000, 3) == numbers[seg.firsts()][:, None]).all()
    assert len(group_rows(hashes >> 60, keys).starts) == 1000, "of half a hash, keys are compared"
    nulls = keys.set_column(varying, str(varying), pa.array([None, 1, 2] * 1000, pa.int64()))
    assert len(group_rows(np.zeros(3000, np.int64), nulls, whole=True).starts) == 3, "null hashes as one other value"


@pytest.mark.parametrize("kind", [pa.int8(), pa.bool_()])
def test_columns_of_one_value_are_those_where_each_row_has_it(kind: pa.DataType) -> None:
    assert is_one_value(pa.array([3, 3, 3]))
    assert is_one_value(pa.chunked_array([[3], [], [3]], pa.int64()))
    for different in ([3, 4, 3], [3, None, 3], [None, None], [3], []):
        assert not is_one_value(pa.array(different, pa.int64()))
    assert not is_one_value(pa.chunked_array([[3, 3], [4, 3]]))
    assert not is_one_value(pa.array(["a", "a"]))
    assert not is_one_value(pa.array([0.0, -0.0]))
    assert not is_one_value(pa.array([1, 1]).cast(kind))


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.decimal128(19, 2)])
def test_longer_keys_do_not_hash_injectively(kind: pa.DataType) -> None:
    assert not injective(pa.schema([("k", kind)]))


def test_the_one_long_that_hashes_like_null_is_another_key_than_null() -> None:
    twin = long_with_hash(NULL_HASH)
    assert xxhash64(twin) == NULL_HASH
    keys = pa.table({"k": pa.array([twin, None, 7, twin, None], pa.int64())})
    hashes = np.array([NULL_HASH, NULL_HASH, xxhash64(7), NULL_HASH, NULL_HASH], np.int64)
    first, inverse = grouped(hashes, keys)
    distinct = keys.take(pa.array(first))
    assert sorted(first.tolist()) == [0, 1, 2]
    assert distinct.take(pa.array(inverse)) == keys
    assert match(hashes, keys, hashes[first], distinct, injective=True).tolist() == inverse.tolist()
    only_null = pa.table({"k": pa.array([None], pa.int64())})
    stored = np.array([NULL_HASH], np.int64)
    assert match(hashes, keys, stored, only_null, injective=True).tolist() == [-1, 0, -1, -1, 0]


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.duration("us")), pa.struct([("a", pa.null())]), pa.map_(pa.string(), pa.int32()), pa.duration("us")],
)
def test_key_types_without_equality_in_spark_are_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match="'who'"):
        check_key_schema(pa.schema([("k", pa.int32()), ("who", kind)]))


def test_no_key_columns_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least one"):
        check_key_schema(pa.schema([]))


def xxhash64(value: int) -> int:
    """Spark's ``XXH64.hashLong`` with seed 42."""
    h = NULL_HASH + PRIMES[4] + 8 ^ rotate(value * PRIMES[1], 31) * PRIMES[0] % WORD
    h = (rotate(h, 27) * PRIMES[0] + PRIMES[3]) % WORD
    h = (h ^ h >> 33) * PRIMES[1] % WORD
    h = (h ^ h >> 29) * PRIMES[2] % WORD
    return signed(h ^ h >> 32)


def long_with_hash(wanted: int) -> int:
    """The inverse: every step of the hash is a bijection."""
    h = unshift(wanted % WORD, 32) * pow(PRIMES[2], -1, WORD) % WORD
    h = unshift(h, 29) * pow(PRIMES[1], -1, WORD) % WORD
    h = (unshift(h, 33) - PRIMES[3]) * pow(PRIMES[0], -1, WORD) % WORD
    h = (rotate(h, 64 - 27) ^ NULL_HASH + PRIMES[4] + 8) * pow(PRIMES[0], -1, WORD)
    return signed(rotate(h, 64 - 31) * pow(PRIMES[1], -1, WORD) % WORD)


def rotate(value: int, bits: int) -> int:
    value %= WORD
    return (value << bits | value >> 64 - bits) % WORD


def unshift(value: int, bits: int) -> int:
    """Inverse of ``h ^ h >> bits``."""
    result = value
    for _ in range(64 // bits):
        result = value ^ result >> bits
    return result


def signed(value: int) -> int:
    return value - WORD if value >= WORD // 2 else value


INNER = pa.struct([("x", pa.float32()), ("t", pa.string())])
NESTED = pa.struct([("a", pa.float64()), ("l", pa.list_(INNER)), ("n", pa.struct([("q", pa.int32())]))])
FLOATS = st.sampled_from([None, 0.0, -0.0, NAN, 1.5])
INNERS = st.none() | st.fixed_dictionaries({"x": FLOATS, "t": st.sampled_from([None, "", "é"])})
VALUES = st.none() | st.fixed_dictionaries(
    {
        "a": FLOATS,
        "l": st.none() | st.lists(INNERS, max_size=3),
        "n": st.none() | st.fixed_dictionaries({"q": st.sampled_from([None, 2])}),
    }
)


def as_spark_compares(value: object) -> object:
    if isinstance(value, dict):
        return tuple(map(as_spark_compares, value.values()))
    if isinstance(value, list):
        return ["list", *map(as_spark_compares, value)]
    return ("NaN" if value != value else value + 0.0) if isinstance(value, float) else value


@given(st.lists(st.tuples(VALUES, VALUES), max_size=30), st.integers(0, 3))
def test_structs_and_lists_are_equal_and_hash_alike_where_spark_says_so(
    pairs: list[tuple[object, object]], start: int
) -> None:
    """Wherever they are cut off of a longer array."""
    left, right = (pa.array([pair[i] for pair in pairs], NESTED).slice(start) for i in (0, 1))
    same = [as_spark_compares(one) == as_spark_compares(other) for one, other in pairs[start:]]
    chunked = pa.chunked_array([left.slice(0, 2), left.slice(2)], NESTED)
    for one in (left, chunked):
        assert equal_keys(pa.table([one], ["k"]), pa.table([right], ["k"])).tolist() == same
        plain = spark_hash.normalised(one)
        assert "-0.0" not in repr(plain.to_pylist())
        assert list(map(as_spark_compares, plain.to_pylist())) == list(map(as_spark_compares, left.to_pylist()))
    hashes = [spark_hash.hashes_of([column]).tolist() for column in (left, right)]
    assert all(one == other for one, other, alike in zip(*hashes, same, strict=True) if alike)
