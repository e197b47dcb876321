"""Structs and their fields, and what is read from JSON."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.expressions._values import Function, as_array, sized
from spark_ckpt.expressions.tree import Call


def _field(call: Call, count: int, struct: Any) -> Any:
    """``option`` is its number. Null where the struct is."""
    return pc.struct_field(as_array(struct, count), [call.option])


def _struct(call: Call, count: int, *parts: Any) -> Any:
    """Of values; names are the type's."""
    arrays = [as_array(part, count) for part in parts]
    return pa.StructArray.from_arrays(arrays, fields=list(call.type))


def _of_json(call: Call, count: int, text: Any) -> Any:
    """``option`` reads texts."""
    return call.option.column(as_array(text, count))


JSON = ("GetJsonObject", "JsonObjectKeys", "JsonToStructs", "LengthOfJsonArray")
FUNCTIONS: dict[str, Function] = {
    "CreateNamedStruct": sized(_struct), "GetStructField": sized(_field), **dict.fromkeys(JSON, sized(_of_json)),
}  # fmt: skip
