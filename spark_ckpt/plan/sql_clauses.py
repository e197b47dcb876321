"""A SQL query cut into its clauses, whose expressions stay the texts that they are. Driver, no Spark.

What is read is what the methods of a checkpointed DataFrame can do; other clauses are refused by their name.
"""

from __future__ import annotations

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._sql_cursor import Cursor
from spark_ckpt.plan.sql_query import (
    Grouping,
    Item,
    Join,
    Ordering,
    Query,
    Select,
    Source,
    Span,
    View,
    between_commas,
    words,
)
from spark_ckpt.plan.sql_tokens import Token, begins_sub_query

_UNBUILT = {
    "pivot": "one aggregate with FILTER (WHERE ...) for each value",
    "unpivot": "the method unpivot",
    "tablesample": "the method sample",
    "qualify": "no stream of Spark's has window functions",
    "window": "no stream of Spark's has window functions",
    "cluster": "the method repartition",
    "distribute": "the method repartition",
    "sort": "ORDER BY, or the method sortWithinPartitions",
    "offset": "no stream of Spark's has it",
    "intersect": "no stream of Spark's has it",
    "values": "a sub-query, (SELECT * FROM VALUES ...)",
    "fetch": "LIMIT",
}
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
_TOGETHER = ("union", "except", "minus")
_CLAUSES = ("from", "lateral", "natural", "where", "group", "having", "order", "limit", *_TOGETHER, *_UNBUILT)
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
NOT_AN_ALIAS = {*_CLAUSES, *_IN_JOINS, "join", "on", "using"}
"""Of a table in FROM."""
_NO_ALIAS_BEHIND = {
    *("and", "or", "not", "is", "in", "like", "ilike", "rlike", "between", "when", "then", "else", "case", "collate"),
    *("interval", "distinct", "ignore", "respect", "div", "escape", "null", "from", "regexp"),
}
_NO_ALIAS = {"end", "null", "true", "false", "nulls"}


def within(text: str, span: Span) -> Query:
    """The query that a piece of ``text`` is."""
    reader = _Reader(text, list(span.tokens))
    query = reader.query(span.tokens[0].depth)
    if reader.at < len(span.tokens):
        raise reader.unexpected("the end of the query")
    return query


class _Reader(Cursor):
    # -- queries -----------------------------------------------------------------------------------------------

    def query(self, depth: int) -> Query:
        begin, named = self.at, self._named()
        parts, distinct, operations = [self._part(depth)], list[bool](), list[str]()
        while self._is(*_TOGETHER):
            operations.append("union" if self._taken().word("union") else "except")
            distinct.append(not self._words("all"))
            self._words("distinct")
            parts.append(self._part(depth))
        order = self._orderings(depth) if self._words("order", "by") else ()
        limit = self._limit() if self._words("limit") else None
        self._refuse_unbuilt()
        span = self._span(begin)
        return Query(span, named, tuple(parts), tuple(distinct), order, limit, tuple(operations))

    def _named(self) -> tuple[tuple[str, Span], ...]:
        if not self._words("with"):
            return ()
        if self._is("recursive"):
            raise InvalidInputError("WITH RECURSIVE is not there on a stream, of Spark's neither")
        found = []
        while True:
            name = self._taken().name
            if self._is_sign("("):
                raise InvalidInputError(f"WITH {name}(columns): name the columns in its SELECT, by AS")
            self._expect("as")
            found.append((name, self._in_parentheses()))
            if not self._take_sign(","):
                return tuple(found)

    def _part(self, depth: int) -> Select | Query:
        if self._is_sign("("):
            return within(self.text, self._in_parentheses())
        return self._select(depth)

    def _select(self, depth: int) -> Select:
        begin = self.at
        self._expect("select")
        distinct = self._words("distinct")
        self._words("all")
        items = tuple(self._item(span) for span in self._list(depth, _CLAUSES))
        if not self._words("from"):
            raise InvalidInputError("expected FROM and a view of a stream behind the SELECT list, found none")
        source, joins = self._source(depth), self._joins(depth)
        views = self._views(depth)
        where = self._until(depth, _CLAUSES) if self._words("where") else None
        grouping = self._grouping(depth) if self._words("group", "by") else None
        having = self._until(depth, _CLAUSES) if self._words("having") else None
        self._refuse_unbuilt()
        return Select(self._span(begin), items, distinct, source, joins, where, grouping, having, views)

    def _item(self, span: Span) -> Item:
        tokens = span.tokens
        if len(tokens) > 2 and tokens[-2].word("as") and tokens[-2].depth == tokens[0].depth:
            return Item(span, self._piece(tokens[:-2]), tokens[-1].name)
        if len(tokens) > 1 and _is_alias(tokens):
            return Item(span, self._piece(tokens[:-1]), tokens[-1].name)
        return Item(span, span, None)

    # -- FROM --------------------------------------------------------------------------------------------------

    def _source(self, depth: int) -> Source:
        begin = self.at
        if self._is_sign("("):
            inner = self._in_parentheses()
            if not inner.tokens[0].word("select", "with", "values") and inner.tokens[0].text != "(":
                raise InvalidInputError(f"parentheses around a join: write a sub-query in place of ({inner.text})")
            return Source(self._span(begin), None, inner, *self._alias())
        self._refuse_unbuilt()
        name = [self._taken().name]
        while self._take_sign("."):
            name.append(self._taken().name)
        if self._is_sign("("):
            self._in_parentheses()
            return Source(self._span(begin), None, None, *self._alias())
        return Source(self._span(begin), ".".join(name), None, *self._alias())

    def _alias(self) -> tuple[str | None, tuple[str, ...]]:
        given = self._words("as")
        token = self._next()
        if token is None or not token.is_name or (not given and token.text.lower() in NOT_AN_ALIAS):
            return None, ()
        self.at += 1
        if not self._is_sign("("):
            return token.name, ()
        return token.name, tuple(t.name for t in self._in_parentheses().tokens if t.text != ",")

    def _joins(self, depth: int) -> tuple[Join, ...]:
        found: list[Join] = []
        while True:
            if self._is_lateral():
                return tuple(found)
            if self._take_sign(","):
                self._refuse_unbuilt()
                found.append(Join(self._source(depth), "inner", None, (), comma=True))
                continue
            natural = self._words("natural")
            kind = self._kind_of_join()
            if kind is None:
                return tuple(found)
            self._refuse_unbuilt()
            source = self._source(depth)
            on = self._until(depth, (*_CLAUSES, "join")) if self._words("on") else None
            using: tuple[str, ...] = ()
            if on is None and self._words("using"):
                names = self._in_parentheses()
                using = tuple(t.name for t in names.tokens if t.text != ",")
            found.append(Join(source, kind, on, using, natural=natural))

    # -- LATERAL -----------------------------------------------------------------------------------------------

    def _is_lateral(self) -> bool:
        at = self.at
        found = (self._take_sign(",") or self._kind_of_join() is not None) and self._is("lateral")
        self.at = at
        return found

    def _views(self, depth: int) -> tuple[View, ...]:
        """Of generators. Behind them no table is joined, as behind LATERAL VIEW."""
        found: list[View] = []
        while True:
            if self._words("lateral", "view"):
                outer, generator = self._words("outer"), self._call()
                alias = self._taken().name
                named = self._words("as") or self._begins_name()
                found.append(View(generator, outer, alias, self._names() if named else ()))
            elif self._is_lateral():
                found.append(self._lateral(depth))
            elif found and (self._is_sign(",") or self._kind_ahead()):
                raise InvalidInputError("a JOIN behind LATERAL: write what is in front as a sub-query in FROM")
            else:
                return tuple(found)

    def _lateral(self, depth: int) -> View:
        how = "inner" if self._take_sign(",") else self._kind_of_join()
        self._expect("lateral")
        if self._is_sign("("):
            raise InvalidInputError(
                "LATERAL (SELECT ...) is not there in ckpt.sql; instead: a JOIN by ON, or a sub-query as a value"
            )
        generator = self._call()
        alias = self._taken().name if self._words("as") or self._begins_name() else None
        names = tuple(t.name for t in self._in_parentheses().tokens if t.text != ",") if self._is_sign("(") else ()
        on = self._until(depth, (*_CLAUSES, "join")) if self._words("on") else None
        if how == "left" and on is not None and not (len(on.tokens) == 1 and on.tokens[0].word("true")):
            raise InvalidInputError(
                "LEFT JOIN LATERAL with ON: no stream of Spark's runs it; JOIN LATERAL with ON works"
            )
        # Without ON, Spark leaves out what has nothing in LEFT, too.
        return View(generator, how == "left" and on is not None, alias, names, None if how == "left" else on)

    def _call(self) -> Span:
        begin = self.at
        self._taken()
        self._in_parentheses()
        return self._span(begin)

    def _names(self) -> tuple[str, ...]:
        found = [self._taken().name]
        while self._is_sign(",") and not self._is_lateral():
            self.at += 1
            found.append(self._taken().name)
        return tuple(found)

    def _begins_name(self) -> bool:
        token = self._next()
        return token is not None and token.is_name and token.text.lower() not in NOT_AN_ALIAS

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

    # -- GROUP BY, ORDER BY, LIMIT -----------------------------------------------------------------------------

    def _grouping(self, depth: int) -> Grouping:
        if self._words("all"):
            return Grouping((), all_items=True)
        for word in ("cube", "rollup"):
            if self._is(word) and self._is_sign("(", 1):
                self.at += 1
                return self._whole_grouping(Grouping(self._between_commas(self._in_parentheses()), word))
        if self._words("grouping", "sets"):
            return self._whole_grouping(self._sets((), self._in_parentheses()))
        keys = self._list(depth, (*_CLAUSES, "with", "grouping"))
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
        return tuple(self._ordering(span) for span in self._list(depth, _CLAUSES))

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

    # -- pieces ------------------------------------------------------------------------------------------------

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

    def _between_commas(self, span: Span) -> tuple[Span, ...]:
        return tuple(self._piece(tokens) for tokens in between_commas(span.tokens))

    def _refuse_unbuilt(self) -> None:
        token = self._next()
        if token is not None and token.kind == "word" and token.text.lower() in _UNBUILT:
            raise InvalidInputError(
                f"{token.text.upper()} is not there in ckpt.sql; instead: {_UNBUILT[token.text.lower()]}"
            )


def _is_alias(tokens: tuple[Token, ...]) -> bool:
    last, before = tokens[-1], tokens[-2]
    if not last.is_name or (last.kind == "word" and last.text.lower() in _NO_ALIAS):
        return False
    if len(tokens) > 2 and tokens[-3].word("interval"):
        return False
    ends = before.kind in ("number", "string", "name") or before.text in (")", "]")
    word = before.kind == "word" and before.text.lower() not in _NO_ALIAS_BEHIND
    return last.depth == tokens[0].depth and (ends or word)
