"""Where filters go in front of ``withWatermark``: what a DataFrame is made of, and how it is made with them there.

Spark's optimizer has them there, if they do not look at the event time: what they leave out does not bring the
watermark on. Driver only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import Column

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.attributes import same
from spark_ckpt.plan.filter_order import goes_in_front
from spark_ckpt.plan.moved_condition import ConditionBehind, handed_on
from spark_ckpt.plan.plan_check import plan_nodes
from spark_ckpt.plan.trying import unlogged

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame


Again = Callable[["CkptDataFrame"], "CkptDataFrame"]
"""A projection, done once more over other rows."""


Computed = Callable[[Sequence[str]], Mapping[int, Column]]
"""Of columns by these names: those, by their places, that are known to be expressions."""


class Ahead:
    """What a DataFrame is made of, so that a filter of its columns can be put in front of a watermark in it."""

    def takes(self, _df: CkptDataFrame, _condition: Column) -> bool:
        """Whether a filter of ``df``, the DataFrame, goes there."""
        return True

    def where(self, df: CkptDataFrame, condition: Column) -> CkptDataFrame:
        """``df`` with such a filter."""
        raise NotImplementedError

    def filtered(self, _condition: Column) -> Ahead | None:
        """That of the DataFrame with ``condition`` behind it. None, here and below: it is as any other's."""
        return None

    def through(self, _again: Again, _time: str) -> Ahead | None:
        """That of the DataFrame with ``again`` behind it, a projection whose event time is ``time``."""
        return None

    def called(self, _alias: str, _before: str | None) -> Ahead | None:
        """That of the DataFrame by an alias; ``before``: what it was called."""
        return None


FindAhead = Callable[[], Ahead | None]
"""Looks only when it is asked: most DataFrames are not filtered any more."""


@dataclass(frozen=True)
class OneAhead(Ahead):
    """A DataFrame is ``timed(rows, column)``, and behind it the ``filters`` that look at the event time.

    ``rows`` may have been projected in place of what is behind the watermark.
    """

    rows: CkptDataFrame
    column: str
    timed: Callable[[CkptDataFrame, str], CkptDataFrame]
    filters: tuple[Column, ...] = ()

    def where(self, df: CkptDataFrame, condition: Column) -> CkptDataFrame:
        made = self.timed(self.rows.where(condition), self.column)
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
class BothAhead(Ahead):
    """A DataFrame is the ``union`` of two with the same columns: a filter goes to both, and there as far as it does."""

    sides: tuple[CkptDataFrame, CkptDataFrame]
    union: Callable[[CkptDataFrame, CkptDataFrame], CkptDataFrame]

    def where(self, df: CkptDataFrame, condition: Column) -> CkptDataFrame:
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


@dataclass(frozen=True)
class Behind(Ahead):
    """A DataFrame is ``again(rows)``, which hands columns on: ``columns`` are those, by their places, as of ``rows``.

    As ``groupBy`` does with its keys, and generators and joins with tables with what is there.
    """

    rows: CkptDataFrame
    again: Again
    columns: Callable[[], Mapping[int, Column]]

    def takes(self, df: CkptDataFrame, condition: Column) -> bool:
        over = self._over(df, condition)
        try:
            with unlogged():
                return over is not None and goes_ahead(self.rows, over)
        except AnalysisException:  # a name that says another column there, or none
            return False

    def where(self, df: CkptDataFrame, condition: Column) -> CkptDataFrame:
        over = self._over(df, condition)
        assert over is not None
        return self.again(self.rows.where(over))

    def _over(self, df: CkptDataFrame, condition: Column) -> Column | None:
        return condition_behind(df, condition).over(self.columns())


class BehindState(Behind):
    """The same behind an operator that keeps state, where rows may be since an earlier query had another filter."""

    def where(self, df: CkptDataFrame, condition: Column) -> CkptDataFrame:
        return filtered_behind(as_known(super().where(df, condition), df), condition)


def filtered_behind(rows: CkptDataFrame, condition: Column) -> CkptDataFrame:
    """``rows`` with a filter that is in front of them already, and is needed here, too."""

    def again(other: CkptDataFrame) -> CkptDataFrame:
        in_one_order = copy(other)
        in_one_order._ahead = None
        return in_one_order.where(condition)

    made = again(rows)
    made._ahead = lambda: behind_same(rows, again)
    return made


def condition_behind(df: CkptDataFrame, condition: Column) -> ConditionBehind:
    return ConditionBehind(condition, df._preview, df.columns, df._attributes, df._alias)


def goes_ahead(df: CkptDataFrame, condition: Column) -> bool:
    """Whether a filter of ``df`` is put in front of a watermark in it."""
    if df._ahead is None or not goes_in_front(plan_nodes(df._preview.where(condition))):
        return False
    ahead = df._ahead()
    return ahead is not None and ahead.takes(df, condition)


def in_front(df: CkptDataFrame, conditions: Sequence[Column]) -> CkptDataFrame | None:
    """``df`` with the filters ``conditions``, all of which have to hold; None if none is moved in front of a watermark.

    The others stay behind, as one filter.
    """
    moves = [goes_ahead(df, condition) for condition in conditions]
    made = _moved(df, [c for c, moved in zip(conditions, moves, strict=True) if moved])
    behind = [c for c, moved in zip(conditions, moves, strict=True) if not moved]
    return made.where(_all(behind)) if made is not None and behind else made


def with_implied(df: CkptDataFrame, conditions: Iterable[Column]) -> CkptDataFrame:
    """``df``, all of whose rows that count satisfy ``conditions``, without those that do not, where these filters go in
    front of a watermark."""
    found = _moved(df, [condition for condition in conditions if goes_ahead(df, condition)])
    return df if found is None else found


def _moved(df: CkptDataFrame, conditions: Sequence[Column]) -> CkptDataFrame | None:
    """``df`` with filters that go in front of a watermark; None without any."""
    ahead = df._ahead() if df._ahead is not None and conditions else None
    return None if ahead is None else as_known(ahead.where(df, _all(conditions)), df)


def as_known(made: CkptDataFrame, df: CkptDataFrame) -> CkptDataFrame:
    """``made``, which is ``df`` in another order of operations: what was taken from that is found in it."""
    made = with_columns_of(made, df)
    made._recipe = replace(made._recipe, also=df._recipe.numbers())
    return made


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(and_, conditions)


def with_columns_of(df: CkptDataFrame, other: CkptDataFrame) -> CkptDataFrame:
    """``df``, in which what was taken from ``other``, or an earlier one, is found as there."""
    made = copy(df)
    made._attributes = same(other._attributes, range(len(other.columns)), df.columns)
    return made


def behind_same(df: CkptDataFrame, again: Again) -> Ahead:
    """What is ahead of ``again(df)``, which has the columns of ``df``."""
    return Behind(df, again, lambda: handed_on(df._attributes, df._attributes))
