"""The items of a SELECT list, or of another that has names behind its expressions. Driver, no Spark."""

from __future__ import annotations

from spark_ckpt.plan._sql_stops import CLAUSES, ClauseCursor
from spark_ckpt.plan.sql_query import Item, Span
from spark_ckpt.plan.sql_tokens import Token

_NO_ALIAS_BEHIND = {
    *("and", "or", "not", "is", "in", "like", "ilike", "rlike", "between", "when", "then", "else", "case", "collate"),
    *("interval", "distinct", "ignore", "respect", "div", "escape", "null", "from", "regexp"),
}
_NO_ALIAS = {"end", "null", "true", "false", "nulls"}


class ItemReader(ClauseCursor):
    def items(self, depth: int, stops: tuple[str, ...] = CLAUSES) -> tuple[Item, ...]:
        return tuple(self._item(span) for span in self._list(depth, stops))

    def _item(self, span: Span) -> Item:
        tokens = span.tokens
        if len(tokens) > 2 and tokens[-2].word("as") and tokens[-2].depth == tokens[0].depth:
            return Item(span, self._piece(tokens[:-2]), tokens[-1].name)
        if len(tokens) > 1 and _is_alias(tokens):
            return Item(span, self._piece(tokens[:-1]), tokens[-1].name)
        return Item(span, span, None)


def _is_alias(tokens: tuple[Token, ...]) -> bool:
    last, before = tokens[-1], tokens[-2]
    if not last.is_name or (last.kind == "word" and last.text.lower() in _NO_ALIAS):
        return False
    if len(tokens) > 2 and tokens[-3].word("interval"):
        return False
    ends = before.kind in ("number", "string", "name") or before.text in (")", "]")
    word = before.kind == "word" and before.text.lower() not in _NO_ALIAS_BEHIND
    return last.depth == tokens[0].depth and (ends or word)
