"""Arrays. ``option`` of those that take an element: a place outside of the array raises; else it is null."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions import comparing
from spark_ckpt.expressions._values import Function, as_array, failed, sized
from spark_ckpt.expressions.tree import Call

_OUTSIDE = {"GetArrayItem": "INVALID_ARRAY_INDEX", "ElementAt": "INVALID_ARRAY_INDEX_IN_ELEMENT_AT"}


def _size(call: Call, count: int, values: Any) -> Any:
    """``option``: what that of null is, -1 or null."""
    found = pc.list_value_length(as_array(values, count)).cast(call.type)
    return found if call.option is None else pc.fill_null(found, call.option)


def _item(call: Call, count: int, values: Any, place: Any) -> Any:
    """Counted from 0."""
    return _taken(call, as_array(values, count), as_array(place, count).cast(pa.int64()))


def _element(call: Call, count: int, values: Any, place: Any) -> Any:
    """Counted from 1, or with -1 from the end."""
    values, place = as_array(values, count), as_array(place, count).cast(pa.int64())
    if pc.any(pc.and_(pc.equal(place, 0), pc.is_valid(values))).as_py():
        raise failed("INVALID_INDEX_OF_ZERO", "element_at")
    sizes = pc.list_value_length(values).cast(pa.int64())
    return _taken(call, values, pc.if_else(pc.less(place, 0), pc.add(sizes, place), pc.subtract(place, 1)))


def _taken(call: Call, values: Any, place: Any) -> Any:
    sizes = pc.list_value_length(values).cast(pa.int64())
    inside = pc.and_(pc.greater_equal(place, 0), pc.less(place, sizes))
    if call.option and pc.any(pc.invert(inside)).as_py():
        raise failed(_OUTSIDE[call.function], f"{call.function} of {call.type}")
    starts = pa.array(values.offsets.to_numpy()[: len(values)].astype(np.int64))
    return values.values.take(pc.if_else(inside, pc.add(starts, place), pa.scalar(None, pa.int64()))).cast(call.type)


def _contains(_call: Call, count: int, values: Any, wanted: Any) -> Any:
    """Null if it is not found, and one of the elements is null."""
    values, wanted = as_array(values, count), as_array(wanted, count)
    offsets = values.offsets.to_numpy()[: count + 1]
    at = np.repeat(np.arange(count), np.diff(offsets))
    elements = values.values.slice(offsets[0], offsets[-1] - offsets[0])
    equal = comparing.equal(elements, wanted.take(pa.array(at)))
    found, unknown = np.zeros(count, bool), np.zeros(count, bool)
    found[at[pc.fill_null(equal, False).to_numpy(zero_copy_only=False)]] = True
    unknown[at[equal.is_null().to_numpy(zero_copy_only=False)]] = True
    nothing = pc.or_(values.is_null(), wanted.is_null()).to_numpy(zero_copy_only=False)
    return pa.array(found, mask=nothing | (unknown & ~found))


FUNCTIONS: dict[str, Function] = {
    "ArrayContains": sized(_contains),
    "ElementAt": sized(_element),
    "GetArrayItem": sized(_item),
    "Size": sized(_size),
}
