"""What of a SELECT with aggregates is computed in front of and behind the operator, by its texts. Driver, no Spark.

``SELECT upper(k), sum(v) / count(*) FROM ... GROUP BY upper(k)`` is an aggregation by ``upper(k)`` with the aggregates
``sum(v)`` and ``count(*)``, and a projection of their results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_ckpt.plan._aggregate_kinds import KINDS, REFUSED
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.spark_errors import unsupported
from spark_ckpt.plan.sql_query import Span, words
from spark_ckpt.plan.sql_tokens import Token, begins_sub_query, closed, has_sign, has_word

INSTEAD_OF_WINDOW_FUNCTIONS = (
    'groupBy("k").aggregate(..., emit="rows") for running values, groupBy("k").topN(...) for the first rows'
)

_ASKED_OF_SETS = {"grouping", "grouping_id"}
AGGREGATES = {*KINDS, *_ASKED_OF_SETS, *REFUSED}
"""Calls of these are aggregates; what is not built among them is refused where it is computed."""


@dataclass
class Aggregated:
    """The aggregates of all expressions that were rewritten: text -> the name of its result."""

    keys: list[tuple[tuple[str, ...], str]]
    """How each key is written, and the column that has it behind the operator."""
    alias: str | None = None
    """What the only table in FROM is called: it says nothing in front of a column."""
    results: dict[str, str] = field(default_factory=dict)

    def rewritten(self, span: Span, aliases: Mapping[str, str] | None = None) -> str:
        """``span`` over the operator's result. ``aliases`` stand for texts, where no call is around them."""
        tokens, text, at, found = span.tokens, span.text, 0, ""
        written = span.start
        while at < len(tokens):
            end, replacement = self._replaced(tokens, at, span, aliases or {})
            if begins_sub_query(tokens, at) and end == at:  # its names are those of its own tables
                at = closed(tokens, at)
                continue
            if end > at:
                found += text[written - span.start : tokens[at].start - span.start] + replacement
                written = tokens[end - 1].end
            at = max(end, at + 1)
        return found + text[written - span.start :]

    def _replaced(self, tokens: tuple[Token, ...], at: int, span: Span, aliases: Mapping[str, str]) -> tuple[int, str]:
        call = end_of_call(tokens, at)
        if call and tokens[at].word(*AGGREGATES):
            text = span.piece(tokens[at:call]).text
            if tokens[at].word(*_ASKED_OF_SETS) and call - at > 3:  # of keys, by their names
                text = f"{tokens[at].text}({self.rewritten(span.piece(tokens[at + 2 : call - 1]))})"
            return call, quoted(self.results.setdefault(text, f"aggregate_{len(self.results) + 1}"))
        for key, name in self.keys:
            end = self._end_of(key, tokens, at)
            if end and (call == end or _stands_alone(tokens, at, end)):
                return end, quoted(name)
        token = tokens[at]
        bare = not call and (at == 0 or tokens[at - 1].text != ".") and not has_sign(tokens, at + 1, ".")
        name = token.name.lower()
        if bare and token.is_name and name in aliases:
            return at + 1, f"({aliases[name]})"
        return at, ""

    def _end_of(self, key: tuple[str, ...], tokens: tuple[Token, ...], at: int) -> int:
        """Where a key that begins at ``at`` ends; 0 if none does."""
        if at and tokens[at - 1].text == ".":
            return 0
        for behind in (at, at + 2 if self._is_alias(tokens, at) else at):
            end = behind + len(key)
            piece = tokens[behind:end]
            if (
                len(piece) == len(key)
                and words(Span(piece, "")) == key
                and not (len(key) == 1 and has_sign(tokens, behind + 1, "("))
            ):
                return end
        return 0

    def _is_alias(self, tokens: tuple[Token, ...], at: int) -> bool:
        return (
            self.alias is not None and tokens[at].name.lower() == self.alias.lower() and has_sign(tokens, at + 1, ".")
        )


def has_aggregate(span: Span) -> bool:
    """Whether there is one, outside of sub-queries."""
    at, tokens = 0, span.tokens
    while at < len(tokens):
        if begins_sub_query(tokens, at):
            at = closed(tokens, at)
        elif end_of_call(tokens, at) and tokens[at].word(*AGGREGATES):
            return True
        else:
            at += 1
    return False


def end_of_call(tokens: tuple[Token, ...], at: int) -> int:
    """Where the call that begins at ``at`` ends, with what belongs to it; 0 if none does."""
    token = tokens[at]
    if token.kind != "word" or not has_sign(tokens, at + 1, "(") or (at and tokens[at - 1].text == "."):
        return 0
    if at and tokens[at - 1].word("like", "ilike"):  # LIKE ANY ('a%', 'b%')
        return 0
    end = closed(tokens, at + 1)
    while end < len(tokens):
        if tokens[end].word("ignore", "respect") and has_word(tokens, end + 1, "nulls"):
            end += 2
        elif tokens[end].word("filter") and has_sign(tokens, end + 1, "("):
            end = closed(tokens, end + 1)
        elif tokens[end].word("within") and has_word(tokens, end + 1, "group"):
            end = closed(tokens, end + 2)
        elif tokens[end].word("over"):
            raise unsupported(
                "OVER is not there in ckpt.sql: no stream of Spark's has window functions; instead: "
                f"{INSTEAD_OF_WINDOW_FUNCTIONS}"
            )
        else:
            break
    return end


def _stands_alone(tokens: tuple[Token, ...], at: int, end: int) -> bool:
    """Whether no operator beside it could take a part of it: ``a + b`` is not in ``a + b * 2``."""
    if all(t.is_name or t.text == "." for t in tokens[at:end]):
        return True
    before = at == 0 or tokens[at - 1].text in ("(", ",")
    return before and (end == len(tokens) or tokens[end].text in (")", ","))
