"""Columns as a table's files have them, as the stream has them: found by the names in files, widened, filled in.

Pure; executor. A file may be older than the table's columns: one that came later is null in it, one whose type was
widened is narrower, and a renamed one has its old name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_ckpt.arrow_types import plain_type
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sources.delta._schema import field_id, physical_name

_ID = b"PARQUET:field_id"


def find(field: Mapping[str, Any], there: Sequence[pa.Field], by_id: bool) -> int | None:
    """Where column ``field`` (Delta's JSON) is among the columns of a file, or None."""
    if by_id and (wanted := field_id(field)) is not None:
        ids = [int((f.metadata or {}).get(_ID, b"-1")) for f in there]
        if wanted in ids:
            return ids.index(wanted)
    name = physical_name(field)
    names = [f.name for f in there]
    if name in names:
        return names.index(name)
    lower = [n.lower() for n in names]
    return lower.index(name.lower()) if name.lower() in lower else None


def shaped(array: pa.Array, kind: Any, target: pa.DataType, by_id: bool, where: str) -> pa.Array:
    """``array`` of a file as ``target``, which is Spark's of Delta's type ``kind``. ``where`` names it in messages.

    Raises ``InvalidInputError`` if it cannot be read as that without loss.
    """
    if isinstance(kind, str):
        return _leaf(array, target, where)
    if array.type.equals(target) and is_plain(kind):
        return array
    expected = {"struct": pt.is_struct, "array": pt.is_list, "map": pt.is_map}[kind["type"]]
    if not expected(array.type):
        raise _misfit(array.type, target, where)
    if kind["type"] == "struct":
        return _struct(array, kind, target, by_id, where)
    whole = array.take(pa.array(np.arange(len(array))))  # its parts begin where it does
    if kind["type"] == "array":
        values = shaped(whole.values, kind["elementType"], target.value_type, by_id, f"{where}.element")
        return pa.ListArray.from_arrays(whole.offsets, values, type=target, mask=whole.is_null())
    keys = shaped(whole.keys, kind["keyType"], target.key_type, by_id, f"{where}.key")
    items = shaped(whole.items, kind["valueType"], target.item_type, by_id, f"{where}.value")
    return pa.MapArray.from_arrays(whole.offsets, keys, items, type=target, mask=whole.is_null())


def is_plain(kind: Any) -> bool:
    """Whether the names in files are those of the table, all the way down."""
    if isinstance(kind, str):
        return True
    if kind["type"] == "struct":
        return all(physical_name(f) == f["name"] and is_plain(f["type"]) for f in kind["fields"])
    return all(is_plain(kind[name]) for name in ("elementType", "keyType", "valueType") if name in kind)


def _struct(array: pa.StructArray, kind: Any, target: pa.StructType, by_id: bool, where: str) -> pa.Array:
    there, columns = list(array.type), []
    for field, wanted in zip(kind["fields"], target, strict=True):
        place = find(field, there, by_id)
        if place is None:
            columns.append(pa.nulls(len(array), wanted.type))
        else:
            columns.append(shaped(array.field(place), field["type"], wanted.type, by_id, f"{where}.{field['name']}"))
    return pa.StructArray.from_arrays(columns, fields=list(target), mask=array.is_null())


def _leaf(array: pa.Array, target: pa.DataType, where: str) -> pa.Array:
    if array.type.equals(target):
        return array
    if not fits(plain_type(array.type), target):
        raise _misfit(array.type, target, where)
    try:
        return pc.cast(array, options=pc.CastOptions(target_type=target, allow_time_truncate=True))
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"{where}: expected values that are {target}, found others: {error}") from None


def fits(found: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of plain type ``found`` is one of ``target``: the same, or one that Delta can widen to it.

    A timestamp without a zone may be an instant: so old files of Spark have them (INT96).
    """
    plain = plain_type(target)
    if found.equals(plain) or (pt.is_timestamp(found) and pt.is_timestamp(plain)):
        return True
    if pt.is_integer(found) and pt.is_integer(plain):
        return bool(found.bit_width <= plain.bit_width)
    if pt.is_integer(found) and pt.is_decimal(plain):
        return bool(plain.precision - plain.scale >= (10 if found.bit_width <= 32 else 20))
    if pt.is_decimal(found) and pt.is_decimal(plain):
        return bool(plain.scale >= found.scale and plain.precision - plain.scale >= found.precision - found.scale)
    widened = (pt.is_floating(plain) and plain.bit_width == 64, pt.is_timestamp(plain) and plain.tz is None)
    small = pt.is_float32(found) or (pt.is_integer(found) and found.bit_width <= 32)
    return (widened[0] and small) or (widened[1] and pt.is_date32(found))


def _misfit(found: pa.DataType, target: pa.DataType, where: str) -> InvalidInputError:
    return InvalidInputError(
        f"[DELTA_SCHEMA_CHANGED] {where}: expected {target}, as the table has it now, found {found}: the file was "
        "written before the table's columns were replaced. Begin behind that version: another queryName, a new, empty "
        "checkpointLocation and option startingVersion"
    )
