"""What is ahead of a DataFrame behind ``withWatermark``, by operation, for filters to go there. Driver only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Column

from spark_ckpt.api._ahead import (
    Again,
    Ahead,
    Behind,
    BehindState,
    BothAhead,
    Computed,
    FindAhead,
    behind_same,
    with_columns_of,
)
from spark_ckpt.plan.event_time import event_times
from spark_ckpt.plan.filter_order import lets_through, makes_rows, only_hands_on
from spark_ckpt.plan.moved_condition import handed_on

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame


def behind_filter(df: CkptDataFrame, condition: Column) -> FindAhead | None:
    """What is ahead of ``df`` and a filter of ``condition``, which stays where it is."""
    find = df._ahead

    def found() -> Ahead | None:
        ahead = find and find()
        return ahead and (ahead.filtered(condition) or behind_same(df, lambda rows: rows.where(condition)))

    return find and found


def behind_operation(
    df: CkptDataFrame, made: CkptDataFrame, again: Again, computed: Computed | None = None
) -> FindAhead | None:
    """What is ahead of ``made``, which is ``again(df)``: something if a filter may as well stand in front of that.

    ``computed``: the columns that are known to be expressions over ``df``.
    """
    find = df._ahead

    def found() -> Ahead | None:
        ahead, times = find and find(), event_times(made.schema)
        if ahead is None:
            return None
        swapped = len(times) == 1 and only_hands_on(df._nodes, made._nodes)
        through = ahead.through(as_before, times[0].name) if swapped else None
        passes = through is None and lets_through(df._nodes, made._nodes)
        return behind_handed_on(df, made, again, computed) if passes else through

    def as_before(rows: CkptDataFrame) -> CkptDataFrame:
        return with_columns_of(again(rows), made)

    return find and found


def behind_alias(df: CkptDataFrame, name: str) -> FindAhead | None:
    """What is ahead of ``df.alias(name)``."""
    find = df._ahead

    def found() -> Ahead | None:
        ahead = find and find()
        return ahead and (ahead.called(name, df._alias) or behind_same(df, lambda rows: rows.alias(name)))

    return find and found


def behind_handed_on(df: CkptDataFrame, made: CkptDataFrame, again: Again, computed: Computed | None = None) -> Ahead:
    """What is ahead of ``made``, which is ``again(df)`` and hands some columns of ``df`` on."""

    def columns() -> dict[int, Column]:
        found = handed_on(df._attributes, made._attributes)
        # A filter of what a generator makes stays behind it.
        return found if computed is None or makes_rows(df._nodes, made._nodes) else {**computed(made.columns), **found}

    return Behind(df, again, columns)


def behind_keys(df: CkptDataFrame, keys: Mapping[int, Column], again: Again) -> FindAhead | None:
    """What is ahead of ``again(df)``, some of whose columns are ``keys``, by their places."""
    find = df._ahead
    return find and (lambda: BehindState(df, again, lambda: keys) if find() else None)


def behind_table(df: CkptDataFrame, made: CkptDataFrame, again: Again, equal: Computed | None) -> FindAhead | None:
    """What is ahead of ``made``, which is ``again(df)``, a join with a table: a filter of the stream's columns goes in
    front of it, and of those of the table that are ``equal`` to some."""
    find = df._ahead
    return find and (lambda: behind_handed_on(df, made, again, equal) if find() else None)


def ahead_of_union(
    made: CkptDataFrame,
    one: CkptDataFrame,
    other: CkptDataFrame,
    union: Callable[[CkptDataFrame, CkptDataFrame], CkptDataFrame],
) -> FindAhead | None:
    """What is ahead of ``made``, the ``union`` of two whose columns, in their order, have the same types."""
    kinds = ([f.dataType for f in side.schema.fields] for side in (one, other))
    timed = one._ahead is not None or other._ahead is not None
    if not timed or next(kinds) != next(kinds):
        return None

    def found() -> Ahead:
        called = other if other.columns == one.columns else other._columns(other.columns, one.columns)
        return BothAhead((with_columns_of(one, made), with_columns_of(called, made)), union)

    return found
