"""Arithmetic of decimals, and casts from and to them. Exact, then rounded half up to the type that Spark gives it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions._values import Function, as_array, each, failed, refuse, sized
from spark_ckpt.expressions.tree import Call

_WIDEST = 76
_QUOTIENT_SCALE = 39
"""Spark divides to this many digits behind the point before it rounds to the result's type."""
_OUT_OF_RANGE = "NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION"
_EXACT = Context(prec=200)
_ROUNDING = "half_towards_infinity"
"""Half up, as Java has it: away from zero."""


def fitted(call: Call, value: Any) -> Any:
    """As ``call``'s type, which is a decimal. Out of its range: null, or an error in ANSI mode."""
    to = call.type
    if value.type.scale > to.scale:
        digits = value.type.precision - value.type.scale + to.scale + 1
        wide = value.cast(_decimal(min(value.type.precision + 1, _WIDEST), value.type.scale))
        value = pc.round(wide, to.scale, _ROUNDING)
        value = value.cast(_decimal(max(digits, 1 + to.scale), to.scale), safe=False)
    if value.type.precision - value.type.scale <= to.precision - to.scale:
        return value.cast(to)
    bound = pa.scalar(Decimal(10) ** (to.precision - to.scale), _decimal(value.type.precision - value.type.scale, 0))
    outside = pc.greater_equal(pc.abs(value), bound)
    if call.ansi:
        refuse(outside, _OUT_OF_RANGE, f"{call.function} to {to}")
    return pc.if_else(outside, pa.scalar(None, value.type), value).cast(to)


def _decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _exactly(name: str, in_python: Callable[[Decimal, Decimal], Decimal]) -> Callable[[Call, int, Any, Any], Any]:
    """Arrow's operation, in a type that holds every result; number by number where no type does."""
    operation: Callable[..., Any] = getattr(pc, name)

    def compute(call: Call, count: int, a: Any, b: Any) -> Any:
        digits = _digits_of_product(a.type, b.type) if name == "multiply" else _digits_of_sum(a.type, b.type)
        if digits > _WIDEST:
            return _one_by_one(call, count, in_python, a, b)
        wide = pa.decimal128 if digits <= 38 else pa.decimal256
        return fitted(call, operation(*(part.cast(wide(part.type.precision, part.type.scale)) for part in (a, b))))

    return compute


def _digits_of_sum(a: pa.DataType, b: pa.DataType) -> int:
    return int(max(a.precision - a.scale, b.precision - b.scale) + max(a.scale, b.scale) + 1)


def _digits_of_product(a: pa.DataType, b: pa.DataType) -> int:
    return int(a.precision + b.precision + 1)


def _one_by_one(call: Call, count: int, compute: Callable[[Decimal, Decimal], Decimal], a: Any, b: Any) -> Any:
    pairs = zip(as_array(a, count).to_pylist(), as_array(b, count).to_pylist(), strict=True)
    return pa.array([None if x is None or y is None else narrow(call, compute(x, y)) for x, y in pairs], call.type)


def narrow(call: Call, number: Decimal) -> Decimal | None:
    """As :func:`fitted`, of one number."""
    if number.adjusted() >= call.type.precision:
        found = number
    else:
        found = number.quantize(Decimal(1).scaleb(-call.type.scale), "ROUND_HALF_UP", _EXACT)
    if found.copy_abs() < Decimal(10) ** (call.type.precision - call.type.scale):
        return found
    if call.ansi:
        raise failed(_OUT_OF_RANGE, f"{call.function} to {call.type}")
    return None


def _divided(a: Decimal, b: Decimal) -> Decimal:
    """To 39 digits behind the point, half up, in whole numbers."""
    over, under = (int(x.scaleb(_QUOTIENT_SCALE, _EXACT)) for x in (a, b))
    whole, rest = divmod(abs(over) * 10**_QUOTIENT_SCALE, abs(under))
    whole += 2 * rest >= abs(under)
    return Decimal(whole if (over < 0) == (under < 0) else -whole).scaleb(-_QUOTIENT_SCALE, _EXACT)


def divide(call: Call, count: int, a: Any, b: Any) -> Any:
    """``b`` has null where it was zero."""
    return _one_by_one(call, count, _divided, a, b)


def remainder(call: Call, count: int, a: Any, b: Any) -> Any:
    """Its sign is the dividend's. ``b`` has null where it was zero."""
    return _one_by_one(call, count, _EXACT.remainder, a, b)


add = _exactly("add", _EXACT.add)
subtract = _exactly("subtract", _EXACT.subtract)
multiply = _exactly("multiply", _EXACT.multiply)


def to_decimal(call: Call, _count: int, value: Any) -> Any:
    """Of an integer or another decimal."""
    if pa.types.is_integer(value.type):
        value = value.cast(pa.int64()).cast(pa.decimal128(19, 0))
    return fitted(call, value)


def to_double(_call: Call, count: int, value: Any) -> Any:
    """The nearest one."""
    array = as_array(value, count)
    if array.type.precision <= 15 and array.type.scale <= 22:
        return _quotient(array)
    return each(float, array, count, pa.float64())


def _quotient(array: Any) -> Any:
    """Both numbers are doubles without an error, so their quotient has that of one rounding."""
    low = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset :: 2][: len(array)]
    found = low.astype(np.float64) / 10.0**array.type.scale
    return pa.array(found, mask=array.is_null().to_numpy(zero_copy_only=False))


def to_integer(call: Call, count: int, value: Any) -> Any:
    """Towards zero. Without ANSI mode the low bits, as Java has it."""
    kind = np.iinfo(call.type.to_pandas_dtype())
    whole = pc.trunc(value.cast(pa.decimal256(_WIDEST - 1, value.type.scale)))
    low, high = (pa.scalar(Decimal(int(bound)), pa.decimal128(19, 0)) for bound in (kind.min, kind.max))
    outside = pc.or_(pc.less(whole, low), pc.greater(whole, high))
    if call.ansi:
        refuse(outside, "CAST_OVERFLOW", f"{value.type} to {call.type}")
    if pc.any(as_array(outside, count)).as_py():
        return each(lambda number: _low_bits(int(number), kind), value, count, call.type)
    return whole.cast(pa.int64(), safe=False).cast(call.type, safe=False)


def _low_bits(number: int, kind: Any) -> int:
    low = number & (2**kind.bits - 1)
    return low - 2**kind.bits if low > kind.max else low


def to_text(call: Call, count: int, value: Any) -> Any:
    """In ANSI mode all digits; else small numbers as 1E-7."""
    return each(lambda number: format(number, "f") if call.option else str(number), value, count, call.type)


def _ceil_or_floor(rounded: Callable[..., Any]) -> Callable[[Call, int, Any], Any]:
    def compute(call: Call, _count: int, value: Any) -> Any:
        wide = value.cast(_decimal(min(value.type.precision + 1, _WIDEST), value.type.scale))
        return fitted(call, rounded(wide))

    return compute


ceil, floor = _ceil_or_floor(pc.ceil), _ceil_or_floor(pc.floor)


def _round(call: Call, count: int, value: Any) -> Any:
    """``option`` is the number of digits behind the point, zero or more."""
    if not pa.types.is_decimal(value.type):
        return value
    return each(lambda number: narrow(call, _rounded(number, call.option)), value, count, call.type)


def _rounded(number: Decimal, digits: int) -> Decimal:
    return number.quantize(Decimal(1).scaleb(-digits), "ROUND_HALF_UP", _EXACT)


FUNCTIONS: dict[str, Function] = {"Round": sized(_round)}
