"""``a.groupBy("k").cogroup(b.groupBy("k"))``: the groups that two streams have in a batch, without state. Driver only.

Spark brings the rows of both sides together, by the keys, the epoch and the control column; what it calls lets control
rows pass (:mod:`spark_ckpt.runtime.batch_groups`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.hints import Hinting
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import quoted, user_columns
from spark_ckpt.plan.session_confs import pandas_options
from spark_ckpt.runtime.batch_groups import BY, Form, Frames, Tables, around_both_sides
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.types import CTL, STREAM_MASK, TAG

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame
    from spark_ckpt.api.grouped import CkptGroupedData
    from spark_ckpt.plan.lineage import Lineage


class CkptCogroupedData(Hinting):
    """What ``cogroup`` returns: two groupings, of the same number of keys."""

    def __init__(self, left: CkptGroupedData, right: CkptGroupedData) -> None:
        self._left, self._right = left, right

    def applyInPandas(self, func: Callable[..., Any], schema: T.StructType | str) -> CkptDataFrame:
        """As PySpark's: ``func(left, right)`` or ``func(key, left, right)`` for each key that a batch has rows of, on
        either side; ``schema`` are the columns of what it gives.

        Nothing is kept between batches. It sees data rows only; rows of different epochs, as those in front of a
        barrier and those behind it, do not meet. Event times end here, as in Spark. Raises as Spark does; what ``func``
        raises ends the query::

            def priced(orders: pd.DataFrame, prices: pd.DataFrame) -> pd.DataFrame:
                return pd.merge_asof(orders, prices, on="at", by="item")

            orders.groupBy("item").cogroup(prices.groupBy("item")).applyInPandas(priced, "at timestamp, ...")
        """
        out = self._columns("applyInPandas", func, schema)
        by_name = pandas_options(self._left._parent._session.spark.conf)["assign_cols_by_name"]
        return self._of_batches("applyInPandas", func, Frames(user_columns(out.fieldNames()), by_name), out)

    def applyInArrow(self, func: Callable[..., Any], schema: T.StructType | str) -> CkptDataFrame:
        """As PySpark's: :meth:`applyInPandas` with ``pyarrow.Table``."""
        out = self._columns("applyInArrow", func, schema)
        return self._of_batches("applyInArrow", func, Tables(to_arrow_schema(out, timezone="UTC")), out)

    def _columns(self, what: str, func: Callable[..., Any], schema: T.StructType | str) -> T.StructType:
        """Of what comes out, the control columns last. Raises as Spark does."""
        one, other = (side._parent._in_spark().groupBy(*_keys(side)) for side in (self._left, self._right))
        asked = getattr(one.cogroup(other), what)(func, schema)
        return with_control(asked.schema)

    def _of_batches(self, what: str, func: Callable[..., Any], form: Form, out: T.StructType) -> CkptDataFrame:
        called = around_both_sides(func, form)
        left = self._left._parent
        one, other = _Side.of(self._left, left), _Side.of(self._right, self._right._parent._beside(left))

        def make(ctx: Any) -> Chain:
            both = one.grouped(ctx).cogroup(other.grouped(ctx))
            return Chain(getattr(both, what)(called, out), out)

        lineage = one.df._lineage.without_event_time().union(other.df._lineage.without_event_time(), "cogroup")
        _refuse_without_epochs(lineage)
        recipe = Recipe(make, (one.df._recipe, other.df._recipe))
        session = left._session
        return type(left)(session, recipe, replace(lineage, open_watermarks=()), session.preview(out))


@dataclass(frozen=True)
class _Side:
    """The rows of one side, and the columns that are its keys."""

    df: CkptDataFrame
    keys: list[str]

    @classmethod
    def of(cls, grouped: CkptGroupedData, df: CkptDataFrame) -> _Side:
        """Keys that are expressions are columns of their own, computed for data rows."""
        found = grouped._keys.expressions if grouped._given else {}
        names = {name: name if name in grouped._keys.columns else f"{BY}{i}" for i, name in enumerate(found)}
        computed = {names[name]: found[name] for name in found if names[name] != name}
        if computed:
            df = df._operation("cogroup", lambda rows: rows.withColumns(computed), check=True)
        return cls(df, list(names.values()))

    def grouped(self, ctx: Any) -> Any:
        epoch = F.col(TAG).bitwiseAND(F.lit(~STREAM_MASK))
        return ctx.frame(self.df._recipe).groupBy(*[F.col(quoted(key)) for key in self.keys], epoch, F.col(CTL))


def cogrouped(left: CkptGroupedData, right: Any) -> CkptCogroupedData:
    """See :meth:`spark_ckpt.api._batch_groups.BatchGroups.cogroup`."""
    if not isinstance(right, type(left)):
        raise InvalidInputError(
            f"cogroup expects groupBy(...) of another stream of ckpt.readStream, found {type(right).__name__}"
        )
    for side in (left, right):
        side._refuse_window()
    return CkptCogroupedData(left, right)


def _refuse_without_epochs(lineage: Lineage) -> None:
    """Rows that Spark's sources read have no epochs, so they would meet no others."""
    by_spark = any(source.by_spark for source in lineage.sources)
    if by_spark and (len(lineage.sources) > 1 or lineage.operators):
        raise InvalidInputError(
            "cogroup of a stream that Spark reads, readStream.spark(...), and rows that spark_ckpt reads or operators "
            "put out: they have no epochs in common. Read both sides in the same way, and cogroup them in front of "
            "operators; or union both, with a column that tells them apart, in front of one keyed function"
        )


def _keys(grouped: CkptGroupedData) -> list[Any]:
    return list(grouped._keys.expressions.values()) if grouped._given else []
