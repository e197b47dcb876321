"""The first rows of each key against all rows kept and sorted: any order, ties, restores and number of tasks."""

from __future__ import annotations

import math
import random
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ckpt.state.functions.distinct_rows import Expiry
from spark_ckpt.state.topn.changes import Changes
from spark_ckpt.state.topn.function import TOP, TopN
from spark_ckpt.state.topn.ordering import OrderBy
from spark_ckpt.types import EVENT_TIME, KEY_HASH
from tests.how_many import some
from tests.state.topn_harness import OWN, Row, Tasks, fold, shown

COLUMNS = pa.schema(
    [("k", pa.float64()), ("id", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("d", pa.duration("us"))]
)
KEY = pa.schema([("k", pa.float64())])
ORDERS = [
    OrderBy("x"),
    OrderBy("x", True, False),
    OrderBy("s", False, False),
    OrderBy("s", True, True),
    OrderBy("d", True, False),
]


def _function(n: int, order: list[OrderBy], rank: str | None, **more: Any) -> TopN:
    return TopN(n, order, KEY, COLUMNS, changes=Changes(COLUMNS, rank, "op"), plain_keys=["k"], **more)


def _some_rows(rng: random.Random, first: int, count: int) -> pa.Table:
    nan = float("nan")
    rows = [
        (
            rng.choice([1.0, 2.0, 0.0, -0.0, nan, None]),
            first + i,
            rng.choice([None, nan, -0.0, 0.0, 1.5, -0.25, -1.5, -math.inf, math.inf, rng.random()]),
            rng.choice([None, "", "a", "B", "ä", "\U0001f986"]),
            rng.choice([None, 0, 1, -5]),
        )
        for i in range(count)
    ]
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=COLUMNS)


def _compare(order: list[OrderBy]) -> Any:
    """Spark's order of two rows."""

    def less(a: Any, b: Any) -> bool:
        if isinstance(a, float):
            return not math.isnan(a) and (math.isnan(b) or a < b)
        return bool(a.encode() < b.encode()) if isinstance(a, str) else bool(a < b)

    def compare(one: dict[str, Any], two: dict[str, Any]) -> int:
        for by in order:
            a, b = one[by.column], two[by.column]
            if a is None or b is None:
                found = (a is None) - (b is None)
                found = -found if by.nulls_first else found
            else:
                found = less(b, a) - less(a, b)
                found = -found if by.descending else found
            if found:
                return int(found)
        return 0

    return cmp_to_key(compare)


def _expected(rows: list[dict[str, Any]], n: int, order: list[OrderBy], rank: str | None) -> set[Row]:
    found = set()
    for key in {_key(row) for row in rows}:
        mine = sorted((row for row in rows if _key(row) == key), key=_compare(order))[:n]
        found |= {(*map(shown, row.values()), *([i + 1] if rank else [])) for i, row in enumerate(mine)}
    return found


def _key(row: dict[str, Any]) -> Any:
    return "NaN" if row["k"] != row["k"] else row["k"]  # -0.0 == 0.0


@settings(max_examples=some(20), deadline=None)
@given(st.integers(0, 2**32))
def test_the_changes_make_the_first_rows_of_each_key_whatever_comes(seed: int) -> None:
    rng = random.Random(seed)
    n, rank = rng.choice([1, 1, 2, 3, 10]), rng.choice([None, "place"])
    order = rng.sample(ORDERS, rng.randrange(1, 4))
    order = [by for i, by in enumerate(order) if by.column not in {o.column for o in order[:i]}]
    tasks, all_rows, table = Tasks(_function(n, order, rank), rng.choice([1, 2, 4])), list[Any](), dict[Row, Row]()
    for _ in range(rng.randrange(1, 9)):
        rows = _some_rows(rng, len(all_rows), rng.choice([1, 2, 5, 40]))
        all_rows += rows.to_pylist()
        changes = tasks.rows(rows)
        if rank is None:
            assert {c["op"] for c in changes} <= {"+I", "-D"}
        fold(table, changes, ["id"])
        assert set(table.values()) == _expected(all_rows, n, order, rank)
        if rng.random() < 0.3:
            tasks.rescale(rng.choice([1, 2, 4]))
    assert tasks.kept(TOP) == len(table), "others are not kept"


def test_ranks_that_move_are_updates_of_the_rank() -> None:
    """As Flink's Top-N with its row number."""
    tasks = Tasks(_function(2, [OrderBy("x", True, False)], "place"))

    def changes(*values: tuple[int, float]) -> list[tuple[Any, ...]]:
        rows = pa.table([[1.0] * len(values), *zip(*values, strict=True), ["s"] * len(values), [0] * len(values)],
                        schema=COLUMNS)  # fmt: skip
        return [(c["op"], c["id"], c["place"]) for c in tasks.rows(rows)]

    assert changes((1, 5.0)) == [("+I", 1, 1)]
    assert changes((2, 3.0)) == [("+I", 2, 2)]
    assert changes((3, 4.0)) == [("-U", 2, 2), ("+U", 3, 2)]
    assert changes((4, 9.0), (5, 1.0)) == [("-U", 1, 1), ("-U", 3, 2), ("+U", 4, 1), ("+U", 1, 2)]
    assert changes((6, 5.0), (7, 9.0), (8, 5.0)) == [("-U", 1, 2), ("+U", 7, 2)]
    assert changes((9, 2.0)) == []


def test_equal_rows_stay_in_their_order_of_arrival_over_batches_and_restores() -> None:
    tasks = Tasks(_function(3, [OrderBy("s")], None))
    for first in range(0, 12, 2):
        rows = pa.table([[1.0] * 2, [first, first + 1], [0.0] * 2, ["same"] * 2, [None] * 2], schema=COLUMNS)
        changes = tasks.rows(rows)
        assert [c["id"] for c in changes] == [i for i in (first, first + 1) if i < 3]
        tasks.rescale(1 + first % 3)


def test_of_equal_rows_the_last_to_arrive_falls_out_first() -> None:
    tasks = Tasks(_function(4, [OrderBy("x")], None))

    def add(number: int, x: float) -> list[tuple[str, int]]:
        return [(c["op"], c["id"]) for c in tasks.rows(pa.table([[1.0], [number], [x], ["s"], [0]], schema=COLUMNS))]

    for number in range(4):
        assert add(number, 5.0) == [("+I", number)]
        tasks.rescale(1 + number % 2)
    assert [add(number, 1.0) for number in (4, 5, 6)] == [[("-D", 7 - number), ("+I", number)] for number in (4, 5, 6)]


def test_where_rows_may_be_late_none_is_left_out_ahead_of_the_shuffle() -> None:
    """A late row may have the better value, and is dropped behind it only."""
    function = _function(1, [OrderBy("id", True)], None)
    rows = pa.table([[1.0] * 99, range(99), [0.0] * 99, ["s"] * 99, [0] * 99], schema=COLUMNS)
    rows = rows.append_column(KEY_HASH, pa.array([7] * 99))
    assert function.combine(rows)["id"].to_pylist() == [98]
    assert function.combine(rows.append_column(EVENT_TIME, pa.array([0] * 99))).num_rows == 99


def test_a_key_is_forgotten_when_the_watermark_passes_it() -> None:
    times = pa.schema([("at", pa.timestamp("us", "UTC"))])
    columns = pa.schema([*times, ("v", pa.int64())])
    function = TopN(
        2, [OrderBy("v")], times, columns,
        changes=Changes(columns, None, "op"), plain_keys=["at"], watermark=True, expiry=Expiry("at"),
    )  # fmt: skip
    tasks = Tasks(function, 2)
    at = [0, 1_000_000, 1_000_000, 2_000_000]
    rows = pa.table([pa.array(at).cast(columns.field("at").type), [1, 2, 3, 4]], schema=columns)
    assert len(tasks.rows(rows)) == 4
    assert (tasks.kept(OWN), tasks.kept(TOP)) == (3, 4)
    tasks.due(1_000)
    assert (tasks.kept(OWN), tasks.kept(TOP)) == (1, 1)


def test_rows_that_do_not_reach_the_first_ones_write_nothing() -> None:
    """What a batch costs in state follows what it changes."""
    tasks = Tasks(_function(2, [OrderBy("x", True, False)], None))
    values = np.arange(1000.0)
    best = pa.table([values % 50, range(1000), values + 5000, ["s"] * 1000, [0] * 1000], schema=COLUMNS)
    tasks.rows(best)
    before = [task[name].memtable_rows for task in tasks.tasks for name in (OWN, TOP)]
    tasks.rescale(1)
    worse = pa.table([values % 50, range(1000), values, ["s"] * 1000, [0] * 1000], schema=COLUMNS)
    assert tasks.rows(worse) == []
    assert [task[name].memtable_rows for task in tasks.tasks for name in (OWN, TOP)] == [0, 0]
    assert before == [50, 100]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
def test_booleans_dates_decimals_and_structs_are_ordered_as_in_spark(descending: bool, nulls_first: bool) -> None:
    from datetime import date
    from decimal import Decimal

    struct = pa.struct([("a", pa.int32()), ("b", pa.string())])
    for kind, ascending in (
        (pa.bool_(), [False, True]),
        (pa.date32(), [date(1969, 1, 1), date(1970, 1, 1), date(2024, 2, 29)]),
        (pa.decimal128(38, 2), [Decimal("-3.10"), Decimal("0.00"), Decimal("12345678901234567890.01")]),
        (pa.binary(), [b"", b"\x00", b"\x7f", b"\xff"]),
        (struct, [{"a": None, "b": "z"}, {"a": 1, "b": None}, {"a": 1, "b": "a"}, {"a": 2, "b": ""}]),
    ):
        columns = pa.schema([("k", pa.int64()), ("v", kind)])
        order = [OrderBy("v", descending, nulls_first)]
        function = TopN(9, order, columns.remove(1), columns, changes=Changes(columns, "r", "op"), plain_keys=["k"])
        values = [*ascending, None]
        random.Random(1).shuffle(values)
        found = Tasks(function).rows(pa.table([[1] * len(values), values], schema=columns))
        expected = list(reversed(ascending)) if descending else ascending
        expected = [None, *expected] if nulls_first else [*expected, None]
        assert [c["v"] for c in sorted(found, key=lambda c: c["r"])] == expected
