"""Names with an alias in front, within a SQL text: Spark Connect has no parser. Driver, no Spark."""

from __future__ import annotations

from collections.abc import Callable

from spark_ckpt.plan._sql_tokens import Token, begins_sub_query, has_sign, tokens_of


def with_qualified(text: str, meant: Callable[[str], str | None]) -> str:
    """``text``, in which names of two parts and more are what ``meant`` says, or as they are where it says None.

    A sub-query has names of its own: with one in it the text stays as it is.
    """
    tokens = tokens_of(text)
    if any(begins_sub_query(tokens, at) for at in range(len(tokens))):
        return text
    bound, found, written, at = _variables(tokens), "", 0, 0
    while at < len(tokens):
        end = _end_of_name(tokens, at)
        told = None
        if end > at + 1 and tokens[at].name.lower() not in bound and not has_sign(tokens, end, "(", "."):
            told = meant("".join(token.text for token in tokens[at:end]))
        if told is not None:
            found += text[written : tokens[at].start] + told
            written = tokens[end - 1].end
        at = max(end, at + 1)
    return found + text[written:]


def _end_of_name(tokens: list[Token], at: int) -> int:
    """Behind the name that begins at ``at``, with all its parts; ``at`` if none does."""
    end = at
    while end < len(tokens) and tokens[end].is_name:
        end += 1
        if not (has_sign(tokens, end, ".") and end + 1 < len(tokens) and tokens[end + 1].is_name):
            return end
        end += 1
    return end


def _variables(tokens: list[Token]) -> set[str]:
    """What lambda functions call their arguments, which count before any alias: ``x -> ..``, ``(x, i) -> ..``."""
    found: set[str] = set()
    for at, token in enumerate(tokens):
        if token.text != "->":
            continue
        begin = at - 1
        while tokens[begin].depth > token.depth or tokens[begin].text == ")":
            begin -= 1
        found |= {one.name.lower() for one in tokens[begin:at] if one.is_name}
    return found
