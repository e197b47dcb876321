"""Sub-queries that stand in expressions of a SQL text, ``k IN (SELECT ...)``. Driver, no Spark."""

from __future__ import annotations

from collections.abc import Mapping

from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.sql_names import has_alias, is_table
from spark_ckpt.plan.sql_query import Named, Pivot, Select, Span, Unpivot
from spark_ckpt.plan.sql_tokens import begins_sub_query, closed


def sub_queries(span: Span) -> list[Span]:
    """Those of an expression, without the ones inside of them."""
    found, at, tokens = [], 0, span.tokens
    while at < len(tokens):
        if begins_sub_query(tokens, at):
            end = closed(tokens, at)
            found.append(span.piece(tokens[at + 1 : end - 1]))
            at = end
        at += 1
    return found


def conjuncts(span: Span) -> list[Span]:
    """What ``span`` is the AND of, at its top."""
    tokens, found, begin, between = span.tokens, [], 0, False
    for at, token in enumerate(tokens):
        if token.depth != tokens[0].depth:
            continue
        if token.word("or"):
            return [span]
        if token.word("and") and not between:
            found.append(span.piece(tokens[begin:at]))
            begin = at + 1
        between = token.word("between") or (between and not token.word("and"))
    return [*found, span.piece(tokens[begin:])]


def expressions_of(select: Select) -> list[Span]:
    """All that a SELECT computes, but generators."""
    keys = select.grouping.keys if select.grouping else ()
    found = [
        select.where,
        select.having,
        *(s.on for s in select.steps if not isinstance(s, Unpivot | Pivot)),
        *(i.whole for i in select.items),
        *keys,
    ]
    return [span for span in found if span is not None]


def tables_of(span: Span) -> set[str]:
    """What stands in FROM, in small letters, of a query and of those inside of it, but what their WITH names."""
    return {t.name.lower() for at, t in enumerate(span.tokens) if is_table(span.tokens, at)} - named_inside(span)


def named_inside(span: Span) -> set[str]:
    """What a query's own WITH, and those inside of it, name, in small letters."""
    tokens, found = span.tokens, set[str]()
    for at, token in enumerate(tokens[:-2]):
        if not token.is_name or at == 0 or not (tokens[at - 1].word("with", "recursive") or tokens[at - 1].text == ","):
            continue
        behind = closed(tokens, at + 1) if tokens[at + 1].text == "(" else at + 1
        if behind + 1 < len(tokens) and tokens[behind].word("as") and begins_sub_query(tokens, behind + 1):
            found.add(token.name.lower())
    return found


def inlined(span: Span, named: Mapping[str, Named]) -> str:
    """The text of ``span`` where a query stands in place of the name that WITH gave it.

    ``named`` are in order: each may name those in front of it.
    """
    found, written, names = "", span.start, list(named)
    for at, token in enumerate(span.tokens):
        name = token.name.lower()
        if name not in named or not is_table(span.tokens, at):
            continue
        before = {other: named[other] for other in names[: names.index(name)]}
        alias = "" if has_alias(span.tokens, at) else f" AS {quoted(token.name)}"
        query = inlined(named[name].query, before)
        if named[name].columns:
            query = f"SELECT * FROM ({query}) AS {quoted(token.name)}{in_parentheses(named[name].columns)}"
        found += span.text[written - span.start : token.start - span.start] + f"({query}){alias}"
        written = token.end
    return found + span.text[written - span.start :]


def in_parentheses(columns: tuple[str, ...]) -> str:
    """Behind the name of a table, what its columns are called."""
    return f"({', '.join(map(quoted, columns))})" if columns else ""
