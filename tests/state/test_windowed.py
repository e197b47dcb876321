"""When windows end, and what comes out in each output mode."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt import agg
from spark_ckpt.agg import AggSpec
from spark_ckpt.runtime.windows import AssignWindows, WindowSize
from spark_ckpt.state.aggregates.kinds import in_any_order
from spark_ckpt.state.aggregates.windowed import WindowedAggregate
from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Touched
from spark_ckpt.state.keys.spark_hash import normalised, xxhash64
from spark_ckpt.types import CTL, KEY_HASH, TAG
from tests.how_many import some

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


AGGREGATES = {
    "n": agg.count(),
    "total": agg.sum("v"),
    "least": agg.min("v"),
    "most": agg.max("v"),
    "mean": agg.mean("v"),
}
SLIDING_KEYS = pa.schema([("k", pa.float64()), ("w", TIME)])
ROWS = pa.schema([("t", TIME), ("k", pa.float64()), ("v", pa.int64())])


def _combined(columns: list[pa.Array], window: WindowSize, newest: bool, cuts: int) -> list[tuple]:  # type: ignore[type-arg]
    """What is shuffled of the rows, added up by key and window; each hash is its key's."""
    slide = window.slide if newest else None
    function = WindowedAggregate(SLIDING_KEYS, ROWS, AGGREGATES, window="w", size_us=window.size, slide_us=slide)
    control = [pa.nulls(len(columns[0]), pa.int64()), pa.nulls(len(columns[0]), pa.binary())]
    batch = pa.record_batch([*columns, *control], names=[*ROWS.names, TAG, CTL])
    (rows,) = AssignWindows("t", "shown", "w", window, newest)(iter([batch]))
    keys = [normalised(rows.column("k")), rows.column("w")]
    hashed = pa.table([*keys, rows.column("v"), pa.array(xxhash64(keys))], names=["k", "w", "v", KEY_HASH])
    edges = np.linspace(0, hashed.num_rows, cuts + 1).astype(int)
    parts = [function.combine(hashed.slice(a, b - a)) for a, b in itertools.pairwise(edges)]
    made = function.recombine(parts)
    assert made[KEY_HASH].to_numpy().tolist() == xxhash64([made[n].combine_chunks() for n in ("k", "w")]).tolist()
    named = {"sum": ["n", "total", "mean_sum", "mean_count"], "min": ["least"], "max": ["most"]}
    wanted = [(name, how) for how, names in named.items() for name in names]
    micros = made["w"].cast(pa.int64())
    total = made.set_column(1, "w", micros).group_by(["k", "w"]).aggregate(wanted)
    return sorted(map(repr, total.to_pylist()))


@pytest.mark.parametrize("window", [WindowSize(20, 10), WindowSize(10, 10)])
def test_a_control_row_passes_once_whatever_its_time(window: WindowSize) -> None:
    control = pa.array([None, b"a barrier"], pa.binary())
    batch = pa.record_batch([pa.array([15, 15]).view(TIME), pa.nulls(2, pa.int64()), control], names=["t", TAG, CTL])
    (rows,) = AssignWindows("t", "shown", "w", window)(iter([batch]))
    found = rows.select(["w", CTL]).to_pylist()
    assert [row["w"] for row in found if row[CTL]] == [None]
    assert len(found) == 1 + window.most


TIMES = st.integers(-60, 60)


@settings(max_examples=some(30), deadline=None)
@given(
    st.lists(st.tuples(TIMES, st.sampled_from([0.0, -0.0, 1.5, None]), st.none() | st.integers(-9, 9)), max_size=30),
    st.integers(1, 7),
    st.integers(2, 4),
    st.integers(-9, 9),
    st.sampled_from([(1, 1), (40, 3)]),
)
def test_what_is_added_up_once_is_in_each_of_its_windows(
    rows: list[tuple[int, float | None, int | None]], slide: int, windows: int, start: int, shape: tuple[int, int]
) -> None:
    """As if each row had been repeated. Many rows a key are added up first, few are not."""
    repeated, cuts = shape
    t, k, v = ([row[i] for row in rows * repeated] for i in range(3))
    columns = [pa.array(t, pa.int64()).view(TIME), pa.array(k, pa.float64()), pa.array(v, pa.int64())]
    window = WindowSize(slide * windows, slide, start)
    assert _combined(columns, window, True, cuts) == _combined(columns, window, False, cuts)


def test_where_the_order_of_arrival_matters_rows_are_not_added_up_first() -> None:
    assert in_any_order(AGGREGATES.values())
    for spec in (
        AggSpec("first", "v"),
        AggSpec("collect_list", "v"),
        AggSpec("max_by", "v"),
        AggSpec("sum_distinct", "v"),
    ):
        assert not in_any_order([agg.count(), spec])
