"""``pivot`` of a checkpointed stream: a column for each of the values that are given. Driver only.

As in Spark there are two aggregations where all results are numbers or booleans: of each value's rows, and of what
those put out, a row for each group. In mode update the second one would take each change for another row, so Spark's
streams have it of windows alone, when they have ended. Where a result is something else, there is one aggregation, each
result of each value by itself: counts of no row are 0 then, lists are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.api._aggregation import Aggregation, given_columns
from spark_ckpt.hints import Hinting
from spark_ckpt.plan.aggregates import OfValues
from spark_ckpt.plan.columns import quoted, refuse_repeated
from spark_ckpt.plan.spark_errors import UNSUPPORTED, analysis_error

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame
    from spark_ckpt.api.grouped import CkptGroupedData

_OF_TWO = (T.NumericType, T.BooleanType)
"""Spark aggregates twice where all results are of these types."""
_VALUE, _RESULT = "__ckpt_pivot", "__ckpt_pivot_"
_INSTEAD = (
    'one aggregate for each value is a stream: agg(F.sum(F.when(F.col("kind") == "a", F.col("v"))).alias("a"), ...)'
)


class CkptPivot(Aggregation, Hinting):
    """What ``groupBy(...).pivot(...)`` returns: aggregates."""

    _ways: ClassVar[dict[str, str]] = dict.fromkeys(
        ("aggregate", "applyInPandasWithState", "applyInArrowWithState", "transformWithState", "topN"),
        "a pivot has agg(...) and its short forms",
    )

    def __init__(self, groups: CkptGroupedData, column: str, values: Sequence[Any] | None) -> None:
        if values is None:
            said = "pivot is not supported on a streaming DataFrames/Datasets without its values"
            raise analysis_error("_LEGACY_ERROR_TEMP_3063", f'{said}: give them, pivot("kind", ["a", "b"])')
        self._groups, self._parent, self._column, self._values = groups, groups._rows, column, list(values)
        _ = self._in_spark(F.count(F.lit(1))).columns  # Spark says what is wrong

    def _in_spark(self, *exprs: Any) -> Any:
        groups = self._parent._in_spark().groupBy(*self._groups._given)
        return groups.pivot(self._column, self._values).agg(*exprs)

    def agg(self, *exprs: Any, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: the results of each value, in columns of their own. Where all of them are numbers or booleans,
        windows, or the event time, have to be among the keys: a row comes when they end (append). Others are as those
        of ``groupBy(...).agg(...)``. ``uid`` is the operator's name in checkpoints; where there are two, it has
        ``-values`` behind it for the first.

        Raises Spark's ``AnalysisException`` for others, as Spark does when they start.
        """
        columns = given_columns(self._parent._preview, exprs)
        names = list(self._in_spark(*columns).columns)
        refuse_repeated(names, self._parent._session.spark)
        values = [F.lit(value) for value in self._values]
        return pivoted(self._groups, F.col(self._column), values, columns, names, uid)


def pivoted(
    groups: CkptGroupedData,
    column: Column,
    values: Sequence[Column],
    results: Sequence[Column],
    names: list[str],
    uid: str | None = None,
) -> CkptDataFrame:
    """``results`` of the rows of each of ``values`` of ``column``; ``names`` are Spark's, those of keys in front."""
    rows, keys = groups._rows._in_spark(), len(groups._given)
    kinds = [field.dataType for field in rows.groupBy(*groups._given).agg(*results).schema.fields[-len(results) :]]
    is_value = _telling(rows, column, values)
    if all(isinstance(kind, _OF_TWO) for kind in kinds):
        made = _twice(groups, column, is_value, results, uid)
    else:
        made = groups._agg(tuple(results), uid, OfValues([one(column) for one in is_value], names[keys:]))
    return made._columns(list(made.columns), names)


def _twice(
    groups: CkptGroupedData,
    column: Column,
    is_value: Sequence[Callable[[Column], Column]],
    columns: Sequence[Column],
    uid: str | None,
) -> CkptDataFrame:
    results = [f"{_RESULT}{at}" for at in range(len(columns))]
    each = groups._rows.groupBy(*groups._given, column.alias(_VALUE)).agg(
        *(c.alias(name) for c, name in zip(columns, results, strict=True)),
        uid=None if uid is None else f"{uid}-values",
    )
    if each._lineage.operators[-1].output_mode is not None:
        raise analysis_error(
            UNSUPPORTED,
            "Detected pattern of possible 'correctness' issue due to global watermark: a pivot of numbers or booleans "
            "aggregates twice, so one of its keys has to be a window, or the event time, with withWatermark in front, "
            f"as in Spark. Without one, {_INSTEAD}",
        )
    keys = each.columns[: len(groups._given)]
    # There is at most one row of each value.
    made = [
        F.first(F.when(one(F.col(_VALUE)), F.col(name)), True).alias(f"{_RESULT}{at}_{i}")
        for at, one in enumerate(is_value)
        for i, name in enumerate(results)
    ]
    return each.groupBy(*map(quoted, keys)).agg(*made, uid=uid)


def _telling(rows: Any, column: Column, values: Sequence[Column]) -> list[Callable[[Column], Column]]:
    """Of each value, what says whether a column has it. As in Spark the value gets the column's type, where comparing
    the two would not do that."""
    kind, *kinds = [field.dataType for field in rows.select(column, *values).schema.fields]

    def telling(value: Column, of: T.DataType) -> Callable[[Column], Column]:
        alike = of == kind or isinstance(of, T.StringType | T.NullType)
        whole = isinstance(of, T.IntegralType) and isinstance(kind, T.IntegralType)
        return lambda one: one.eqNullSafe(value if alike or whole else value.cast(kind))

    return [telling(value, of) for value, of in zip(values, kinds, strict=True)]
