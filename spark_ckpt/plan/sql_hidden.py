"""Names of WITH that hide others, ``WITH orders AS (SELECT * FROM orders)``: they get names of their own. Driver, no
Spark.

What reads the text further on knows a table by its name alone. As in Spark, a name counts behind its query, in the
queries that follow and in those inside of them, and not in its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.sql_names import alias_behind, is_table
from spark_ckpt.plan.sql_tokens import Token, closed, has_sign, has_word, tokens_of

_Scope = Mapping[str, str]
"""Names in small letters -> those of their own; without those that hide nothing."""


def without_hidden(text: str, tables: Collection[str]) -> str:
    """``text``, in which WITH names nothing as one of ``tables``, and nothing twice."""
    tokens = tuple(tokens_of(text))
    reader = _Reader(tokens, set(tables), [token.name.lower() for token in tokens])
    reader.read(0, len(reader.tokens), {})
    for start, end, written in sorted(reader.found, reverse=True):
        text = text[:start] + written + text[end:]
    return text


@dataclass
class _Reader:
    """``taken``: names that stand for something already; ``words``: all in the text; ``found``: what is to be written
    in place of pieces of it."""

    tokens: tuple[Token, ...]
    taken: set[str]
    words: list[str]
    found: list[tuple[int, int, str]] = field(default_factory=list)

    def read(self, at: int, end: int, scope: _Scope) -> None:
        """The tokens from ``at`` to ``end``, where ``scope`` holds."""
        while at < end:
            token = self.tokens[at]
            if token.word("with") and self._query_at(at + 1 + has_word(self.tokens, at + 1, "recursive")):
                at, scope = self._named(at, scope)
            elif token.text == "(":
                behind = closed(self.tokens, at)
                self.read(at + 1, behind - 1, scope)
                at = behind
            else:
                if token.is_name and token.name.lower() in scope and is_table(self.tokens, at):
                    self._write(at, scope[token.name.lower()])
                at += 1

    def _named(self, at: int, scope: _Scope) -> tuple[int, _Scope]:
        """The list behind WITH: where it ends, and what holds there."""
        of_itself = has_word(self.tokens, at + 1, "recursive")
        at += of_itself
        while True:
            name, begin = self.tokens[at + 1], self._query_at(at + 1)
            behind, low = closed(self.tokens, begin), name.name.lower()
            hides = low in self.taken
            inside = {other: own for other, own in scope.items() if other != low}
            if hides:
                inside[low] = free(f"{name.name}_of_with", [*self.words, *self.taken])
                self.words.append(inside[low].lower())
                self.found.append((name.start, name.end, quoted(inside[low])))
            self.read(begin + 1, behind - 1, inside if of_itself else scope)
            self.taken.add(low)
            at, scope = behind, inside
            if not has_sign(self.tokens, at, ",") or not self._query_at(at + 1):
                return at, scope

    def _query_at(self, at: int) -> int:
        """Where the query in parentheses begins that a name at ``at`` is for, ``name (columns) AS (...)``; 0: none."""
        behind = closed(self.tokens, at + 1) if has_sign(self.tokens, at + 1, "(") else at + 1
        there = has_word(self.tokens, behind, "as") and has_sign(self.tokens, behind + 1, "(")
        return behind + 1 if there and self.tokens[at].is_name else 0

    def _write(self, at: int, own: str) -> None:
        token = self.tokens[at]
        self.found.append((token.start, token.end, quoted(own) + alias_behind(self.tokens, at)))
