"""What names of a SQL text are names of: tables, their aliases, columns. Driver, no Spark."""

from __future__ import annotations

from itertools import takewhile

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._sql_stops import NOT_AN_ALIAS
from spark_ckpt.plan.sql_aggregates import end_of_call
from spark_ckpt.plan.sql_query import Source, Span
from spark_ckpt.plan.sql_tokens import Token, has_word, tokens_of, unescaped

_BEGIN = ("select", "from", "view", "where", "group", "having", "order", "on", "using", "by", "limit")


def whole(text: str) -> Span:
    """All of ``text`` but semicolons behind it. Raises ``InvalidInputError`` if no query is there."""
    tokens = tokens_of(text)
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    if not tokens:
        raise InvalidInputError("expected one query, SELECT ... FROM ..., found none, or a text or parenthesis open")
    return Span(tuple(tokens), text[tokens[0].start : tokens[-1].end])


def is_table(tokens: tuple[Token, ...], at: int) -> bool:
    """Whether the name at ``at`` is one of a table in FROM."""
    token, before = tokens[at], tokens[at - 1] if at else None
    if not token.is_name or before is None or before.depth != token.depth:
        return False
    if at + 1 < len(tokens) and tokens[at + 1].text in (".", "("):
        return False
    if before.word("from", "join") or (before.word("table") and (at == 1 or tokens[at - 2].text == "(")):
        return True
    if before.text != ",":
        return False
    inside = takewhile(lambda t: t.depth >= token.depth, reversed(tokens[:at]))
    begin = next((t for t in inside if t.depth == token.depth and (t.word(*_BEGIN) or t.text == "|")), None)
    return begin is not None and begin.word("from")


def has_alias(tokens: tuple[Token, ...], at: int) -> bool:
    """Whether the table at ``at`` has another name behind it."""
    behind = tokens[at + 1] if at + 1 < len(tokens) else None
    return behind is not None and behind.is_name and behind.text.lower() not in NOT_AN_ALIAS


def alias_behind(tokens: tuple[Token, ...], at: int) -> str:
    """What is to be written behind something else in the place of the table at ``at``, for columns to be called as
    before: one stands behind TABLESAMPLE, and none behind TABLE."""
    none = tokens[at - 1].word("table") or has_word(tokens, at + 1, "tablesample")
    return "" if none or has_alias(tokens, at) else f" AS {tokens[at].text}"


def alias_of(source: Source) -> str | None:
    if source.alias is not None or source.name is None:
        return source.alias
    return source.name.rpartition(".")[2]


def qualifiers(span: Span) -> set[str]:
    """What stands in front of a dot, in small letters."""
    pairs = zip(span.tokens, span.tokens[1:], strict=False)
    return {one.name.lower() for one, dot in pairs if dot.text == "." and one.is_name}


def heads(span: Span) -> set[str]:
    """Names with none in front of them, in small letters: columns, tables and keywords among them."""
    behind = [False, *(token.text == "." for token in span.tokens)]
    return {t.name.lower() for t, dotted in zip(span.tokens, behind, strict=False) if t.is_name and not dotted}


def qualified(span: Span) -> list[tuple[str, str]]:
    """(table, column) of each ``a.b``, in small letters."""
    return [pair for _, pair in qualified_at(span.tokens)]


def qualified_at(tokens: tuple[Token, ...]) -> list[tuple[int, tuple[str, str]]]:
    """Where each ``a.b`` begins, and what it is."""
    found = []
    for at, (first, dot, name) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False)):
        behind = at > 0 and tokens[at - 1].text == "."
        if dot.text == "." and first.is_name and name.is_name and not behind:
            found.append((at, (first.name.lower(), name.name.lower())))
    return found


def bare(span: Span, alias: str | None) -> Span:
    """A column without the alias of the only table in front of it."""
    tokens = span.tokens
    if alias is None or len(tokens) < 3 or not is_name(span) or tokens[0].name.lower() != alias.lower():
        return span
    return span.piece(tokens[2:])


def is_name(span: Span) -> bool:
    """Whether it is a column or a field, ``a.b``."""
    return all((t.is_name) if i % 2 == 0 else t.text == "." for i, t in enumerate(span.tokens))


def is_window(span: Span) -> bool:
    """Whether it is ``window(...)`` or ``session_window(...)`` as a whole."""
    return span.tokens[0].word("window", "session_window") and end_of_call(span.tokens, 0) == len(span.tokens)


def string_of(text: str) -> str | None:
    """What a literal text says; None if it is something else."""
    return unescaped(text) if text[:1] in ("'", '"') else None
