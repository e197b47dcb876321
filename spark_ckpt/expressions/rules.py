"""For which types a function is here, and when it may raise. Driver: what an executor gets has passed these."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.types as pt

from spark_ckpt.expressions import _numbers_cast, _text
from spark_ckpt.expressions.evaluate import CHOOSING, FUNCTIONS
from spark_ckpt.expressions.tree import Call, Literal, Tree

MODES = {"Add", "Cast", "Divide", "IntegralDivide", "Multiply", "Remainder", "Subtract"}
"""Functions that Spark gives an evaluation mode."""

_ARITHMETIC = {"Abs", "Add", "Multiply", "Subtract", "UnaryMinus"}
_DIVIDING = {"Divide", "IntegralDivide", "Remainder"}
_NUMBERS_ONLY = {*_ARITHMETIC, *_DIVIDING, "Ceil", "Floor", "Sqrt"}
_WITH_DECIMALS = {
    "CaseWhen", "Coalesce", "EqualNullSafe", "EqualTo", "GreaterThan", "GreaterThanOrEqual", "If", "In", "LessThan",
    "LessThanOrEqual",
}  # fmt: skip
_OF_ANYTHING = {"CreateNamedStruct", "GetStructField", "IsNotNull", "IsNull"}
_TEXTS = {"Concat", "Length", *_text.WITH_CONSTANTS, "StringTrim", "StringTrimLeft", "StringTrimRight"}
_ALWAYS_CHECKED = {"MicrosToTimestamp", "MillisToTimestamp", "SecondsToTimestamp"}
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
    decimals = call.function in _WITH_DECIMALS
    for kind in (*kinds, call.type):
        if not (_is_simple(kind) or (decimals and pt.is_decimal(kind))):
            return f"{call.function} of {kind}"
    if call.function in _NUMBERS_ONLY and not all(_is_number(k) for k in (*kinds, call.type)):
        return f"{call.function} of {kinds[0]}"
    if call.function in _TEXTS and not pt.is_string(kinds[0]):
        return f"{call.function} of {kinds[0]}"
    constants = _text.WITH_CONSTANTS.get(call.function, ())
    if not all(isinstance(call.parts[i], Literal) and call.parts[i].value is not None for i in constants):  # type: ignore[union-attr]
        return f"{call.function} with something other than a constant"
    return None


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
    if mode != "ANSI":
        return call
    if call.function == "Cast":
        return replace(call, ansi=_numbers_cast.raises(call.parts[0].type, call.type))
    if call.function in _DIVIDING:
        return replace(call, ansi=not _is_harmless(call.parts[1]))
    return replace(call, ansi=pt.is_integer(call.type))


def _is_harmless(divisor: Tree) -> bool:
    return isinstance(divisor, Literal) and divisor.value not in (None, 0, -1)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind))


def _is_simple(kind: pa.DataType) -> bool:
    return bool(
        _is_number(kind)
        or pt.is_boolean(kind)
        or pt.is_string(kind)
        or pt.is_date(kind)
        or (pt.is_timestamp(kind) and kind.tz is not None)
    )
