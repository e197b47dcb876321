"""What a processor is given, what it may do when, and what its tables hold, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import Row

from spark_ckpt.errors import InvalidInputError, UserFunctionError
from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.state.lsm.family import Family
from spark_ckpt.state.processors import _maps as maps
from tests.state.processors_harness import Operator, function, struct

N = struct({"n": T.LongType()})
OUT = struct({"k": T.LongType(), "n": T.LongType()})


class Processor(StatefulProcessor):
    """``rows(self, key, rows)`` for each key; ``variables`` are (kind, name, TTL)."""

    def __init__(self, rows: Callable[..., Any], *variables: tuple[Any, ...], init: Any = None) -> None:
        self.rows, self.variables, self.init_more = rows, variables, init

    def init(self, handle: Any) -> None:
        self.handle = handle
        for kind, name, *ttl in self.variables:
            schemas = (N, N) if kind == "Map" else (N,)
            setattr(self, name, getattr(handle, f"get{kind}State")(name, *schemas, *ttl))
        if self.init_more is not None:
            self.init_more(handle)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        return self.rows(self, key, rows)


def row_operator(rows: Callable[..., Any], *variables: tuple[Any, ...], time_mode: str = "None") -> Operator:
    return Operator(function(Processor(rows, *variables), OUT, time_mode, pandas=False))


def test_a_dataframe_has_the_types_that_rows_of_python_values_have() -> None:
    seen: dict[Any, Any] = {}

    def rows(self: Any, key: Any, frames: Any) -> Iterator[pd.DataFrame]:
        for frame in frames:
            seen[key] = {c: str(t) for c, t in frame.dtypes.items()}
            assert frame.index.equals(pd.RangeIndex(len(frame)))
        yield pd.DataFrame({"n": [1], "k": [key[0]]})

    more = pa.schema([("i", pa.int32()), ("f", pa.float32()), ("b", pa.bool_())])
    operator = Operator(function(Processor(rows), OUT, more=more))
    out = operator.batch([(1, 5, 1.5, True), (2, None, None, None), (2, 3, 2.5, False)])
    assert sorted(out) == [(1, 1), (2, 1)]
    assert seen[1,] == {"k": "int64", "i": "int64", "f": "float64", "b": "bool"}
    assert seen[2,] == {"k": "int64", "i": "float64", "f": "float64", "b": "object"}
    assert all(type(key[0]) is int for key in seen)


def test_an_append_reads_no_element_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        self.items.appendList([(row.v,) for row in rows])
        assert self.items.exists()
        yield Row(k=key[0], n=0)

    operator = row_operator(rows, ("List", "items"))
    operator.batch([(1, v) for v in range(100)])
    operator.flush()
    monkeypatch.setattr(Family, "scan", None)
    operator.batch([(1, 100)])
    assert [r["n"] for r in sorted(operator.table("items"), key=lambda r: r["_index"])] == list(range(101))


def test_of_a_large_map_only_the_entries_asked_for_are_read_and_written(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    scan = maps.Maps._scan

    def counted(self: Any, keys: Any) -> Any:
        found = scan(self, keys)
        asked.extend(len(entries) for entries in found.values())
        return found

    monkeypatch.setattr(maps.Maps, "_scan", counted)

    def rows(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        for row in rows:
            old = self.counts.getValue((row.v,))
            assert self.counts.exists() == (key[0] == 1 or old is not None)
            self.counts.updateValue((row.v,), ((old.n if old else 0) + 1,))
            yield Row(k=row.v, n=self.counts.getValue((row.v,))[0])

    operator = row_operator(lambda self, key, rows: fill(self, rows), ("Map", "counts"))
    operator.batch([(1, v) for v in range(maps.SMALL + 1)])
    operator.flush()
    operator.function.processor.rows = rows
    assert sorted(operator.batch([(1, 7), (1, 9999), (2, 5)])) == [(5, 1), (7, 2), (9999, 1)]
    assert asked == []
    assert operator.stored("counts") == maps.SMALL + 3
    assert sum(r["n_value"] for r in operator.table("counts")) == maps.SMALL + 4


def fill(self: Any, rows: Any) -> Iterator[Row]:
    for row in rows:
        self.counts.updateValue((row.v,), (1,))
    return iter([])


def test_columns_that_share_names_are_told_apart_in_the_table() -> None:
    class Named(Processor):
        def init(self, handle: Any) -> None:
            pair = struct({"K": T.LongType(), "a b": T.LongType()})
            self.m = handle.getMapState("m", struct({"k": T.LongType()}), pair)

    def rows(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        self.m.updateValue((7,), (8, 9))
        yield Row(k=key[0], n=self.m.getValue((7,))["a b"])

    operator = Operator(function(Named(rows), OUT, pandas=False))
    assert operator.batch([(1, 0)]) == [(1, 9)]
    assert operator.table("m") == [{"k": 1, "k_key": 7, "K_value": 8, "a_b": 9}]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda self: self.handle.registerTimer(5), "operation=register_timer with invalid timeMode=NoTime"),
        (lambda self: self.handle.getValueState("x", N), "operation=get_value_state with invalid handle state="),
        (lambda self: self.handle.deleteIfExists("v"), "operation=delete_if_exists with invalid handle state="),
        (lambda self: self.l.put([]), "Cannot write empty list values to State Store for StateName l"),
        (lambda self: self.gone.exists(), "Error checking value state exists: Value state gone is not initialized"),
    ],
)
def test_what_spark_refuses_is_refused_in_its_words(step: Any, message: str) -> None:
    def rows(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        with pytest.raises(PySparkRuntimeError, match=message):
            step(self)
        yield Row(k=key[0], n=1)

    def init(handle: Any) -> None:
        handle.deleteIfExists("gone")
        handle.deleteIfExists("never there")

    processor = Processor(rows, ("Value", "v"), ("List", "l"), ("Value", "gone"), init=init)
    operator = Operator(function(processor, OUT, pandas=False))
    assert operator.batch([(1, 0)]) == [(1, 1)]
    assert list(operator.function.families) == ["v", "l", "_lists"]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ([("Value", "v", 10)], "Cannot use TTL for state=v in timeMode=NoTime, use TimeMode.ProcessingTime"),
        ([("Value", "v"), ("Value", "v")], "Value state v already exists"),
        ([("Value", "v"), ("List", "v")], "State variable with name v has already been defined"),
        ([("Value", "_v")], "unsupported starting character and name=_v"),
    ],
)
def test_what_init_may_not_declare(variables: Any, message: str) -> None:
    with pytest.raises(UserFunctionError, match=message):
        row_operator(lambda *_: iter([]), *variables)


def test_a_key_of_a_map_that_no_table_can_find_by_is_refused() -> None:
    class Nested(Processor):
        def init(self, handle: Any) -> None:
            handle.getMapState("m", struct({"xs": T.ArrayType(T.LongType())}), N)

    with pytest.raises(InvalidInputError, match="key column 'xs'"):
        function(Nested(lambda *_: iter([])), OUT, pandas=False)


@pytest.mark.parametrize("bad", [(1, 2), ("x",), (2**70,), (None, None), (True,), ([1],), (np.True_,)])
def test_a_value_that_does_not_fit_names_variable_and_value(bad: Any) -> None:
    def rows(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        self.v.update(bad if key[0] == 2 else (1,))
        yield Row(k=key[0], n=1)

    with pytest.raises(
        UserFunctionError, match=r"operator 'tws'.*state 'v': expected a tuple of \(n int64\), found "
    ) as e:
        row_operator(rows, ("Value", "v")).batch([(1, 0), (2, 0), (3, 0)])
    assert repr(bad) in str(e.value)


@pytest.mark.parametrize(
    ("pandas", "result", "message"),
    [
        (False, lambda key: [(1, 2)], "expected pyspark.sql.Row with the names of outputStructType"),
        (False, lambda key: [Row(k="x", n=1)], r"key \(1,\): the processor's output does not fit outputStructType"),
        (False, lambda key: None, "expected an iterator of pyspark.sql.Row, found NoneType"),
        (
            True,
            lambda key: pd.DataFrame({"k": [1], "n": [1]}),
            "expected an iterator of pandas.DataFrame, found DataFr",
        ),
        (True, lambda key: [pd.DataFrame({"k": [1]})], r"expected output columns \['k', 'n'\], found \['k'\]"),
        (False, lambda key: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_wrong_output_names_the_key(pandas: bool, result: Any, message: str) -> None:
    made = function(Processor(lambda self, key, rows: result(key)), OUT, pandas=pandas)
    with pytest.raises(UserFunctionError, match=message) as e:
        Operator(made).batch([(1, 0)])
    assert "operator 'tws', subtask 3, checkpoint 7, key (1,)" in str(e.value)


def test_a_row_without_a_field_has_null_there_and_one_that_is_too_much_is_left_out() -> None:
    def rows(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        yield Row(n=5)
        yield Row(n=6, k=1, other=2)

    assert row_operator(rows).batch([(1, 0)]) == [(None, 5), (1, 6)]


def test_lists_keep_their_order_over_many_keys_read_ahead() -> None:
    def rows(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        values = [row.v for row in rows]
        seen = [x for (x,) in self.items.get()] if key[0] % 3 else []
        assert seen == (list(range(key[0] % 4)) if key[0] % 3 and values[0] >= 0 else [])
        self.items.put([(x,) for x in range(key[0] % 4)] or [(-1,)])
        if not key[0] % 4:
            self.items.clear()
        yield Row(k=key[0], n=len(seen))

    operator = row_operator(rows, ("List", "items"))
    operator.batch([(k, -1) for k in range(3000)])
    operator.flush()
    out = operator.batch([(k, 0) for k in range(3000)])
    assert sorted(out) == [(k, k % 4 if k % 3 else 0) for k in range(3000)]
    assert operator.stored("items") == sum(k % 4 for k in range(3000))
    assert operator.stored("_lists") == sum(1 for k in range(3000) if k % 4)


def test_timers_find_the_values_that_rows_of_thousands_of_keys_wrote() -> None:
    class Timed(Processor):
        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
            time, k = expiredTimerInfo.getExpiryTimeInMs(), key[0]
            again = time > 2_000 + k % 7
            assert self.v.get() == (None if k % 5 == 0 or (again and k % 3 == 0) else (k + again,))
            self.v.update((k + 1 + again,)) if k % 5 and k % 3 else self.v.clear()
            yield Row(k=key[0], n=time)

    def rows(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        assert self.v.get() == expected(key[0])
        self.v.update((key[0],)) if key[0] % 5 else self.v.clear()
        for time in (2_000 + key[0] % 7, 3_000 - key[0] % 11):
            self.handle.registerTimer(time)
        yield from ()

    expected: Any = lambda k: None  # noqa: E731
    operator = Operator(function(Timed(rows, ("Value", "v")), OUT, "ProcessingTime", pandas=False))
    operator.batch([(k, 0) for k in range(3000)])
    operator.flush()
    expected = lambda k: (k,) if k % 5 else None  # noqa: E731
    out = operator.batch([(k, 0) for k in range(3000)], 4_000)
    assert sorted(out) == sorted((k, time) for k in range(3000) for time in (2_000 + k % 7, 3_000 - k % 11))
    assert {r["k"]: r["n"] for r in operator.table("v")} == {k: k + 2 for k in range(3000) if k % 5 and k % 3}


WRITTEN = [
    (1, 0.1, (1, "a"), Decimal("1.5"), [2], datetime(2024, 7, 1, 12), 5),
    (None, 2, None, None, [], None, None),
    (3, 1.5, Row(x=None, y="b"), Decimal(7), [None], None, 0.5),
]
TYPES = parse_ddl("l long, f float, st struct<x:int,y:string>, m decimal(9,2), a array<double>, t timestamp, d double")


def test_what_was_written_in_this_batch_reads_as_it_will_in_the_next() -> None:
    """As in Spark, where each write goes to the state store and each read comes from there."""

    class Kept(Processor):
        def init(self, handle: Any) -> None:
            self.value, self.list = handle.getValueState("v", TYPES), handle.getListState("l", TYPES)
            self.map = handle.getMapState("m", N, TYPES)

    def rows(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        for row in rows:
            if row.v >= 0:
                written = WRITTEN[row.v]
                self.value.update(written)
                self.list.appendValue(written)
                self.map.updateValue((row.v,), written)
                seen.append([self.value.get(), list(self.list.get())[-1], tuple(self.map.getValue((row.v,)))])
        seen.append([self.value.get(), list(self.list.get()), sorted(self.map.iterator())])
        yield Row(k=key[0], n=1)

    seen: list[Any] = []
    operator = Operator(function(Kept(rows), OUT, pandas=False))
    operator.batch([(1, n) for n in range(3)])
    operator.batch([(1, -1)])
    *each, at_once, later = seen
    assert repr(at_once) == repr(later)
    assert [repr(v) for v in each] == [repr([v, v, v]) for v in later[1]]
    assert each[0][0][2].y == "a"


def test_numbers_of_numpy_are_pythons_own_when_they_are_read() -> None:
    class Numbers(Processor):
        def init(self, handle: Any) -> None:
            self.v = handle.getValueState("v", struct({"n": T.LongType(), "i": T.IntegerType(), "x": T.DoubleType()}))

    def rows(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        seen.append(self.v.get())
        for value in ((np.int32(1), np.int64(2), np.float32(0.5)), [2**62, None, 1], (-(2**63), 2**31 - 1, -0.0)):
            self.v.update(value)
            if key[0] % 2:
                seen.append(self.v.get())
        self.v.update((np.int64(key[0]), -7, np.float64(0.1)))
        yield Row(k=key[0], n=np.int64(5))

    seen: list[Any] = []
    operator = Operator(function(Numbers(rows), OUT, pandas=False))
    assert [operator.batch([(k, 0)]) for k in (1, 2, 1)] == [[(1, 5)], [(2, 5)], [(1, 5)]]
    between = [(1, 2, 0.5), (2**62, None, 1.0), (-(2**63), 2**31 - 1, -0.0)]
    assert repr(seen) == repr([None, *between, None, (1, -7, 0.1), *between])


@pytest.mark.parametrize("kind", ["Value", "List", "Map"])
def test_there_is_no_key_to_ask_for_when_all_have_been_called(kind: str) -> None:
    class Closing(Processor):
        def close(self) -> None:
            if hasattr(self, "called"):  # else it is the driver, which asks what init declares
                self.x.clear()

    def rows(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        self.called = True
        yield from ()

    operator = Operator(function(Closing(rows, (kind, "x")), OUT, pandas=False))
    with pytest.raises(UserFunctionError, match="close: the user's function raised IndexError"):
        operator.batch([(1, 0)])


def test_timers_can_be_asked_while_keys_are_called_and_not_before_or_after() -> None:
    class Closing(Processor):
        def close(self) -> None:
            if hasattr(self, "called"):  # else it is the driver, which asks what init declares
                for call in calls(self.handle):
                    with pytest.raises(PySparkRuntimeError, match="invalid handle state=CLOSED"):
                        call()

    def calls(handle: Any) -> list[Callable[[], Any]]:
        return [lambda: handle.registerTimer(5), lambda: handle.deleteTimer(expiryTimestampMs=5), handle.listTimers]

    def init(handle: Any) -> None:
        for call in calls(handle):
            with pytest.raises(PySparkRuntimeError, match="invalid handle state="):
                call()

    def rows(self: Any, key: Any, rows: Any) -> Iterator[Row]:
        self.called = True
        self.handle.registerTimer(expiryTimestampMs=7_000)
        self.handle.registerTimer(np.int64(6_000))
        self.handle.deleteTimer(7_000)
        yield from (Row(k=key[0], n=time) for time in self.handle.listTimers())

    operator = Operator(function(Closing(rows, init=init), OUT, "ProcessingTime", pandas=False))
    assert operator.batch([(1, 0), (2, 0)]) == operator.batch([(1, 0), (2, 0)]) == [(1, 6_000), (2, 6_000)]


def test_of_several_mistakes_the_first_is_told() -> None:
    def rows(self: Any, key: Any, rows: Any) -> Iterator[Any]:
        yield 1 / 0 if called else "no row"
        called.append(key)

    called: list[Any] = []
    with pytest.raises(UserFunctionError, match="with the names of outputStructType, found 'no row'") as e:
        row_operator(rows).batch([(k, 0) for k in range(9)])
    assert f"key {called[0]}" in str(e.value)


@pytest.mark.parametrize("pandas", [True, False])
def test_the_initial_state_of_a_key_comes_before_its_rows(pandas: bool) -> None:
    class Begun(Processor):
        def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
            assert timerValues.getCurrentProcessingTimeInMs() == 1_000
            values = initialState["x"].tolist() if pandas else [initialState.x]
            before = self.v.get() or (0,)
            self.v.update((before[0] + sum(values),))
            self.handle.registerTimer(2_000)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            yield self._out(key[0], -self.v.get()[0])

        def _out(self, k: int, n: int) -> Any:
            return pd.DataFrame({"k": [k], "n": [n]}) if pandas else Row(k=k, n=n)

    def rows(self: Any, key: Any, rows: Any) -> Iterator[Any]:
        n = sum(row["v"].sum() if pandas else row.v for row in rows)
        self.v.update(((self.v.get() or (0,))[0] + int(n),))
        yield self._out(key[0], self.v.get()[0])

    kept = pa.struct([("k", pa.int64()), ("x", pa.int64())])
    made = function(Begun(rows, ("Value", "v")), OUT, "ProcessingTime", pandas, initial=kept)
    operator = Operator(made, tasks=2)
    first = [(1, None, {"k": 1, "x": 10}), (1, 5, None), (2, None, {"k": 2, "x": 20}), (3, 7, None),
             (1, None, {"k": 1, "x": 100})]  # fmt: skip
    assert sorted(operator.batch(first)) == [(1, 115), (3, 7)]
    assert sorted(operator.batch([(2, 1, None)], 2_000)) == [(1, -115), (2, -21), (2, 21)]
