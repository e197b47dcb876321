"""Rows, keys, states and outputs have the types PySpark 4.2 gives them."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.streaming.state import GroupState

from spark_ckpt.spark_versions.pandas_conversion import to_pandas
from tests.state.functions_harness import INPUT, KEYS, call, function

EVERY_TYPE = pa.schema(
    [
        ("byte", pa.int8()),
        ("long", pa.int64()),
        ("bool", pa.bool_()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("amount", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("list", pa.list_(pa.int32())),
        ("struct", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("map", pa.map_(pa.string(), pa.int32())),
    ]
)
FROM_JVM = EVERY_TYPE.set(8, pa.field("at", pa.timestamp("us", "America/New_York")))
"""Columns as Spark's JVM sends them to a worker: instants in the session's time zone."""
FULL = {
    "byte": 1, "long": 2**60, "bool": True, "double": 1.5, "text": "é", "raw": b"\x00", "amount": Decimal("1.10"),
    "day": dt.date(2024, 2, 29), "at": dt.datetime(2024, 7, 1, 12, tzinfo=dt.timezone.utc),
    "local": dt.datetime(2024, 7, 1, 12), "list": [1, None], "struct": {"x": 1, "y": None}, "map": [("a", 1)],
}  # fmt: skip


@pytest.mark.parametrize("groups", [[[1, 1], [0], [1, 0]], [[1], [1]], [[0], [0, 0]]])
def test_every_column_has_the_type_spark_gives_the_group_by_itself(groups: list[list[int]]) -> None:
    rows = [FULL if full else {} for group in groups for full in group]
    index = [i for i, group in enumerate(groups) for _ in group]
    data = pa.Table.from_pylist(rows, schema=EVERY_TYPE)
    got = {}

    def keep(key: Any, pdfs: Any, state: GroupState) -> Any:
        got[int(key[0])] = next(pdfs)
        return []

    f = function(keep, key_schema=KEYS, input_schema=EVERY_TYPE, session_timezone="America/New_York")
    call(f, [str(i) for i in range(len(groups))], data.append_column("_i", pa.array(index)))
    for i, group in enumerate(groups):
        one = data.slice(index.index(i), len(group)).cast(FROM_JVM).combine_chunks()
        want = pd.concat(to_pandas(one, "America/New_York"), axis=1)
        pd.testing.assert_frame_equal(got[i], want, check_index_type="exact")


def test_an_array_has_the_type_its_own_nulls_call_for() -> None:
    arrays = pa.list_(pa.int64())
    schema = pa.schema([("l", arrays), ("d", pa.list_(arrays)), ("m", pa.map_(pa.string(), arrays)), ("n", pa.int64())])
    whole, holed = [1, 2**53 + 1], [3, None]
    values = [{"l": v, "d": [v], "m": [("x", v)], "n": n} for n, v in enumerate([whole, holed, whole, None])]
    data = pa.Table.from_pylist(values, schema=schema)
    got = {}

    def keep(key: Any, pdfs: Any, state: GroupState) -> Any:
        got[int(key[0])] = next(pdfs)
        return []

    call(function(keep, input_schema=schema), list("0123"), data.append_column("_i", pa.array([0, 1, 2, 2])))
    for i, (start, size) in enumerate([(0, 1), (1, 1), (2, 2)]):
        one = data.slice(start, size).combine_chunks()
        want = pd.concat(to_pandas(one, "UTC"), axis=1)
        pd.testing.assert_frame_equal(got[i], want)
    assert [got[i]["l"][0].dtype for i in range(3)] == [np.int64, object, np.int64]
    assert got[0]["l"][0][1] == 2**53 + 1


def test_a_call_of_timeouts_only_needs_no_rows_of_any_type() -> None:
    got = []

    def keep(key: Any, pdfs: Any, state: GroupState) -> Any:
        got.extend([state.hasTimedOut, *pdfs])
        return []

    f = function(keep, timeout="EventTimeTimeout", input_schema=EVERY_TYPE, session_timezone="America/New_York")
    rows = EVERY_TYPE.append(pa.field("_i", pa.int64())).empty_table()
    call(f, ["a"], rows, state={0: (1, "x", True)}, timed_out=(0,))
    assert got[0] is True
    assert (len(got[1]), list(got[1].columns)) == (0, EVERY_TYPE.names)


def test_the_user_may_write_to_the_dataframe() -> None:
    def use(key: Any, pdfs: Any, state: GroupState) -> Any:
        for pdf in pdfs:
            pdf["n"] = pdf["v"] * 2
            pdf.loc[0, "n"] = -1
            yield pdf[["n", "k"]]

    output = call(function(use), ["a", "b"], [(0, 1), (1, 2), (1, None), (1, 4)]).output
    assert output["n"].to_pylist() == [-1, -1, None, 8]


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (pa.int64(), 5, np.int64),
        (pa.string(), "a", str),
        (pa.date32(), dt.date(2024, 1, 1), dt.date),
        (pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 1), pd.Timestamp),
        (pa.bool_(), True, np.bool_),
        (pa.decimal128(5, 1), Decimal("1.5"), Decimal),
    ],
)
def test_keys_are_tuples_of_the_types_spark_gives(type_: pa.DataType, value: Any, expected: type) -> None:
    seen = []
    schema = pa.schema([("k", type_)])
    f = function(lambda key, pdfs, state: seen.append(key) or [], key_schema=schema, input_schema=INPUT.remove(0))
    rows = pa.table({"v": [1, 2, 3], "_i": [0, 1, 2]})
    call(f, [value, None, value], rows)
    assert [type(k) for k in seen] == [tuple] * 3
    assert type(seen[0][0]) is type(seen[2][0]) is expected
    assert pd.isna(seen[1][0])
    if type_ == pa.int64():
        assert math.isnan(seen[1][0])


def test_state_values_are_plain_python_and_timestamps_naive_in_local_time() -> None:
    schema = pa.schema(
        [("i", pa.int32()), ("d", pa.date32()), ("t", pa.timestamp("us", "UTC")), ("l", pa.list_(pa.string()))]
    )
    value = (1, dt.date(2024, 2, 29), dt.datetime(2024, 1, 1, 12), ["a", None])
    seen = []

    def use(key: Any, pdfs: Any, state: GroupState) -> Any:
        seen.append(state.getOption)
        state.update((np.int32(1), value[1], pd.Timestamp(value[2]), value[3]))
        return []

    f = function(use, state_schema=schema)
    stored = call(f, ["a"], [(0, 1)]).state
    call(f, ["a"], [(0, 1)], {0: tuple(stored.to_pylist()[0].values())})
    assert seen == [None, value]
    assert [type(v) for v in seen[1]] == [int, dt.date, dt.datetime, list]


@pytest.mark.parametrize(
    ("frames", "rows"),
    [
        ([pd.DataFrame({"n": [1], "k": ["x"]}), pd.DataFrame({"k": ["y"], "n": [2.0]})], [("x", 1), ("y", 2)]),
        ([pd.DataFrame({0: ["x"], 1: [1]})], [("x", 1)]),
        ([pd.DataFrame(), pd.DataFrame({"k": [], "n": []})], []),
        ([pd.DataFrame({"k": [None], "n": [None]}), pd.DataFrame({"k": ["x"], "n": [1]})], [(None, None), ("x", 1)]),
        ([pd.DataFrame({"k": ["x"], "n": ["12"]})], [("x", 12)]),
    ],
)
def test_outputs_are_assigned_by_name_and_coerced_as_spark_does(frames: list[Any], rows: list[Any]) -> None:
    output = call(function(lambda key, pdfs, state: frames), ["a"], [(0, 1)]).output
    assert [(r["k"], r["n"]) for r in output.to_pylist()] == rows
