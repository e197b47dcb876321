"""``union`` and ``unionByName`` of checkpointed streams. Driver only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spark_ckpt.api._watermark import ahead_of_union
from spark_ckpt.plan.attributes import derived
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import ordered, proposing_user_columns
from spark_ckpt.plan.spark_errors import unsupported

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

SparkDF = Any


class SeveralStreams:
    """The methods of a DataFrame that put the rows of several together."""

    def union(self: Any, other: CkptDataFrame) -> CkptDataFrame:
        """As PySpark's: the rows of both, columns by position. Keyed operators behind it align the barriers of both.

        A keyed operator that both contain keeps its state twice, as in Spark: for ``other`` under a uid such as
        ``counts-2``. Raises as Spark does if ``other`` has more or fewer columns, ``TopologyError`` if both contain
        operators of one uid.
        """
        if isinstance(other, type(self)) and len(self.columns) != len(other.columns):
            _ = self._in_spark().union(other._in_spark()).columns  # raises as Spark does
        return _both(self, other, _by_position)

    unionAll = union

    def unionByName(self: Any, other: CkptDataFrame, allowMissingColumns: bool = False) -> CkptDataFrame:
        """As PySpark's: :meth:`union` with ``other`` by the columns' names.

        ``allowMissingColumns`` fills up with nulls.
        """
        return _both(self, other, lambda one, two: one.unionByName(two, allowMissingColumns))


def _by_position(one: SparkDF, other: SparkDF) -> SparkDF:
    return one.union(other)


def _both(df: CkptDataFrame, other: CkptDataFrame, operation: Callable[[SparkDF, SparkDF], SparkDF]) -> CkptDataFrame:
    if not isinstance(other, type(df)):
        raise unsupported(
            f"union expects another stream of ckpt.readStream, found {type(other).__name__}: Union between streaming "
            "and batch DataFrames/Datasets is not supported, in Spark neither; write the rows of a table beside those "
            "of the query, or read them as a stream"
        )
    other = other._beside(df)
    left, right = df._recipe, other._recipe
    with proposing_user_columns():
        result = operation(df._preview, other._preview)
        columns = result.columns
    preview = ordered(result, columns)

    def make(ctx: Any) -> Chain:
        return Chain(ordered(operation(ctx.frame(left), ctx.frame(right)), columns), preview.schema)

    recipe = Recipe(make, (left, right))
    made = type(df)(df._session, recipe, df._lineage.union(other._lineage), preview)
    made._with(derived(df._attributes, df._preview, preview, made.columns))
    made._alias = df._alias if made.columns == df.columns else None
    in_order = other if operation is _by_position else _in_order(other, df.columns)
    if in_order is not None:
        made._ahead = ahead_of_union(made, df, in_order, lambda one, two: _both(one, two, _by_position))
    return made


def _in_order(df: CkptDataFrame, names: list[str]) -> CkptDataFrame | None:
    """``df`` with its columns in the order of ``names``. None: it has others."""
    if df.columns == names:
        return df
    return df._columns(names) if sorted(df.columns) == sorted(names) and len(set(names)) == len(names) else None
