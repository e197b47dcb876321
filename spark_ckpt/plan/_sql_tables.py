"""FROM of a SQL query: its tables, and what is joined with them, in order. Driver, no Spark."""

from __future__ import annotations

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._sql_items import ItemReader
from spark_ckpt.plan._sql_stops import CLAUSES, NOT_AN_ALIAS
from spark_ckpt.plan.sql_query import KEEPS_RIGHT, Item, Join, Lateral, Pivot, Source, Span, Step, Unpivot, View
from spark_ckpt.plan.sql_tokens import begins_sub_query

_BEGIN_QUERY = ("select", "with", "values", "from", "table")


class TableReader(ItemReader):
    def _relation(self, depth: int) -> tuple[Source, tuple[Step, ...]]:
        """The first table, and what is joined with it; parentheses around these mean nothing."""
        if not self._is_sign("(") or begins_sub_query(self.tokens, self.at):
            return self._source(depth), self._steps(depth)
        inner = self._in_parentheses()
        reader = type(self)(self.text, list(inner.tokens))
        source, steps = reader._relation(inner.tokens[0].depth)
        if reader.at < len(inner.tokens) or self._begins_name():
            raise reader.unexpected("the end of a join in parentheses, and no alias behind it")
        return source, (*steps, *self._steps(depth))

    def _source(self, depth: int) -> Source:
        begin = self.at
        if self._is_sign("("):
            inner = self._in_parentheses()
            if not inner.tokens[0].word(*_BEGIN_QUERY) and inner.tokens[0].text != "(":
                raise InvalidInputError(f"parentheses around a join: write a sub-query in place of ({inner.text})")
            return Source(self._span(begin), None, inner, *self._alias())
        if self._is("values") and self._is_sign("(", 1):
            self._rows()
            alias = self._alias()
            return Source(self._span(begin), None, None, *alias)
        self._refuse_unbuilt()
        name = [self._taken().name]
        while self._take_sign("."):
            name.append(self._taken().name)
        if self._is_sign("("):
            self._in_parentheses()
            return Source(self._span(begin), None, None, *self._alias())
        sample = self._in_parentheses() if self._words("tablesample") else None
        if sample is not None and self._words("repeatable"):
            self._in_parentheses()
        return Source(self._span(begin), ".".join(name), None, *self._alias(), sample=sample)

    def _rows(self) -> None:
        """``VALUES (1, 2), (3, 4)``."""
        self.at += 1
        self._in_parentheses()
        while self._is_sign(",") and self._is_sign("(", 1):
            self.at += 1
            self._in_parentheses()

    def _alias(self) -> tuple[str | None, tuple[str, ...]]:
        given = self._words("as")
        token = self._next()
        if token is None or not token.is_name or (not given and token.text.lower() in NOT_AN_ALIAS):
            return None, ()
        self.at += 1
        return token.name, self._names_between(self._in_parentheses()) if self._is_sign("(") else ()

    def _steps(self, depth: int) -> tuple[Step, ...]:
        found, comma = list[Step](), False
        while True:
            comma = comma or self._is_sign(",")
            one = self._view() if self._words("lateral", "view") else self._step(depth)
            if one is None:
                return tuple(found)
            if comma and isinstance(one, Join) and one.how in KEEPS_RIGHT:
                raise InvalidInputError(
                    f"a {one.how} join behind a comma is of the tables behind it alone: write it in front of the comma"
                )
            found.append(one)

    def _step(self, depth: int) -> Step | None:
        if self._words("unpivot"):
            return self._unpivot()
        if self._words("pivot"):
            return self._pivot()
        comma = self._take_sign(",")
        natural = not comma and self._words("natural")
        kind = "inner" if comma else self._kind_of_join()
        if kind is None:
            return None
        if self._words("lateral"):
            return self._lateral(depth, kind)
        source = self._source(depth)
        on = self._on(depth)
        using = () if comma or on or not self._words("using") else self._names_between(self._in_parentheses())
        return Join(source, kind, on, using, natural=natural)

    def _on(self, depth: int) -> Span | None:
        return self._until(depth, (*CLAUSES, "join"), ",") if self._words("on") else None

    def _unpivot(self) -> Unpivot:
        nulls = self._words("include", "nulls") or (self._words("exclude", "nulls") and False)
        inside = type(self)(self.text, list(self._in_parentheses().tokens))
        several = inside._is_sign("(")
        values = inside._names_between(inside._in_parentheses()) if several else (inside._taken().name,)
        inside._expect("for")
        name = inside._taken().name
        inside._expect("in")
        sets = tuple(self._set(self._item(one)) for one in inside._between_commas(inside._in_parentheses()))
        alias, _ = self._alias()
        return Unpivot(values, name, sets, nulls, alias)

    def _set(self, item: Item) -> tuple[tuple[Span, ...], str]:
        """Columns of UNPIVOT, and what they are called there: ``a``, ``t.a AS b``, ``(a, b) c``."""
        columns = self._columns(item.expression)
        return columns, item.alias or "_".join(column.tokens[-1].name for column in columns)

    def _columns(self, span: Span) -> tuple[Span, ...]:
        several = span.tokens[0].text == "("
        return self._between_commas(span.piece(span.tokens[1:-1]) if several else span)

    def _pivot(self) -> Pivot:
        whole = self._in_parentheses()
        inside = type(self)(self.text, list(whole.tokens))
        depth = whole.tokens[0].depth
        results = inside.items(depth, ("for",))
        inside._expect("for")
        columns = self._columns(inside._until(depth, ("in",)))
        inside._expect("in")
        values = tuple(self._item(one) for one in inside._between_commas(inside._in_parentheses()))
        alias, _ = self._alias()
        return Pivot(whole, results, columns, values, alias)

    # -- LATERAL -----------------------------------------------------------------------------------------------

    def _view(self) -> View:
        outer, generator = self._words("outer"), self._call()
        alias = self._taken().name
        named = self._words("as") or self._begins_name()
        return View(generator, outer, alias, self._names() if named else ())

    def _lateral(self, depth: int, kind: str) -> View | Lateral:
        how = "left" if kind == "left" else "inner"
        query = self._in_parentheses() if self._is_sign("(") else None
        generator = query or self._call()
        alias, names = self._alias()
        on = self._on(depth)
        if query is not None:
            return Lateral(query, how, alias, names, on)
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
        while self._take_sign(","):
            found.append(self._taken().name)
        return tuple(found)

    def _begins_name(self) -> bool:
        token = self._next()
        return token is not None and token.is_name and token.text.lower() not in NOT_AN_ALIAS
