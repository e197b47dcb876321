"""``WithWatermark``: which column is the event time, and how late its rows may be. Driver; Spark Connect."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import quoted
from spark_ckpt.execution.event_time import DELAY_KEY
from spark_ckpt.execution.lineage import WatermarkNode
from spark_ckpt.names import free
from spark_ckpt.operators import handlers
from spark_ckpt.operators.groups import InSessions
from spark_ckpt.operators.walks import python_step, renamed
from spark_ckpt.operators.windows import WINDOW_KEYS, Session, TimeWindow, session_times
from spark_ckpt.plan.relations._columns import bare, column, is_whole, place_of
from spark_ckpt.plan.relations._row_by_row import step
from spark_ckpt.plan.relations._translation import Rows, Translation, rows_of
from spark_ckpt.plan.relations._tree import all_parts, kind_of, over, parts_of, rewritten, walk
from spark_ckpt.plan.relations._window_calls import SessionCall, is_call, is_window, session_call, window_size
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.runtime.stateless import Project
from spark_ckpt.runtime.windows import AssignSessions, AssignWindows, TakeSessions, TakeStarts, WindowSize
from spark_ckpt.types import CONTROL_COLUMNS

Relation = Any


def watermark(of: Translation, node: Relation) -> Rows:
    """Rows are numbered with their watermark's stream. Spark notes of one column that it is the event time."""
    rows = of.with_own_names(of.rows(node._child))
    found = of.schema(node)
    (place,) = (i for i, f in enumerate(found.fields) if DELAY_KEY in f.metadata)
    names = rows.schema.names
    known = WatermarkNode(names[place], int(found.fields[place].metadata[DELAY_KEY]) * 1000, rows.lineage.sources)
    return handlers.with_watermark(of, node, rows, known, renamed(found, names))


Expression = Any


@dataclass(frozen=True)
class CalledWindow(TimeWindow):
    """``call`` as the user wrote it, None for a column that has windows already, which is in ``place``."""

    time: Column | None
    call: Expression | None = None
    place: int | None = None


@dataclass(frozen=True)
class WithWindows:
    """Rows with their windows, in the column ``shown``, and the starts of those, in ``key``."""

    rows: Rows
    shown: str
    key: str


def call_in(node: Relation) -> Expression | None:
    """The window, or the session, that ``node`` computes: Spark takes one."""
    return next((e for e in all_parts(node) if is_window(e)), None)


def window_of(of: Translation, rows: Rows, e: Expression) -> CalledWindow | None:
    """The window that ``e`` is: a call, or a column that has some already. None: it is none."""
    call = bare(e)
    if is_call(call):
        (field,) = of.schema(P.Project(rows.plan, [column(e)])).fields
        return CalledWindow(window_size(of.spark, call), field, column(call._args[0]), call)
    place = place_of(of, rows, call)
    field = None if place is None else rows.schema.fields[place]
    if field is None or WINDOW_KEYS["window"] not in field.metadata:
        return None
    return CalledWindow(_size_below(of, rows.plan, field.name), field, None, place=place)


def _size_below(of: Translation, node: Relation, name: str) -> WindowSize:
    """Of the windows in a column: those that are computed below."""
    own = [each for each in walk(node) if kind_of(each) == "Project" and _alias_of_last(each) == name]
    calls = {repr(e._args[1:]): e for each in own or walk(node) for e in all_parts(each) if is_call(e)}
    if len(calls) != 1:
        raise InvalidInputError(
            f"{name}: expected one F.window(...) in front of a group by a column of windows, found {len(calls)}; group "
            "by the window's start instead"
        )
    (call,) = calls.values()
    size = window_size(of.spark, call).size
    return WindowSize(size, size)


def _alias_of_last(project: Relation) -> str | None:
    """What :func:`hidden_window` calls a window."""
    last = project._columns[-1]._expr if project._columns else None
    return last._alias[0] if isinstance(last, E.ColumnAlias) and is_call(bare(last)) else None


def windowed(of: Translation, rows: Rows, window: CalledWindow, name: str, newest: bool = False) -> WithWindows:
    """The rows, each once for each of its windows, or for the ``newest`` of them."""
    rows = of.with_own_names(rows)
    if window.place is not None:
        shown, key = rows.schema.names[window.place], free(f"{name}_start", rows.schema.names)
        schema = T.StructType([*rows.schema.fields, T.StructField(key, T.TimestampType())])
        return WithWindows(_in_python(rows, TakeStarts(shown, key), schema), shown, key)
    rows, time = _with_time(of, window, rows)
    schema = window.added(rows.schema, name)
    shown, key = schema.names[-2:]
    operation = AssignWindows(time, shown, key, window.size, newest, window.local)
    return WithWindows(_in_python(rows, operation, schema), shown, key)


def _in_python(rows: Rows, operation: Operation, schema: T.StructType) -> Rows:
    made = python_step(rows, operation, schema)
    return replace(rows, recipe=made.recipe, schema=schema, shown=tuple(schema.names))


def _with_time(of: Translation, window: CalledWindow, rows: Rows) -> tuple[Rows, str]:
    assert window.time is not None
    return with_time(of, rows, window.time, "window_time", window.local)


def with_time(of: Translation, rows: Rows, time: Column, name: str, local: bool = False) -> tuple[Rows, str]:
    """The rows, and the column of the time, which may have to be computed: ``name`` is what it is called then."""
    place = place_of(of, rows, time._expr)
    kind = None if place is None else rows.schema.fields[place].dataType
    if place is not None and isinstance(kind, T.TimestampType | T.TimestampNTZType):
        return rows, rows.schema.names[place]
    time = F.window_time(time) if isinstance(kind, T.StructType) else time
    name = free(name, rows.shown)
    value = time if local else time.cast("timestamp")
    return step(of, P.Project(rows.plan, [column(E.UnresolvedStar(None)), value.alias(name)]), rows), name


def hidden_window(of: Translation, rows: Rows, columns: list[Column], name: str) -> tuple[Rows, list[Column]]:
    """``rows`` with the window that ``columns`` compute in a column ``name``, and ``columns`` over that; both as they
    are if they compute none."""
    call = next((e for c in columns for e in parts_of(c._expr) if is_window(e)), None)
    if call is None:
        return rows, columns
    asked = P.Project(rows.plan, [column(E.UnresolvedStar(None)), column(call).alias(name)])
    put, found = _put(call, name), list[Column]()
    for c in columns:
        new = rewritten(c._expr, put)
        found.append(c if new is c._expr else column(new))
    return with_window(of, asked, rows, call), found


def _put(call: Expression, name: str) -> Callable[[Expression], Expression | None]:
    """The column ``name`` in place of ``call``. In a struct, a window has its function's name."""
    reference = E.ColumnReference(quoted(name))

    def put(e: Expression) -> Expression | None:
        if is_window(e) and repr(e) == repr(call):
            return reference
        if isinstance(e, E.UnresolvedFunction) and e._name.lower() == "struct" and any(map(is_window, e._args)):
            named = copy.copy(e)
            named._args = [E.ColumnAlias(put(a) or a, [a._name.lower()], None) if is_window(a) else a for a in e._args]
            return rewritten(named, put)
        return None

    return put


def with_window(of: Translation, node: Relation, rows: Rows, call: Expression) -> Rows:
    """What ``node``, which computes one, makes of ``rows``."""
    name = free("__ckpt_windows", rows.schema.names)
    assigned = _with_own_session(of, rows, call, name) if not is_call(call) else _with_own_window(of, rows, call, name)
    out = step(of, over(node, assigned.plan, **_parts(of, node, rows, call, name)), assigned)
    if kind_of(node) == "WithColumns":
        out = step(of, P.Drop(out.plan, list(assigned.shown[len(rows.shown) :])), out)
    elif kind_of(node) == "Filter":  # Spark leaves the window in front of the columns
        out = step(of, P.Project(out.plan, [F.col(quoted(name)).alias(call._name.lower()), *_columns_of(rows)]), out)
    return replace(out, plan=node, schema=of.schema(node), shown=tuple(of.schema(node).names))


def _with_own_window(of: Translation, rows: Rows, call: Expression, name: str) -> Rows:
    window = window_of(of, rows, call)
    assert window is not None
    rows, time = _with_time(of, window, of.with_own_names(rows))
    made = windowed(of, rows, replace(window, time=F.col(quoted(time))), name)
    asked = P.WithColumns(rows.plan, [made.shown], [column(call)])
    asked = P.WithColumns(asked, [made.key], [F.col(quoted(made.shown)).start])
    return replace(made.rows, plan=asked, shown=(*rows.shown, made.shown, made.key))


def _with_own_session(of: Translation, rows: Rows, call: Expression, name: str) -> Rows:
    """The session that each row makes by itself. Rows without a time, or whose session would not last, are in none."""
    said = session_call(call)
    (field,) = of.schema(P.Project(rows.plan, [column(call)])).fields
    rows, time = with_time(of, rows, said.time, f"{name}_time")
    start = F.col(quoted(time))
    struct = F.struct(start.alias("start"), (start + said.gap.cast("interval")).alias("end"))
    made = step(of, P.WithColumns(rows.plan, [name], [struct.alias(name, metadata=field.metadata)]), rows)
    shown = F.col(quoted(name))
    return step(of, P.Filter(made.plan, shown.end > shown.start), made)


def _columns_of(rows: Rows) -> list[Column]:
    return [column(E.ColumnReference(quoted(name), rows.plan._plan_id)) for name in rows.shown]


def _parts(of: Translation, node: Relation, rows: Rows, call: Expression, name: str) -> dict[str, Any]:
    """What stands in ``node``, with the column ``name`` for ``call``."""

    put = _put(call, name)
    if kind_of(node) == "Filter":
        return {"filter": column(rewritten(node.filter._expr, put))}
    if kind_of(node) == "WithColumns":
        return {"_columns": [column(rewritten(c._expr, put)) for c in node._columns]}
    if kind_of(node) != "Project":
        raise InvalidInputError(f"{kind_of(node)}: compute F.window in a column in front of it, by withColumn")
    found: list[Column] = []
    for c in node._columns:
        new = rewritten(c._expr, put)
        if is_whole(c._expr):
            found += _columns_of(rows)
        elif new is c._expr or isinstance(new, E.ColumnAlias):
            found.append(column(new))
        else:
            found.append(column(new).alias(of.schema(P.Project(rows.plan, [c])).names[0]))
    return {"_columns": found}


def starts_alone(made: WithWindows, columns: int) -> Rows:
    """The first ``columns`` of the rows, and the start of the window behind them."""
    fields = made.rows.schema.fields
    schema = T.StructType([*fields[:columns], fields[-1]])
    return _in_python(made.rows, Project([*schema.names, *CONTROL_COLUMNS]), schema)


@dataclass(frozen=True)
class CalledSession(Session):
    """``call``, or sessions that are in ``column`` of the rows."""

    call: SessionCall | None
    column: int | None


def session_of(of: Translation, rows: Rows, e: Expression, at: int) -> CalledSession | None:
    """The session that key number ``at`` is; None: it is none."""
    call = bare(e)
    if is_window(call) and not is_call(call):
        (field,) = of.schema(P.Project(rows.plan, [column(e)])).fields
        return CalledSession(at, field, session_call(call), None)
    place = place_of(of, rows, call)
    if place is None or WINDOW_KEYS["session_window"] not in rows.schema.fields[place].metadata:
        return None
    return CalledSession(at, rows.schema.fields[place], None, place)


def in_sessions(of: Translation, rows: Rows, session: CalledSession, name: str) -> InSessions[Rows]:
    """``rows``; ``name`` is what the session is called in the state."""
    rows = of.with_own_names(rows)
    start, end = session_times(name, rows.schema.names)
    if session.call is None:
        assert session.column is not None
        return _with_times(rows, TakeSessions(rows.schema.names[session.column], start, end), start, end)
    rows, at = with_time(of, rows, session.call.time, f"{name}_time")
    gap_us = session.call.gap_us
    if gap_us is None:
        until = F.col(quoted(at)) + session.call.gap.cast("interval")
        rows = step(of, P.Project(rows.plan, [column(E.UnresolvedStar(None)), until.alias(end)]), rows)
    return _with_times(rows, AssignSessions(at, start, end, gap_us), start, end)


def _with_times(rows: Rows, operation: Operation, start: str, end: str) -> InSessions[Rows]:
    times = [T.StructField(name, T.TimestampType()) for name in (start, end)]
    kept = [f for f in rows.schema.fields if f.name != end]
    asked = P.WithColumns(rows.plan, [start, end], [F.lit(None).cast("timestamp")] * 2)
    shown = (*(n for n in rows.shown if n != end), start, end)
    if len(kept) < len(rows.schema.fields):
        asked = P.Project(asked, [F.col(quoted(n)) for n in shown])
    made = rows_of(python_step(rows, operation, T.StructType([*kept, *times])), asked)
    return InSessions(replace(made, shown=shown, parts=rows.parts), start, end)
