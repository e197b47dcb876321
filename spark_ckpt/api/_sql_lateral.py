"""``LATERAL VIEW explode(xs) e AS x`` of ``ckpt.sql``: the generator's columns behind those that are there. Driver."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.sql_names import alias_of, qualifiers, renamed, whole, with_names
from spark_ckpt.plan.sql_query import Item, Select, View
from spark_ckpt.plan.sql_sub_queries import expressions_of, sub_queries

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

_WITH_NULLS = ("explode", "posexplode", "inline", "variant_explode")
"""Generators that OUTER says another word of: they make one row of nothing."""


Names = dict[tuple[str, str], str]


def with_views(frame: CkptDataFrame, select: Select) -> tuple[CkptDataFrame, Select, Names]:
    """``frame`` with the columns of the views, and ``select`` that names them without their view, by these names."""
    _refuse_inside(select)
    names: Names = {}
    first = [(name, name) for name in frame.columns]
    stars = {} if select.joins else {str(alias_of(select.source)).lower(): first}
    for view in select.views:
        frame, columns = _with_view(frame, replace(view, generator=with_names(view.generator, names)))
        if view.alias is not None:
            called = view.names or columns
            names |= {(view.alias.lower(), c.lower()): made for c, made in zip(called, columns, strict=True)}
            stars[view.alias.lower()] = list(zip(columns, called, strict=True))
        if view.on is not None:
            frame = frame.where(F.expr(with_names(view.on, names).text))
    items = tuple(one for item in select.items for one in _without_star(item, stars))
    where = None if select.where is None else with_names(select.where, names)
    items = tuple(_shown(one, names) for one in items)
    return frame, replace(renamed(replace(select, items=items), names), where=where), names


def of_views(select: Select) -> set[str]:
    """What may be names of views and their columns, in small letters."""
    named = (name for view in select.views for name in (*view.names, view.alias or ""))
    return {name.lower() for name in (*named, "col", "pos", "key", "value")} if select.views else set()


def _refuse_inside(select: Select) -> None:
    views = {view.alias.lower() for view in select.views if view.alias}
    for inner in (found for span in expressions_of(select) for found in sub_queries(span)):
        if views & qualifiers(inner):
            raise InvalidInputError(
                f"a sub-query that names columns of a LATERAL VIEW: ({inner.text}). Write the view as a sub-query in "
                "FROM"
            )


def _with_view(frame: CkptDataFrame, view: View) -> tuple[CkptDataFrame, list[str]]:
    """``frame`` with the columns of one, and what they are called there."""
    taken, text = frame.columns, view.generator.text
    function = view.generator.tokens[0]
    if view.outer and function.word(*_WITH_NULLS):
        text = f"{function.text}_outer{text[len(function.text) :]}"
    names = [
        name if name.lower() not in map(str.lower, taken) else free(f"lateral_{name}", taken) for name in view.names
    ]
    aliases = ", ".join(map(quoted, names))
    called = f" AS {aliases}" if len(names) == 1 else f" AS ({aliases})" if names else ""
    made = frame.select("*", F.expr(f"{text}{called}"))
    return made, made.columns[len(taken) :]


def _without_star(item: Item, stars: dict[str, list[tuple[str, str]]]) -> list[Item]:
    """``stars``: of each table its columns, and what they are called there."""
    tokens = item.whole.tokens
    if len(tokens) != 3 or tokens[1].text != "." or tokens[2].text != "*" or tokens[0].name.lower() not in stars:
        return [item]
    pairs = stars[tokens[0].name.lower()]
    return [Item(whole(f"{quoted(made)} AS {quoted(name)}"), whole(quoted(made)), name) for made, name in pairs]


def _shown(item: Item, names: Names) -> Item:
    """A column of a view shows as it is called there."""
    tokens = item.expression.tokens
    pair = (tokens[0].name.lower(), tokens[2].name.lower()) if len(tokens) == 3 and tokens[1].text == "." else None
    if item.alias is not None or pair is None or names.get(pair, tokens[-1].name) == tokens[-1].name:
        return item
    return Item(whole(f"{item.whole.text} AS {tokens[2].text}"), item.expression, tokens[2].name)
