"""Rows by owner and order, against Python's sort: however wide the values are, and however many owners share one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_ckpt.state.topn.ordering import OrderBy, ordered

WIDE = np.iinfo(np.int64)
VALUES = {
    "few values": lambda rng, n: rng.integers(0, 5, n),
    "as wide as they get": lambda rng, n: rng.choice([WIDE.min, WIDE.min + 1, -1, 0, WIDE.max], n),
    "one value": lambda rng, n: np.zeros(n, np.int64),
    "just narrow enough": lambda rng, n: rng.integers(-(1 << 52), 1 << 52, n),
}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("owners", [1, 7, 400])
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("nulls", [False, True])
def test_rows_are_ordered_as_python_sorts_them(values: str, owners: int, descending: bool, nulls: bool) -> None:
    rng = np.random.default_rng(owners)
    n = 500
    owner, arrival = rng.integers(0, owners, n), rng.permutation(n)
    first, second = VALUES[values](rng, n), rng.integers(0, 3, n)
    column = pa.array(first, mask=rng.random(n) < 0.2 if nulls else None)
    found = ordered(owner, [column, pa.array(second)], [OrderBy("a", descending), OrderBy("b")], arrival)

    def key(row: int) -> tuple[int, ...]:
        value = column[row].as_py()
        if value is None:  # first where it ascends, and here where it descends, too
            return int(owner[row]), 0, 0, int(second[row]), int(arrival[row])
        return int(owner[row]), 1, -value if descending else value, int(second[row]), int(arrival[row])

    assert found.rows.tolist() == sorted(range(n), key=key)
    of = owner[found.rows]
    assert all(found.place[i] == (0 if i == 0 or of[i] != of[i - 1] else found.place[i - 1] + 1) for i in range(n))


def test_no_rows_are_in_order() -> None:
    none = np.empty(0, np.int64)
    assert not len(ordered(none, [pa.array([], pa.int64())], [OrderBy("a")]).rows)
