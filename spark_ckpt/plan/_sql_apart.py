"""The operator at the top of a SQL text and the texts of what it takes: Spark Connect has no parser. Driver, no Spark.

The parts stay texts, which Spark's own parser reads.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.connect import expressions as E

from spark_ckpt.plan._sql_expressions import LEVELS, Reader
from spark_ckpt.plan._sql_tokens import NotReadError, Token, tokens_of

Expression = Any
_TAKEN_APART = {"and", "or", "not", "between", "+", "-", *LEVELS[0].values()}


def taken_apart(text: str) -> tuple[str, list[str]] | None:
    """The operator at the top of ``text`` and the texts of what it takes: ``and``, ``or``, ``not``, ``between``, ``+``,
    ``-``, a comparison. None for whatever else it is, or if that is not certain."""
    tokens = tokens_of(text)
    if not tokens:
        return None
    reader = _OfTheTop(text, tokens, "UTC")
    try:
        found = reader.apart(reader.whole())
    except (NotReadError, ValueError):
        return None
    return found if found and found[0] in _TAKEN_APART else None


class _OfTheTop(Reader):
    """Leaves to Spark what stands in calls, CASE and intervals, and predicates that it does not know."""

    def whole(self) -> Expression:
        found = self._expression()
        if self._next() is not None:
            raise NotReadError
        return found

    def apart(self, tree: Expression) -> tuple[str, list[str]] | None:
        _, name, pieces = self._made.get(id(tree), (None, "", ()))
        return (name, [self._between(piece.begin, piece.end) for piece in pieces]) if pieces else None

    def _between(self, begin: int, end: int) -> str:
        return self._text[self._tokens[begin].start : self._tokens[end - 1].end]

    def _left(self, begin: int) -> Expression:
        return E.SQLExpression(self._between(begin, self._at))

    def _predicate(self) -> Expression:
        begin = self._at
        try:
            found = super()._predicate()
        except NotReadError:
            found = None
        token, depth = self._next(), self._tokens[begin].depth if begin < len(self._tokens) else 0
        if found is not None and (token is None or token.depth < depth or token.word("and", "or")):
            return found
        self._at, ranges = begin, 0
        while (token := self._next()) and token.depth >= depth:
            if token.depth == depth and token.word("and", "or") and not (token.word("and") and ranges):
                break
            ranges += token.word("between") - token.word("and") if token.depth == depth else 0
            self._at += 1
        if self._at == begin:
            raise NotReadError
        return self._left(begin)

    def _called(self, token: Token) -> Expression:
        return self._to_the_end(")")

    def _case(self) -> Expression:
        return self._to_the_end("end")

    def _to_the_end(self, end: str) -> Expression:
        """Of what the last token begins."""
        begin, depth = self._at - 1, self._tokens[self._at - 1].depth
        while (token := self._take()).depth != depth or token.text.lower() != end:
            pass
        return self._left(begin)

    def _of_day(self, token: Token) -> Expression:
        self._take()
        return self._left(self._at - 2)

    def _interval(self, token: Token) -> Expression:
        begin = self._at - 1
        while self._is_length():
            self._taken("+", "-")
            self._at += 2
        self._at += 2 if self._is("to") else 0
        return self._left(begin)
