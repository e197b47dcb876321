"""The vectorised form: what the user's function gets, what it may leave out, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_ckpt.errors import UserFunctionError
from spark_ckpt.state.functions.arrow_function import ArrowStateFunction
from spark_ckpt.state.functions.base import NO_TIMEOUT, CallContext, Changed, Touched
from tests.arrow_layouts import runs

CTX = CallContext(uid="limits", subtask=3, checkpoint=7, processing_time_ms=1_000, watermark_ms=None)
KEYS = pa.schema([("k", pa.string())])
INPUT = pa.schema([("k", pa.string()), ("v", pa.int64())])
OUTPUT = pa.schema([("k", pa.string()), ("total", pa.int64())])
STATE = pa.schema([("total", pa.int64())])
TIMED = "ProcessingTimeTimeout"


def call(func: Any, timeout: str = "NoTimeout", *, stored: Any = (), timed_out: Any = ()) -> Changed:
    """Rows for keys a and b; c and d have none. ``stored``: (total, time-out) by key, None without state."""
    f = ArrowStateFunction(func, KEYS, INPUT, OUTPUT, STATE, timeout)
    stored = [*stored, *[None] * (4 - len(stored))]
    totals = [s and s[0] for s in stored]
    touched = Touched(
        keys=pa.table({"k": list("abcd")}),
        rows=pa.table({"k": ["b", "a", "b"], "_key_hash": [2, 1, 2], "v": [1, 2, 4]}),
        key_index=np.array([1, 0, 1]),
        state=pa.table({"total": totals}, schema=STATE),
        exists=np.array([s is not None for s in stored]),
        timed_out=np.isin(np.arange(4), timed_out),
        timeout_ms=np.array([NO_TIMEOUT if s is None else s[1] for s in stored]),
    )
    changed = f.process(CTX, touched)
    assert changed.state.schema.equals(STATE)
    assert changed.output.schema.equals(OUTPUT)
    return changed


def totals(rows: pa.Table, state: pa.Table, ctx: CallContext) -> tuple[pa.Table, pa.Table]:
    sums = rows.group_by("_key").aggregate([("v", "sum")])
    added = np.zeros(state.num_rows, np.int64)
    added[sums["_key"].to_numpy()] = sums["v_sum"].to_numpy()
    new = pc.add(pc.fill_null(state["total"], 0), pa.array(added))
    return pa.table({"total": new, "k": state["k"]}), pa.table({"total": new})


def no_output() -> pa.Table:
    return OUTPUT.empty_table()


def test_the_function_sees_all_rows_and_one_state_row_a_key() -> None:
    def look(rows: pa.Table, state: pa.Table, ctx: CallContext) -> Any:
        assert rows.to_pydict() == {"k": ["b", "a", "b"], "v": [1, 2, 4], "_key": [1, 0, 1]}
        assert rows.schema.field("_key").type == pa.int32()
        assert state.to_pydict() == {
            "k": ["a", "b", "c", "d"],
            "total": [None, 5, None, None],
            "_exists": [False, True, True, False],
            "_timed_out": [False, False, True, False],
            "_timeout_ms": [None, None, 900, None],
        }
        assert ctx == CTX
        return no_output(), None

    call(look, TIMED, stored=[None, (5, NO_TIMEOUT), (None, 900)], timed_out=[2])


def test_a_decimal_that_has_no_room_for_its_digits_is_refused() -> None:
    large, wanted = pa.array([10**30], pa.decimal128(38, 0)), pa.schema([("total", pa.decimal128(38, 18))])
    f = ArrowStateFunction(lambda *_: (pa.table({"total": large}), None), KEYS, INPUT, wanted, STATE, "NoTimeout")
    nothing = np.zeros(1, bool)
    touched = Touched(
        keys=pa.table({"k": ["a"]}), rows=pa.table({"k": ["a"], "v": [1]}), key_index=np.zeros(1, np.int64),
        state=pa.table({"total": [None]}, schema=STATE), exists=nothing, timed_out=nothing,
        timeout_ms=np.array([NO_TIMEOUT]),
    )  # fmt: skip
    with pytest.raises(UserFunctionError, match="output table does not fit"):
        f.process(CTX, touched)


def test_state_and_output_are_taken_over() -> None:
    changed = call(totals, stored=[None, (10, NO_TIMEOUT)])
    assert changed.output.to_pydict() == {"k": ["a", "b", "c", "d"], "total": [2, 15, 0, 0]}
    assert changed.state["total"].to_pylist() == [2, 15, 0, 0]
    assert changed.write.all()
    assert not changed.remove.any()


def test_flags_choose_what_is_written_and_removed() -> None:
    def flags(rows: pa.Table, state: pa.Table, ctx: CallContext) -> Any:
        new = pa.table({"total": [1, 2, 3, 4], "_removed": [False, True, True, False], "_write": [True] * 3 + [False]})
        return no_output(), new

    changed = call(flags)
    assert changed.write.tolist() == [True, False, False, False]
    assert changed.remove.tolist() == [False, True, True, False]


def test_none_keeps_all_state() -> None:
    changed = call(lambda rows, state, ctx: (no_output(), None), stored=[(1, NO_TIMEOUT)] * 4)
    assert not changed.write.any()
    assert not changed.remove.any()


def test_timeouts_left_out_stay_and_null_ends_them() -> None:
    stored = [(1, 2_000), (2, 3_000), (3, 900), None]
    kept = call(lambda rows, state, ctx: (no_output(), state.select(["total"])), TIMED, stored=stored, timed_out=[2])
    assert kept.timeout_ms.tolist() == [2_000, 3_000, NO_TIMEOUT, NO_TIMEOUT]
    times = pa.array([None, 5_000, 6_000, None], pa.int64())
    new = call(
        lambda rows, state, ctx: (no_output(), state.select(["total"]).append_column("_timeout_ms", times)),
        TIMED,
        stored=stored,
    )
    assert new.timeout_ms.tolist() == [NO_TIMEOUT, 5_000, 6_000, NO_TIMEOUT]


@pytest.mark.parametrize("answer", [None, pa.table({"total": [9] * 4, "_write": [True, True, False, True]})])
def test_a_timeout_that_passed_does_not_fire_again_when_the_call_ignores_it(answer: Any) -> None:
    changed = call(lambda rows, state, ctx: (no_output(), answer), TIMED, stored=[None, None, (3, 900)], timed_out=[2])
    assert changed.write.tolist()[2]
    assert changed.state["total"].to_pylist()[2] == 3
    assert changed.timeout_ms.tolist()[2] == NO_TIMEOUT


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "expected a tuple.*found NoneType"),
        (OUTPUT.empty_table(), "expected a tuple.*found a pyarrow.Table of 0 rows"),
        (({}, None), r"found a tuple of \(dict, NoneType\)"),
        ((pa.table({"k": ["a"]}), None), r"output table.*expected \(k string, total int64\), found \(k string\)"),
        ((pa.table({"k": ["a"], "total": [1], "x": [1]}), None), r"found \(k string, total int64, x int64\)"),
        ((pa.table({"k": ["a"], "total": ["many"]}), None), r"found \(k string, total string\)"),
        ((pa.table({"k": ["a"], "total": [1.5]}), None), "truncated"),
        ((OUTPUT.empty_table(), pa.table({"total": [1]})), "of 4 rows, one for each.*found a pyarrow.Table of 1 rows"),
        ((OUTPUT.empty_table(), {"total": [1]}), "found dict"),
        ((OUTPUT.empty_table(), pa.table({"sum": [1] * 4})), r"state table.*expected \(total int64\)"),
        ((OUTPUT.empty_table(), pa.table({"total": [1] * 4, "_removed": [0] * 4})), "'_removed' to be bool.*int64"),
        ((OUTPUT.empty_table(), pa.table({"total": [1] * 4, "_write": [True, None] * 2})), "2 nulls"),
        ((OUTPUT.empty_table(), pa.table({"total": [1] * 4, "_timeout_ms": [1] * 4})), "only with a time-out"),
    ],
)
def test_what_does_not_fit_is_named_with_what_was_expected(result: Any, message: str) -> None:
    with pytest.raises(UserFunctionError, match=f"'limits', subtask 3, checkpoint 7.*{message}"):
        call(lambda rows, state, ctx: result)


def test_narrower_types_are_widened() -> None:
    output = pa.table({"total": pa.array([1], pa.int8()), "k": pa.array(["a"], pa.large_string())})
    assert call(lambda rows, state, ctx: (output, None)).output.to_pylist() == [{"k": "a", "total": 1}]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.large_string()], ids=str)
def test_tables_of_any_layout_of_arrows_fit(kind: pa.DataType) -> None:
    output = pa.table({"k": pa.array(["a", None]).cast(kind), "total": runs(pa.array([1, None]))})
    state = pa.table({"total": runs(pa.array([1, 2, 3, 4]))})
    changed = call(lambda rows, there, ctx: (output, state))
    assert changed.output.to_pylist() == [{"k": "a", "total": 1}, {"k": None, "total": None}]
    assert changed.state["total"].to_pylist() == [1, 2, 3, 4]


def test_errors_of_the_function_name_where_and_keep_their_cause() -> None:
    def fail(rows: pa.Table, state: pa.Table, ctx: CallContext) -> Any:
        raise ZeroDivisionError("by zero")

    with pytest.raises(UserFunctionError, match=r"'limits'.*ZeroDivisionError: by zero") as e:
        call(fail)
    assert isinstance(e.value.__cause__, ZeroDivisionError)
