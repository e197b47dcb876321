"""GROUP BY, ORDER BY and LIMIT of a SQL query. Driver, no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._sql_stops import CLAUSES, ClauseCursor
from spark_ckpt.plan.sql_query import Grouping, Ordering, Span, words


class OrderReader(ClauseCursor):
    def _grouping(self, depth: int) -> Grouping:
        if self._words("all"):
            return Grouping((), all_items=True)
        found = [self._element(depth)]
        while self._take_sign(","):
            found.append(self._element(depth))
        keys = tuple(key for one in found for key in one.keys)
        if self._words("grouping", "sets"):
            return self._sets(keys, self._in_parentheses())
        if self._words("with"):
            return Grouping(keys, self._taken().text.lower())
        if not any(one.sets for one in found):
            return Grouping(keys)
        if len(found) == 1 and not any(key.tokens[0].text == "(" for key in keys):
            return found[0]
        return _together([list(self._sets_of(one)) for one in found])

    def _element(self, depth: int) -> Grouping:
        """One of what stands between commas behind GROUP BY."""
        for word in ("cube", "rollup"):
            if self._is(word) and self._is_sign("(", 1):
                self.at += 1
                return Grouping(self._between_commas(self._in_parentheses()), word)
        if self._words("grouping", "sets"):
            return self._sets((), self._in_parentheses())
        return Grouping((self._until(depth, (*CLAUSES, "with", "grouping"), ","),))

    def _sets_of(self, one: Grouping) -> Iterator[list[Span]]:
        """The sets of keys that ``one`` stands for; parentheses in CUBE and ROLLUP hold keys that go together."""
        if not one.sets:
            yield list(one.keys)
        elif one.places:
            yield from ([one.keys[at] for at in places] for places in one.places)
        else:
            parts = [self._keys_of(key) for key in one.keys]
            sizes = range(len(parts), -1, -1)
            for chosen in (c for n in sizes for c in (combinations(parts, n) if one.sets == "cube" else [parts[:n]])):
                yield [key for part in chosen for key in part]

    def _keys_of(self, key: Span) -> list[Span]:
        alone = key.tokens[0].text == "(" and key.tokens[-1].text == ")"
        return list(self._between_commas(key.piece(key.tokens[1:-1]))) if alone else [key]

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


def _together(found: list[list[list[Span]]]) -> Grouping:
    """Each set of one with each of the others, as in Spark."""
    keys: dict[tuple[str, ...], Span] = {}
    for one in found:
        keys.update({words(key): key for keys_of_set in one for key in keys_of_set if words(key) not in keys})
    order = list(keys)
    chosen = [dict.fromkeys(words(key) for one in sets for key in one) for sets in product(*found)]
    places = tuple(tuple(order.index(text) for text in one) for one in chosen)
    return Grouping(tuple(keys.values()), "grouping sets", places)
