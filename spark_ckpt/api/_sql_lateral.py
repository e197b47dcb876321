"""``LATERAL VIEW explode(xs) e AS x`` and ``JOIN LATERAL (SELECT ...)`` of ``ckpt.sql``. Driver only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from spark_ckpt.api._sql_rows import Called, Frame, Rows, is_stream
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.lateral import LateralText, no_table_functions
from spark_ckpt.plan.sql_clauses import items_of_row
from spark_ckpt.plan.sql_given import place
from spark_ckpt.plan.sql_query import Lateral, View
from spark_ckpt.plan.sql_renamed import with_names_inside

if TYPE_CHECKING:
    from spark_ckpt.api._sql_expressions import Expressions

_WITH_NULLS = ("explode", "posexplode", "inline", "variant_explode")
"""Generators that OUTER says another word of: they make one row of nothing."""


def with_view(rows: Rows, view: View, read: Expressions) -> Rows:
    """``rows`` with the columns of a generator behind them."""
    function, text = view.generator.tokens[0], rows.text(view.generator)
    if view.outer and function.word(*_WITH_NULLS):
        text = f"{function.text}_outer{text[len(function.text) :]}"
    aliases = ", ".join(map(quoted, rows.free(view.alias or "lateral", view.names)))
    called = f" AS {aliases}" if len(view.names) == 1 else f" AS ({aliases})" if aliases else ""
    with no_table_functions(f"LATERAL {text}"):
        return _behind(rows, rows.frame.select("*", F.expr(f"{text}{called}")), view, read)


def with_lateral(rows: Rows, lateral: Lateral, read: Expressions) -> Rows:
    """``rows`` with those of a sub-query, which may name their columns."""
    read.refuse_streams([lateral.query])
    text, given = read.query(with_names_inside(lateral.query, rows.names))
    like = read.analysed(
        f"SELECT found.* FROM {place('rows')} AS {quoted(rows.alias)}, LATERAL ({text}) AS found",
        {**given, "rows": rows.frame._in_spark() if is_stream(rows.frame) else rows.frame},
    )
    names = lateral.names or tuple(like.columns)
    columns = tuple(rows.free(lateral.alias or "lateral", names))
    items = [] if lateral.how == "left" and lateral.on else items_of_row(lateral.query)
    if len(items) in (1, len(columns)):
        of_items = [columns] if len(items) == 1 else [(name,) for name in columns]
        computed = [
            F.expr(rows.text(item.expression)).alias(*of_item) for item, of_item in zip(items, of_items, strict=True)
        ]
        return _behind(rows, rows.frame.select("*", *computed), replace(lateral, names=names), read)
    made = replace(rows, called=(*rows.called, *_called(replace(lateral, names=names), columns)))
    on = None if lateral.on is None else made.text(lateral.on)
    join = LateralText(text, given, rows.alias, columns, on, lateral.how)
    return replace(made, frame=_joined(rows.frame, join))


def _joined(frame: Frame, join: LateralText) -> Frame:
    if not is_stream(frame):
        return join.of_table(frame)
    made = frame._operation("lateralJoin", join, tried=join.reading_nothing())
    made._alias = None
    return made


def _behind(rows: Rows, frame: Frame, step: View | Lateral, read: Expressions) -> Rows:
    """``frame`` has the columns of ``step`` behind those of ``rows``."""
    called = _called(step, frame.columns[len(rows.frame.columns) :])
    made = replace(rows, frame=frame, called=(*rows.called, *called))
    return made if step.on is None else replace(made, frame=frame.where(read.column(made.text(step.on))))


def _called(step: View | Lateral, columns: Sequence[str]) -> list[Called]:
    names = step.names or columns
    return [Called((step.alias or "").lower(), name, column) for name, column in zip(names, columns, strict=True)]
