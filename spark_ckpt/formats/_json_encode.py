"""Values as JSON, as Spark's ``to_json`` writes them but for times, which have microseconds and are in UTC."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_ckpt.formats.base import Encoder
from spark_ckpt.formats.json_texts import json_name, json_texts


class JsonEncoder(Encoder):
    """Structs as objects without the fields that are null."""

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        texts = _objects(values) if pt.is_struct(values.type) else json_texts(pa.chunked_array([values]), False)
        if isinstance(texts, pa.ChunkedArray):
            texts = texts.combine_chunks()
        return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string())).cast(pa.binary())


def _objects(values: pa.StructArray) -> pa.Array:
    parts: list[pa.Array] = []
    for n, field in enumerate(values.type):
        column = values.field(n)
        texts = json_texts(pa.chunked_array([column]), False).combine_chunks()
        named = pc.binary_join_element_wise(f",{json_name(field.name)}:", texts, "")
        parts.append(pc.if_else(column.is_valid(), named, ""))
    if not parts:
        return pa.array(["{}"] * len(values), pa.string())
    members = pc.binary_join_element_wise(*parts, "")
    return pc.binary_join_element_wise("{", pc.utf8_slice_codeunits(members, 1), "}", "")
