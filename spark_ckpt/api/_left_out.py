"""Filters that look at columns which a projection in front of them left out: Spark lets those through to the filter.

``orders.select("customer").where("amount > 10")`` is an example of Spark's own guide. Driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Column

from spark_ckpt.plan.plan_check import plan_nodes

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

Wider = Callable[[], "CkptDataFrame"]
"""Makes the same rows with the columns that were left out."""


def left_out(
    df: CkptDataFrame, made: CkptDataFrame, again: Callable[[CkptDataFrame, Sequence[str]], CkptDataFrame]
) -> Wider | None:
    """For ``made``, a projection of ``df``. ``again(rows, more)`` is that projection of other rows, with columns
    ``more`` of them, too."""
    if df._stream_side is not None:
        return None  # behind a join, a name alone may not say which column is meant

    def wider() -> CkptDataFrame:
        rows, known = (df if df._wider is None else df._wider()), {name.lower() for name in made.columns}
        found = again(rows, [name for name in rows.columns if name.lower() not in known])
        found._wider = None
        return found

    return wider


def behind_row_by_row(df: CkptDataFrame, again: Callable[[CkptDataFrame], CkptDataFrame]) -> Wider | None:
    """For ``again(df)``, which keeps all columns."""
    find = df._wider
    return find and (lambda: again(find()))


def filtered_in_front(df: CkptDataFrame, condition: Column) -> CkptDataFrame | None:
    """``df`` filtered by ``condition`` where its columns still are; None if ``df`` has them. Raises Spark's
    ``AnalysisException`` if nobody has."""
    if df._wider is None or plan_nodes(df._preview.where(condition))[0].name == "Filter":
        return None
    made = df._wider().where(condition)._columns(df.columns)
    made._recipe = replace(made._recipe, also=df._recipe.numbers())
    return made
