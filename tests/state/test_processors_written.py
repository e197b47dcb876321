"""What a call wrote of its rows, in any order and as often as it likes, is what a dict would have."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_ckpt.state.processors import _written as written

ROWS = 3
SCHEMA = pa.schema([("x", pa.int64())])


@pytest.fixture(autouse=True)
def few_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written, "_MOST_TABLES", 2)


@given(st.lists(st.dictionaries(st.integers(0, ROWS - 1), st.none() | st.integers(0, 99)), max_size=8), st.randoms())
@example([{2: 5}, {0: 6}, {0: 7}, {0: None}], Random(1))  # what is written lies as if it were in order
def test_the_newest_value_of_each_row_counts(portions: list[dict[int, int | None]], random: Random) -> None:
    found, model = written.Written(ROWS, SCHEMA), dict[int, int | None]()
    for portion in portions:
        rows, values = np.array([*portion], np.int64), [*portion.values()]
        has_value = np.array([v is not None for v in values], bool)
        found.add(rows[has_value], pa.table({"x": pa.array([v for v in values if v is not None], pa.int64())}))
        found.end(rows[~has_value])
        model.update(portion)
        every = np.array(random.sample(range(ROWS), ROWS))
        changed, has = found.changed(every)
        assert changed.tolist() == [row in model for row in every.tolist()]
        assert has.tolist() == [model.get(row) is not None for row in every.tolist()]
        if has.any():
            assert found.values(every[has]).column(0).to_pylist() == [model[row] for row in every[has].tolist()]
    assert bool(found) == bool(model)
    table, write, ended = found.all()
    assert write.tolist() == [model.get(row) is not None for row in range(ROWS)]
    assert ended.tolist() == [row in model and model[row] is None for row in range(ROWS)]
    assert table.column("x").filter(pa.array(write)).to_pylist() == [
        v for _, v in sorted(model.items()) if v is not None
    ]
    assert len(table) == ROWS
