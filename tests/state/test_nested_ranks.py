"""Structs and arrays compare as Spark compares them: nulls first, NaN last and one, shorter ones first."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.state.aggregates.ordinals import ranks

NUMBERS = st.sampled_from([0.0, -0.0, math.nan, 1.5, -math.inf, None])
LISTS = st.none() | st.lists(NUMBERS, max_size=3)
ROWS = st.none() | st.fixed_dictionaries({"x": LISTS, "y": st.lists(LISTS, max_size=2)})
TYPE = pa.struct([("x", pa.list_(pa.float64())), ("y", pa.list_(pa.list_(pa.float64())))])


def _comparable(value: Any) -> Any:
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, (1, 0.0) if math.isnan(value) else (0, value + 0.0))
    return (1, tuple(map(_comparable, (value["x"], value["y"]) if isinstance(value, dict) else value)))


@given(st.lists(ROWS, max_size=12), st.integers(0, 3))
def test_ranks_of_nested_values_are_in_sparks_order(rows: list[Any], cut: int) -> None:
    found = ranks(pa.array(rows, TYPE).slice(cut)).tolist()
    keys = [_comparable(row) for row in rows[cut:]]
    assert [(a > b) - (a < b) for a in found for b in found] == [(a > b) - (a < b) for a in keys for b in keys]
    assert all((rank == -1) == (row is None) for rank, row in zip(found, rows[cut:], strict=True))
