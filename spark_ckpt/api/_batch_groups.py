"""``groupBy(...).applyInPandas``, ``applyInArrow`` and ``apply``: the groups of a batch, without state. Driver only.

Spark groups and calls the function; what it calls lets control rows pass (:mod:`spark_ckpt.runtime.batch_groups`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.typehints import infer_group_arrow_eval_type_from_func, infer_group_pandas_eval_type_from_func
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.util import PythonEvalType

from spark_ckpt.plan.as_called import as_called
from spark_ckpt.plan.batch_epochs import with_true_epochs
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import user_columns
from spark_ckpt.plan.event_time import kept_by_name
from spark_ckpt.plan.session_confs import pandas_options
from spark_ckpt.runtime.batch_groups import Frames, Tables, around_control_rows
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.types import CTL, STREAM_MASK, TAG

if TYPE_CHECKING:
    from spark_ckpt.api._cogroups import CkptCogroupedData
    from spark_ckpt.api.dataframe import CkptDataFrame

SparkDF = Any


class BatchGroups:
    """What :class:`spark_ckpt.api.grouped.CkptGroupedData` has of them."""

    def applyInPandas(self: Any, func: Callable[..., Any], schema: T.StructType | str) -> CkptDataFrame:
        """As PySpark's: ``func(pdf)`` or ``func(key, pdf)`` for each group of a batch, or with iterators as its type
        hints say; ``schema`` are the columns of what it gives.

        Nothing is kept between batches. It sees data rows only; where a barrier lies within a batch, the rows in front
        of it and those behind it are groups of their own. Raises as Spark does; what ``func`` raises ends the query::

            def largest(pdf: pd.DataFrame) -> pd.DataFrame:
                return pdf.nlargest(1, "amount")

            orders.groupBy("customer").applyInPandas(largest, orders.schema)
        """
        grouped = self._by_columns()
        out = _columns(grouped, "applyInPandas", func, schema)
        by_name = pandas_options(self._parent._session.spark.conf)["assign_cols_by_name"]
        portions = _is_of(PythonEvalType.SQL_GROUPED_MAP_PANDAS_ITER_UDF, infer_group_pandas_eval_type_from_func, func)
        called = around_control_rows(
            as_called(func, self._parent._session.spark), Frames(user_columns(out.fieldNames()), by_name), portions
        )
        return _of_batches(grouped, "applyInPandas", lambda groups: groups.applyInPandas(called, out))

    def applyInArrow(self: Any, func: Callable[..., Any], schema: T.StructType | str) -> CkptDataFrame:
        """As PySpark's: :meth:`applyInPandas` with ``pyarrow.Table``, or iterators of ``pyarrow.RecordBatch``."""
        grouped = self._by_columns()
        out = _columns(grouped, "applyInArrow", func, schema)
        conf = self._parent._session.spark.conf
        large = conf.get("spark.sql.execution.arrow.useLargeVarTypes") == "true"
        exact = to_arrow_schema(out, timezone="UTC", prefers_large_types=large)
        portions = _is_of(PythonEvalType.SQL_GROUPED_MAP_ARROW_ITER_UDF, infer_group_arrow_eval_type_from_func, func)
        called = around_control_rows(as_called(func, self._parent._session.spark), Tables(exact), portions)
        return _of_batches(grouped, "applyInArrow", lambda groups: groups.applyInArrow(called, out))

    def apply(self: Any, udf: Any) -> CkptDataFrame:
        """As PySpark's: :meth:`applyInPandas` of a ``pandas_udf`` of type ``GROUPED_MAP``."""
        grouped = self._by_columns()
        _ = _grouped(grouped, grouped._parent._in_spark(), []).apply(udf)  # raises and warns as Spark does
        made: CkptDataFrame = self.applyInPandas(udf.func, udf.returnType)
        return made

    def cogroup(self: Any, other: Any) -> CkptCogroupedData:
        """As PySpark's: the groups of this and of ``other``, ``groupBy(...)`` of another stream, or of a static
        DataFrame, by as many keys, for ``applyInPandas`` and ``applyInArrow``. Raises ``InvalidInputError`` for
        anything else::

            orders.groupBy("item").cogroup(prices.groupBy("item")).applyInPandas(priced, "at timestamp, ...")
        """
        from spark_ckpt.api._cogroups import cogrouped

        return cogrouped(self, other)


def _columns(grouped: Any, what: str, func: Callable[..., Any], schema: T.StructType | str) -> T.StructType:
    """Of what comes out, the control columns last. Raises as Spark does."""
    grouped._refuse_repeated()
    asked = getattr(_grouped(grouped, grouped._parent._in_spark(), []), what)(func, schema)
    return with_control(kept_by_name(asked.schema, grouped._parent.schema))


def _is_of(wanted: int, kind_of: Callable[[Any], Any], func: Callable[..., Any]) -> bool:
    """Whether ``func`` takes and gives iterators. Of hints that Spark cannot read it has warned by now."""
    try:
        return bool(kind_of(func) == wanted)
    except Exception:  # noqa: BLE001 - as Spark does
        return False


def _of_batches(grouped: Any, what: str, applied: Callable[[Any], SparkDF]) -> CkptDataFrame:
    def operation(rows: SparkDF) -> SparkDF:
        return applied(_grouped(grouped, rows, [F.col(TAG).bitwiseAND(F.lit(~STREAM_MASK)), F.col(CTL)]))

    return _that_meet(grouped._parent)._operation(what, operation, stays="it looks at all rows of a group")


def _that_meet(df: CkptDataFrame) -> CkptDataFrame:
    """``df``, with epochs for rows that Spark's own sources read, if there are others that they have to meet."""
    lineage, parent = df._lineage, df._recipe
    if not any(source.by_spark for source in lineage.sources) or not (len(lineage.sources) > 1 or lineage.operators):
        return df
    schema = df._preview.schema
    recipe = Recipe(lambda ctx: Chain(with_true_epochs(ctx, ctx.frame(parent)), schema), (parent,))
    return df._made(recipe, lineage, df._preview)


def _grouped(grouped: Any, rows: SparkDF, own: list[Any]) -> Any:
    keys = list(grouped._keys.expressions.values()) if grouped._given else []
    return rows.groupBy(*keys, *own)
