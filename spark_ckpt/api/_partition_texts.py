"""Partition columns whose values only Spark writes as folders are named: times and fractions. Driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, TimestampNTZType, TimestampType

from spark_ckpt.plan.columns import quoted

if TYPE_CHECKING:
    from spark_ckpt.api._writers import Request

_BY_SPARK = (TimestampType, TimestampNTZType, DoubleType, FloatType)


def with_partition_texts(df: Any, sinks: Sequence[Request]) -> Any:
    """``df`` with such columns as texts, for files: their values are nowhere but in the folders' names. Beside other
    sinks, which would get them, too, they stay, and the sink refuses them."""
    if len(sinks) != 1 or sinks[0][0] != "files":
        return df
    names = [n for n in _partitions(sinks[0][1]) if n in df.columns and isinstance(df.schema[n].dataType, _BY_SPARK)]
    return df.withColumns({n: F.col(quoted(n)).cast("string") for n in names}) if names else df


def _partitions(options: Mapping[str, Any]) -> list[str]:
    found = next((v for k, v in options.items() if k.lower() == "partitionby"), "")
    return [name.strip() for name in str(found).split(",") if name.strip()]
