"""Casts of strings to numbers and booleans. Arrow reads what is written plainly, other texts are read as Spark does."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions._decimals import narrow
from spark_ckpt.expressions._values import as_array, each, failed, refuse
from spark_ckpt.expressions.floats import float32
from spark_ckpt.expressions.tree import Call
from spark_ckpt.spark_versions import spark_version

BLANKS = "".join(map(chr, (*range(33), 127)))
"""What Spark trims of a text that becomes a number, a boolean or a time."""
JAVA_BLANKS = BLANKS[:33]
_PLAIN_WHOLE = r"^-?[0-9]{1,9}$"
_PLAIN_NUMBER = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"
_WHOLE = re.compile(r"[+-]?[0-9]+")
_CUT = re.compile(r"([+-]?[0-9]*)(\.[0-9]*)?")
NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEX = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_SPECIAL = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), float("inf")),
    **dict.fromkeys(("-inf", "-infinity"), float("-inf")),
    "nan": float("nan"),
}
_SPECIAL_IN_JAVA = {"+NaN": float("nan"), "-NaN": float("nan")}
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
_INVALID = "CAST_INVALID_INPUT"
_MOST_DIGITS = 38


def way(to: pa.DataType) -> Callable[[Call, int, Any], Any] | None:
    """How a string becomes one of these."""
    if pa.types.is_boolean(to):
        return _to_boolean
    if pa.types.is_integer(to):
        return _to_integer
    if pa.types.is_floating(to):
        return _to_floating
    return _to_decimal if pa.types.is_decimal(to) else None


def parsed(call: Call, count: int, text: Any, parse: Callable[[str], Any], kind: pa.DataType | None = None) -> Any:
    """``parse`` of each distinct text. What has no value is null, an error in ANSI mode."""
    found = each(parse, text, count, kind or call.type)
    refuse_invalid(call, text, found, count)
    return found


def refuse_invalid(call: Call, text: Any, found: Any, count: int, condition: str = _INVALID) -> None:
    if call.ansi and found.null_count > as_array(text, count).null_count:
        refuse(pa.scalar(True), condition, f"string to {call.type}")


def _all_like(text: Any, count: int, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(as_array(text, count), pattern)).as_py() is not False


def _to_boolean(call: Call, count: int, text: Any) -> Any:
    return parsed(call, count, text, _boolean)


def _boolean(text: str) -> bool | None:
    word = text.strip(BLANKS).lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _to_integer(call: Call, count: int, text: Any) -> Any:
    if call.type.bit_width >= 32 and _all_like(text, count, _PLAIN_WHOLE):
        return text.cast(call.type)
    bounds = np.iinfo(call.type.to_pandas_dtype())
    low, high = int(bounds.min), int(bounds.max)

    def parse(one: str) -> int | None:
        number = _whole(one.strip(BLANKS), exactly=call.ansi)
        return number if number is not None and low <= number <= high else None

    return parsed(call, count, text, parse)


def _whole(text: str, exactly: bool) -> int | None:
    """Without ANSI mode, digits behind a point are cut off."""
    if exactly:
        return int(text) if _WHOLE.fullmatch(text) else None
    match = _CUT.fullmatch(text)
    if match is None or text in ("", "+", "-"):
        return None
    return int(match[1]) if match[1] not in ("", "+", "-") else 0


def _to_floating(call: Call, count: int, text: Any) -> Any:
    if _all_like(text, count, _PLAIN_NUMBER):
        return text.cast(call.type)
    return parsed(call, count, text, _double if call.type == pa.float64() else _float)


def _double(text: str) -> float | None:
    text = text.strip(JAVA_BLANKS)
    match = NUMBER.fullmatch(text)
    if match:
        return float(match[1])
    found = hexadecimal(text)
    if found is not None:
        return found
    return _SPECIAL_IN_JAVA.get(text, _SPECIAL.get(text.lower()))


def hexadecimal(text: str) -> float | None:
    match = _HEX.fullmatch(text)
    return _of_hex(match[1]) if match else None


def _of_hex(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return float("-inf" if text[0] == "-" else "inf")


def _float(text: str) -> float | None:
    found = _double(text)
    match = NUMBER.fullmatch(text.strip(JAVA_BLANKS))
    return found if found is None or match is None else float32(match[1])


def _to_decimal(call: Call, count: int, text: Any) -> Any:
    return each(lambda one: _decimal(one.strip(JAVA_BLANKS), call), text, count, call.type)


def _decimal(text: str, call: Call) -> Decimal | None:
    # Java reads any digits of two bytes.
    if not _DECIMAL.fullmatch(text) or max(text) > "\uffff" or not _has_scale(Decimal(text)):
        refuse_in_ansi(call, _INVALID)
        return None
    number = Decimal(text)
    if not number and spark_version() >= (4, 3):  # to which 0e50 is no large number
        number = Decimal(0)
    _, digits, exponent = number.as_tuple()
    if len(digits) + int(exponent) > _MOST_DIGITS:
        refuse_in_ansi(call, "NUMERIC_OUT_OF_SUPPORTED_RANGE")
        return None
    return narrow(call, number)


def _has_scale(number: Decimal) -> bool:
    return -(2**31) < int(number.as_tuple().exponent) <= 2**31


def refuse_in_ansi(call: Call, condition: str) -> None:
    if call.ansi:
        raise failed(condition, f"string to {call.type}")
