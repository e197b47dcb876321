"""When windows end, and what comes out in each output mode."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_ckpt.agg import AggSpec
from spark_ckpt.state.aggregates.windowed import WindowedAggregate
from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Touched

TIME = pa.timestamp("us", "UTC")
KEYS = pa.schema([("w", TIME)])
SIZE_US = 10_000


def _called(starts_us: list[int], timed_out: list[bool], mode: str):  # type: ignore[no-untyped-def]
    """Windows with one row each, or called because their time is over."""
    function = WindowedAggregate(KEYS, pa.schema([]), {"n": AggSpec("count")}, window="w", size_us=SIZE_US)
    keys = pa.table([pa.array(starts_us, pa.int64()).view(TIME)], schema=KEYS)
    over = np.array(timed_out)
    rows = keys.filter(pa.array(~over)).append_column("n", pa.array(np.ones((~over).sum(), np.int64)))
    state = pa.table({"n": pa.array([7 if t else None for t in timed_out], pa.int64())})
    touched = Touched(keys, rows, np.flatnonzero(~over), state, over, over, np.full(len(over), NO_TIMEOUT))
    return function.in_mode(mode).process(CallContext("u", 0, 1, 0, 0), touched)


@pytest.mark.parametrize(("start_us", "end_ms"), [(0, 10), (1, 11), (999, 11), (-9_999, 1), (-5_000, 5)])
def test_its_time_is_over_at_the_first_whole_millisecond_that_reaches_its_end(start_us: int, end_ms: int) -> None:
    # A time-out fires when the watermark is past it.
    assert _called([start_us], [False], "append").timeout_ms.tolist() == [end_ms - 1]


@pytest.mark.parametrize(("mode", "out"), [("append", [(20_000, 7)]), ("update", [(0, 1)])])
def test_a_window_comes_out_once_or_with_every_change_and_ends_with_its_time(
    mode: str, out: list[tuple[int, int]]
) -> None:
    changed = _called([0, 20_000], [False, True], mode)
    starts = changed.output["w"].cast(pa.int64()).to_pylist()
    assert list(zip(starts, changed.output["n"].to_pylist(), strict=True)) == out
    assert (changed.write.tolist(), changed.remove.tolist()) == ([True, False], [False, True])


def test_a_group_of_an_event_time_ends_with_it_and_one_of_rows_without_a_time_never() -> None:
    function = WindowedAggregate(KEYS, pa.schema([]), {"n": AggSpec("count")}, window="w", size_us=0)
    keys = pa.table([pa.array([1_000, 1_001, None], pa.int64()).view(TIME)], schema=KEYS)
    rows = keys.append_column("n", pa.array(np.ones(3, np.int64)))
    none, state = np.zeros(3, bool), pa.table({"n": pa.nulls(3, pa.int64())})
    touched = Touched(keys, rows, np.arange(3), state, none, none, np.full(3, NO_TIMEOUT))
    changed = function.in_mode("append").process(CallContext("u", 0, 1, 0, 0), touched)
    assert changed.timeout_ms.tolist() == [0, 1, NO_TIMEOUT]
    assert changed.output.num_rows == 0
