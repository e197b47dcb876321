"""The columns that Spark finds in a Parquet file, which Arrow would call otherwise. Driver.

Spark notes its own types in the files that it writes, as the format has none for intervals, say. And its times with a
zone are INT96 there, which says nothing of a zone: to Arrow they are times of a clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt
from pyspark.sql.types import StructType

from spark_ckpt.sources._convert import spark_schema

_NOTE = b"org.apache.spark.sql.parquet.row.metadata"


def schema_in(file: pq.ParquetFile) -> StructType:
    """What Spark infers from ``file``, every column nullable. Raises ``ConfigError`` for a type that Spark lacks."""
    noted = _noted((file.metadata.metadata or {}).get(_NOTE, b""))
    return spark_schema(_with_instants(file)) if noted is None else noted


def _noted(note: bytes) -> StructType | None:
    """None where there is no note, or one that is not to be followed: a type of the user's would be imported."""
    try:
        found = json.loads(note)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("type") != "struct" or _has_user_type(found):
        return None
    return StructType.fromJson(found).toNullable()


def _has_user_type(noted: object) -> bool:
    if isinstance(noted, dict):
        return noted.get("type") == "udt" or any(map(_has_user_type, noted.values()))
    return isinstance(noted, list) and any(map(_has_user_type, noted))


def _with_instants(file: pq.ParquetFile) -> pa.Schema:
    """The file's Arrow schema, in which all that is INT96 has a zone."""
    leaves = iter([file.schema.column(i).physical_type == "INT96" for i in range(len(file.schema))])
    return pa.schema([field.with_type(_instants(field.type, leaves)) for field in file.schema_arrow])


def _instants(kind: pa.DataType, leaves: Iterator[bool]) -> pa.DataType:
    if pt.is_map(kind):
        return pa.map_(_instants(kind.key_type, leaves), _instants(kind.item_type, leaves))
    if pt.is_list(kind) or pt.is_large_list(kind):
        return pa.list_(_instants(kind.value_type, leaves))
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_instants(field.type, leaves)) for field in kind])
    return pa.timestamp("us", "UTC") if next(leaves, False) else kind
