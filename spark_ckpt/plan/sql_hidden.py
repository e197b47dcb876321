"""Queries of WITH that are called as a table: ``WITH orders AS (SELECT ... FROM orders) ...``. Driver, no Spark."""

from __future__ import annotations

from collections.abc import Container, Iterator

from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.sql_names import has_alias, is_table
from spark_ckpt.plan.sql_tokens import Token, closed, tokens_of


def without_hidden(text: str, tables: Container[str]) -> str:
    """``text`` where no query that WITH names at its top has the name of one of ``tables``: they get others, behind
    them. In their own text the name is still the table's."""
    tokens = tokens_of(text)
    words = [token.name.lower() for token in tokens]
    found: list[tuple[Token, str]] = []
    for at, end in _named(tokens):
        name = tokens[at].name
        if name.lower() in tables:
            other = quoted(free(f"{name}_of_with", words))
            words.append(other.lower())
            found.append((tokens[at], other))
            found += ((tokens[i], _called(tokens, i, other)) for i in _places(tokens, end, name.lower()))
    for token, other in sorted(found, key=lambda pair: pair[0].start, reverse=True):
        text = text[: token.start] + other + text[token.end :]
    return text


def _named(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    """Where each name of the first WITH is, and where its query ends."""
    if len(tokens) < 2 or not tokens[0].word("with") or tokens[1].word("recursive"):
        return
    at = 1
    while True:
        begin = closed(tokens, at + 1) if tokens[at + 1].text == "(" else at + 1
        if begin + 1 >= len(tokens) or not tokens[begin].word("as") or tokens[begin + 1].text != "(":
            return
        end = closed(tokens, begin + 1)
        yield at, end
        if end + 1 >= len(tokens) or tokens[end].text != ",":
            return
        at = end + 1


def _places(tokens: list[Token], begin: int, name: str) -> Iterator[int]:
    return (at for at in range(begin, len(tokens)) if tokens[at].name.lower() == name and is_table(tuple(tokens), at))


def _called(tokens: list[Token], at: int, other: str) -> str:
    """The other name, by which the columns are still called as before."""
    behind = tokens[at + 1] if at + 1 < len(tokens) else None
    none = tokens[at - 1].word("table") or (behind is not None and behind.word("tablesample"))
    return other if none or has_alias(tuple(tokens), at) else f"{other} AS {tokens[at].text}"
