"""``subtract`` of a checkpointed stream and a static DataFrame. Driver only."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from spark_ckpt.plan.columns import free, quoted, refuse_repeated
from spark_ckpt.plan.static_join import refuse_no_dataframe

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

SparkDF = Any

NOT_ON_THE_RIGHT = "Except on a streaming DataFrame/Dataset on the right is not supported"


class Subtract:
    """What :class:`spark_ckpt.api.dataframe.CkptDataFrame` has of PySpark's operations of sets."""

    def subtract(self: Any, other: SparkDF, *, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: the distinct rows that are not in the static DataFrame ``other``, columns by position; nulls
        are equal here.

        As in Spark, it is an aggregation without results, for output mode update: a row comes with each batch that
        brings it. ``uid`` is the operator's name in checkpoints. Raises as Spark does for columns that do not fit, and
        for a stream as ``other``::

            orders.select("customer").subtract(blocked.select("id")).writeStream.outputMode("update")
        """
        if getattr(type(other), "isStreaming", None) is not None and other.isStreaming:
            raise AnalysisException(NOT_ON_THE_RIGHT)
        refuse_no_dataframe("subtract", other)
        refuse_repeated(self.columns, self._session.spark)
        found = self._in_spark().subtract(other).schema  # raises as Spark does
        kinds = {f.name: f.dataType for f in found}
        wider = {f.name: F.col(quoted(f.name)).cast(kinds[f.name]) for f in self.schema if kinds[f.name] != f.dataType}
        left = self.withColumns(wider) if wider else self
        names = [f"__ckpt_static_{i}" for i in range(len(found))]
        right = other.toDF(*names).select(*[F.col(n).cast(f.dataType) for n, f in zip(names, found, strict=True)])
        pairs = zip(left.columns, names, strict=True)
        kept = left.join(right, reduce(and_, [F.col(quoted(a)).eqNullSafe(F.col(b)) for a, b in pairs]), "left_anti")
        return grouped_rows(kept, uid)


def grouped_rows(df: Any, uid: str | None = None) -> Any:
    """Each distinct row as a group of an aggregation, as Spark has DISTINCT of SQL: with each batch that brings it in
    output mode update, all of them in complete, and in append when the watermark passes its event time."""
    names = [quoted(name) for name in df.columns]
    return df.groupBy(*names).agg(F.count(F.lit(1)).alias(free("rows", df.columns)), uid=uid).select(*names)
