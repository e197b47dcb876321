"""Casts, most of them between numbers; and the whole numbers around a floating point one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions import _clocks, _decimals, _formats, _from_text, _from_time_text
from spark_ckpt.expressions._values import Function, as_array, refuse, sized
from spark_ckpt.expressions.tree import Call

_OVERFLOW = "CAST_OVERFLOW"
_TEXT, _DAY = pa.string(), pa.date32()


def castable(of: pa.DataType, to: pa.DataType) -> bool:
    """Whether :func:`_cast` can."""
    return of == to or _way(of, to) is not None


def raises(of: pa.DataType, to: pa.DataType) -> bool:
    """Whether a value may be out of range in ANSI mode."""
    if of == to:
        return False
    if of == _TEXT or pa.types.is_decimal(to) or (pa.types.is_floating(of) and pa.types.is_timestamp(to)):
        return True
    if pa.types.is_timestamp(of) and pa.types.is_integer(to):
        return to.bit_width < 64
    if not pa.types.is_integer(to):
        return False
    return (
        pa.types.is_floating(of) or pa.types.is_decimal(of) or (pa.types.is_integer(of) and of.bit_width > to.bit_width)
    )


def _cast(call: Call, count: int, value: Any) -> Any:
    way = _way(value.type, call.type)
    if value.type == call.type or way is None:
        return value
    return way(call, count, value)


def _way(of: pa.DataType, to: pa.DataType) -> Callable[[Call, int, Any], Any] | None:
    is_number = pa.types.is_integer(of) or pa.types.is_floating(of)
    if pa.types.is_null(of):
        return lambda call, _count, _value: pa.scalar(None, call.type)
    if any(pa.types.is_timestamp(kind) and kind.tz is None for kind in (of, to)):
        return None
    if _DAY in (of, to) or any(map(pa.types.is_timestamp, (of, to))):
        return _time_way(of, to)
    if of == _TEXT:
        return _from_text.way(to)
    if pa.types.is_decimal(of) or pa.types.is_decimal(to):
        return _decimal_way(of, to)
    if pa.types.is_boolean(to) and is_number:
        return lambda _call, _count, value: pc.not_equal(value, pa.scalar(0, value.type))
    if pa.types.is_boolean(of):
        return _of_boolean if pa.types.is_integer(to) or pa.types.is_floating(to) or to == _TEXT else None
    if pa.types.is_integer(of) and (pa.types.is_floating(to) or to == _TEXT):
        return lambda call, _count, value: value.cast(call.type, safe=False)
    if pa.types.is_floating(of) and pa.types.is_floating(to):
        return lambda call, _count, value: value.cast(call.type, safe=False)
    if pa.types.is_integer(of) and pa.types.is_integer(to):
        return _between_integers
    return _to_integer if pa.types.is_floating(of) and pa.types.is_integer(to) else None


def _time_way(of: pa.DataType, to: pa.DataType) -> Callable[[Call, int, Any], Any] | None:
    if of == _TEXT:
        return _from_time_text.day_from_text if to == _DAY else _from_time_text.moment_from_text
    if of == _DAY:
        return _clocks.start_of if pa.types.is_timestamp(to) else _formats.day_text if to == _TEXT else None
    if pa.types.is_timestamp(of):
        ways = {_TEXT: _formats.moment_text, _DAY: _clocks.day_of, pa.float64(): _clocks.in_seconds}
        return _seconds if pa.types.is_integer(to) else ways.get(to)
    if to == _DAY:
        return None
    return _clocks.of_seconds if pa.types.is_integer(of) else _moment if pa.types.is_floating(of) else None


def _seconds(call: Call, count: int, value: Any) -> Any:
    """Null where it is out of range, unlike other numbers."""
    found = _clocks.whole_seconds(count, value)
    bounds = np.iinfo(call.type.to_pandas_dtype())
    outside = pc.or_(pc.less(found, int(bounds.min)), pc.greater(found, int(bounds.max)))
    if call.ansi:
        refuse(outside, _OVERFLOW, f"{value.type} to {call.type}")
    return pc.if_else(outside, pa.scalar(None, pa.int64()), found).cast(call.type)


def _moment(call: Call, count: int, value: Any) -> Any:
    """Of seconds. NaN and infinities have none."""
    array = as_array(value, count)
    numbers = array.to_numpy(zero_copy_only=False).astype(np.float64)
    none = ~np.isfinite(numbers)
    if call.ansi:
        refuse(pc.and_(pa.array(none), array.is_valid()), "CAST_INVALID_INPUT", f"{array.type} to {call.type}")
    with np.errstate(over="ignore", invalid="ignore"):
        found = whole(numbers * 1e6, pa.int64())
    return pa.array(found, pa.int64(), mask=none | array.is_null().to_numpy(zero_copy_only=False)).cast(call.type)


def _decimal_way(of: pa.DataType, to: pa.DataType) -> Callable[[Call, int, Any], Any] | None:
    if pa.types.is_decimal(to):
        return _decimals.to_decimal if pa.types.is_decimal(of) or pa.types.is_integer(of) else None
    if pa.types.is_boolean(to):
        return lambda _call, _count, value: pc.not_equal(value, pa.scalar(0, value.type))
    if pa.types.is_integer(to):
        return _decimals.to_integer
    return {pa.float64(): _decimals.to_double, _TEXT: _decimals.to_text}.get(to)


def _of_boolean(call: Call, _count: int, value: Any) -> Any:
    one, zero = (pa.scalar(v, _TEXT) if call.type == _TEXT else pa.scalar(n, call.type) for v, n in _BOTH)
    return pc.if_else(value, one, zero)


_BOTH = (("true", 1), ("false", 0))


def _between_integers(call: Call, _count: int, value: Any) -> Any:
    if call.ansi and call.type.bit_width < value.type.bit_width:
        bounds = np.iinfo(call.type.to_pandas_dtype())
        low, high = pa.scalar(int(bounds.min), value.type), pa.scalar(int(bounds.max), value.type)
        refuse(pc.or_(pc.less(value, low), pc.greater(value, high)), _OVERFLOW, f"{value.type} to {call.type}")
    return value.cast(call.type, safe=False)


def _to_integer(call: Call, count: int, value: Any) -> Any:
    """Towards zero. Without ANSI mode as Java: to int or long at their bounds, NaN to 0; smaller ones from int, cut."""
    array = as_array(value, count)
    numbers = array.to_numpy(zero_copy_only=False).astype(np.float64)
    if call.ansi:
        bounds = np.iinfo(call.type.to_pandas_dtype())
        with np.errstate(invalid="ignore"):
            fits = (np.floor(numbers) <= float(bounds.max)) & (np.ceil(numbers) >= float(bounds.min))
        refuse(pc.and_(pa.array(~fits), array.is_valid()), _OVERFLOW, f"{array.type} to {call.type}")
    wide = pa.int64() if call.type == pa.int64() else pa.int32()
    found = whole(numbers, wide).astype(call.type.to_pandas_dtype())
    return pa.array(found, call.type, mask=array.is_null().to_numpy(zero_copy_only=False))


def whole(numbers: np.ndarray, to: pa.DataType) -> np.ndarray:
    """As Java casts a double to int or long."""
    kind = to.to_pandas_dtype()
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    # The largest long is no double: the next double is out of range.
    inside = (numbers >= float(low)) & (numbers < float(high)) if to == pa.int64() else np.abs(numbers) < float(2**31)
    found = np.where(inside, numbers, 0).astype(kind)
    found[numbers >= float(high)] = high
    found[numbers <= float(low)] = low
    return found


def _rounded(how: Callable[[np.ndarray], np.ndarray], of_decimals: Callable[[Call, int, Any], Any]) -> Function:
    def compute(call: Call, count: int, value: Any) -> Any:
        if pa.types.is_decimal(value.type):
            return of_decimals(call, count, value)
        array = as_array(value, count)
        if array.type == call.type:
            return array
        found = whole(how(array.to_numpy(zero_copy_only=False)), call.type)
        return pa.array(found, call.type, mask=array.is_null().to_numpy(zero_copy_only=False))

    return sized(compute)


FUNCTIONS: dict[str, Function] = {
    "Cast": sized(_cast), "Ceil": _rounded(np.ceil, _decimals.ceil), "Floor": _rounded(np.floor, _decimals.floor),
}  # fmt: skip
