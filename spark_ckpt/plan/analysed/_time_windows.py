"""``EventTimeWatermark``: which column is the event time, and how late its rows may be. Driver; classic Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.java_classes import CATALYST, attribute_id, items_of, java_class, seq_items
from spark_ckpt.execution.lineage import WatermarkNode
from spark_ckpt.execution.refused_types import WITHOUT_ARROW, has_type
from spark_ckpt.names import free
from spark_ckpt.operators import handlers
from spark_ckpt.operators.groups import Windowed
from spark_ckpt.operators.walks import python_step
from spark_ckpt.operators.windows import WINDOW_KEYS, TimeWindow
from spark_ckpt.plan.analysed._nodes import (
    Rows,
    column_of,
    fields_of,
    kind_of,
    named_as,
    new_attributes,
    output_of,
    project,
    relation,
    rows_of,
    schema_of,
    walk,
)
from spark_ckpt.plan.analysed._row_by_row import step
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.runtime.windows import AssignWindows, TakeStarts, WindowSize

JavaObject = Any

_NODE = f"{CATALYST}.plans.logical.EventTimeWatermark"


def watermark(of: Translation, node: JavaObject) -> Rows:
    """Rows are numbered with their watermark's stream; the column's metadata says that it is the event time."""
    rows = of.with_own_names(of.rows(node.child()))
    column = rows.schema.names[rows.place(node.eventTime())]
    delay_us = int(java_class(_NODE).getDelayMs(node.delay())) * 1000
    # Copies of one node, as both sides of a join of a stream with itself, have one watermark.
    made = WatermarkNode(column, delay_us, rows.lineage.sources)
    known = of.watermarks.setdefault(str(node.nodeId().toString()), made)
    named = schema_of(node)
    for field, own in zip(named.fields, rows.schema.names, strict=True):
        field.name = own
    return handlers.with_watermark(of, node, rows, known, named)


_NOTE = WINDOW_KEYS["window"]


@dataclass(frozen=True)
class NodeWindow(TimeWindow):
    """What a node says: ``column`` is the window's attribute, ``time`` the expression that it is a window of."""

    node: JavaObject
    column: JavaObject
    time: JavaObject

    def is_column(self, attribute: JavaObject) -> bool:
        is_attribute = kind_of(attribute) == "AttributeReference"
        return is_attribute and attribute_id(attribute) == attribute_id(self.column)


def time_window(node: JavaObject) -> NodeWindow | None:
    """The window that ``node``, a projection or an expansion, gives rows; None: it gives none."""
    if kind_of(node) == "Project":
        made = next((e for e in seq_items(node.projectList()) if _is_window(e)), None)
        return None if made is None else _read(node, made.toAttribute(), made.child())
    column = next((a for a in output_of(node) if _is_noted(a)), None) if kind_of(node) == "Expand" else None
    if column is None:
        return None
    place = [attribute_id(a) for a in output_of(node)].index(attribute_id(column))
    made = items_of(seq_items(node.projections())[0])[place]
    return _read(node, column, made) if kind_of(made) == "CreateNamedStruct" else None


def window_of(below: JavaObject, key: JavaObject) -> NodeWindow | None:
    """The window that ``key``, a column of what ``below`` puts out, is. It may have come through other nodes, under
    other ids, from an earlier aggregation, too. None: it is none."""
    if kind_of(key) != "AttributeReference" or not _is_noted(key):
        return None
    wanted = key
    for node in walk(below):
        found = time_window(node)
        if found is not None and found.is_column(wanted):
            return replace(found, column=key, field=fields_of([key])[0])
        wanted = _defined_by(node, wanted)
    raise InvalidInputError(
        f"{key.name()}: expected a column of F.window(...) among the keys, found one that is marked as a window, "
        "and is made by no F.window of this query; group by its start instead"
    )


def directly_below(node: JavaObject, window: NodeWindow) -> JavaObject | None:
    """The node that assigns ``window``, if nothing but Spark's own filter of the rows in it is behind that."""
    if kind_of(node) == "Filter" and kind_of(node.child()) == "Expand":
        condition = node.condition()
        parts = seq_items(condition.children()) if kind_of(condition) == "And" else []
        own = [kind_of(p) for p in parts] == ["GreaterThanOrEqual", "LessThan"]
        node = node.child() if own else node
    found = time_window(node)
    alone = found is not None and found.is_column(window.column) and not _computes_others(node)
    return node if alone else None


def _computes_others(node: JavaObject) -> bool:
    if kind_of(node) != "Project":
        return False
    return any(kind_of(e) != "AttributeReference" and not _is_window(e) for e in seq_items(node.projectList()))


def _defined_by(node: JavaObject, wanted: JavaObject) -> JavaObject:
    """The attribute that ``wanted`` is another name of in ``node``, in some grouping set; else itself."""
    if kind_of(node) == "Expand":
        ids = [attribute_id(a) for a in output_of(node)]
        place = ids.index(attribute_id(wanted)) if attribute_id(wanted) in ids else None
        listed = [] if place is None else [items_of(p)[place] for p in seq_items(node.projections())]
        return next((e for e in listed if kind_of(e) == "AttributeReference"), wanted)
    lists = {"Project": "projectList", "Aggregate": "aggregateExpressions"}
    if kind_of(node) in lists:
        for e in items_of(getattr(node, lists[kind_of(node)])()):
            same = kind_of(e) == "Alias" and attribute_id(e) == attribute_id(wanted)
            if same and kind_of(e.child()) == "AttributeReference":
                return e.child()
    return wanted


def _is_noted(named: JavaObject) -> bool:
    return bool(named.metadata().contains(_NOTE))


def _is_window(e: JavaObject) -> bool:
    return kind_of(e) == "Alias" and kind_of(e.child()) == "CreateNamedStruct" and _is_noted(e)


def _read(node: JavaObject, column: JavaObject, struct: JavaObject) -> NodeWindow:
    """``end`` of the struct is ``time - (time - start) mod slide - 0 + size``, as ``TimeWindowing`` writes it."""
    end, size = seq_items(inner(seq_items(struct.children())[3]).children())
    newest, _back = seq_items(end.children())
    time, into = seq_items(newest.children())
    since, slide = seq_items(seq_items(seq_items(into.children())[0].children())[0].children())
    start = seq_items(since.children())[1]
    sizes = WindowSize(int(size.value()), int(slide.value()), int(start.value()))
    return NodeWindow(sizes, fields_of([column])[0], node, column, inner(time))


def inner(e: JavaObject) -> JavaObject:
    """What Spark converts to microseconds and back."""
    while kind_of(e) in ("KnownNullable", "PreciseTimestampConversion"):
        e = e.child()
    return e


def windowed(
    of: Translation, window: NodeWindow, name: str, newest: bool = False, read: JavaObject | None = None
) -> Windowed[Rows]:
    """The rows of the node's child, each once for each of its windows, or for the ``newest`` of them. ``name`` is what
    the window is called in the state. ``read``: the columns that are read behind it, if not all are."""
    rows = of.rows(window.node.child())
    rows = rows if read is None else _without_unread(of, rows, read, window.time)
    rows, time = with_time(of, window.time, of.with_own_names(rows), "window_time")
    schema = window.added(rows.schema, name)
    *_, shown, key = schema.fields
    (start,) = new_attributes(T.StructType([key]))
    operation = AssignWindows(time, shown.name, key.name, window.size, newest, window.local)
    made = rows_of(python_step(rows, operation, schema), [*rows.attributes, window.column, start])
    return Windowed(made, column_of(start), newest)


def _without_unread(of: Translation, rows: Rows, read: JavaObject, time: JavaObject) -> Rows:
    """``rows`` without those columns that Arrow has not and nobody reads."""
    kept = [
        a for a, f in zip(rows.attributes, rows.schema.fields, strict=True)
        if read.contains(a) or time.references().contains(a) or not has_type(f.dataType, WITHOUT_ARROW)
    ]  # fmt: skip
    return rows if len(kept) == len(rows.attributes) else step(of, project(kept, relation(rows.attributes)), rows)


def with_starts(of: Translation, rows: Rows, window: NodeWindow, name: str) -> Windowed[Rows]:
    """``rows`` that have their windows already, with the start of each."""
    named = of.with_own_names(rows)
    shown, key = named.schema.names[named.place(window.column)], free(f"{name}_start", named.schema.names)
    field = T.StructField(key, T.TimestampType())
    (start,) = new_attributes(T.StructType([field]))
    made = python_step(named, TakeStarts(shown, key), T.StructType([*named.schema.fields, field]))
    return Windowed(rows_of(made, [*named.attributes, start]), column_of(start))


def with_time(of: Translation, time: JavaObject, rows: Rows, name: str) -> tuple[Rows, str]:
    """The rows, and the column of ``time``, which may have to be computed: ``name`` is what it is called then."""
    if kind_of(time) == "AttributeReference":
        return rows, rows.schema.names[rows.place(time)]
    own = free(name, rows.schema.names)
    listed: Sequence[JavaObject] = [*rows.attributes, named_as(time, own)]
    return step(of, project(listed, relation(rows.attributes)), rows), own


def assigned(of: Translation, window: NodeWindow) -> Rows:
    """What the window's node puts out, by itself."""
    found = windowed(of, window, window.field.name)
    kept = project(_listed(window), relation(found.rows.attributes))
    made = step(of, kept, found.rows)
    return replace(made, attributes=output_of(window.node), schema=schema_of(window.node))


def _listed(window: NodeWindow) -> list[JavaObject]:
    """The node's own output: a projection may compute other columns, too."""
    if kind_of(window.node) == "Project":
        return [window.column if _is_window(e) else e for e in seq_items(window.node.projectList())]
    return list(output_of(window.node))
