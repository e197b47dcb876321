"""Conditions over pairs, and the pairs themselves, against plain Python."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.expressions.tree import Call, Input, Literal
from spark_ckpt.state.joins._pairs import candidates
from spark_ckpt.state.joins.predicate import Both, Compared, Computed, Either, Not, OfSide

NAN = float("nan")


@given(st.lists(st.integers(0, 4), max_size=20), st.lists(st.integers(0, 4), max_size=20), st.integers(1, 9))
def test_each_pair_of_equal_keys_comes_once_and_few_come_at_a_time(
    one: list[int], other: list[int], piece: int
) -> None:
    found: Counter[Any] = Counter()
    for a, b in candidates(np.array(one, np.int64), np.array(other, np.int64), 5, piece):
        assert 0 < len(a) == len(b) <= piece
        found.update(zip(a.tolist(), b.tolist(), strict=True))
    assert found == Counter((i, j) for i, a in enumerate(one) for j, b in enumerate(other) if a == b)


def _value(x: Any) -> Any:
    return (1, 0.0) if isinstance(x, float) and math.isnan(x) else (0, x)


COMPARED = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
DOMAINS = [
    (pa.float64(), [None, NAN, -0.0, 0.0, 1.5, math.inf, -math.inf]),
    (pa.int32(), [None, -1, 0, 7]),
    (pa.string(), [None, "", "a", "B", "ä", "\U0001f600", "z"]),
    (pa.binary(), [None, b"", b"\x00", b"\xff", b"a"]),
    (pa.bool_(), [None, True, False]),
]


@pytest.mark.parametrize(("kind", "values"), DOMAINS)
@pytest.mark.parametrize("op", [*COMPARED, "<=>"])
def test_values_compare_as_in_spark(op: str, kind: pa.DataType, values: list[Any]) -> None:
    """Strings by the bytes of UTF-8; NaN equals itself and is larger than all else."""
    pairs = [(a, b) for a in values for b in values]
    left, right = (pa.array(column, kind) for column in zip(*pairs, strict=True))
    found = Compared(op, "a", "b").evaluate(lambda _: left, lambda _: right).to_pylist()
    for (a, b), said in zip(pairs, found, strict=True):
        if op == "<=>":
            assert said == ((a is None and b is None) or (None not in (a, b) and _value(a) == _value(b)))
        elif None in (a, b):
            assert said is None
        else:
            bare = [x.encode() if isinstance(x, str) else x for x in (a, b)]
            assert said == COMPARED[op](*map(_value, bare)), (op, a, b)


def test_null_is_neither_true_nor_false() -> None:
    values = [True, False, None]
    left, right = (pa.array([v[i] for v in ((a, b) for a in values for b in values)]) for i in (0, 1))
    sides = (lambda _: left, lambda _: right)
    a, b = OfSide("a", True), OfSide("b", False)
    assert Both(a, b).evaluate(*sides).to_pylist() == [True, False, None, False, False, False, None, False, None]
    assert Either(a, b).evaluate(*sides).to_pylist() == [True, True, True, True, False, None, True, None, None]
    assert Not(a).evaluate(*sides).to_pylist() == [False] * 3 + [True] * 3 + [None] * 3


def test_what_fails_is_computed_for_the_pairs_only_that_are_not_decided() -> None:
    """``l <> 0 AND r % l = r``, and ``l = 0 OR r % l = r``, of numbers, as ANSI mode has them."""
    left, right = pa.array([0, 2, None, 3], pa.int64()), pa.array([1, 1, 1, 4], pa.int64())
    sides = (lambda _: left, lambda _: right)
    places = (Input(1, pa.int64()), Input(0, pa.int64()))
    rest = Call("Remainder", places, pa.int64(), ansi=True)
    same = Computed(Call("EqualTo", (rest, places[0]), pa.bool_()), ((True, "l"), (False, "r")))
    nought = Call("EqualTo", (places[1], Literal(0, pa.int64())), pa.bool_())
    zero = Computed(nought, ((True, "l"), (False, "r")))
    with pytest.raises(InvalidInputError, match=r"(?i)divi"):
        same.evaluate(*sides)
    assert Both(Not(zero), same).evaluate(*sides).to_pylist() == [False, True, None, False]
    assert Either(zero, same).evaluate(*sides).to_pylist() == [True, True, None, False]
