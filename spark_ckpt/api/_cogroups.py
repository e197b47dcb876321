"""``a.groupBy("k").cogroup(b.groupBy("k"))``: the groups that two streams, or a stream and a static DataFrame, have in
a batch, without state. Driver only.

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
from spark_ckpt.plan.as_called import as_called
from spark_ckpt.plan.batch_epochs import with_epochs, with_true_epochs
from spark_ckpt.plan.chain import Chain, Recipe
from spark_ckpt.plan.columns import quoted, refuse_reserved, user_columns
from spark_ckpt.plan.java_classes import EXPRESSION_UTILS, java_class
from spark_ckpt.plan.session_confs import pandas_options
from spark_ckpt.plan.udf_plan import items_of
from spark_ckpt.runtime.batch_groups import BY, Form, Frames, Tables, around_both_sides
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.types import CTL, STREAM_MASK, TAG

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame
    from spark_ckpt.api.grouped import CkptGroupedData
    from spark_ckpt.plan.lineage import Lineage

SparkDF = Any


class CkptCogroupedData(Hinting):
    """What ``cogroup`` returns: two groupings, of the same number of keys."""

    def __init__(self, left: CkptGroupedData, right: CkptGroupedData | StaticGroups) -> None:
        self._left, self._right = left, right

    def applyInPandas(self, func: Callable[..., Any], schema: T.StructType | str) -> CkptDataFrame:
        """As PySpark's: ``func(left, right)`` or ``func(key, left, right)`` for each key that a batch has rows of, on
        either side; ``schema`` are the columns of what it gives.

        Nothing is kept between batches. It sees data rows only; rows of different epochs, as those in front of a
        barrier and those behind it, do not meet. A static side's rows meet those of each epoch; keys that it alone has
        come once in each batch that reads something, as in Spark. Event times end here, as in Spark. Raises as Spark
        does; what ``func`` raises ends the query::

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
        one, other = map(_as_in_spark, (self._left, self._right))
        asked = getattr(one.cogroup(other), what)(func, schema)
        return with_control(asked.schema)

    def _of_batches(self, what: str, func: Callable[..., Any], form: Form, out: T.StructType) -> CkptDataFrame:
        left, static = self._left._parent, isinstance(self._right, StaticGroups)
        called = around_both_sides(as_called(func, left._session.spark), form, static)
        one, other = _Side.of(self._left, left), self._other()
        lineage = one.lineage.union(other.lineage, "cogroup") if isinstance(other, _Side) else one.lineage
        none_meet = static or len(lineage.sources) > 1 or bool(lineage.operators)

        def make(ctx: Any) -> Chain:
            both = one.grouped(ctx, none_meet).cogroup(other.grouped(ctx, none_meet))
            return Chain(getattr(both, what)(called, out), out)

        recipes = (one.df._recipe, *([other.df._recipe] if isinstance(other, _Side) else []))
        lineage = replace(lineage, open_watermarks=(), marks_reads=lineage.marks_reads or static)
        return type(left)(left._session, Recipe(make, recipes), lineage, left._session.preview(out))

    def _other(self) -> _Side | StaticGroups:
        right = self._right
        return right if isinstance(right, StaticGroups) else _Side.of(right, right._parent._beside(self._left._parent))


@dataclass(frozen=True)
class _Side:
    """The rows of a stream, and the columns that are its keys."""

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

    @property
    def lineage(self) -> Lineage:
        return self.df._lineage.with_watermarks_told()

    def grouped(self, ctx: Any, none_meet: bool) -> Any:
        """``none_meet``: rows without epochs, as Spark's own sources read them, would meet no others."""
        rows = ctx.frame(self.df._recipe)
        if none_meet and any(source.by_spark for source in self.lineage.sources):
            rows = with_true_epochs(ctx, rows)
        return _with_own(rows, self.keys)


@dataclass(frozen=True)
class StaticGroups:
    """``groupBy`` of a static DataFrame."""

    groups: Any

    def grouped(self, ctx: Any, _: bool) -> Any:
        rows, found = self.groups._df, self._keys()
        names = [f"{BY}{i}" for i in range(len(found))]
        keyed = rows.withColumns(dict(zip(names, found, strict=True))) if found else rows
        return _with_own(with_epochs(ctx, keyed), names)

    def _keys(self) -> list[Any]:
        """Its columns, which classic Spark has in the JVM only."""
        if not hasattr(self.groups, "_jgd"):
            return list(self.groups._grouping_cols)
        from pyspark.sql.classic.column import Column

        convert = java_class(EXPRESSION_UTILS)
        return [Column(convert.column(e)) for e in items_of(self.groups._jgd.groupingExprs())]


def cogrouped(left: CkptGroupedData, right: Any) -> CkptCogroupedData:
    """See :meth:`spark_ckpt.api._batch_groups.BatchGroups.cogroup`."""
    left._refuse_repeated()
    if isinstance(right, type(left)):
        right._refuse_repeated()
        return CkptCogroupedData(left._by_columns(), right._by_columns())
    static = getattr(right, "_df", None) if hasattr(right, "cogroup") else None
    if static is None or static.isStreaming:
        raise InvalidInputError(
            "cogroup expects groupBy(...) of another stream of ckpt.readStream, or of a static DataFrame, found "
            + ("that of a stream of Spark's own, whose rows have no barriers" if static else type(right).__name__)
        )
    refuse_reserved(static.columns, "the static side")
    return CkptCogroupedData(left._by_columns(), StaticGroups(right))


def _as_in_spark(side: CkptGroupedData | StaticGroups) -> Any:
    if isinstance(side, StaticGroups):
        return side.groups
    return side._parent._in_spark().groupBy(*(side._keys.expressions.values() if side._given else []))


def _with_own(rows: SparkDF, keys: list[str]) -> Any:
    """By the keys, the epoch and the control column."""
    epoch = F.col(TAG).bitwiseAND(F.lit(~STREAM_MASK))
    return rows.groupBy(*[F.col(quoted(key)) for key in keys], epoch, F.col(CTL))
