"""Rows that are equal to those of a static side: against a comparison of every row with every other."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt.state.joins import _pairs
from spark_ckpt.state.joins.static_index import StaticIndex
from tests.how_many import some

NAN = math.nan
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [None, 0, 1, -1, 5, 2**63 - 1, -(2**63), 10**12],
    pa.int32(): [None, 0, 1, 2, 3, -7],
    pa.int8(): [None, -128, 127, 0],
    pa.bool_(): [None, True, False],
    pa.float64(): [None, 0.0, -0.0, NAN, -NAN, 1.5, math.inf, -math.inf],
    pa.float32(): [None, 0.0, -0.0, NAN, 1.5],
    pa.string(): [None, "", "a", "b", "aa", "ä", "a\x00", "x" * 40],
    pa.binary(): [None, b"", b"\x00", b"a"],
    pa.date32(): [None, 0, 1, -1],
    pa.timestamp("us", "UTC"): [None, 0, 1, -(2**62)],
    pa.decimal128(5, 2): [None, Decimal("0.00"), Decimal("-1.25"), Decimal("1.25")],
    pa.decimal128(30, 2): [None, Decimal("0.00"), Decimal("-1.25"), Decimal(10**25), Decimal(-(10**25))],
}


def equal(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """As Spark's joins have it."""
    return all(
        a is not None and b is not None and (a == b or (isinstance(a, float) and a != a and b != b))
        for a, b in zip(one, other, strict=True)
    )


def columns(kinds: list[pa.DataType], rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    return [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]


def found(index: StaticIndex, keys: list[pa.Array], wanted: np.ndarray | None = None) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for at, place in index.pairs(keys, wanted):
        pairs.extend(zip(at.tolist(), place.tolist(), strict=True))
    return pairs


@settings(max_examples=some(100), deadline=None)
@given(st.data())
def test_pairs_are_those_of_a_nested_loop(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    row = st.tuples(*[st.sampled_from(VALUES[kind]) for kind in kinds])
    static, stream = data.draw(st.lists(row, max_size=30)), data.draw(st.lists(row, max_size=30))
    wanted = np.array(data.draw(st.lists(st.booleans(), min_size=len(stream), max_size=len(stream))), bool)
    pairs = found(StaticIndex(columns(kinds, static)), columns(kinds, stream), wanted)
    expected = [(i, j) for i, a in enumerate(stream) for j, b in enumerate(static) if wanted[i] and equal(a, b)]
    assert pairs == expected


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.float64(), pa.date32()], ids=str)
@pytest.mark.parametrize("spread", [1, 100])
def test_many_keys_in_slices_with_and_without_duplicates(kind: pa.DataType, spread: int) -> None:
    chosen = random.Random(7)
    numbers = [chosen.randrange(3000) * spread for _ in range(4000)]
    numbers = numbers if spread > 1 else sorted(set(numbers))
    asked = [chosen.randrange(-10, 3100) * spread for _ in range(2000)]
    static, stream = (_as(kind, some).slice(3) for some in (numbers, asked))
    places: dict[Any, list[int]] = {}
    for i, value in enumerate(static.to_pylist()):
        places.setdefault(value, []).append(i)
    expected = [(i, j) for i, value in enumerate(stream.to_pylist()) for j in places.get(value, [])]
    index = StaticIndex([static])
    assert index.unique == (spread == 1 and kind in (pa.int64(), pa.date32()))
    assert found(index, [stream]) == expected


def _as(kind: pa.DataType, numbers: list[int]) -> pa.Array:
    return pa.array(numbers, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)


def test_rows_of_other_keys_with_the_same_first_bits_of_their_hash_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_ckpt.state.joins.static_index.xxhash64", lambda keys: np.zeros(len(keys[0]), np.int64))
    names = ["a", "b", "c", "a", None]
    index = StaticIndex([pa.array(names), pa.array(range(5))])
    assert found(index, [pa.array(["a", "a", "c", None]), pa.array([3, 0, 9, 4])]) == [(0, 3), (1, 0)]


def test_pairs_of_a_hot_key_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pairs, "PIECE", 100)
    index = StaticIndex([pa.array(["hot"] * 70 + ["cold"])])
    pieces = list(index.pairs([pa.array(["cold", "hot", "hot", "none"])]))
    assert max(len(at) for at, _ in pieces) <= 100
    assert [at for at, _ in pieces for at in at.tolist()] == [0, *[1] * 70, *[2] * 70]
