"""Filters behind ``withWatermark``, where Spark's optimizer has them: in front of it, if they do not look at the event
time. So what they leave out does not bring the watermark on. Driver only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column

from spark_ckpt.plan.event_time import event_times
from spark_ckpt.plan.filter_order import goes_in_front, only_projects
from spark_ckpt.plan.plan_check import plan_nodes

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

SparkDF = Any


@dataclass(frozen=True)
class Ahead:
    """A DataFrame is ``rows.withWatermark(column, delay)``, and behind it the ``filters`` that look at the event time.

    ``rows`` may have been projected in place of what is behind the watermark.
    """

    rows: CkptDataFrame
    column: str
    delay: str
    filters: tuple[Column, ...] = ()

    def where(self, condition: Column) -> CkptDataFrame:
        """With ``condition`` in front of all of it."""
        made = self.rows.where(condition).withWatermark(self.column, self.delay)
        for behind in self.filters:
            made = made.where(behind)
        return made


FindAhead = Callable[[], Ahead | None]
"""Looks only when it is asked: most DataFrames are not filtered any more."""


def in_front(df: CkptDataFrame, condition: Column) -> CkptDataFrame | None:
    """``df.where(condition)``, if the filter is moved in front of a watermark."""
    if df._ahead is None or not goes_in_front(plan_nodes(df._preview.where(condition))):
        return None
    ahead = df._ahead()
    if ahead is None:
        return None
    made = ahead.where(condition)
    made._recipe = replace(made._recipe, also=df._recipe.numbers())
    return made


def behind_filter(df: CkptDataFrame, condition: Column) -> FindAhead | None:
    """What is ahead of ``df.where(condition)``, whose filter stays where it is."""
    find = df._ahead

    def found() -> Ahead | None:
        ahead = find and find()
        return replace(ahead, filters=(*ahead.filters, condition)) if ahead else None

    return find and found


def behind_operation(
    df: CkptDataFrame, made: CkptDataFrame, what: str, operation: Callable[[SparkDF], SparkDF]
) -> FindAhead | None:
    """What is ahead of ``made``, which is ``operation`` on ``df``: something if it only projects."""
    find = df._ahead

    def found() -> Ahead | None:
        ahead = find() if find is not None and only_projects(df._nodes, made._nodes) else None
        times = event_times(made.schema)
        if ahead is None or ahead.filters or len(times) != 1:
            return None
        return replace(ahead, rows=ahead.rows._operation(what, operation, check=True), column=times[0].name)

    return find and found


def behind_alias(df: CkptDataFrame, name: str) -> FindAhead | None:
    """What is ahead of ``df.alias(name)``."""
    find = df._ahead

    def found() -> Ahead | None:
        ahead = find and find()
        # Filters may name columns by the alias that is gone.
        known = ahead is not None and not (ahead.filters and df._alias)
        return replace(ahead, rows=ahead.rows.alias(name)) if ahead and known else None

    return find and found
