"""Arrow types of Spark types, times in UTC. Spark 4.2 asks for the time zone; before, it is always UTC."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas import types
from pyspark.sql.types import DataType, StructType

from spark_ckpt.spark_versions import spark_version

_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if spark_version() >= (4, 2) else {}


def to_arrow_schema(schema: StructType, prefers_large_types: bool = False) -> pa.Schema:
    return types.to_arrow_schema(schema, prefers_large_types=prefers_large_types, **_IN_UTC)


def to_arrow_type(kind: DataType) -> pa.DataType:
    return types.to_arrow_type(kind, **_IN_UTC)
