"""``ckpt.sql(text)``: SQL over temporary views of checkpointed streams. Driver only; classic and Connect.

The text is cut into its clauses, and each is the method of the DataFrame that does the same; expressions stay texts
that Spark reads. Spark analyses the whole text, too, over empty tables: its errors come first, and what was built must
have the names and types that it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.api._sql_aggregation import SelectOfAggregates, direction, ordinal
from spark_ckpt.api._sql_arguments import literal, with_arguments
from spark_ckpt.api._sql_expressions import GIVEN, Expressions, with_outer_columns
from spark_ckpt.api._sql_lateral import Names, of_views, with_views
from spark_ckpt.api._subtract import NOT_ON_THE_RIGHT, grouped_rows
from spark_ckpt.api._views import views_of
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.sql_aggregates import has_aggregate
from spark_ckpt.plan.sql_clauses import within
from spark_ckpt.plan.sql_names import (
    alias_of,
    has_alias,
    is_name,
    is_table,
    qualifiers,
    whole,
)
from spark_ckpt.plan.sql_query import Item, Join, Ordering, Query, Select, Source, Span
from spark_ckpt.plan.sql_sub_queries import conjuncts, expressions_of, sub_queries
from spark_ckpt.plan.sql_tokens import without_comments

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

Frame = Any
"""A checkpointed DataFrame, or a static one of Spark's."""


def sql(session: Any, text: str, args: Any, given: Mapping[str, Any]) -> CkptDataFrame:
    """See :meth:`spark_ckpt.api.session.CkptSession.sql`; ``given`` are its ``kwargs``."""
    tables: dict[str, Frame] = dict(views_of(session.spark))
    if given:
        tables |= {f"{GIVEN}{name}".lower(): value for name, value in given.items() if hasattr(value, "isStreaming")}
        text = text.format(**{n: f"{GIVEN}{n}" if hasattr(v, "isStreaming") else literal(v) for n, v in given.items()})
    return _Text(session.spark, with_arguments(without_comments(text), args), tables).built()


@dataclass
class _Text:
    """One text. ``tables``: what FROM may name; ``named`` are those that WITH has named so far, with their texts."""

    spark: Any
    text: str
    tables: dict[str, Frame]
    named: list[tuple[str, Span]] = field(default_factory=list)

    def built(self) -> CkptDataFrame:
        span = whole(self.text)
        schema = self._analysed(span).schema  # Spark's own errors come first
        query = within(self.text, span)
        found = self._query(query)
        if not _is_stream(found):
            raise InvalidInputError(
                "the query reads no view of a checkpointed stream: it is ckpt.spark.sql's. Views are made by "
                f'createOrReplaceTempView("name") of such a stream; there are {sorted(self.tables) or "none"}'
            )
        return _as_spark_says(found, schema)

    # -- what Spark says ---------------------------------------------------------------------------------------

    def _analysed(self, span: Span) -> Any:
        """What Spark makes of a piece, over empty tables in place of streams."""
        given: dict[str, Any] = {}
        text = self._placed(span, given)
        if self.named:
            named = [f"{quoted(name)} AS ({self._placed(piece, given)})" for name, piece in self.named]
            text = f"WITH {', '.join(named)} {text}"
        if not given:
            return self.spark.sql(text)
        parts = text.replace("{", "{{").replace("}", "}}").split("\0")
        text = "".join(f"{{{part}}}" if i % 2 else part for i, part in enumerate(parts))
        return self.spark.sql(text, **given)

    def _placed(self, span: Span, given: dict[str, Any]) -> str:
        """The text of ``span``, where between zeros are tables that Spark does not know, which are ``given``."""
        found, written, named = "", span.start, {name.lower() for name, _ in self.named}
        for at, token in enumerate(span.tokens):
            name = token.name.lower()
            if name not in self.tables or name in named or not is_table(span.tokens, at):
                continue
            frame = self.tables[name]
            key = f"t{list(self.tables).index(name)}"
            given[key] = frame._in_spark() if _is_stream(frame) else frame
            alias = "" if has_alias(span.tokens, at) else f" AS {token.text}"
            found += self.text[written : token.start] + f"\0{key}\0{alias}"
            written = token.end
        return found + self.text[written : span.end]

    def _reads_stream(self, span: Span) -> bool:
        names = (t.name.lower() for at, t in enumerate(span.tokens) if is_table(span.tokens, at))
        return any(_is_stream(self.tables.get(name)) for name in names)

    # -- queries -----------------------------------------------------------------------------------------------

    def _query(self, query: Query) -> Frame:
        outer_tables, outer_named = dict(self.tables), list(self.named)
        for name, piece in query.named:
            if name.lower() in self.tables:
                raise InvalidInputError(f"WITH {name}: there is a view of that name; give it another one")
            frame = self._frame(piece)
            self.tables[name.lower()] = frame
            self.named.append((name, piece))
        parts = [self._part(part, query.order if len(query.parts) == 1 else ()) for part in query.parts]
        found = parts[0]
        for part, operation, distinct in zip(parts[1:], query.operations, query.distinct, strict=True):
            found = (_together if operation == "union" else _without)(found, part, distinct)
        found = _sorted(found, query.order) if len(parts) > 1 else found
        self.tables, self.named = outer_tables, outer_named
        return found if query.limit is None else found.limit(query.limit)

    def _frame(self, span: Span) -> Frame:
        """Of a sub-query: a stream's, or a static one of Spark's."""
        return self._query(within(self.text, span)) if self._reads_stream(span) else self._analysed(span)

    def _part(self, part: Select | Query, order: tuple[Ordering, ...]) -> Frame:
        if isinstance(part, Query):
            return _sorted(self._query(part), order)
        return self._select(part, order)

    def _select(self, select: Select, order: tuple[Ordering, ...]) -> Frame:
        read = Expressions(self.spark, dict(self.tables), {name.lower(): piece for name, piece in self.named})
        read.refuse_streams([found for span in expressions_of(select) for found in sub_queries(span)])
        sources = (select.source, *(join.source for join in select.joins))
        tables = [self._table(source, select) for source in sources]
        if not any(map(_is_stream, tables)):
            return self._analysed(select.span)
        frame, where = _from(select, tables, read)
        schema = self._analysed(select.span).schema
        viewed: Names = {}
        if select.views:
            frame, select, viewed = with_views(frame, select)
            where = where and select.where
        outer: list[str] = []
        if frame._joined is not None and where in (None, select.where):
            frame, select, outer = with_outer_columns(frame, select)
            where = where and select.where
        if where is not None:
            frame = frame.where(read.column(where.text))
        if select.grouping or select.having or any(has_aggregate(i.expression) for i in select.items):
            found = _as_spark_says(SelectOfAggregates(frame, select, read, viewed).built(order, schema.names), schema)
            return grouped_rows(found) if select.distinct else found
        found = frame.select(*_columns(select.items, read, frame.columns, schema.names if outer else []))
        found = _as_spark_says(found.drop(*outer) if outer else found, schema)
        found = grouped_rows(found) if select.distinct else found
        return _sorted(found, order)

    # -- FROM --------------------------------------------------------------------------------------------------

    def _table(self, source: Source, select: Select) -> Frame:
        if source.inner is not None:
            frame = self._frame(source.inner)
        elif source.name is not None and source.name.lower() in self.tables:
            frame = self.tables[source.name.lower()]
        else:
            frame = self.spark.sql(f"SELECT * FROM {source.span.text}")
        frame = frame.toDF(*source.columns) if source.columns else frame
        alias = alias_of(source)
        told = bool(select.joins) or (alias is not None and alias.lower() in qualifiers(select.span))
        return frame.alias(alias) if alias is not None and told else frame


def _columns(items: tuple[Item, ...], read: Expressions, columns: list[str], names: list[str]) -> list[Any]:
    """``columns`` are those there are; ``names``: what Spark calls what is computed here in other words."""
    found = [column for item in items for column in _star_except(item, columns) or [_column(item, read)]]
    told = len(names) == len(items) and not any("*" in item.whole.text for item in items)
    return [column.alias(name) for column, name in zip(found, names, strict=True)] if told else found


def _star_except(item: Item, columns: list[str]) -> list[Any]:
    """Of ``* EXCEPT (a, b)``."""
    tokens = item.whole.tokens
    if len(tokens) < 4 or tokens[0].text != "*" or not tokens[1].word("except"):
        return []
    gone = {token.name.lower() for token in tokens[3:-1] if token.is_name}
    return [F.col(quoted(name)) for name in columns if name.lower() not in gone]


def _column(item: Item, read: Expressions) -> Any:
    if len(item.expression.tokens) > 1 and is_name(item.expression):  # behind a join, it shows as it is called
        column = F.col(item.expression.text)
        return column if item.alias is None else column.alias(item.alias)
    return "*" if item.whole.text == "*" else read.column(item.whole.text)


def _from(select: Select, tables: list[Frame], read: Expressions) -> tuple[CkptDataFrame, Span | None]:
    """The rows of ``tables`` together, and what of WHERE is still to be done."""
    frame, where = tables[0], select.where
    for join, other in zip(select.joins, tables[1:], strict=True):
        using = [c for c in frame.columns if c.lower() in map(str.lower, other.columns)] if join.natural else join.using
        on: Any = list(using) or (read.column(join.on.text) if join.on else None)
        if join.comma and where is not None and len(select.joins) == 1:
            on, where = _apart(where, of_views(select))
        frame = _joined(frame, other, on, join)
    return frame, where


def _apart(where: Span, views: set[str]) -> tuple[Column | None, Span | None]:
    """What of WHERE two tables are joined by; all of it, if it has sub-queries or reads ``views``, is done behind."""

    def of_tables(part: Span) -> bool:
        return not sub_queries(part) and not views & {t.name.lower() for t in part.tokens if t.is_name}

    if of_tables(where):
        return F.expr(where.text), None
    plain = [part.text for part in conjuncts(where) if of_tables(part)]
    return (F.expr(" AND ".join(f"({text})" for text in plain)) if plain else None), where


def _joined(left: Frame, right: Frame, on: Any, join: Join) -> Frame:
    if not _is_stream(right) or _is_stream(left):
        how = "cross" if on is None and join.how == "inner" else join.how
        return left.join(right, on, how)
    other_way = {"inner": "inner", "cross": "cross", "right": "left"}
    if join.how not in other_way:
        raise InvalidInputError(f"a table cannot have a {join.how} join with a stream, in Spark's streams neither")
    return right.join(left, on, "cross" if on is None else other_way[join.how])


def _as_spark_says(found: CkptDataFrame, schema: T.StructType) -> CkptDataFrame:
    wanted = [(f.name, f.dataType.simpleString()) for f in schema.fields]
    if found.dtypes != wanted and sorted(found.dtypes) == sorted(wanted) and len(set(found.columns)) == len(wanted):
        found = found.select(*[quoted(name) for name, _ in wanted])  # a table in front of a stream, in a join
    if found.dtypes != wanted:
        raise InvalidInputError(
            f"the query was not understood: Spark's result has the columns {wanted}, what was built {found.dtypes}. "
            "Write it with the methods of the DataFrame"
        )
    return found


def _together(one: Frame, other: Frame, distinct: bool) -> Frame:
    if not (_is_stream(one) and _is_stream(other)):
        raise InvalidInputError("UNION of a stream with a table is not there, in Spark's streams neither")
    both = one.union(other)
    return grouped_rows(both) if distinct else both


def _without(one: Frame, other: Frame, distinct: bool) -> Frame:
    if not _is_stream(one):
        raise AnalysisException(NOT_ON_THE_RIGHT)
    if not distinct:
        raise InvalidInputError("EXCEPT ALL is not there: Spark's streams take the table off anew with each batch")
    return one.subtract(other)


def _sorted(frame: Frame, order: tuple[Ordering, ...]) -> Frame:
    columns = [direction(ordinal(one.expression, frame.columns), one) for one in order]
    return frame.orderBy(*columns) if columns else frame


def _is_stream(frame: Any) -> bool:
    from spark_ckpt.api.dataframe import CkptDataFrame

    return isinstance(frame, CkptDataFrame)
