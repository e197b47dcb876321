"""Windows in columns and conditions, ``select("k", F.window("t", "1 hour"))``: rows come once for each of theirs.
Driver only.

Spark's analyzer puts a projection with the window, and a filter of the rows that have no time, below the expression;
both would change control rows. Here the window is assigned as it is for ``groupBy``, in a hidden column that the
expression then reads, with what Spark notes of windows: ``groupBy("window")`` behind it is one by event time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.api._window_keys import time_of
from spark_ckpt.api._windows import window_column
from spark_ckpt.plan.columns import is_case_sensitive, quoted
from spark_ckpt.plan.event_time import event_times
from spark_ckpt.plan.key_columns import column_named
from spark_ckpt.plan.window_calls import may_have_window, with_columns_for_windows
from spark_ckpt.plan.windows import WINDOWS, is_window_call, time_window
from spark_ckpt.runtime.batch_groups import BY

if TYPE_CHECKING:
    from spark_ckpt.api._window_keys import WindowColumn
    from spark_ckpt.api.dataframe import CkptDataFrame

HIDDEN = f"{BY}window"


def with_windows(df: CkptDataFrame, columns: Sequence[Any]) -> tuple[CkptDataFrame, list[Any]] | None:
    """``df`` with a hidden column for the window that is in ``columns``, and these over that. None: there is none.

    Raises Spark's ``AnalysisException`` for several windows.
    """
    calls, found = over_hidden(columns)
    if not calls:
        return None
    _ = df._in_spark().select(*columns).columns  # Spark says what is wrong with them
    named = [_named(df, c, new) for c, new in zip(columns, found, strict=True)]
    return window_column(df, calls[0], HIDDEN), named


def where_window(df: CkptDataFrame, condition: Column) -> CkptDataFrame | None:
    """``df`` filtered by a window in ``condition``; None: there is none. Raises as :func:`with_windows`.

    As in Spark, the window is then the first of the columns, unless another one has its name, or the filter looks at
    columns that ``df`` has left out.
    """
    calls, (wanted,) = over_hidden([condition])
    if not calls:
        return None
    asked = df._in_spark().where(condition).columns
    if asked == df.columns and df._wider is not None:
        return df._wider().where(condition)._columns(df.columns)
    filtered = window_column(df, calls[0], HIDDEN)._filtered("where", wanted)
    first = asked[: -len(df.columns)]
    name = next(name for name in reversed(first) if name in WINDOWS)
    own = {c.replace(HIDDEN, name): c for c in filtered.columns if c not in df.columns}
    taken = {c.lower() for c in df.columns}
    first = [c for c in first if c.lower() not in taken]
    for computed in (c for c in first if c not in own):  # of a window of windows, the time that Spark made of those
        filtered = filtered.withColumn(computed, time_of(df, _time(df, calls[0])))
    return filtered._columns([*(own.get(c, c) for c in first), *df.columns], [*first, *df.columns])


def behind_windows(
    df: CkptDataFrame, keys: Sequence[Any], exprs: Sequence[Any] = (), bare_too: bool = False
) -> tuple[CkptDataFrame, list[Any], list[Any]] | None:
    """``df`` with hidden columns for a window, or the time of one, within a larger expression, one of a grouping's
    ``keys`` or of its aggregates ``exprs``, and these over them. None: there is none, at most a key that is a window.
    ``bare_too``: for that one as well.

    Raises as :func:`with_windows`.
    """
    bare = [not bare_too and may_have_window(key) and is_window_call(key) for key in keys]
    bare = [alone and True not in bare[:at] for at, alone in enumerate(bare)]  # what is there again is a column
    calls, _ = over_hidden([*(key for key, alone in zip(keys, bare, strict=True) if not alone), *exprs])
    times, found = _over_times([*keys, *exprs])
    if not (calls or times):
        return None
    asked = df._in_spark().groupBy(*keys).agg(*(exprs or [F.count(F.lit(1))]))  # Spark says what is wrong with them
    rows = df
    if calls:
        rows, (_, found) = window_column(df, calls[0], HIDDEN), over_hidden(found)
    if times:
        hidden = dict(zip(times, over_hidden(list(times.values()))[1], strict=True))
        rows = rows.select(*replaced_by_name(rows, hidden))
    named = [new if new is old else new.alias(n) for old, new, n in zip([*keys, *exprs], found, asked.columns)]
    sessions = [alone and "session_window" in str(key) for key, alone in zip(keys, bare, strict=True)]
    kept = [key if own else new for key, new, own in zip(keys, named, sessions)]
    return rows, kept, named[len(keys) :]


def windows_in_columns(df: CkptDataFrame, keys: Sequence[Any], window: WindowColumn) -> tuple[CkptDataFrame, list[Any]]:
    """``df`` with a hidden column for the ``window`` among a grouping's ``keys``, if it is not one, and those over it.

    Rows are late by it, if they have no other event time.
    """
    calls, found = over_hidden(keys)
    if calls:
        df = window_column(df, calls[0], HIDDEN)
        found[window.place] = found[window.place].alias(window.called)
    if window.event_time and not event_times(df.schema):
        df = df.withColumn(f"{HIDDEN}_time", F.window_time(F.col(HIDDEN) if calls else window.column))
    return df, found


def _over_times(columns: Sequence[Any]) -> tuple[dict[str, Column], list[Any]]:
    """Names of hidden columns for what calls of ``window_time`` give, and ``columns`` over those."""
    times: dict[str, Column] = {}

    def put(call: Column) -> Column:
        name = next((n for n, c in times.items() if str(c) == str(call)), f"{HIDDEN}_time_{len(times)}")
        times[name] = call
        return F.col(name)

    return times, [with_columns_for_windows(c, put, ("window_time",)) if may_have_window(c) else c for c in columns]


def over_hidden(columns: Sequence[Any]) -> tuple[list[Column], list[Any]]:
    """The calls of windows in ``columns``, and these over the hidden column in their place."""
    calls: list[Column] = []

    def put(call: Column) -> Column:
        calls.append(call)
        return F.col(HIDDEN)

    return calls, [with_columns_for_windows(c, put) if may_have_window(c) else c for c in columns]


def _time(df: CkptDataFrame, call: Column) -> Column:
    found = time_window(df._preview, call)
    assert found is not None
    return found.time


def without_window(df: CkptDataFrame) -> CkptDataFrame:
    """``df`` without the hidden column, which a star takes in."""
    return df._columns(shown(df.columns)) if HIDDEN in df.columns else df


def shown(columns: Iterable[str]) -> list[str]:
    """Without hidden ones."""
    return [name for name in columns if not name.startswith(HIDDEN)]


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
