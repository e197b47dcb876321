"""The words and signs of a SQL text. Driver, no Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKENS = re.compile(
    r"(?P<space>\s+)|(?P<string>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")|(?P<name>`(?:[^`]|``)*`)"
    r"|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?\w*)|(?P<word>[^\W\d]\w*)"
    r"|(?P<comment>--|/\*)|(?P<op><=>|->|=>|<=|>=|<>|!=|!<|!>|==|\|\||::|<<|>>|[<>=+\-*/%&|^~!().,\[\]:?{};@#$])"
)


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    end: int
    depth: int

    def word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words


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
