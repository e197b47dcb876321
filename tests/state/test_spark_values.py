"""Values that Spark 4.2 once gave; random expressions beside Spark are in tests/spark/test_expressions.py."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_ckpt.errors import ExpressionError
from spark_ckpt.expressions.evaluate import column
from spark_ckpt.expressions.tree import Call, Input, Literal

TEXT, INT, DOUBLE, BOOL = pa.string(), pa.int32(), pa.float64(), pa.bool_()
MOMENT, DAY = pa.timestamp("us", "UTC"), pa.date32()
ZONE = "America/New_York"


def of(function: str, kind: pa.DataType, value: Any, *constants: Any, ansi: bool = False, option: Any = None) -> Any:
    """What ``function`` makes of ``value``, an Arrow scalar, and constants."""
    parts = [Literal(c, TEXT if isinstance(c, str) else INT) for c in constants]
    array = pa.repeat(value, 2)
    call = Call(function, (Input(0, value.type), *parts), kind, ansi, option)
    return column(call, [array], 2).to_pylist()[0]


CASTS: list[tuple[str, pa.DataType, Any, Any]] = [
    (".", INT, 0, "CAST_INVALID_INPUT"), ("1.", INT, 1, "CAST_INVALID_INPUT"), ("+", INT, None, "CAST_INVALID_INPUT"),
    ("-.5", INT, 0, "CAST_INVALID_INPUT"), ("", INT, None, "CAST_INVALID_INPUT"), (" 12\t", INT, 12, 12),
    ("1d", DOUBLE, 1.0, 1.0), ("0x1p3", DOUBLE, 8.0, 8.0), (" 1.5 ", DOUBLE, 1.5, 1.5),
    ("-INF", DOUBLE, float("-inf"), None),
    ("+nan", DOUBLE, None, "CAST_INVALID_INPUT"), ("1e400", DOUBLE, float("inf"), None),
    (" 1.235 ", pa.decimal128(5, 2), Decimal("1.24"), Decimal("1.24")),
    ("1e2", pa.decimal128(5, 2), Decimal(100), None),
    ("1e3", pa.decimal128(5, 2), None, "NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION"),
    ("1e50", pa.decimal128(5, 2), None, "NUMERIC_OUT_OF_SUPPORTED_RANGE"),
    ("x", pa.decimal128(5, 2), None, "CAST_INVALID_INPUT"), (" Yes ", BOOL, True, True),
    ("x", BOOL, None, "CAST_INVALID_INPUT"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "value", "in_ansi"), CASTS)
def test_strings_are_cast_as_spark_casts_them(text: str, kind: pa.DataType, value: Any, in_ansi: Any) -> None:
    assert of("Cast", kind, pa.scalar(text), option=ZONE) == value
    if isinstance(in_ansi, str):
        with pytest.raises(ExpressionError, match=rf"^\[{in_ansi}\]"):
            of("Cast", kind, pa.scalar(text), ansi=True)
    else:
        assert of("Cast", kind, pa.scalar(text), ansi=True) == value


def test_texts_have_sparks_values() -> None:
    ab = pa.scalar("ab")
    assert of("StringLPad", TEXT, ab, -1, "xy") == ""
    assert of("StringLPad", TEXT, ab, 4, "") == "ab"
    assert of("StringLPad", TEXT, ab, 5, "xy") == "xyxab"
    assert of("SubstringIndex", TEXT, pa.scalar("aaaa"), "aa", 2) == "a"
    assert of("SubstringIndex", TEXT, pa.scalar("aaab"), "aa", -1) == "b"
    assert of("StringTranslate", TEXT, ab, "ab", "x") == "x"
    assert of("StringInstr", INT, ab, "") == 1
    assert of("InitCap", TEXT, pa.scalar("abc-dEF ghi's x_y 1a")) == "Abc-def Ghi's X_y 1a"
    assert of("Lower", TEXT, pa.scalar("ΑΣ")) == "ας"
    assert of("Upper", TEXT, pa.scalar("ß")) == "SS"


def test_times_have_sparks_values() -> None:
    noon = pa.scalar(dt.datetime(2024, 1, 1, 17, 34, 56, 120_000, dt.timezone.utc), MOMENT)
    assert of("Cast", TEXT, noon, option=ZONE) == "2024-01-01 12:34:56.12"
    assert of("DateFormatClass", TEXT, noon, "EEE, d MMM yyyy", option=ZONE) == "Mon, 1 Jan 2024"
    assert of("Cast", pa.int64(), noon, option=ZONE) == 1_704_130_496
    later = pa.scalar(dt.datetime(2064, 1, 1, tzinfo=dt.timezone.utc), MOMENT)
    assert of("Cast", INT, later, option=ZONE) is None
    midnight = of("Cast", MOMENT, pa.scalar(dt.date(2024, 1, 1), DAY), option=ZONE)
    assert midnight == dt.datetime(2024, 1, 1, 5, tzinfo=dt.timezone.utc)


def test_clocks_know_summer_time_in_any_year() -> None:
    for year in (2024, 2037, 2038, 2050, 2400, 9999):
        for month, hour in ((1, 7), (7, 8)):
            moment = pa.scalar(dt.datetime(year, month, 15, 12, tzinfo=dt.timezone.utc), MOMENT)
            assert of("Hour", INT, moment, option=ZONE) == hour
            day = pa.scalar(dt.date(year, month, 15), DAY)
            assert of("Cast", MOMENT, day, option=ZONE).hour == 12 - hour


def test_the_last_day_of_the_year_9999_goes_on_in_the_east() -> None:
    moment = pa.scalar(dt.datetime(9999, 12, 31, 23, 59, tzinfo=dt.timezone.utc), MOMENT)
    assert of("Hour", INT, moment, option="Asia/Kolkata") == 5
    assert of("Cast", TEXT, moment, option="Asia/Kolkata") == "+10000-01-01 05:29:00"


def test_decimals_have_sparks_values() -> None:
    small = pa.scalar(Decimal("0.00000001"), pa.decimal128(8, 8))
    assert (of("Cast", TEXT, small, option=True), of("Cast", TEXT, small, option=False)) == ("0.00000001", "1E-8")
    large = pa.scalar(Decimal("12345678901.5"), pa.decimal128(12, 1))
    assert of("Cast", INT, large) == -539_222_987
    with pytest.raises(ExpressionError, match="CAST_OVERFLOW"):
        of("Cast", INT, large, ansi=True)
    most = pa.scalar(Decimal("9" * 38), pa.decimal128(38, 0))
    one = Literal(Decimal(1), pa.decimal128(1, 0))
    assert column(Call("Add", (Input(0, most.type), one), most.type), [pa.repeat(most, 1)], 1).to_pylist() == [None]
    third = Literal(Decimal(3), pa.decimal128(1, 0))
    quotient = Call("Divide", (Input(0, one.type), third), pa.decimal128(7, 6))
    assert column(quotient, [pa.array([Decimal(1)], one.type)], 1).to_pylist() == [Decimal("0.333333")]
