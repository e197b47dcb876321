"""``orderBy``, ``sort``, ``sortWithinPartitions`` and ``limit`` of a checkpointed stream. Driver only.

Rows of a stream have no order, but the whole result that output mode complete puts out at each checkpoint has one: its
rows come into one task, where Spark sorts them by their epoch first, as a batch may have several results. What follows
works on each row, so it keeps their order up to the sink's writer. In other modes a ``limit`` is an operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from spark_ckpt.api._keeps_columns import keeps_columns
from spark_ckpt.plan.attributes import with_tables
from spark_ckpt.plan.chain import Recipe
from spark_ckpt.plan.columns import listed, refuse_repeated
from spark_ckpt.plan.first_rows import first_rows, of_result
from spark_ckpt.plan.ordering import for_data_rows
from spark_ckpt.plan.plan_check import plan_nodes
from spark_ckpt.plan.spark_errors import SORTING, unsupported
from spark_ckpt.types import TAG

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

SparkDF = Any


class Ordered:
    """What :class:`spark_ckpt.api.dataframe.CkptDataFrame` has of them."""

    def orderBy(self: Any, *cols: Any, ascending: bool | int | Sequence[bool | int] = True) -> CkptDataFrame:
        """As PySpark's, behind an aggregation, for ``outputMode("complete")``: the whole result of each checkpoint
        comes in this order, through one task. ``cols`` and ``ascending`` are PySpark's: names, numbers of columns,
        expressions such as ``F.desc("n")``.

        Raises ``InvalidInputError`` where there is no aggregation, as Spark does; ``start`` raises it for other output
        modes::

            counts.orderBy(F.desc("n")).limit(10).writeStream.outputMode("complete").format("console")
        """
        return _sorted(self, "orderBy", listed(cols), ascending, one_task=True)

    sort = orderBy

    def sortWithinPartitions(
        self: Any, *cols: Any, ascending: bool | int | Sequence[bool | int] = True
    ) -> CkptDataFrame:
        """As PySpark's: :meth:`orderBy` within each task, for ``outputMode("complete")``. Raises as that does."""
        return _sorted(self, "sortWithinPartitions", listed(cols), ascending, one_task=False)

    @keeps_columns(visible=True)
    def limit(self: Any, num: int, *, uid: str | None = None) -> CkptDataFrame:
        """As PySpark's: ``num`` rows of all that ever come, restarts and restores included, whichever arrive first.

        It counts in one task; ``uid`` is the counter's name in checkpoints. Behind an aggregation, in
        ``outputMode("complete")``, it is ``num`` rows of each checkpoint's result, in the order of :meth:`orderBy` if
        there is one, and counts nothing over time. Raises as Spark does for numbers below 0; ``start`` raises
        ``InvalidInputError`` in output mode update, as Spark does.
        """
        _ = self._in_spark().limit(num).columns  # raises as Spark does
        refuse_repeated(self.columns, self._session.spark)
        lineage = replace(self._lineage, is_limited=True)
        if lineage.is_sorted:
            return self._made(
                Recipe(lambda ctx: of_result(ctx, self._recipe, num), (self._recipe,)), lineage, self._preview
            )
        return _counted(self, num, uid)


def _sorted(df: CkptDataFrame, what: str, cols: list[Any], ascending: Any, one_task: bool) -> CkptDataFrame:
    if not df._lineage.whole_result or df._joined is not None:
        raise unsupported(
            f"{SORTING}: behind groupBy(...).agg(...). Elsewhere rows inside a batch have no order: "
            'aggregate(..., emit="rows", orderBy="t") computes in order; or sort where the results are read'
        )
    cols = [with_tables(df._attributes, c, df._preview) for c in cols]
    asked = df._in_spark().sort(*cols, ascending=ascending)
    _ = asked.columns  # raises as Spark does
    if df._wider is not None and plan_nodes(asked)[0].name != "Sort":  # by a column that a projection left out
        return _sorted(df._wider(), what, cols, ascending, one_task)._columns(df.columns)
    numbered = [F.col(df._quoted()[c - 1]) if isinstance(c, int) else c for c in cols]
    wanted = [TAG, *(for_data_rows(df._preview, df._nodes, c) for c in df._told_apart(numbered))]
    descending = [not up for up in ascending] if isinstance(ascending, list | tuple) else [not ascending] * len(cols)

    def in_order(rows: SparkDF) -> SparkDF:
        together = rows.repartition(1) if one_task else rows
        return together.sortWithinPartitions(*wanted, ascending=[True, *(not down for down in descending)])

    made = df._operation(what, in_order, stays="it looks at all rows of a result")
    made._lineage = replace(made._lineage, is_sorted=True)
    return made


def _counted(df: CkptDataFrame, n: int, uid: str | None) -> CkptDataFrame:
    from spark_ckpt.api._keyed import behind_operator, upstream_of
    from spark_ckpt.plan.keyed_operator import checked_uid

    made = first_rows(upstream_of(df), n, checked_uid(uid))
    return behind_operator(df, made, df.columns)
