"""``PIVOT`` and ``UNPIVOT`` in FROM of ``ckpt.sql``. Driver only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.api._pivots import pivoted
from spark_ckpt.api._sql_expressions import Expressions
from spark_ckpt.api._sql_rows import Called, Rows, is_stream
from spark_ckpt.plan.columns import quoted, unquoted
from spark_ckpt.plan.sql_given import place
from spark_ckpt.plan.sql_query import Pivot, Span, Unpivot

_BESIDE = "__beside"


def with_pivot(rows: Rows, step: Pivot, read: Expressions) -> Rows:
    """A column for each result of each value; what neither names is the group, as in Spark."""
    rows = _visible(rows)
    found = _in_spark(rows, f"PIVOT ({rows.text(step.inside)})", read)
    cut = len(found.columns) - len(step.values) * len(step.results)
    keys = found.columns[:cut]
    own = replace(rows, frame=rows.frame.select(*map(quoted, keys))).free(step.alias or "pivot", found.columns[cut:])
    frame = _pivoted(rows, step, keys, own, read) if is_stream(rows.frame) else found.toDF(*keys, *own)
    shown = {c.column: c for c in rows.called}
    table = (step.alias or "").lower()
    called = [replace(shown[key], table=table or shown[key].table) for key in keys]
    called += [Called(table, name, column) for name, column in zip(found.columns[cut:], own, strict=True)]
    return replace(rows, frame=frame, called=tuple(called))


def _pivoted(rows: Rows, step: Pivot, keys: list[str], own: list[str], read: Expressions) -> Any:
    results = [read.column(rows.text(item.expression)) for item in step.results]
    values = [read.column(item.expression.text) for item in step.values]
    groups = rows.frame.groupBy(*map(quoted, keys))
    return pivoted(groups, _of(rows, step.columns), values, results, [*keys, *own])


def with_unpivot(rows: Rows, step: Unpivot) -> Rows:
    """The values of some columns, each in a row of its own, beside the others."""
    rows = _visible(rows)
    taken = {rows.found(column).column for columns, _ in step.sets for column in columns}
    ids = [c for c in rows.called if c.column not in taken]
    kept = [quoted(c.column) for c in ids]
    columns = replace(rows, frame=rows.frame.select(*kept)).free(step.alias or "unpivot", [step.name, *step.values])
    frame = _unpivoted(rows, step, kept, columns)
    if not step.nulls:
        frame = frame.where(reduce(or_, [F.col(quoted(name)).isNotNull() for name in columns[1:]]))
    table = (step.alias or "").lower()
    new = [Called(table, name, column) for name, column in zip((step.name, *step.values), columns, strict=True)]
    return replace(rows, frame=frame, called=(*(replace(c, table=table or c.table) for c in ids), *new))


def _unpivoted(rows: Rows, step: Unpivot, kept: list[str], columns: list[str]) -> Any:
    """``kept`` columns may be called as a set is: they are within a struct meanwhile."""
    beside, value = [F.struct(*kept).alias(_BESIDE)] if kept else [], columns[1]
    sets = [_of(rows, names, columns[1:]).alias(label) for names, label in step.sets]
    labels = [quoted(label) for _, label in step.sets]
    made = rows.frame.select(*beside, *sets).unpivot([_BESIDE] if kept else [], labels, columns[0], value)
    of_set = [F.col(quoted(value))[name].alias(name) for name in columns[1:]]
    shown = [F.col(_BESIDE)[unquoted(name)].alias(unquoted(name)) for name in kept]
    return made.select(*shown, quoted(columns[0]), *(of_set if len(of_set) > 1 else [quoted(value)]))


def _of(rows: Rows, columns: Sequence[Span], names: Sequence[str] = ()) -> Column:
    """One column, or a struct of several."""
    found = [rows.found(column) for column in columns]
    if len(found) == 1:
        return F.col(quoted(found[0].column))
    shown = names or [c.name for c in found]
    return F.struct(*[F.col(quoted(c.column)).alias(name) for c, name in zip(found, shown, strict=True)])


def _visible(rows: Rows) -> Rows:
    """Without what only its table's name shows."""
    kept = tuple(c for c in rows.called if not c.hidden)
    if [c.column for c in kept] == rows.frame.columns:
        return replace(rows, called=kept)
    return replace(rows, frame=rows.frame.select(*[quoted(c.column) for c in kept]), called=kept)


def _in_spark(rows: Rows, behind: str, read: Expressions) -> Any:
    frame = rows.frame._in_spark() if is_stream(rows.frame) else rows.frame
    return read.analysed(f"SELECT * FROM {place('rows')} AS {quoted(rows.alias)} {behind}", {"rows": frame})
