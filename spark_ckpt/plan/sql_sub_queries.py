"""Sub-queries that stand in expressions of a SQL text, ``k IN (SELECT ...)``. Driver, no Spark."""

from __future__ import annotations

from collections.abc import Mapping

from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.sql_names import has_alias, is_table, whole, with_names
from spark_ckpt.plan.sql_query import Select, Span
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
    """All that a SELECT computes."""
    keys = select.grouping.keys if select.grouping else ()
    found = [select.where, select.having, *(j.on for j in select.joins), *(i.whole for i in select.items), *keys]
    return [span for span in found if span is not None]


def tables_of(span: Span) -> set[str]:
    """What stands in FROM, in small letters, of a query and of those inside of it."""
    return {t.name.lower() for at, t in enumerate(span.tokens) if is_table(span.tokens, at)}


def inlined(span: Span, named: Mapping[str, Span]) -> str:
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
        found += span.text[written - span.start : token.start - span.start] + f"({inlined(named[name], before)}){alias}"
        written = token.end
    return found + span.text[written - span.start :]


def with_names_inside(span: Span, names: Mapping[tuple[str, str], str]) -> Span:
    """``span`` with other names for columns of certain tables, where its sub-queries name them."""
    text = span.text
    for inner in reversed(sub_queries(span)):
        begin, end = inner.start - span.start, inner.end - span.start
        text = text[:begin] + with_names(inner, names).text + text[end:]
    return whole(text)
