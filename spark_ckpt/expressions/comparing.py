"""Comparisons. Spark takes NaN for equal to itself and greater than all others, and -0.0 for equal to 0.0."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions._values import Function, as_array, plain


def _is_float(value: Any) -> bool:
    return bool(pa.types.is_floating(value.type))


def equal(a: Any, b: Any) -> Any:
    found = pc.equal(a, b)
    return pc.or_(found, pc.and_(pc.is_nan(a), pc.is_nan(b))) if _is_float(a) else found


def less(a: Any, b: Any) -> Any:
    found = pc.less(a, b)
    return pc.or_(found, pc.and_(pc.invert(pc.is_nan(a)), pc.is_nan(b))) if _is_float(a) else found


def not_less(a: Any, b: Any) -> Any:
    return pc.invert(less(a, b)) if _is_float(a) else pc.greater_equal(a, b)


def equal_null_safe(a: Any, b: Any) -> Any:
    both_null = pc.and_(pc.is_null(a), pc.is_null(b))
    return pc.or_(pc.fill_null(equal(a, b), False), both_null)


def _in(wanted: Any, *others: Any) -> Any:
    """Null if the value is, or if it is not found among others of which one is null."""
    return reduce(pc.or_kleene, [equal(wanted, other) for other in others])


def _most(in_front: Any) -> Function:
    """The first of those that no other is in front of. Nulls are passed over."""

    def compute(_call: Any, parts: Any, count: int) -> Any:
        best, *others = [as_array(part, count) for part in parts]
        for other in others:
            better = pc.fill_null(in_front(other, best), pc.is_null(best))
            best = pc.if_else(better, other, best)
        return best

    return compute


def _is_nan(value: Any) -> Any:
    return pc.fill_null(pc.is_nan(value), False)


FUNCTIONS: dict[str, Function] = {
    "EqualNullSafe": plain(equal_null_safe),
    "EqualTo": plain(equal),
    "Greatest": _most(lambda a, b: less(b, a)),
    "GreaterThan": plain(lambda a, b: less(b, a)),
    "GreaterThanOrEqual": plain(not_less),
    "In": plain(_in),
    "IsNaN": plain(_is_nan),
    "IsNotNull": plain(pc.is_valid),
    "IsNull": plain(pc.is_null),
    "Least": _most(less),
    "LessThan": plain(less),
    "LessThanOrEqual": plain(lambda a, b: not_less(b, a)),
    "Not": plain(pc.invert),
}
