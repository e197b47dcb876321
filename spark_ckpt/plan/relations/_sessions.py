"""Sessions among the keys of an aggregation: each row comes with its own, and the operator merges those that overlap.
Driver; Spark Connect."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._event_time import DELAY_KEY
from spark_ckpt.plan._windows import WINDOW_KEYS, SessionWindow, time_window
from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.key_columns import stored_name
from spark_ckpt.plan.relations._columns import bare, column, place_of
from spark_ckpt.plan.relations._row_by_row import python_step, step
from spark_ckpt.plan.relations._translation import Rows, Translation, with_own_names
from spark_ckpt.plan.relations._windows import is_call, is_window, with_time
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.runtime.windows import AssignSessions, ShowSessions, TakeSessions

Expression = Any


@dataclass(frozen=True)
class Session:
    """Key number ``place``: ``call``, or sessions that are in ``column`` of the rows. ``field``: what Spark shows."""

    place: int
    field: T.StructField
    call: SessionWindow | None
    column: int | None

    @property
    def event_time(self) -> bool:
        """Whether a watermark ends the sessions."""
        return DELAY_KEY in self.field.metadata

    def shown(self, start: str, end: str, name: str, out: T.StructType) -> tuple[Operation, T.StructType]:
        """What puts the session, as Spark shows it, in place of its two times; and the columns behind that."""
        assert isinstance(self.field.dataType, T.StructType)
        local = isinstance(self.field.dataType.fields[0].dataType, T.TimestampNTZType)
        fields = [f for f in out.fields if f.name not in (start, end)]
        fields.insert(self.place, T.StructField(name, self.field.dataType, True, self.field.metadata))
        return ShowSessions(start, end, name, self.place, local), T.StructType(fields)


def session_among(of: Translation, rows: Rows, keys: list[Any]) -> Session | None:
    """Raises ``InvalidInputError`` where there are several."""
    found = [s for i, key in enumerate(keys) if (s := _session(of, rows, key._expr, i)) is not None]
    if len(found) > 1:
        raise InvalidInputError("groupBy: a session among the keys has to be the only one; Spark's streams fail there")
    return found[0] if found else None


def _session(of: Translation, rows: Rows, e: Expression, at: int) -> Session | None:
    call = bare(e)
    if is_window(call) and not is_call(call):
        (field,) = of.schema(P.Project(rows.plan, [column(e)])).fields
        said = time_window(of.frame(rows.plan), column(e))
        assert isinstance(said, SessionWindow)
        return Session(at, field, said, None)
    place = place_of(of, rows, call)
    if place is None or WINDOW_KEYS["session_window"] not in rows.schema.fields[place].metadata:
        return None
    return Session(at, rows.schema.fields[place], None, place)


@dataclass(frozen=True)
class InSessions:
    """Rows, with the two times of the session of each in the columns ``start`` and ``end``."""

    rows: Rows
    start: str
    end: str


def in_sessions(of: Translation, rows: Rows, session: Session, name: str) -> InSessions:
    """``rows``; ``name`` is what the session is called in the state."""
    rows = with_own_names(rows)
    start, end = (free(stored_name(f"{name}_{part}"), rows.schema.names) for part in ("start", "end"))
    if session.call is None:
        assert session.column is not None
        return _with_times(rows, TakeSessions(rows.schema.names[session.column], start, end), start, end)
    rows, at = with_time(of, rows, session.call.time, f"{name}_time")
    gap_us = session.call.gap_us
    if gap_us is None:
        until = F.col(quoted(at)) + session.call.gap.cast("interval")
        rows = step(of, P.Project(rows.plan, [column(E.UnresolvedStar(None)), until.alias(end)]), rows)
    return _with_times(rows, AssignSessions(at, start, end, gap_us), start, end)


def _with_times(rows: Rows, operation: Operation, start: str, end: str) -> InSessions:
    times = [T.StructField(name, T.TimestampType()) for name in (start, end)]
    kept = [f for f in rows.schema.fields if f.name != end]
    asked = P.WithColumns(rows.plan, [start, end], [F.lit(None).cast("timestamp")] * 2)
    shown = (*(n for n in rows.shown if n != end), start, end)
    if len(kept) < len(rows.schema.fields):
        asked = P.Project(asked, [F.col(quoted(n)) for n in shown])
    made = python_step(rows, operation, T.StructType([*kept, *times]))
    return InSessions(replace(made, plan=asked, shown=shown), start, end)
