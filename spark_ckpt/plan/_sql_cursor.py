"""Where a reader of SQL is in its tokens, and what it takes from there. Driver, no Spark."""

from __future__ import annotations

from dataclasses import dataclass

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.sql_query import Span
from spark_ckpt.plan.sql_tokens import Token


@dataclass
class Cursor:
    """``at``: the next of ``tokens``, which are those of ``text``."""

    text: str
    tokens: list[Token]
    at: int = 0

    def _in_parentheses(self) -> Span:
        if not self._is_sign("("):
            raise self.unexpected("(")
        begin, depth = self.at, self.tokens[self.at].depth
        self.at += 1
        while (token := self._taken()).depth != depth or token.text != ")":
            pass
        if self.at - begin < 3:
            raise InvalidInputError("expected something between the parentheses, found ()")
        return self._piece(tuple(self.tokens[begin + 1 : self.at - 1]))

    def _piece(self, tokens: tuple[Token, ...]) -> Span:
        return Span(tokens, self.text[tokens[0].start : tokens[-1].end])

    def _span(self, begin: int) -> Span:
        return self._piece(tuple(self.tokens[begin : self.at]))

    def _next(self, ahead: int = 0) -> Token | None:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def _taken(self) -> Token:
        token = self._next()
        if token is None:
            raise self.unexpected("more")
        self.at += 1
        return token

    def _is(self, *words: str) -> bool:
        token = self._next()
        return token is not None and token.word(*words)

    def _is_sign(self, sign: str, ahead: int = 0) -> bool:
        token = self._next(ahead)
        return token is not None and token.text == sign

    def _take_sign(self, sign: str) -> bool:
        found = self._is_sign(sign)
        self.at += found
        return found

    def _words(self, *words: str) -> bool:
        found = all((t := self._next(i)) is not None and t.word(w) for i, w in enumerate(words))
        self.at += len(words) if found else 0
        return found

    def _expect(self, word: str) -> None:
        if not self._words(word):
            raise self.unexpected(word.upper())

    def unexpected(self, expected: str) -> InvalidInputError:
        token = self._next()
        found = "the end" if token is None else repr(self.text[token.start : token.start + 40])
        return InvalidInputError(f"SQL over streams: expected {expected}, found {found}")
