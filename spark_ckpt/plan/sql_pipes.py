"""Spark's pipe syntax, ``FROM t |> WHERE a > 1 |> SELECT b``, as sub-queries in FROM. Driver, no Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.sql_query import between_commas
from spark_ckpt.plan.sql_tokens import Token, tokens_of

_JOINED = ("join", "inner", "left", "right", "full", "cross", "semi", "anti", "natural", "lateral", "pivot", "unpivot")
_BEHIND = ("order", "limit")
_BEGIN = ("from", "select", "table", "values")
_SET = ("union", "except", "minus")


def without_pipes(text: str) -> str:
    """``text``, if it has pipes, as one without. Raises ``InvalidInputError`` for operators that are not there."""
    tokens = tokens_of(text)
    pipes = [at for at in range(len(tokens) - 1) if _is_pipe(tokens, at)]
    if not pipes:
        return text
    while tokens[-1].text == ";":
        tokens.pop()
    ends = [*(tokens[at].start for at in pipes), tokens[-1].end]
    begin = next(t for t in tokens if t.depth == 0 and t.word(*_BEGIN)) if tokens[0].word("with") else tokens[0]
    front = text[begin.start : ends[0]].strip()
    made = _Piped(f"({front})")
    if begin.word("from"):
        made = _Piped(
            front[len("from") :].strip(), alias=_alias_of([t for t in tokens[: pipes[0]] if t.start > begin.start])
        )
    for at, end in zip(pipes, ends[1:], strict=True):
        made = made.then(text[tokens[at + 1].end : end].strip())
    return text[: begin.start] + made.text


def _is_pipe(tokens: list[Token], at: int) -> bool:
    one, two = tokens[at], tokens[at + 1]
    return one.text == "|" and two.text == ">" and one.end == two.start and one.depth == 0


def _alias_of(tokens: list[Token]) -> str:
    """Of the only table in FROM."""
    alone = all(t.is_name or t.text == "." for t in tokens) and not any(t.word(*_JOINED) for t in tokens)
    return tokens[-1].text if alone else ""


@dataclass(frozen=True)
class _Piped:
    """``rows`` are in FROM; ``alias`` is theirs, if they are one table."""

    rows: str
    where: str = ""
    alias: str = ""

    @property
    def text(self) -> str:
        return self._selecting("*")

    def _selecting(self, items: str, behind: str = "") -> str:
        where = f" WHERE {self.where}" if self.where else ""
        return f"SELECT {items} FROM {self.rows}{where} {behind}".strip()

    def then(self, step: str) -> _Piped:
        begin = tokens_of(step)[0]  # Spark has read it
        word, rest = begin.text.lower(), step[begin.end :].strip()
        if word == "where":
            return replace(self, where=f"{self.where} AND ({rest})" if self.where else f"({rest})")
        if word == "as":
            return _Piped(f"({self.text}) {rest}", alias=rest)
        if word == "select":
            return _Piped(f"({self._selecting(rest)})")
        if word == "aggregate":
            return _Piped(f"({self._aggregated(rest)})")
        if word in _SET:
            return _Piped(f"({self.text} {step})")
        if word in _JOINED:
            rows = f"({self.text}) {self.alias}" if self.where else self.rows
            return _Piped(f"{rows.strip()} {step}")
        items = {"extend": f"*, {rest}", "drop": f"* EXCEPT ({rest})"}.get(word, "*")
        if word not in ("extend", "drop", *_BEHIND):
            raise InvalidInputError(
                f"the pipe operator {word.upper()} is not there in ckpt.sql; instead: a SELECT with this query in FROM"
            )
        made = self._selecting(items, step if items == "*" else "")
        return _Piped(f"({made}) {self.alias}".strip(), alias=self.alias)

    def _aggregated(self, step: str) -> str:
        tokens = tokens_of(step)
        pairs = enumerate(pairwise(tokens))
        by = next((at for at, (a, b) in pairs if a.word("group") and b.word("by") and a.depth == 0), None)
        if by is None:
            return self._selecting(step)
        keys = step[tokens[by + 1].end :].strip()
        count = len(between_commas(tuple(tokens[by + 2 :])))
        items = ", ".join(part for part in (keys, step[: tokens[by].start].strip()) if part)
        places = ", ".join(str(place + 1) for place in range(count))
        return self._selecting(items, f"GROUP BY {places}")
