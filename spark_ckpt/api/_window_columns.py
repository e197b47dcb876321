"""Windows in columns, ``select("k", F.window("t", "1 hour"))``: rows come once for each of their windows. Driver only.

Spark's analyzer puts a projection with the window, and a filter of the rows that have no time, below the expression;
both would change control rows. Here the window is assigned as it is for ``groupBy``, in a hidden column that the
expression then reads, with what Spark notes of windows: ``groupBy("window")`` behind it is one by event time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.api._windows import window_column
from spark_ckpt.plan.columns import is_case_sensitive, quoted
from spark_ckpt.plan.key_columns import column_named
from spark_ckpt.plan.window_calls import may_have_window, with_columns_for_windows

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

HIDDEN = "__ckpt_window"


def with_windows(df: CkptDataFrame, columns: Sequence[Any]) -> tuple[CkptDataFrame, list[Any]] | None:
    """``df`` with a hidden column for the window that is in ``columns``, and these over that. None: there is none.

    Raises Spark's ``AnalysisException`` for several windows.
    """
    calls: list[Column] = []

    def put(call: Column) -> Column:
        calls.append(call)
        return F.col(HIDDEN)

    found = [with_columns_for_windows(c, put) if may_have_window(c) else c for c in columns]
    if not calls:
        return None
    _ = df._in_spark().select(*columns).columns  # Spark says what is wrong with them
    named = [_named(df, c, new) for c, new in zip(columns, found, strict=True)]
    return window_column(df, calls[0], HIDDEN), named


def without_window(df: CkptDataFrame) -> CkptDataFrame:
    """``df`` without the hidden column, which a star takes in."""
    return df._columns([name for name in df.columns if name != HIDDEN]) if HIDDEN in df.columns else df


def replaced_by_name(df: CkptDataFrame, columns: Mapping[str, Column]) -> list[Column]:
    """What ``withColumns`` of ``df`` selects. Its own projection would not hand on, on Spark Connect, what is noted of
    windows."""
    sensitive, new = is_case_sensitive(df._session.spark), {}
    for name, column in columns.items():
        new[column_named(df.columns, quoted(name), sensitive) or name] = column.alias(name)
    return [*(new.pop(c, F.col(quoted(c))) for c in df.columns), *new.values()]


def _named(df: CkptDataFrame, column: Any, new: Any) -> Any:
    """By the name that Spark gives to the expression with the window in it."""
    if new is column:
        return column
    names = df._in_spark().select(column).columns
    return new.alias(names[0]) if len(names) == 1 else new
