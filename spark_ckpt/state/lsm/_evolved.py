"""Values that were stored under an older type, as the type that a state has now. Executor.

A struct's fields are found by name: those that are missing are null, others are passed over. Numbers, decimals and
dates are cast, and a cast that would change a value raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.arrow_layouts import ordinary
from spark_ckpt.errors import InvalidInputError

_DIGITS_OF_LONG = 19
Older = Mapping[str, Sequence[str]]
"""The path of a field -> the paths that it had before."""


def as_type(column: pa.Array, wanted: pa.DataType, path: str = "", older: Older | None = None) -> pa.Array:
    """``column``, which is at ``path``, as ``wanted``. Raises ``InvalidInputError`` for a value that is none of it."""
    if column.type.equals(wanted) and not older:
        return column
    column = ordinary(column)
    if pa.types.is_struct(wanted) and pa.types.is_struct(column.type):
        return _struct(column, wanted, path, older or {})
    if pa.types.is_map(wanted) and pa.types.is_map(column.type):
        return _map(column, wanted, path, older)
    if pa.types.is_list(wanted) and pa.types.is_list(column.type):
        values = as_type(column.values, wanted.value_type, f"{path}.element", older)
        return pa.ListArray.from_arrays(_offsets(column), values, type=wanted)
    try:
        if pa.types.is_decimal(wanted) and pa.types.is_integer(column.type):
            column = column.cast(pa.decimal128(_DIGITS_OF_LONG)).cast(pa.decimal128(38, wanted.scale))
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        shown = f"column {path!r}: expected values of {wanted}, found one of {column.type} that is none"
        raise InvalidInputError(shown) from error


def if_it_fits(column: pa.Array, wanted: pa.DataType, path: str = "", older: Older | None = None) -> pa.Array:
    """The same, with null for a value that is none of ``wanted``."""
    try:
        return as_type(column, wanted, path, older)
    except InvalidInputError:
        if len(column) == 1:
            return pa.nulls(1, wanted)
        half = len(column) // 2
        parts = (column.slice(0, half), column.slice(half))
        return pa.concat_arrays([if_it_fits(part, wanted, path, older) for part in parts])


def _struct(column: pa.StructArray, wanted: pa.StructType, path: str, older: Older) -> pa.Array:
    names = {f.name: i for i, f in enumerate(column.type)}
    children = []
    for f in wanted:
        at = f"{path}.{f.name}"
        known = [f.name, *(p.rpartition(".")[2] for p in older.get(at, ()))]
        name = next((n for n in known if n in names), None)
        children.append(
            pa.nulls(len(column), f.type) if name is None else as_type(column.field(names[name]), f.type, at, older)
        )
    missing = pc.is_null(column) if column.null_count else None
    if not children:
        return column
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=missing)


def _map(column: pa.MapArray, wanted: pa.MapType, path: str, older: Older | None) -> pa.Array:
    keys = as_type(column.keys, wanted.key_type, f"{path}.key", older)
    items = as_type(column.items, wanted.item_type, f"{path}.value", older)
    return pa.MapArray.from_arrays(_offsets(column), keys, items, type=wanted)


def _offsets(column: pa.Array) -> pa.Array:
    """Of lists, null where there is none."""
    offsets = column.offsets
    if not column.null_count:
        return offsets
    missing = pc.is_null(column)
    return pc.if_else(pa.concat_arrays([missing, pa.array([False])]), pa.scalar(None, offsets.type), offsets)
