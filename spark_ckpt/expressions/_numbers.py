"""Arithmetic of integers and floating point numbers. ``ansi``: overflow and division by zero raise; else integers wrap
and a division by zero is null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions import _decimals
from spark_ckpt.expressions._values import Function, as_array, overflowing, plain, refuse, sized, typed
from spark_ckpt.expressions.tree import Call

_BY_ZERO = {"Remainder": "REMAINDER_BY_ZERO"}


def _checked(name: str) -> Function:
    of_decimals = getattr(_decimals, name, None)
    wrapping: Callable[..., Any] = getattr(pc, name)
    checking: Callable[..., Any] = getattr(pc, f"{name}_checked")

    def compute(call: Call, count: int, *parts: Any) -> Any:
        if of_decimals and pa.types.is_decimal(call.type):
            return of_decimals(call, count, *parts)
        if not (call.ansi and pa.types.is_integer(call.type)):
            return wrapping(*parts)
        with overflowing(f"{name} of {call.type}"):
            return checking(*parts)

    return sized(compute)


def _divisor(call: Call, a: Any, b: Any) -> Any:
    """What is divided by, null where it is zero. Raises in ANSI mode if a number is divided by it."""
    zero = pc.equal(b, pa.scalar(0, b.type))
    if call.ansi:
        condition = _BY_ZERO.get(call.function, "DIVIDE_BY_ZERO")
        refuse(pc.and_kleene(zero, pc.is_valid(a)), condition, f"{call.function} of {b.type}")
    return pc.if_else(zero, pa.scalar(None, b.type), b)


def _divide(call: Call, count: int, a: Any, b: Any) -> Any:
    b = _divisor(call, a, b)
    return _decimals.divide(call, count, a, b) if pa.types.is_decimal(call.type) else pc.divide(a, b)


def _without_minus_one(b: Any) -> tuple[Any, Any]:
    """The smallest integer divided by -1 is out of range, which stops the machine."""
    minus = pc.equal(b, pa.scalar(-1, b.type))
    return minus, pc.if_else(minus, pa.scalar(1, b.type), b)


def _integral_divide(call: Call, a: Any, b: Any) -> Any:
    b = _divisor(call, a, b)
    minus, safe = _without_minus_one(b)
    negative = pc.negate(a)
    if call.ansi:
        smallest = pc.and_(pc.equal(a, negative), pc.not_equal(a, pa.scalar(0, a.type)))
        refuse(pc.and_kleene(minus, smallest), "ARITHMETIC_OVERFLOW", "div of bigint")
    return pc.if_else(minus, negative, pc.divide(a, safe))


def _remainder(call: Call, count: int, a: Any, b: Any) -> Any:
    """Its sign is the dividend's."""
    if isinstance(b, pa.Scalar) and pa.types.is_integer(call.type) and b.as_py() not in (None, 0, -1):
        return _remainder_of_constant(as_array(a, count), b)
    b = _divisor(call, a, b)
    if pa.types.is_decimal(call.type):
        return _decimals.remainder(call, count, a, b)
    if pa.types.is_floating(call.type):
        a, b = as_array(a, count), as_array(b, count)
        with np.errstate(invalid="ignore"):
            found = np.fmod(a.to_numpy(zero_copy_only=False), b.to_numpy(zero_copy_only=False))
        there = pc.and_(pc.is_valid(a), pc.is_valid(b)).to_numpy(zero_copy_only=False)
        return pa.array(found.astype(call.type.to_pandas_dtype(), copy=False), call.type, mask=~there)
    minus, safe = _without_minus_one(b)
    return pc.subtract(a, pc.if_else(minus, a, pc.multiply(pc.divide(a, safe), safe)))


def _remainder_of_constant(a: pa.Array, b: pa.Scalar) -> pa.Array:
    by = b.as_py()
    if by & (by - 1):
        return pc.subtract(a, pc.multiply(pc.divide(a, b), b))
    # Of a power of two: the low bits.
    low = pc.bit_wise_and(a, pa.scalar(by - 1, b.type))
    if (pc.min(a).as_py() or 0) >= 0:
        return low
    zero = pa.scalar(0, b.type)
    below = pc.and_(pc.less(a, zero), pc.not_equal(low, zero))
    return pc.if_else(below, pc.subtract(low, b), low)


FUNCTIONS: dict[str, Function] = {
    "Abs": _checked("abs"),
    "Add": _checked("add"),
    "BitwiseAnd": plain(pc.bit_wise_and),
    "BitwiseNot": plain(pc.bit_wise_not),
    "BitwiseOr": plain(pc.bit_wise_or),
    "BitwiseXor": plain(pc.bit_wise_xor),
    "Divide": sized(_divide),
    "IntegralDivide": typed(_integral_divide),
    "Multiply": _checked("multiply"),
    "Remainder": sized(_remainder),
    "Sqrt": plain(pc.sqrt),
    "Subtract": _checked("subtract"),
    "UnaryMinus": _checked("negate"),
}
