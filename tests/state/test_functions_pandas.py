"""The drop-in gives a user's function what PySpark 4.2 gives it, and stores what PySpark would store."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError, PySparkValueError
from pyspark.sql.streaming.state import GroupState

from spark_ckpt.errors import UserFunctionError
from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.functions.pandas_function import PORTION_KEYS
from spark_ckpt.state.functions.pandas_input import DEFINED
from tests.state.functions_harness import CTX, EVENT, INPUT, PROCESSING, call, function


def count(key: tuple[Any, ...], pdfs: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    n = sum(len(pdf) for pdf in pdfs) + (state.get[0] if state.exists else 0)
    state.update((n, f"seen {key[0]}"))
    yield pd.DataFrame({"n": [n], "k": [key[0]]})


def test_each_key_is_called_once_with_its_rows_and_its_state() -> None:
    changed = call(function(count), ["a", "b", None], [(1, 5), (0, 6), (1, 7), (2, 8)], {1: (10, "x")})
    assert changed.output.to_pylist() == [{"k": "a", "n": 1}, {"k": "b", "n": 12}, {"k": None, "n": 1}]
    assert changed.state.to_pylist()[1] == {"n": 12, "note": "seen b"}
    assert changed.write.tolist() == [True] * 3
    assert not changed.remove.any()


def test_many_keys_are_called_in_order_and_the_garbage_collector_goes_on_between_them() -> None:
    keys, enabled = [f"k{i}" for i in range(2 * PORTION_KEYS + 5)], []

    def look(key: Any, pdfs: Any, state: GroupState) -> Any:
        enabled.append(gc.isenabled())
        yield from count(key, pdfs, state)

    changed = call(function(look), keys, [(i, i) for i in range(len(keys))])
    assert changed.output["k"].to_pylist() == keys
    assert changed.state["note"].to_pylist() == [f"seen {k}" for k in keys]
    assert not any(enabled)
    assert gc.isenabled()


def test_a_failing_function_leaves_the_garbage_collector_on() -> None:
    with pytest.raises(UserFunctionError):
        call(function(lambda key, pdfs, state: 1 / 0), ["a"], [(0, 1)])
    assert gc.isenabled()


def test_rows_of_a_key_keep_their_order_of_arrival() -> None:
    seen = {}

    def remember(key: Any, pdfs: Any, state: GroupState) -> Any:
        seen[key[0]] = [v for pdf in pdfs for v in pdf["v"]]
        return []

    call(function(remember), ["a", "b"], [(1, 9), (0, 3), (1, 2), (0, 1), (1, 4)])
    assert seen == {"a": [3, 1], "b": [9, 2, 4]}


def test_without_update_nothing_is_stored() -> None:
    changed = call(function(lambda key, pdfs, state: []), ["a", "b"], [(0, 1), (1, 1)], {1: (4, None)})
    assert not changed.write.any()
    assert not changed.remove.any()
    assert changed.output.num_rows == 0


def test_state_can_be_read_updated_and_removed_in_one_call() -> None:
    log = []

    def use(key: Any, pdfs: Any, state: GroupState) -> Any:
        log.append((state.exists, state.getOption, state.hasTimedOut))
        state.update((np.int64(2), "two"))
        log.append((state.exists, state.get))
        state.remove()
        log.append((state.exists, state.getOption))
        with pytest.raises(PySparkValueError, match="STATE_NOT_EXISTS"):
            _ = state.get
        return []

    changed = call(function(use), ["a"], [(0, 1)], {0: (1, None)})
    assert log == [(True, (1, None), False), (True, (2, "two")), (False, None)]
    assert changed.remove.tolist() == [True]
    assert changed.write.tolist() == [False]


def test_update_after_remove_stores_the_value() -> None:
    def use(key: Any, pdfs: Any, state: GroupState) -> Any:
        state.remove()
        state.update((1, None))
        return []

    changed = call(function(use), ["a"], [(0, 1)], {0: (5, "x")})
    assert (changed.write.tolist(), changed.remove.tolist()) == ([True], [False])
    assert changed.state.to_pylist() == [{"n": 1, "note": None}]


def test_processing_time_timeouts_count_from_the_batch_s_time() -> None:
    def use(key: Any, pdfs: Any, state: GroupState) -> Any:
        assert state.getCurrentProcessingTimeMs() == 1_000
        state.update((1, None))
        if key[0] == "a":
            state.setTimeoutDuration(500)
        return []

    changed = call(function(use, PROCESSING), ["a", "b"], [(0, 1), (1, 1)], {1: (1, None, True)})
    assert changed.timeout_ms.tolist() == [1_500, NO_TIMEOUT]
    assert changed.write.tolist() == [True, True]


def test_a_call_that_touches_neither_state_nor_timeout_keeps_the_old_timeout() -> None:
    f = function(lambda key, pdfs, state: [], PROCESSING)
    changed = call(f, ["a", "b"], [(0, 1)], {0: (1, None, True), 1: (1, None, True)}, timed_out=(1,))
    assert not changed.write.any()
    assert not changed.remove.any()


def test_event_time_timeouts_may_not_be_older_than_the_watermark() -> None:
    def use(key: Any, pdfs: Any, state: GroupState) -> Any:
        assert state.getCurrentWatermarkMs() == 5_000
        with pytest.raises(PySparkValueError, match="INVALID_TIMEOUT_TIMESTAMP"):
            state.setTimeoutTimestamp(4_999)
        with pytest.raises(PySparkRuntimeError, match="CANNOT_WITHOUT"):
            state.setTimeoutDuration(1)
        state.setTimeoutTimestamp(6_000)
        return []

    changed = call(function(use, EVENT), ["a"], [(0, 1)], ctx=replace(CTX, watermark_ms=5_000))
    assert changed.timeout_ms.tolist() == [6_000]


def test_the_watermark_is_zero_before_the_first_and_an_error_without_one() -> None:
    def use(key: Any, pdfs: Any, state: GroupState) -> Any:
        return [pd.DataFrame({"k": ["a"], "n": [state.getCurrentWatermarkMs()]})]

    assert call(function(use, has_watermark=True), ["a"], [(0, 1)]).output.to_pylist() == [{"k": "a", "n": 0}]
    with pytest.raises(UserFunctionError, match="CANNOT_WITHOUT"):
        call(function(use), ["a"], [(0, 1)])


def test_a_key_may_have_a_timeout_and_no_value() -> None:
    def use(key: Any, pdfs: Any, state: GroupState) -> Any:
        if key[0] == "removed":
            state.update((1, None))
            state.remove()
        state.setTimeoutDuration(10)
        return []

    f = function(use, PROCESSING)
    changed = call(f, ["new", "removed"], [(0, 1), (1, 1)])
    assert changed.write.tolist() == [True, True]
    assert changed.remove.tolist() == [False, False]
    assert changed.state.to_pylist() == [{"n": None, "note": None, DEFINED: False}] * 2
    seen = []
    f.func = lambda key, pdfs, state: seen.append((state.exists, state.hasTimedOut)) or []
    call(f, ["new"], [], {0: (None, None, False)}, timed_out=(0,))
    assert seen == [(False, True)]


def test_timed_out_keys_come_last_with_one_empty_dataframe() -> None:
    calls = []

    def use(key: Any, pdfs: Any, state: GroupState) -> Any:
        calls.append((key[0], state.hasTimedOut, [(len(p), list(p.columns)) for p in pdfs]))
        if state.hasTimedOut:
            assert isinstance(pdfs, list)
            state.remove()
        return []

    f = function(use, PROCESSING)
    changed = call(f, ["a", "b", "c"], [(2, 1), (1, 5)], {0: (1, None, True)}, timed_out=(0,))
    assert calls == [("b", False, [(1, ["k", "v"])]), ("c", False, [(1, ["k", "v"])]), ("a", True, [(0, ["k", "v"])])]
    assert changed.remove.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "expected an iterable of pandas.DataFrame, found NoneType"),
        (pd.DataFrame({"k": ["x"], "n": [1]}), "expected an iterable of pandas.DataFrame, found DataFrame"),
        ([{"k": "x", "n": 1}], "expected pandas.DataFrame, found dict"),
        ([pd.DataFrame({"k": ["x"]})], r"expected output columns \['k', 'n'\], found \['k'\]"),
        ([pd.DataFrame({"k": ["x"], "m": [1]})], r"found \['k', 'm'\]"),
        ([pd.DataFrame({"k": ["x"], "n": ["many"]})], r"expected \(k string, n int64\), found .*'n': 'object'"),
    ],
)
def test_wrong_outputs_name_expected_and_found(result: Any, message: str) -> None:
    with pytest.raises(UserFunctionError, match=f"'sessions', subtask 3, checkpoint 7.*{message}"):
        call(function(lambda key, pdfs, state: result), ["a"], [(0, 1)])


@pytest.mark.parametrize(("value", "found"), [((1,), "1 values"), ((1, "x", 2), "3 values"), (("q", "x"), "str, str")])
def test_wrong_states_name_key_expected_and_found(value: tuple[Any, ...], found: str) -> None:
    def use(key: Any, pdfs: Any, state: GroupState) -> Any:
        state.update(value if key[0] == "b" else (1, None))
        return []

    with pytest.raises(UserFunctionError, match=rf"key \('b',\).*\(n int64, note string\).*{found}"):
        call(function(use), ["a", "b"], [(0, 1), (1, 1)])


def test_errors_of_the_function_name_where_and_keep_their_cause() -> None:
    def early(key: Any, pdfs: Any, state: GroupState) -> Any:
        raise KeyError("gone")

    def late(key: Any, pdfs: Any, state: GroupState) -> Any:
        yield from pdfs
        raise KeyError("gone")

    for f in (early, late):
        with pytest.raises(UserFunctionError, match=r"'sessions', subtask 3.*7, key \('a',\).*KeyError: 'gone'") as e:
            call(function(f, output_schema=INPUT), ["a"], [(0, 1)])
        assert isinstance(e.value.__cause__, KeyError)
        assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)


def test_a_function_survives_pickling() -> None:
    f = pickle.loads(pickle.dumps(function(count, PROCESSING)))
    assert call(f, ["a"], [(0, 1)]).output.to_pylist() == [{"k": "a", "n": 1}]


def test_fields_declared_not_null_may_be_null_in_keys_without_state_and_in_outputs() -> None:
    state = pa.schema([pa.field("n", pa.int64(), nullable=False), ("note", pa.string())])
    output = pa.schema([pa.field("k", pa.string(), nullable=False), ("n", pa.int64())])
    changed = call(function(count, state_schema=state, output_schema=output), ["a", None], [(1, 1)])
    assert changed.output.to_pylist() == [{"k": None, "n": 1}]
    assert changed.state["n"].to_pylist() == [None, 1]
