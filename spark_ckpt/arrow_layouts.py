"""One layout for each kind of value.

Arrow has several layouts of the same values: views, 64-bit offsets, dictionaries, runs, lists of a fixed size. Many of
Arrow's functions (``take``, ``filter``, ``group_by``, casts inside of lists) lack some of them. So everything that
takes rows of other makers, such as a file of theirs or what a user's function returns, asks for the ordinary layout
before it does anything else with them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

_TEXTS = (pt.is_large_string, pt.is_string_view)
_BYTES = (pt.is_large_binary, pt.is_binary_view)
_LISTS = (pt.is_list, pt.is_large_list, pt.is_list_view, pt.is_large_list_view, pt.is_fixed_size_list)

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


@lru_cache(maxsize=1024)
def ordinary_type(kind: pa.DataType) -> pa.DataType:
    """What :func:`ordinary` makes of ``kind``; ``kind`` itself if it is ordinary. Values stay what they are."""
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return ordinary_type(kind.value_type)
    if any(is_kind(kind) for is_kind in _TEXTS):
        return pa.string()
    if any(is_kind(kind) for is_kind in _BYTES):
        return pa.binary()
    if any(is_kind(kind) for is_kind in _LISTS):
        made = pa.list_(kind.value_field.with_type(ordinary_type(kind.value_type)))
    elif pt.is_map(kind):
        made = pa.map_(_with(kind.key_field), _with(kind.item_field))
    elif pt.is_struct(kind):
        made = pa.struct([_with(f) for f in kind])
    else:
        return kind
    return kind if kind.equals(made) else made


def _with(field: pa.Field) -> pa.Field:
    return field.with_type(ordinary_type(field.type))


def ordinary(values: Any) -> Any:
    """The same values, an ``Array`` or a ``ChunkedArray``, in the ordinary layout; free where they have it.

    Raises ``pyarrow.ArrowInvalid`` if one array has more than 2 GB of text, which that layout cannot hold.
    """
    kind = ordinary_type(values.type)
    if kind.equals(values.type):
        return values
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([_array(chunk, kind) for chunk in values.chunks], kind)
    return _array(values, kind)


def ordinary_rows(rows: Rows) -> Rows:
    """The same rows, each column in the ordinary layout."""
    if all(ordinary_type(f.type).equals(f.type) for f in rows.schema):
        return rows
    schema = pa.schema([_with(f) for f in rows.schema], rows.schema.metadata)
    return type(rows).from_arrays([ordinary(column) for column in rows.columns], schema=schema)


def _array(values: pa.Array, kind: pa.DataType) -> pa.Array:
    found = values.type
    if kind.equals(found):
        return values
    if pt.is_dictionary(found):
        return ordinary(values.dictionary).take(values.indices)
    if pt.is_run_end_encoded(found):
        places = np.arange(values.offset, values.offset + len(values))
        return ordinary(values.values).take(pa.array(np.searchsorted(values.run_ends, places, side="right")))
    if pt.is_struct(found):
        parts = [_array(values.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    if pt.is_map(found):
        offsets = np.asarray(values.offsets)
        first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        keys = _array(values.keys.slice(first, count), kind.key_type)
        items = _array(values.items.slice(first, count), kind.item_type)
        offsets = pa.array(offsets - first, pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=values.is_null())
    if pt.is_list(kind):
        parts = _array(values.flatten(), kind.value_type)
        return pa.ListArray.from_arrays(_offsets(values), parts, type=kind, mask=values.is_null())
    return values.cast(kind)


def _offsets(values: pa.Array) -> pa.Array:
    """Where each list begins among the flattened values, in which null lists have none."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0), np.int64)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)])).cast(pa.int32())
