"""Rows in which a name comes twice, as behind a join by a condition, on their way to functions. Driver.

Sinks keep rows by name and refuse them. A function of ``foreachBatch`` gets them as from Spark's, so they wait under
names of their own, and each column notes what it is called (:data:`spark_ckpt.plan.batch_functions.CALLED`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import functions as F

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
