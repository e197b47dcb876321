"""The operator at the top of a SQL text and the texts of its arguments: Spark Connect has no parser. Driver, no Spark.

Only what is certain is taken apart: AND, OR, NOT, BETWEEN, comparisons, + and -, by SQL's precedence. The parts stay
texts, which Spark's own parser reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

_TOKENS = re.compile(
    r"(?P<space>\s+)|(?P<string>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")|(?P<name>`(?:[^`]|``)*`)"
    r"|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?\w*)|(?P<word>[^\W\d]\w*)"
    r"|(?P<comment>--|/\*)|(?P<op><=>|->|=>|<=|>=|<>|!=|!<|!>|==|\|\||::|<<|>>|[<>=+\-*/%&|^~!().,\[\]:?{};@#$])"
)
_COMPARED = {"=", "==", "<=>", "<", "<=", ">", ">=", "<>", "!="}
_UNKNOWN = {"in", "like", "ilike", "rlike", "regexp", "is", "exists", "select", "any", "some", "all", "div", "collate"}
"""Words at whose level nothing is taken apart."""
_NO_OPERAND = {"interval", "and", "or", "not", "between"}


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    end: int
    depth: int

    def word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words


def taken_apart(text: str) -> tuple[str, list[str]] | None:
    """None for whatever else it is."""
    tokens = tokens_of(text)
    while tokens and _wrapped(tokens):
        text = text[tokens[0].end : tokens[-1].start]
        tokens = tokens_of(text)
    if not tokens:
        return None
    top = [t for t in tokens if t.depth == 0]
    return _logic(text, top) or _compared(text, top)


def _wrapped(tokens: list[Token]) -> bool:
    """Whether the first is a parenthesis that the last closes."""
    return tokens[0].text == "(" and tokens[-1].text == ")" and all(t.depth > 0 for t in tokens[1:-1])


def _logic(text: str, top: list[Token]) -> tuple[str, list[str]] | None:
    for t in top:
        if t.word("or"):
            return "or", [text[: t.start], text[t.end :]]
    ranges = 0
    for t in top:
        ranges += t.word("between")
        if t.word("and"):
            if not ranges:
                return "and", [text[: t.start], text[t.end :]]
            ranges -= 1
    return ("not", [text[top[0].end :]]) if top[0].word("not") or top[0].text == "!" else None


def _compared(text: str, top: list[Token]) -> tuple[str, list[str]] | None:
    if any(t.word(*_UNKNOWN) or t.text in ("|", "&", "^", "||", "->", "=>", "<<", ">>", "::") for t in top):
        return None
    between = [t for t in top if t.word("between")]
    compared = [t for t in top if t.text in _COMPARED and t.kind == "op"]
    if between:
        return _between(text, top, between[0]) if len(between) == 1 and not compared else None
    if compared:
        (t, *more) = compared
        return None if more else ("!=" if t.text == "<>" else t.text, [text[: t.start], text[t.end :]])
    return _sum(text, top)


def _between(text: str, top: list[Token], between: Token) -> tuple[str, list[str]] | None:
    ends = [t for t in top if t.word("and") and t.start > between.start]
    before = top[top.index(between) - 1] if top.index(between) else between
    if len(ends) != 1 or before.word("not"):
        return None
    return "between", [text[: between.start], text[between.end : ends[0].start], text[ends[0].end :]]


def _sum(text: str, top: list[Token]) -> tuple[str, list[str]] | None:
    """The last one, as they are computed from left to right."""
    for before, t in reversed(list(pairwise(top))):
        operand = before.kind != "op" or before.text in (")", "]")
        if t.text in ("+", "-") and t.kind == "op" and operand and not before.word(*_NO_OPERAND):
            return t.text, [text[: t.start], text[t.end :]]
    return None


def tokens_of(text: str) -> list[Token]:
    """None of them for what is not understood. ``CASE ... END`` is as deep as parentheses."""
    found: list[Token] = []
    at = depth = 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None or match.lastgroup == "comment":
            return []
        kind, part, at = str(match.lastgroup), match.group(), match.end()
        if kind == "space":
            continue
        opens = part in ("(", "[") or (kind == "word" and part.lower() == "case")
        closes = part in (")", "]") or (kind == "word" and part.lower() == "end" and depth > 0)
        depth -= closes
        found.append(Token(kind, part, match.start(), match.end(), depth))
        depth += opens
    return found if depth == 0 else []
