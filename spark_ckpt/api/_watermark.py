"""Filters behind ``withWatermark``, where Spark's optimizer has them: in front of it, if they do not look at the event
time. So what they leave out does not bring the watermark on. Driver only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import Column

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.attributes import same
from spark_ckpt.plan.event_time import event_times
from spark_ckpt.plan.filter_order import goes_in_front, only_hands_on
from spark_ckpt.plan.plan_check import plan_nodes

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame


Again = Callable[["CkptDataFrame"], "CkptDataFrame"]
"""A projection, done once more over other rows."""


class Ahead(Protocol):
    """What a DataFrame is made of, so that a filter can be put in front of a watermark in it."""

    def where(self, condition: Column) -> CkptDataFrame:
        """With ``condition`` in front of all of it."""

    def filtered(self, condition: Column) -> Ahead:
        """That of the DataFrame with ``condition`` behind it."""

    def through(self, again: Again, time: str) -> Ahead | None:
        """That of the DataFrame with ``again`` behind it, a projection whose event time is ``time``."""

    def called(self, alias: str, before: str | None) -> Ahead | None:
        """That of the DataFrame by an alias; ``before``: what it was called."""


@dataclass(frozen=True)
class OneAhead:
    """A DataFrame is ``rows.withWatermark(column, delay)``, and behind it the ``filters`` that look at the event time.

    ``rows`` may have been projected in place of what is behind the watermark.
    """

    rows: CkptDataFrame
    column: str
    delay: str
    filters: tuple[Column, ...] = ()

    def where(self, condition: Column) -> CkptDataFrame:
        made = self.rows.where(condition).withWatermark(self.column, self.delay)
        for behind in self.filters:
            made = made.where(behind)
        return made

    def filtered(self, condition: Column) -> Ahead:
        return replace(self, filters=(*self.filters, condition))

    def through(self, again: Again, time: str) -> Ahead | None:
        same = all(_may_follow(again, self.rows, condition) for condition in self.filters)
        return replace(self, rows=again(self.rows), column=time) if same else None

    def called(self, alias: str, before: str | None) -> Ahead | None:
        # Filters may name columns by the alias that is gone.
        return None if self.filters and before else replace(self, rows=self.rows.alias(alias))


def _may_follow(again: Again, rows: CkptDataFrame, condition: Column) -> bool:
    """Whether a filter says the same behind ``again`` as in front of it: of the same columns, as one plan has both."""
    try:
        nodes = again(rows.where(condition)).where(condition)._nodes
    except (AnalysisException, InvalidInputError):  # a column that is not there any more
        return False
    return nodes[0].name == "Filter" and any(node.text == nodes[0].text for node in nodes[1:])


@dataclass(frozen=True)
class BothAhead:
    """A DataFrame is the ``union`` of two with the same columns: a filter goes to both, and there as far as it does."""

    sides: tuple[CkptDataFrame, CkptDataFrame]
    union: Callable[[CkptDataFrame, CkptDataFrame], CkptDataFrame]

    def where(self, condition: Column) -> CkptDataFrame:
        one, other = self.sides
        return self.union(one.where(condition), other.where(condition))

    def filtered(self, condition: Column) -> Ahead:
        return self._with(lambda side: side.where(condition))

    def through(self, again: Again, time: str) -> Ahead | None:
        return self._with(again)

    def called(self, alias: str, before: str | None) -> Ahead | None:
        return self._with(lambda side: side.alias(alias))

    def _with(self, behind: Again) -> Ahead:
        one, other = self.sides
        return replace(self, sides=(behind(one), behind(other)))


FindAhead = Callable[[], Ahead | None]
"""Looks only when it is asked: most DataFrames are not filtered any more."""


def ahead_of_union(
    made: CkptDataFrame,
    one: CkptDataFrame,
    other: CkptDataFrame,
    union: Callable[[CkptDataFrame, CkptDataFrame], CkptDataFrame],
) -> FindAhead | None:
    """What is ahead of the union ``made``, whose sides have columns of the same names and types."""
    fields = ([(f.name, f.dataType) for f in side.schema.fields] for side in (one, other))
    timed = one._ahead is not None or other._ahead is not None
    alike = timed and next(fields) == next(fields)

    def found() -> Ahead:
        return BothAhead((_with_columns_of(one, made), _with_columns_of(other, made)), union)

    return found if alike else None


def in_front(df: CkptDataFrame, conditions: Sequence[Column]) -> CkptDataFrame | None:
    """``df`` with the filters ``conditions``, all of which have to hold; None if none is moved in front of a watermark.

    The others stay behind, as one filter.
    """
    moves = [df._ahead is not None and goes_in_front(plan_nodes(df._preview.where(c))) for c in conditions]
    ahead = df._ahead() if df._ahead is not None and any(moves) else None
    if ahead is None:
        return None
    made = ahead.where(_all(c for c, moved in zip(conditions, moves, strict=True) if moved))
    made._recipe = replace(made._recipe, also=df._recipe.numbers())
    made = _with_columns_of(made, df)
    behind = [c for c, moved in zip(conditions, moves, strict=True) if not moved]
    return made.where(_all(behind)) if behind else made


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(and_, conditions)


def _with_columns_of(df: CkptDataFrame, other: CkptDataFrame) -> CkptDataFrame:
    """``df``, in which what was taken from ``other``, or an earlier one, is found as there."""
    made = copy(df)
    made._attributes = same(other._attributes, range(len(other.columns)), df.columns)
    return made


def behind_filter(df: CkptDataFrame, condition: Column) -> FindAhead | None:
    """What is ahead of ``df`` and a filter of ``condition``, which stays where it is."""
    find = df._ahead

    def found() -> Ahead | None:
        ahead = find and find()
        return ahead.filtered(condition) if ahead else None

    return find and found


def behind_operation(df: CkptDataFrame, made: CkptDataFrame, again: Again) -> FindAhead | None:
    """What is ahead of ``made``, which is ``again(df)``: something if a filter may as well stand in front of that."""
    find = df._ahead

    def found() -> Ahead | None:
        ahead = find() if find is not None and only_hands_on(df._nodes, made._nodes) else None
        times = event_times(made.schema)
        return ahead.through(as_before, times[0].name) if ahead and len(times) == 1 else None

    def as_before(rows: CkptDataFrame) -> CkptDataFrame:
        return _with_columns_of(again(rows), made)

    return find and found


def behind_alias(df: CkptDataFrame, name: str) -> FindAhead | None:
    """What is ahead of ``df.alias(name)``."""
    find = df._ahead

    def found() -> Ahead | None:
        ahead = find and find()
        return ahead.called(name, df._alias) if ahead else None

    return find and found
