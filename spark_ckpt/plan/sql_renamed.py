"""A SQL text over rows whose columns have other names than its tables gave them. Driver, no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.sql_names import qualified_at, whole
from spark_ckpt.plan.sql_query import Select, Span
from spark_ckpt.plan.sql_sub_queries import sub_queries
from spark_ckpt.plan.sql_tokens import Token

Names = Mapping[tuple[str, str], tuple[str, str]]
"""(table, column) as the text has them, in small letters -> what sub-queries know the rows by, and the column there."""


def renamed(select: Select, names: Names) -> Select:
    """``select`` over these rows, but for FROM."""

    def of(span: Span | None) -> Span | None:
        return None if span is None else with_names(span, names)

    items = tuple(
        replace(i, whole=with_names(i.whole, names), expression=with_names(i.expression, names)) for i in select.items
    )
    keys = select.grouping and replace(
        select.grouping, keys=tuple(with_names(key, names) for key in select.grouping.keys)
    )
    return replace(select, items=items, where=of(select.where), grouping=keys, having=of(select.having))


def with_names(span: Span, names: Names) -> Span:
    """``span`` over these rows: ``a.b`` is a column's name there, and in sub-queries that of a column of the rows."""
    return _with(span, _places(span, names, inside=False))


def with_names_inside(query: Span, names: Names) -> Span:
    """A sub-query beside these rows."""
    return _with(query, _inside(query, names))


def _with(span: Span, places: Iterable[tuple[int, int, str]]) -> Span:
    text, found = span.text, sorted(places, reverse=True)
    for begin, end, column in found:
        text = text[: begin - span.start] + column + text[end - span.start :]
    return whole(text) if found else span


def _places(span: Span, names: Names, inside: bool) -> Iterator[tuple[int, int, str]]:
    queries, tokens = sub_queries(span), span.tokens
    for at, pair in qualified_at(tokens):
        begin = tokens[at].start
        if pair in names and not any(query.start <= begin < query.end for query in queries):
            rows, column = names[pair]
            yield begin, tokens[at + 2].end, f"{quoted(rows)}.{quoted(column)}" if inside else quoted(column)
    for query in queries:
        yield from _inside(query, names)


def _inside(query: Span, names: Names) -> Iterator[tuple[int, int, str]]:
    own = _bare(query)
    return _places(query, {pair: name for pair, name in names.items() if pair[0] not in own}, inside=True)


def _bare(query: Span) -> set[str]:
    """What stands alone in a query, such as the names of its tables, which hide those of the query around it."""
    inner = sub_queries(query)
    tokens = [t for t in query.tokens if not any(q.start <= t.start < q.end for q in inner)]
    return {t.name.lower() for at, t in enumerate(tokens) if t.is_name and not _beside_a_dot(tokens, at)}


def _beside_a_dot(tokens: list[Token], at: int) -> bool:
    behind = at + 1 < len(tokens) and tokens[at + 1].text == "."
    head = at
    while head > 1 and tokens[head - 1].text == ".":
        head -= 2
    return behind or (head < at and not (head > 0 and tokens[head - 1].word("from", "join")))
