"""Dates and timestamps as the numbers that they are made of, inside of structs, lists and maps, too."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt


def as_numbers(kind: pa.DataType) -> pa.DataType:
    """``kind`` with the numbers of times."""
    if pt.is_timestamp(kind):
        return pa.int64()
    if pt.is_date(kind):
        return pa.int32()
    if pt.is_struct(kind):
        return pa.struct([f.with_type(as_numbers(f.type)) for f in kind])
    if pt.is_map(kind):
        return pa.map_(kind.key_type, as_numbers(kind.item_type))
    return pa.list_(as_numbers(kind.value_type)) if pt.is_list(kind) else kind


def with_times(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """``array`` of :func:`as_numbers`, as ``kind``."""
    if array.type.equals(kind):
        return array
    if pt.is_struct(kind):
        arrays = [with_times(array.field(n), f.type) for n, f in enumerate(kind)]
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=array.is_null())
    if pt.is_map(kind):
        items = with_times(array.items, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=kind, mask=array.is_null())
    if pt.is_list(kind):
        values = with_times(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=array.is_null())
    return array.cast(kind)
