"""``pivot`` of a checkpointed stream: a column for each of the values that are given. Driver only.

As in Spark there are two aggregations: of each value's rows, and of what those put out, a row for each group. In mode
update the second one would take each change for another row, so Spark's streams have it of windows alone, when they
have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.api._aggregation import Aggregation, given_columns
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.hints import Hinting
from spark_ckpt.plan.columns import quoted, refuse_repeated
from spark_ckpt.plan.spark_errors import analysis_error

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame
    from spark_ckpt.api.grouped import CkptGroupedData

_TYPES = (T.NumericType, T.BooleanType)
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

    def __init__(self, groups: CkptGroupedData, keys: Sequence[Any], column: str, values: Sequence[Any] | None) -> None:
        if values is None:
            said = "pivot is not supported on a streaming DataFrames/Datasets without its values"
            raise analysis_error("_LEGACY_ERROR_TEMP_3063", f'{said}: give them, pivot("kind", ["a", "b"])')
        self._parent, self._keys_given, self._column, self._values = groups._rows, list(keys), column, list(values)
        _ = self._in_spark(F.count(F.lit(1))).columns  # Spark says what is wrong

    def _in_spark(self, *exprs: Any) -> Any:
        groups = self._parent._in_spark().groupBy(*self._keys_given)
        return groups.pivot(self._column, self._values).agg(*exprs)

    def agg(self, *exprs: Any, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: the results of each value, in columns of their own. Windows, or the event time, have to be
        among the keys: a row comes when they end (append). ``uid`` is the operator's name in checkpoints, and with
        ``-values`` behind it that of what it aggregates first.

        Raises Spark's ``AnalysisException`` for others, as Spark does when they start.
        """
        columns = given_columns(self._parent._preview, exprs)
        names = list(self._in_spark(*columns).columns)
        refuse_repeated(names, self._parent._session.spark)
        self._check_types(columns)
        results = [f"{_RESULT}{at}" for at in range(len(columns))]
        each = self._parent.groupBy(*self._keys_given, F.col(self._column).alias(_VALUE)).agg(
            *(c.alias(name) for c, name in zip(columns, results, strict=True)),
            uid=None if uid is None else f"{uid}-values",
        )
        if each._lineage.operators[-1].output_mode is not None:
            raise analysis_error(
                "_LEGACY_ERROR_TEMP_3102",
                "Detected pattern of possible 'correctness' issue due to global watermark: a pivot aggregates twice, "
                "so one of its keys has to be a window, or the event time, with withWatermark in front, as in Spark. "
                f"Without one, {_INSTEAD}",
            )
        keys = each.columns[: len(self._keys_given)]
        made = [self._of(value, name) for value in self._values for name in results]
        shown = [f"{_RESULT}{at}_" for at in range(len(made))]
        found = each.groupBy(*map(quoted, keys)).agg(*(c.alias(n) for c, n in zip(made, shown, strict=True)), uid=uid)
        return found._columns([*keys, *shown], names)

    def _check_types(self, columns: list[Any]) -> None:
        """Of others Spark aggregates once, each value within it: counts of no row are 0 then, lists are empty."""
        found = self._parent._in_spark().groupBy(*self._keys_given).agg(*columns).schema.fields[-len(columns) :]
        others = [field for field in found if not isinstance(field.dataType, _TYPES)]
        if others:
            raise InvalidInputError(
                f"pivot: the result {others[0].name} has type {others[0].dataType.simpleString()}; here results "
                f"are numbers or booleans. For others, {_INSTEAD}"
            )

    def _of(self, value: Any, result: str) -> Any:
        """There is at most one row of each value."""
        return F.first(F.when(F.col(_VALUE).eqNullSafe(F.lit(value)), F.col(result)), True)
