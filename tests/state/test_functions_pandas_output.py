"""What a key's function returns becomes what PySpark 4.2 makes of it when the key is alone, whoever is beside it."""

from __future__ import annotations

import datetime as dt
import itertools
import random
import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import types as T
from pyspark.sql.types import StructType

from spark_ckpt.errors import UserFunctionError
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.spark_versions.pandas_conversion import to_arrow
from spark_ckpt.state.functions.pandas_output import KeyOutput, OutputConversion, _Frames, _joined
from tests.state.functions_harness import call, function

ZONE = "America/New_York"
NOON = pd.Timestamp("2024-07-01 12:00")
SERIES: list[pd.Series] = [
    pd.Series(values, dtype=kind)
    for values, kind in [
        ([2**53 + 1, 7], "int64"), ([1, 2], "int8"), ([2**63 + 5], "uint64"), ([1.0, np.nan], "float64"),
        ([1.5], "float64"), ([np.nan, np.nan], "float64"), ([2.0**60], "float64"), ([np.inf], "float64"),
        ([1.5], "float32"), ([True, False], "bool"), ([True, None], object), ([None, None], object),
        ([2**53 + 1, None], object), (["x", None], object), (["5"], object), ([b"x"], object),
        ([Decimal("1.50")], object),
        ([1, Decimal("2.5")], object), ([pd.NaT, pd.NaT], "datetime64[ns]"), ([NOON, pd.NaT], "datetime64[ns]"),
        ([NOON], "datetime64[s]"), ([NOON.tz_localize("UTC")], None), ([NOON.to_pydatetime()], object),
        ([dt.date(2024, 7, 1), None], object), ([1, None], "Int64"), ([None], "Int64"), (["x"], "string"),
        (["x", "y"], "category"), ([[1, 2], None], object), ([[1.0, None]], object), ([np.array([1, 2])], object),
        ([{"x": 1, "y": "a"}], object), ([pd.Timedelta(1, "s")], None), ([0.1 + 0.2], "float64"), ([-0.0], "float64"),
    ]
]  # fmt: skip
TARGETS: list[T.DataType] = [
    T.ByteType(), T.IntegerType(), T.LongType(), T.FloatType(), T.DoubleType(), T.BooleanType(), T.StringType(),
    T.BinaryType(), T.DecimalType(20, 2), T.DateType(), T.TimestampType(), T.TimestampNTZType(),
    T.ArrayType(T.IntegerType()), T.DayTimeIntervalType(),
    T.StructType().add("x", T.IntegerType()).add("y", T.StringType()),
]  # fmt: skip


def _alone(frames: list[pd.DataFrame], struct: StructType, options: dict[str, bool]) -> list[Any]:
    """As ``construct_record_batch`` of ``ApplyInPandasWithStateSerializer`` for one key."""
    empty = pd.DataFrame(dict.fromkeys(struct.names), index=[])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch = to_arrow(
            pd.concat([*frames, empty], ignore_index=True), struct, timezone=ZONE, arrow_cast=True,
            assign_cols_by_name=True, **options
        )  # fmt: skip
    return list(map(repr, batch.column(0).cast(arrow_schema(struct).field(0).type).to_pylist()))


def _compare(target: T.DataType, pick: Any, options: dict[str, bool]) -> None:
    struct = StructType().add("c", target)
    conversion = OutputConversion(arrow_schema(struct), struct, ZONE, options)
    fit = []
    for series in SERIES:
        frames = [pd.DataFrame({"c": series})]
        try:
            fit.append((frames, _alone(frames, struct, options)))
        except Exception:  # noqa: BLE001 - what PySpark refuses, whatever it raises, must be refused here
            with pytest.raises(UserFunctionError):
                conversion.table([KeyOutput(("a",), frames)], "here")
    for some in pick(fit):
        got = conversion.table([KeyOutput((i,), frames) for i, (frames, _) in enumerate(some)], "here")
        assert list(map(repr, got["c"].to_pylist())) == [value for _, alone in some for value in alone]


@pytest.mark.parametrize("safecheck", [False, True])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_neighbour_changes_nothing(target: T.DataType, safecheck: bool) -> None:
    chance = random.Random(4711)
    options = {"safecheck": safecheck, "int_to_decimal_coercion_enabled": False}
    _compare(target, lambda fit: [fit, *(chance.sample(fit, min(3, len(fit))) for _ in range(4))], options)


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_no_pair_changes_anything(target: T.DataType) -> None:
    for safecheck, coerce in itertools.product([False, True], repeat=2):
        options = {"safecheck": safecheck, "int_to_decimal_coercion_enabled": coerce}
        _compare(target, lambda fit: itertools.permutations(fit, 2), options)


def test_a_long_beside_another_keys_nan_stays_what_it_is() -> None:
    values = {"a": 2**53 + 1, "b": float("nan"), "c": 1.0}
    output = call(function(lambda key, pdfs, state: [pd.DataFrame({"k": key[0], "n": [values[key[0]]] * 2})]),
                  list("abc"), [(0, 1), (1, 1), (2, 1)]).output  # fmt: skip
    assert output["n"].to_pylist() == [2**53 + 1, 2**53 + 1, None, None, 1, 1]


LONG, DOUBLE, TEXT, TIME = [1], [0.5], ["x"], [NOON]


@pytest.mark.parametrize(
    ("frames", "fast"),
    [
        ([{"a": LONG, "b": DOUBLE}, {"a": [2, 3], "b": [np.nan, 1]}], True),
        ([{"a": LONG, "b": DOUBLE, "c": LONG}] * 3, True),
        ([{"a": TEXT, "b": [[1, 2]]}, {"a": [None], "b": [None]}], True),
        ([{"a": LONG}, {"a": DOUBLE}], False),
        ([{"a": LONG, "b": DOUBLE, "c": LONG}, {"a": LONG, "b": LONG, "c": DOUBLE}], False),
        ([{"a": LONG, "b": DOUBLE, "c": DOUBLE}, {"a": LONG, "b": DOUBLE, "c": LONG}], False),
        ([dict(zip("abcd", [LONG, DOUBLE, *rest])) for rest in ([DOUBLE, LONG], [LONG, DOUBLE])], False),
        ([{"a": LONG, "b": DOUBLE}, {"b": DOUBLE, "a": LONG}], False),
        ([{"a": LONG, "b": LONG}, {"b": LONG, "a": LONG}], False),
        ([{"a": TEXT}, {"a": TIME}], False),
        ([{"a": TIME}, {"a": TIME}], False),
        ([{"a": pd.array([1], "Int64")}] * 2, False),
        ([{"a": [NOON.to_pydatetime()], "b": LONG}] * 2, False),
    ],
)
def test_frames_side_by_side_are_what_pandas_makes_of_them(frames: list[dict[str, Any]], fast: bool) -> None:
    made = [pd.DataFrame(frame) for frame in frames]
    made += [frame.copy() for frame in made]
    expected, joined = pd.concat(made, ignore_index=True), _joined(made)
    merged = _Frames([KeyOutput((i,), [frame]) for i, frame in enumerate(made)]).merged
    assert (joined is not None) == fast
    for name in expected:
        pd.testing.assert_series_equal(merged[name], expected[name], check_names=False)


def test_an_empty_frame_may_have_other_names_and_one_without_names_goes_by_position() -> None:
    frames = {"a": [pd.DataFrame({"x": [], "y": []})], "b": [pd.DataFrame([["b", 2]])], "c": [pd.DataFrame()]}
    output = call(function(lambda key, pdfs, state: frames[key[0]]), list("abc"), [(0, 1), (1, 1), (2, 1)]).output
    assert output.to_pylist() == [{"k": "b", "n": 2}]


def test_the_key_that_does_not_fit_is_named() -> None:
    values = {"a": 1, "b": "text"}
    with pytest.raises(UserFunctionError, match=r"key \('b',\).*does not fit.*n int64.*'n': 'object'"):
        call(
            function(lambda key, pdfs, state: [pd.DataFrame({"k": key, "n": [values[key[0]]]})]),
            ["a", "b"],
            [(0, 1), (1, 1)],
        )


def test_what_the_user_raises_keeps_its_file_and_line() -> None:
    def deeper(key: Any) -> Any:
        raise KeyError("deep")  # this line

    with pytest.raises(UserFunctionError) as caught:
        call(function(lambda key, pdfs, state: deeper(key)), ["a"], [(0, 1)])
    line = deeper.__code__.co_firstlineno + 1
    assert f'{__file__}", line {line}, in deeper' in str(caught.value)
    assert "KeyError: 'deep'" in str(caught.value)
    assert "pandas_function.py" not in str(caught.value)
