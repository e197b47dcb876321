"""The words and signs of a SQL text. Driver, no Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from spark_ckpt.plan.columns import unquoted

_TOKENS = re.compile(
    r"(?P<space>\s+)|(?P<string>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")|(?P<name>`(?:[^`]|``)*`)"
    r"|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?\w*)|(?P<word>[^\W\d]\w*)"
    r"|(?P<comment>--|/\*)|(?P<op><=>|->|=>|<=|>=|<>|!=|!<|!>|==|\|\||::|<<|>>|[<>=+\-*/%&|^~!().,\[\]:?{};@#$])"
)

_ENDS = {"(": ")", "[": "]", "case": "end"}
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


class NotReadError(Exception):
    """What is not certain is left to Spark."""


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    end: int
    depth: int

    def word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words

    @property
    def is_name(self) -> bool:
        """Whether it may be one: keywords are words, too."""
        return self.kind in ("word", "name")

    @property
    def name(self) -> str:
        """Without backticks."""
        return unquoted(self.text)


def tokens_of(text: str) -> list[Token]:
    """None of them for what is not understood. ``CASE ... END`` is as deep as parentheses."""
    found: list[Token] = []
    ends: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None or match.lastgroup == "comment":
            return []
        kind, part, at = str(match.lastgroup), match.group(), match.end()
        if kind == "space":
            continue
        sign = part.lower() if kind == "op" or (kind == "word" and not (found and found[-1].text == ".")) else ""
        if ends and sign == ends[-1]:
            ends.pop()
        elif sign in (")", "]"):
            return []
        found.append(Token(kind, part, match.start(), match.end(), len(ends)))
        if sign in _ENDS:
            ends.append(_ENDS[sign])
    return [] if ends else found


def has_sign(tokens: Sequence[Token], at: int, *signs: str) -> bool:
    """Whether one of ``signs`` is at ``at``, which may be behind the last token."""
    return at < len(tokens) and tokens[at].text in signs


def begins_sub_query(tokens: Sequence[Token], at: int) -> bool:
    """Whether a sub-query is in the parentheses that open at ``at``."""
    if tokens[at].text != "(" or at + 2 >= len(tokens):
        return False
    first, second = tokens[at + 1], tokens[at + 2]
    if first.text == "(":
        return begins_sub_query(tokens, at + 1)
    begins = first.word("select", "with") or (first.word("values", "from", "table") and second.text != ".")
    return begins and (second.kind != "op" or second.text in ("(", "*", "-", "+", "~"))


def unescaped(text: str) -> str:
    """What the literal ``text`` stands for. Raises ``NotReadError``."""
    quote, inner = text[0], text[1:-1]
    if quote * 2 in inner.replace("\\" + quote, ""):
        raise NotReadError  # depends on a setting

    def meant(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPED:
            raise NotReadError
        return _ESCAPED[found[1]]

    return re.sub(r"\\(.)", meant, inner, flags=re.DOTALL)
