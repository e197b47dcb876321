"""Where the clauses of a SQL query end: the words that begin others. Driver."""

from __future__ import annotations

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._sql_cursor import Cursor
from spark_ckpt.plan.spark_errors import unsupported
from spark_ckpt.plan.sql_aggregates import INSTEAD_OF_WINDOW_FUNCTIONS
from spark_ckpt.plan.sql_query import Span, between_commas
from spark_ckpt.plan.sql_tokens import Token, begins_sub_query

_RUNNING = f"{INSTEAD_OF_WINDOW_FUNCTIONS}; no stream of Spark's has window functions"
_UNBUILT = {
    "tablesample": "behind the name of a table, or the method sample",
    "qualify": _RUNNING,
    "window": _RUNNING,
    "cluster": "the method repartition",
    "distribute": "the method repartition",
    "sort": "ORDER BY, or the method sortWithinPartitions",
    "offset": "WHERE, row by row; no stream of Spark's has it",
    "intersect": "WHERE k IN (SELECT k FROM table); no stream of Spark's has it",
    "values": "a sub-query, (SELECT * FROM VALUES ...)",
    "fetch": "LIMIT",
}
_REFUSED = ("qualify", "window", "offset", "intersect", "sort")
_JOINS = {
    "inner": "inner",
    "cross": "cross",
    "left": "left",
    "left outer": "left",
    "right": "right",
    "right outer": "right",
    "full": "full",
    "full outer": "full",
    "left semi": "left_semi",
    "semi": "left_semi",
    "left anti": "left_anti",
    "anti": "left_anti",
    "": "inner",
}
_IN_JOINS = {word for words in _JOINS for word in words.split()}
TOGETHER = ("union", "except", "minus")
CLAUSES = (
    *("from", "lateral", "natural", "pivot", "unpivot", "where", "group", "having", "order", "limit"),
    *TOGETHER,
    *_UNBUILT,
)
_BY, _QUERY = ("by",), ("select", "all", "distinct", "(")
_ONLY_BEFORE = {
    **dict.fromkeys(("group", "order", "cluster", "distribute", "sort"), _BY),
    **dict.fromkeys(("intersect", "except", "minus"), _QUERY),
    **dict.fromkeys(("pivot", "unpivot", "tablesample"), ("(", "include", "exclude")),
    "lateral": ("view",),
    "natural": ("join", "inner", "left", "right", "full", "cross"),
    "fetch": ("first", "next"),
    "values": (),
}
"""Words that may be names of columns, too: what stands behind them where they begin a clause."""
NOT_AN_ALIAS = {*CLAUSES, *_IN_JOINS, "join", "on", "using", "select"}
"""Of a table in FROM."""


class ClauseCursor(Cursor):
    """Takes pieces up to where another clause begins."""

    def _list(self, depth: int, stops: tuple[str, ...]) -> tuple[Span, ...]:
        found = [self._until(depth, stops, ",")]
        while self._take_sign(","):
            found.append(self._until(depth, stops, ","))
        return tuple(found)

    def _until(self, depth: int, stops: tuple[str, ...], sign: str = "") -> Span:
        begin = self.at
        while (token := self._next()) is not None:
            if token.depth == depth and (token.text == sign or token.text == ";" or self._stops(token, stops, begin)):
                break
            self.at += 1
        if self.at == begin:
            raise self.unexpected("an expression")
        return self._span(begin)

    def _stops(self, token: Token, stops: tuple[str, ...], begin: int) -> bool:
        before, behind = self.tokens[self.at - 1], self._next(1)
        if before.text == "." or not token.word(*stops, *_IN_JOINS):
            return False
        if token.word("from"):  # a IS DISTINCT FROM b
            return not (before.word("distinct") and self.at - begin > 1)
        if token.word("window", "limit", "offset", "qualify"):
            following = self._next(2)
            if token.word("window"):
                return following is not None and following.word("as") and self.at > begin
            return self.at > begin and behind is not None and behind.kind in ("number", "word", "name")
        if token.word(*_IN_JOINS, "join"):
            return "join" in stops and (token.word("join") or self._kind_ahead())
        if token.word("except", "minus", "intersect") and behind is not None and behind.text == "(":
            return begins_sub_query(self.tokens, self.at + 1)  # else SELECT * EXCEPT (columns)
        only = _ONLY_BEFORE.get(token.text.lower())
        return only is None or (behind is not None and behind.text.lower() in only)

    def _kind_ahead(self) -> bool:
        at = self.at
        found = self._kind_of_join() is not None
        self.at = at
        return found

    def _kind_of_join(self) -> str | None:
        end = self.at
        while end < len(self.tokens) and self.tokens[end].word(*_IN_JOINS):
            end += 1
        if end == len(self.tokens) or not self.tokens[end].word("join"):
            return None
        words = " ".join(t.text.lower() for t in self.tokens[self.at : end])
        if words not in _JOINS:
            raise self.unexpected("a kind of join")
        self.at = end + 1
        return _JOINS[words]

    def _between_commas(self, span: Span) -> tuple[Span, ...]:
        return tuple(self._piece(tokens) for tokens in between_commas(span.tokens))

    def _names_between(self, span: Span) -> tuple[str, ...]:
        return tuple(t.name for t in span.tokens if t.text != ",")

    def _refuse_unbuilt(self) -> None:
        token = self._next()
        if token is not None and token.kind == "word" and token.text.lower() in _UNBUILT:
            error = unsupported if token.text.lower() in _REFUSED else InvalidInputError
            raise error(f"{token.text.upper()} is not there in ckpt.sql; instead: {_UNBUILT[token.text.lower()]}")
