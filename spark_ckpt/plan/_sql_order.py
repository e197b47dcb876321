"""GROUP BY, ORDER BY and LIMIT of a SQL query. Driver, no Spark."""

from __future__ import annotations

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._sql_stops import CLAUSES, ClauseCursor
from spark_ckpt.plan.sql_query import Grouping, Ordering, Span, words


class OrderReader(ClauseCursor):
    def _grouping(self, depth: int) -> Grouping:
        if self._words("all"):
            return Grouping((), all_items=True)
        for word in ("cube", "rollup"):
            if self._is(word) and self._is_sign("(", 1):
                self.at += 1
                return self._whole_grouping(Grouping(self._between_commas(self._in_parentheses()), word))
        if self._words("grouping", "sets"):
            return self._whole_grouping(self._sets((), self._in_parentheses()))
        keys = self._list(depth, (*CLAUSES, "with", "grouping"))
        if self._words("grouping", "sets"):
            return self._whole_grouping(self._sets(keys, self._in_parentheses()))
        if self._words("with"):
            return Grouping(keys, self._taken().text.lower())
        if any(k.tokens[0].word("cube", "rollup") for k in keys):
            raise InvalidInputError("CUBE or ROLLUP beside other keys: write GROUPING SETS")
        return Grouping(keys)

    def _whole_grouping(self, grouping: Grouping) -> Grouping:
        if self._is_sign(","):
            raise InvalidInputError("other keys beside CUBE, ROLLUP or GROUPING SETS: write them into GROUPING SETS")
        return grouping

    def _sets(self, keys: tuple[Span, ...], inner: Span) -> Grouping:
        known = list(keys)
        places = []
        for one in self._between_commas(inner):
            alone = one.tokens[0].text == "(" and one.tokens[-1].text == ")"
            names = self._between_commas(self._piece(one.tokens[1:-1])) if alone and len(one.tokens) > 2 else ()
            found = []
            for span in names if alone else (one,):
                texts = [words(k) for k in known]
                if words(span) not in texts:
                    known.append(span)
                    texts.append(words(span))
                found.append(texts.index(words(span)))
            places.append(tuple(found))
        return Grouping(tuple(known), "grouping sets", tuple(places))

    def _orderings(self, depth: int) -> tuple[Ordering, ...]:
        return tuple(self._ordering(span) for span in self._list(depth, CLAUSES))

    def _ordering(self, span: Span) -> Ordering:
        tokens, nulls = list(span.tokens), None
        if len(tokens) > 2 and tokens[-2].word("nulls") and tokens[-1].word("first", "last"):
            nulls = tokens[-1].word("first")
            tokens = tokens[:-2]
        directed = len(tokens) > 1 and tokens[-1].word("asc", "desc")
        descending = directed and tokens[-1].word("desc")
        return Ordering(self._piece(tuple(tokens[:-1] if directed else tokens)), descending, nulls)

    def _limit(self) -> int | None:
        token = self._taken()
        if token.word("all"):
            return None
        if not token.text.isdigit():
            raise InvalidInputError(f"LIMIT {token.text}: expected a number")
        return int(token.text)
