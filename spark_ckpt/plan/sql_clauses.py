"""A SQL query cut into its clauses, whose expressions stay the texts that they are. Driver, no Spark.

What is read is what the methods of a checkpointed DataFrame can do; other clauses are refused by their name.
"""

from __future__ import annotations

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._sql_order import OrderReader
from spark_ckpt.plan._sql_stops import CLAUSES, TOGETHER
from spark_ckpt.plan._sql_tables import TableReader
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.sql_names import whole
from spark_ckpt.plan.sql_query import Item, Named, Query, Select, Span
from spark_ckpt.plan.sql_sub_queries import in_parentheses, tables_of


def within(text: str, span: Span) -> Query:
    """The query that a piece of ``text`` is."""
    reader = _Reader(text, list(span.tokens))
    query = reader.query(span.tokens[0].depth)
    if reader.at < len(span.tokens):
        raise reader.unexpected("the end of the query")
    return query


def items_of_row(query: Span) -> tuple[Item, ...]:
    """What is computed by a SELECT that reads no table; nothing if ``query`` is something else."""
    tokens = query.tokens
    if not tokens[0].word("select") or len(tokens) < 2 or tokens[1].word("distinct", "all"):
        return ()
    text = " " * query.start + query.text
    reader = _Reader(text, list(tokens[1:]))
    items = reader.items(tokens[0].depth)
    return items if reader.at == len(tokens) - 1 else ()


class _Reader(TableReader, OrderReader):
    def query(self, depth: int) -> Query:
        begin, named = self.at, self._named()
        parts, distinct, operations = [self._part(depth)], list[bool](), list[str]()
        while self._is(*TOGETHER):
            operations.append("union" if self._taken().word("union") else "except")
            distinct.append(not self._words("all"))
            self._words("distinct")
            parts.append(self._part(depth))
        order = self._orderings(depth) if self._words("order", "by") else ()
        limit = self._limit() if self._words("limit") else None
        self._refuse_unbuilt()
        span = self._span(begin)
        return Query(span, named, tuple(parts), tuple(distinct), order, limit, tuple(operations))

    def _named(self) -> tuple[Named, ...]:
        if not self._words("with"):
            return ()
        recursive, found = self._words("recursive"), list[Named]()
        while True:
            name = self._taken().name
            columns = self._names_between(self._in_parentheses()) if self._is_sign("(") else ()
            self._expect("as")
            query = self._in_parentheses()
            of_itself = recursive and name.lower() in tables_of(query)
            found.append(_recursive(name, query, columns) if of_itself else Named(name, query, columns))
            if not self._take_sign(","):
                return tuple(found)

    def _part(self, depth: int) -> Select | Query:
        if self._is_sign("("):
            return within(self.text, self._in_parentheses())
        return self._select(depth)

    def _select(self, depth: int) -> Select:
        begin = self.at
        if self._words("table"):
            star = whole("*")
            source = self._source(depth)
            return Select(self._span(begin), (Item(star, star, None),), False, source, (), None, None, None)
        tables = self._relation(depth) if self._words("from") else None  # FROM t SELECT k
        self._expect("select")
        distinct = self._words("distinct")
        self._words("all")
        items = self.items(depth)
        if tables is None and not self._words("from"):
            raise InvalidInputError("expected FROM and a view of a stream behind the SELECT list, found none")
        source, steps = tables or self._relation(depth)
        where = self._until(depth, CLAUSES) if self._words("where") else None
        grouping = self._grouping(depth) if self._words("group", "by") else None
        having = self._until(depth, CLAUSES) if self._words("having") else None
        self._refuse_unbuilt()
        return Select(self._span(begin), items, distinct, source, steps, where, grouping, having)


def _recursive(name: str, query: Span, columns: tuple[str, ...]) -> Named:
    """As a query that may stand anywhere, without the WITH in front of it."""
    known = f"{quoted(name)}{in_parentheses(columns)}"
    text = f"SELECT * FROM (WITH RECURSIVE {known} AS ({query.text}) SELECT * FROM {quoted(name)})"
    return Named(name, whole(text), (), recursive=True)
