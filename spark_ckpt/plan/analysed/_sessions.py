"""Sessions, ``F.session_window``: Spark's analysis computes the session that each row makes by itself, as a struct in a
projection, and its aggregation merges those that overlap. Driver; classic Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as T

from spark_ckpt.execution.event_time import simple_ms
from spark_ckpt.execution.java_classes import attribute_id, seq_items
from spark_ckpt.operators.groups import InSessions
from spark_ckpt.operators.walks import python_step
from spark_ckpt.operators.windows import WINDOW_KEYS, Session, session_times
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    fields_of,
    kind_of,
    named_as,
    new_attributes,
    parts_of,
    project,
    relation,
    rows_of,
)
from spark_ckpt.plan.analysed._row_by_row import step
from spark_ckpt.plan.analysed._time_windows import inner, with_time
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.runtime.windows import AssignSessions, TakeSessions

JavaObject = Any

_NOTE = WINDOW_KEYS["session_window"]


@dataclass(frozen=True)
class NodeSession(Session):
    """A session among the keys of an aggregation, in the attribute ``column``. ``assigned``: the projection that
    computes it, and its struct; None of sessions that are a column."""

    column: JavaObject
    assigned: tuple[JavaObject, JavaObject] | None

    @property
    def time(self) -> JavaObject | None:
        """What it is a session of; None: not known."""
        return None if self.assigned is None else inner(seq_items(self.assigned[1].children())[1])


def session_of(below: JavaObject, key: JavaObject, place: int) -> NodeSession | None:
    """The session that key number ``place`` of an aggregation over ``below`` is; None: it is none."""
    if kind_of(key) != "AttributeReference" or not key.metadata().contains(_NOTE):
        return None
    return NodeSession(place, fields_of([key])[0], key, _assigned(below, key))


def in_sessions(of: Translation, below: JavaObject, session: NodeSession, name: str) -> InSessions[Rows]:
    """The rows of ``below``; ``name`` is what the session is called in the state."""
    if session.assigned is None:
        rows = of.with_own_names(of.rows(below))
        shown = rows.schema.names[rows.place(session.column)]
        start, end = session_times(name, rows.schema.names)
        return _with_times(rows, TakeSessions(shown, start, end), start, end)
    node, struct = session.assigned
    _start, time, _end, until = seq_items(struct.children())
    rows = of.with_own_names(of.rows(node.child()))
    start, end = session_times(name, rows.schema.names)
    rows, at = with_time(of, inner(time), rows, f"{name}_time")
    gap_us = _gap_us(inner(until))
    if gap_us is None:
        listed = [*rows.attributes, named_as(inner(until), end)]
        rows = step(of, project(listed, relation(rows.attributes)), rows)
    return _with_times(rows, AssignSessions(at, start, end, gap_us), start, end)


def _with_times(rows: Rows, operation: Operation, start: str, end: str) -> InSessions[Rows]:
    times = T.StructType([T.StructField(name, T.TimestampType()) for name in (start, end)])
    kept = [(a, f) for a, f in zip(rows.attributes, rows.schema.fields, strict=True) if f.name != end]
    schema = T.StructType([*(f for _, f in kept), *times.fields])
    attributes = [*(a for a, _ in kept), *new_attributes(times)]
    return InSessions(rows_of(python_step(rows, operation, schema), attributes), start, end)


def _assigned(below: JavaObject, column: JavaObject) -> tuple[JavaObject, JavaObject] | None:
    """The projection that computes the session, and its struct, if nothing but Spark's own filter is behind that: rows
    without a time, or whose session would not last, are in none."""
    filters = kind_of(below) == "Filter"
    node = below.child() if filters else below
    if kind_of(node) != "Project":
        return None
    computed = [e for e in seq_items(node.projectList()) if kind_of(e) != "AttributeReference"]
    if len(computed) != 1 or attribute_id(computed[0]) != attribute_id(column):
        return None
    struct = computed[0].child()
    if kind_of(struct) != "CreateNamedStruct":
        return None
    time = inner(seq_items(struct.children())[1])
    own = not filters or all(_is_own(part, time, column) for part in parts_of(below.condition()))
    return (node, struct) if own else None


def _is_own(part: JavaObject, time: JavaObject, column: JavaObject) -> bool:
    """Whether it says that there is a time, or that the session ends behind its start."""
    if kind_of(part) == "IsNotNull":
        return bool(part.child().semanticEquals(time))
    fields = seq_items(part.children()) if kind_of(part) == "GreaterThan" else []
    return [kind_of(f) for f in fields] == ["GetStructField"] * 2 and all(
        kind_of(f.child()) == "AttributeReference" and attribute_id(f.child()) == attribute_id(column) for f in fields
    )


def _gap_us(end: JavaObject) -> int | None:
    """Of ``time + gap``, the gap, if it is the same for all rows and of one length."""
    while kind_of(end) == "Cast":
        end = end.child()
    gap = seq_items(end.children())[1]
    while kind_of(gap) == "Cast":
        gap = gap.child()
    known = simple_ms(str(gap.value())) if kind_of(gap) == "Literal" and gap.dataType().typeName() == "string" else None
    return None if known is None else known * 1000
