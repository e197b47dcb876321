"""For which types a function is here, and when it may raise. Driver: what an executor gets has passed these."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from spark_ckpt.errors import ExpressionError
from spark_ckpt.expressions import _clocks, _formats, _numbers_cast, _patterns, _text
from spark_ckpt.expressions._values import Rows
from spark_ckpt.expressions.evaluate import CHOOSING, FUNCTIONS, value
from spark_ckpt.expressions.tree import Call, Literal, Tree

MODES = {"Add", "Cast", "Divide", "IntegralDivide", "Multiply", "Remainder", "Subtract"}
"""Functions that Spark gives an evaluation mode."""

_ARITHMETIC = {"Abs", "Add", "Multiply", "Subtract", "UnaryMinus"}
_DIVIDING = {"Divide", "IntegralDivide", "Remainder"}
_NUMBERS_ONLY = {*_ARITHMETIC, *_DIVIDING, "Ceil", "Floor", "Round", "Sqrt"}
_WITH_DECIMALS = {
    "Abs", "Add", "ArrayContains", "CaseWhen", "Ceil", "Coalesce", "Divide", "EqualNullSafe", "EqualTo", "Floor",
    "GreaterThan",
    "GreaterThanOrEqual", "Greatest", "If", "In", "Least", "LessThan", "LessThanOrEqual", "Multiply", "Remainder",
    "Round",
    "Subtract", "UnaryMinus",
}  # fmt: skip
_OF_ANYTHING = {"CreateNamedStruct", "GetStructField", "IsNotNull", "IsNull"}
_OF_LISTS = {"ArrayContains", "ElementAt", "GetArrayItem", "Size"}
CONSTANTS = {**_text.WITH_CONSTANTS, **_patterns.WITH_CONSTANTS}
_OF_TIMES = {
    "AddMonths": (1,), "DateFormatClass": (1,), "FromUnixTime": (1,), "GetTimestamp": (1,),
    "TimestampAddInterval": (1,),
    "ToUnixTimestamp": (1,), "TruncDate": (1,), "TruncTimestamp": (0,), "UnixTimestamp": (1,),
}  # fmt: skip
_JAVA_DIGITS = 34
_MOST_MONTHS = 12 * 9999
_TEXTS = {*CONSTANTS, "Concat", "InitCap", "Length", "Lower", "Reverse", "Upper"}
_ALWAYS_CHECKED = {
    "AddMonths",
    "MicrosToTimestamp",
    "MillisToTimestamp",
    "SecondsToTimestamp",
    "TimestampAddInterval",
    "TruncTimestamp",
}
_PARSING = {"GetTimestamp", "ToUnixTimestamp", "UnixTimestamp"}
_RAISING_PLACES = {"ElementAt", "GetArrayItem"}
_WIDER = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]


def known(function: str) -> bool:
    return function in FUNCTIONS or function in CHOOSING


def refused(call: Call) -> str | None:
    """Why this call, whose function is known, is not for Python."""
    kinds = [part.type for part in call.parts]
    if call.function == "Cast":
        return None if _numbers_cast.castable(kinds[0], call.type) else f"cast of {kinds[0]} to {call.type}"
    if call.function in _OF_ANYTHING:
        return None
    return _of_types(call, kinds) or _of_constants(call)


def _of_types(call: Call, kinds: list[pa.DataType]) -> str | None:
    decimals = call.function in _WITH_DECIMALS
    if call.function in _OF_LISTS:
        first = kinds[0]
        if not pt.is_list(first):
            return f"{call.function} of {first}"
        if call.function != "ArrayContains":
            return None
        kinds = [first.value_type, *kinds[1:]]
    if call.function == "TimestampAddInterval":
        return None if is_simple(kinds[0]) and pt.is_duration(kinds[1]) else f"{kinds[0]} and {kinds[1]}"
    for kind in kinds if call.function == "StringSplit" else (*kinds, call.type):
        if not (is_simple(kind) or (decimals and pt.is_decimal(kind))):
            return f"{call.function} of {kind}"
    if call.function in _NUMBERS_ONLY and not all(_is_number(k) or pt.is_decimal(k) for k in (*kinds, call.type)):
        return f"{call.function} of {kinds[0]}"
    if call.function in _TEXTS and not pt.is_string(kinds[0]):
        return f"{call.function} of {kinds[0]}"
    if call.function in ("Abs", "UnaryMinus") and pt.is_decimal(call.type) and call.type.precision > _JAVA_DIGITS:
        return f"{call.function} of {call.type}, which Spark rounds to {_JAVA_DIGITS} digits"
    if call.function == "ConcatWs" and not all(map(pt.is_string, kinds)):
        return "concat_ws of arrays runs in Spark only"
    if call.function == "Round" and (pt.is_floating(kinds[0]) or call.option < 0):
        return f"round of {kinds[0]}"
    return None


def _of_constants(call: Call) -> str | None:
    places = {**CONSTANTS, **_OF_TIMES}.get(call.function, ())
    parts = [call.parts[i] for i in places if i < len(call.parts)]
    if not all(isinstance(part, Literal) and part.value is not None for part in parts):
        return f"{call.function} with something other than a constant"
    if call.function in _patterns.WITH_CONSTANTS:
        return _patterns.refused(call)
    if call.function in _OF_TIMES and parts:
        return _of_times(call.function, parts[0].value, call.parts)  # type: ignore[union-attr]
    if call.function == "ElementAt" and isinstance(call.parts[1], Literal) and call.parts[1].value == 0:
        return "element_at of 0 fails in Spark"
    return None


def _of_times(function: str, constant: Any, parts: tuple[Tree, ...]) -> str | None:
    if function == "AddMonths":
        known = abs(constant) <= _MOST_MONTHS
    elif function in ("TruncDate", "TruncTimestamp"):
        known = _clocks.unit(constant, of_days=function == "TruncDate") is not None
    elif function in ("DateFormatClass", "FromUnixTime"):
        known = _formats.printable(constant)
    else:
        known = function == "TimestampAddInterval" or not pt.is_string(parts[0].type) or _formats.readable(constant)
    return None if known else f"{function} with {constant!r} runs in Spark only"


def folded(call: Call) -> Tree:
    """A literal, if all parts are. What fails is left, to fail for the rows that ask for it."""
    simple = pt.is_integer(call.type) or pt.is_string(call.type) or pt.is_boolean(call.type)
    if not simple or not call.parts or not all(isinstance(part, Literal) for part in call.parts):
        return call
    try:
        found = value(call, Rows([], 1))
    except ExpressionError:
        return call
    scalar = found if isinstance(found, pa.Scalar) else found[0]
    return Literal(scalar.as_py(), call.type)


def shortened(call: Call) -> Call:
    """Spark's optimizer casts an int that becomes a float and then a double at once, which gives other values."""
    inner = call.parts[0]
    if call.function != "Cast" or not isinstance(inner, Call) or inner.function != "Cast":
        return call
    first = inner.parts[0].type
    kinds = (first, inner.type, call.type)
    if not all(kind in _WIDER for kind in kinds) or sorted(map(_WIDER.index, kinds)) != list(map(_WIDER.index, kinds)):
        return call
    return replace(call, parts=inner.parts) if len(set(kinds)) == len(kinds) else call


def checking(call: Call, mode: str) -> Call:
    """``call`` as the ``mode`` of Spark has it: it raises only if some value can make it."""
    if call.function in _ALWAYS_CHECKED:
        return replace(call, ansi=True)
    if call.function in _RAISING_PLACES:
        anywhere = call.function == "ElementAt" and not isinstance(call.parts[1], Literal)
        return replace(call, ansi=anywhere or bool(call.option))
    if mode != "ANSI":
        return call
    if call.function in _PARSING:
        return replace(call, ansi=pt.is_string(call.parts[0].type))
    if call.function == "Cast":
        return replace(call, ansi=_numbers_cast.raises(call.parts[0].type, call.type))
    if call.function in _DIVIDING:
        return replace(call, ansi=pt.is_decimal(call.type) or not _is_harmless(call.parts[1]))
    return replace(call, ansi=pt.is_integer(call.type) or pt.is_decimal(call.type))


def trying(call: Call) -> str | None:
    """Why a call in Spark's mode TRY, which gives null where ANSI mode raises, is not for Python."""
    kinds = (call.parts[0].type, call.type)
    if call.function == "Cast" and (pt.is_string(kinds[0]) or not _numbers_cast.raises(*kinds)):
        return None
    if call.function in ("Divide", "Remainder") and pt.is_floating(call.type):
        return None
    return f"try_{call.function.lower()} runs in Spark only"


def _is_harmless(divisor: Tree) -> bool:
    return isinstance(divisor, Literal) and divisor.value not in (None, 0, -1)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind))


def is_simple(kind: pa.DataType) -> bool:
    return bool(
        _is_number(kind)
        or pt.is_boolean(kind)
        or pt.is_string(kind)
        or pt.is_date(kind)
        or (pt.is_timestamp(kind) and kind.tz is not None)
    )
