"""De-duplication within the watermark: what is left of rows that come in the order of their event times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_ckpt.state.functions.distinct_rows import DistinctRows, Expiry
from spark_ckpt.state.keys.spark_hash import hashes_of
from spark_ckpt.types import EVENT_TIME, KEY_HASH

_DELAY_US = 10_000
KEYS = pa.schema([pa.field("k", pa.string())])
TIME = pa.timestamp("us", "UTC")
FUNCTION = DistinctRows(
    "dropDuplicatesWithinWatermark",
    KEYS,
    pa.schema([*KEYS, pa.field("at", TIME)]),
    watermark=True,
    expiry=Expiry("at", _DELAY_US),
)


def table(rows: list[tuple[str, int]]) -> pa.Table:
    keys, times = pa.array([k for k, _ in rows], pa.string()), pa.array([at for _, at in rows], pa.int64())
    return pa.table({"k": keys, "at": times.view(TIME), KEY_HASH: pa.array(hashes_of([keys])), EVENT_TIME: times})


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 100_000)), min_size=1, max_size=40))
def test_a_key_is_forgotten_as_soon_as_the_watermark_passes_and_its_next_row_comes_out(
    rows: list[tuple[str, int]],
) -> None:
    rows.sort(key=lambda row: row[1])
    watermarks_ms = np.array([max(0, at - _DELAY_US) // 1000 for _, at in rows])
    expected: dict[str, int] = {}
    for (key, at), now_ms in zip(rows, watermarks_ms, strict=True):
        if key not in expected or expected[key] + _DELAY_US <= 1000 * now_ms:
            expected[key] = at
    found: Any = FUNCTION.last_passing(table(rows), watermarks_ms)
    assert dict(zip(found["k"].to_pylist(), found[EVENT_TIME].to_pylist(), strict=True)) == expected
    assert found.num_rows == len(expected)
