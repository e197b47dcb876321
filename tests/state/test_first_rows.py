"""``limit``: how many rows come out is counted over all calls."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.state.functions.base import NO_TIMEOUT, Touched
from spark_ckpt.state.functions.first_rows import COUNT, FirstRows
from tests.state.functions_harness import CTX

KEY, OUT = pa.schema([("all", pa.bool_())]), pa.schema([("v", pa.int64())])


def _call(function: FirstRows, rows: pa.Table, stored: int | None) -> tuple[list[int], int | None]:
    """What comes out, and what is kept then."""
    one, none = np.ones(1, bool), np.zeros(1, bool)
    keys = pa.table({"all": [True]}, schema=KEY)
    state = pa.table({COUNT: [stored]}, schema=function.state_schema)
    there, timeouts = one if stored is not None else none, np.full(1, NO_TIMEOUT)
    changed = function.process(
        CTX, Touched(keys, rows, np.zeros(rows.num_rows, np.int64), state, there, none, timeouts)
    )
    assert not changed.remove.any()
    return changed.output["v"].to_pylist(), changed.state[COUNT][0].as_py() if changed.write[0] else stored


@given(n=st.integers(0, 12), batches=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), max_size=6))
def test_the_first_rows_come_whatever_the_batches_and_tasks_are(n: int, batches: list[list[int]]) -> None:
    """``batches`` are the numbers of rows that each task has."""
    function, came, stored, at = FirstRows(n, KEY, OUT), [], None, 0
    for tasks in batches:
        parts = []
        for size in tasks:
            rows = pa.table({"all": [True] * size, "v": range(at, at + size)}, schema=pa.schema([*KEY, *OUT]))
            at += size
            cut = size // 2
            parts.append(function.recombine([function.combine(rows.slice(0, cut)), function.combine(rows.slice(cut))]))
            assert parts[-1].num_rows == min(n, size)
        if sum(p.num_rows for p in parts):
            out, stored = _call(function, pa.concat_tables(parts), stored)
            came += out
    assert len(came) == len(set(came)) == min(n, at)
    assert (stored or 0) == len(came)


def test_a_query_with_a_higher_limit_goes_on_and_with_a_lower_one_has_nothing_more() -> None:
    rows = pa.table({"all": [True] * 4, "v": range(4)}, schema=pa.schema([*KEY, *OUT]))
    assert _call(FirstRows(5, KEY, OUT), rows, 3) == ([0, 1], 5)
    assert _call(FirstRows(2, KEY, OUT), rows, 3) == ([], 3)
