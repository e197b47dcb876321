"""``describe`` and ``summary`` of a checkpointed stream: aggregates over everything, a row each. Driver only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import listed, quoted, refuse_control

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

_DESCRIBED = ("count", "mean", "stddev", "min", "max")
_SUMMARIZED = ("count", "mean", "stddev", "min", "25%", "50%", "75%", "max")
_OF_NUMBERS = {"mean": F.avg, "stddev": F.stddev}
_OF_ALL = {
    "count": F.count,
    "min": F.min,
    "max": F.max,
    "count_distinct": F.count_distinct,
    "approx_count_distinct": F.approx_count_distinct,
}
_NAME, _ROW = "summary", "__ckpt_one"


class Summaries:
    """What :class:`spark_ckpt.api.dataframe.CkptDataFrame` has of them."""

    def describe(self: Any, *cols: str | list[str], uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: count, mean, stddev, min and max of the columns ``cols``, or of all numbers and texts, a row
        each, over all rows so far. They come with each batch that has rows, in output mode update, or as the whole
        result of complete; the column ``summary`` tells them apart. ``uid`` is the operator's name in checkpoints.
        Raises as Spark does::

            orders.describe("amount").writeStream.format("sql").option("mergeKeys", "summary")
        """
        names = listed(cols)
        refuse_control([name for name in names if isinstance(name, str)])
        shown = self._in_spark().describe(*names).columns[1:]  # raises as Spark does
        return _summary(self, shown, list(_DESCRIBED), uid)

    def summary(self: Any, *statistics: str, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: as :meth:`describe`, of ``statistics``: count, mean, stddev, min, max, count_distinct,
        approx_count_distinct and percentages as ``"75%"``, or some of those. Percentiles are exact values of that rank,
        which are kept one by one."""
        wanted = listed(statistics)
        shown = self._in_spark().summary(*wanted).columns[1:]  # raises as Spark does
        return _summary(self, shown, wanted or list(_SUMMARIZED), uid)


def _summary(df: CkptDataFrame, columns: list[str], statistics: list[str], uid: str | None) -> CkptDataFrame:
    if not columns:  # of which Spark makes a table of names, and no stream
        raise InvalidInputError(f"expected a column with numbers or texts to describe, found {df.columns}")
    kinds = {f.name: f.dataType for f in df.schema.fields}
    places = [(s, c, f"__ckpt_{i}_{j}") for i, s in enumerate(statistics) for j, c in enumerate(columns)]
    found = df.groupBy().agg(
        F.count(F.lit(1)).alias(_ROW), *(_statistic(s, c, kinds[c]).alias(name) for s, c, name in places), uid=uid
    )
    by_statistic = {s: {c: F.col(name).cast("string") for t, c, name in places if t == s} for s in statistics}
    rows = [
        F.struct(F.lit(s).alias(_NAME), *(value.alias(c) for c, value in by_statistic[s].items())) for s in statistics
    ]
    each = found.select(F.explode(F.array(*rows)).alias(_ROW))
    return each.select(*(F.col(f"{_ROW}.{quoted(name)}").alias(name) for name in (_NAME, *columns)))


def _statistic(name: str, column: str, kind: T.DataType) -> Column:
    """As Spark computes it; of texts, what is no number counts as null."""
    value = F.col(quoted(column))
    if name.lower() in _OF_ALL:
        return _OF_ALL[name.lower()](value)
    number = value.try_cast("double") if isinstance(kind, T.StringType) else value
    of = _OF_NUMBERS.get(name.lower()) or partial(_percentile, share=float(name.removesuffix("%")) / 100)
    return of(number)


def _percentile(value: Column, share: float) -> Column:
    return F.percentile_approx(value, share, 10_000)
