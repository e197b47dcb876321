"""An owner and a value as one number: in the order of both, or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.state.keys.grouping import packed

LONGS = st.integers(-(2**63), 2**63 - 1)
PAIRS = st.lists(st.tuples(st.integers(0, 2**40), st.one_of(LONGS, st.integers(-5, 5))), max_size=30)


@given(PAIRS)
def test_numbers_compare_as_owner_and_value_do_and_give_the_value_back(pairs: list[tuple[int, int]]) -> None:
    owner, values = np.array([p[0] for p in pairs], np.int64), np.array([p[1] for p in pairs], np.int64)
    both = packed(owner, values)
    if both is None:
        spread = max(values.tolist()) - min(values.tolist())
        assert spread.bit_length() + int(owner.max()).bit_length() >= 63
        return
    assert both.numbers.tolist() == sorted(both.numbers.tolist()) or pairs != sorted(pairs)
    assert np.argsort(both.numbers, kind="stable").tolist() == sorted(range(len(pairs)), key=pairs.__getitem__)
    assert both.values(both.numbers).tolist() == values.tolist()


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.bool_])
def test_narrow_values_do_not_overflow(kind: type) -> None:
    values = np.array([1, 0, 1]).astype(kind)
    both = packed(np.array([1 << 40, 1 << 40, 0]), values)
    assert both is not None
    assert np.argsort(both.numbers).tolist() == [2, 1, 0]
