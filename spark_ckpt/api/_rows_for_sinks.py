"""Rows on their way to sinks: names that come twice, and partition columns that only Spark writes as folders are named.
Driver.

Sinks keep rows by name and refuse a name that comes twice, as behind a join by a condition. A function of
``foreachBatch`` gets such rows as from Spark's, so they wait under names of their own, and each column notes what it is
called (:data:`spark_ckpt.plan.batch_functions.CALLED`). Partitions by times and fractions are written as texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, TimestampNTZType, TimestampType

from spark_ckpt.api._writers import Request
from spark_ckpt.plan.batch_functions import CALLED, BatchFunction
from spark_ckpt.plan.columns import is_repeated, quoted, refuse_repeated


def told_apart(df: Any, sinks: Sequence[Request], spark: Any) -> Any:
    """``df``, whose names then come once. Raises ``InvalidInputError`` if one comes twice and not all ``sinks`` are
    functions of all its columns."""
    if not is_repeated(df.columns, spark):
        return df
    if not all(isinstance(sink, BatchFunction) and not options for sink, options in sinks):
        refuse_repeated(df.columns, spark)
    fields = df.schema.fields
    names = [f"column_{number}" for number in range(len(fields))]
    noted = [
        F.col(quoted(name)).alias(name, metadata={**field.metadata, CALLED: field.name})
        for name, field in zip(names, fields, strict=True)
    ]
    return df.toDF(*names).select(*noted)


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
