"""``ckpt.sql(text)``: SQL over temporary views of checkpointed streams. Driver only; classic and Connect.

The text is cut into its clauses, and each is the method of the DataFrame that does the same; expressions stay texts
that Spark reads. Spark analyses the whole text, too, over empty tables: its errors come first, and what was built must
have the names and types that it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, PySparkValueError
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.api._sql_aggregation import SelectOfAggregates, direction, ordinal
from spark_ckpt.api._sql_arguments import literal, with_arguments, with_identifiers, without_word_stream
from spark_ckpt.api._sql_commands import command_of
from spark_ckpt.api._sql_expressions import GIVEN, Expressions
from spark_ckpt.api._sql_from import rows_of_from
from spark_ckpt.api._sql_rows import Frame, is_stream
from spark_ckpt.api._subtract import NOT_ON_THE_RIGHT, grouped_rows
from spark_ckpt.api._views import views_of, with_global_views
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.condition import bare_name, names_in
from spark_ckpt.plan.spark_errors import unsupported
from spark_ckpt.plan.sql_aggregates import has_aggregate
from spark_ckpt.plan.sql_clauses import within
from spark_ckpt.plan.sql_given import in_spark, placed
from spark_ckpt.plan.sql_hidden import without_hidden
from spark_ckpt.plan.sql_names import alias_of, is_name, qualifiers, whole
from spark_ckpt.plan.sql_pipes import without_pipes
from spark_ckpt.plan.sql_query import Item, Join, Named, Ordering, Query, Select, Source, Span, words
from spark_ckpt.plan.sql_renamed import Names
from spark_ckpt.plan.sql_sub_queries import conjuncts, expressions_of, in_parentheses, sub_queries, tables_of
from spark_ckpt.plan.sql_tokens import without_comments

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame


def sql(session: Any, text: str, args: Any, given: Mapping[str, Any]) -> CkptDataFrame:
    """See :meth:`spark_ckpt.api.session.CkptSession.sql`; ``given`` are its ``kwargs``."""
    tables: dict[str, Frame] = dict(views_of(session.spark))
    if given:
        tables |= {f"{GIVEN}{name}".lower(): value for name, value in given.items() if _is_frame(value)}
        text = text.format(**{name: _written(name, value) for name, value in given.items()})
    text = with_identifiers(with_arguments(without_comments(text), args))
    view = command_of(whole(text))
    text, spark = with_global_views(session.spark, text if view is None else view.query, tables)
    text = without_hidden(without_word_stream(text, tables), tables)
    found = _Text(spark, without_pipes(text), tables).built(text)
    if view is not None:
        view.of(found)
        return session.spark.createDataFrame([], T.StructType())
    return found


def _is_frame(value: Any) -> bool:
    return hasattr(value, "isStreaming") and not isinstance(value, Column)


def _written(name: str, value: Any) -> str:
    """What stands in the text for ``{name}``. Raises as Spark does for a Column that is no name."""
    if _is_frame(value):
        return f"{GIVEN}{name}"
    if not isinstance(value, Column):
        return literal(value)
    names = names_in(value) if bare_name(value) else None
    if not names:
        raise PySparkValueError(
            errorClass="VALUE_NOT_PLAIN_COLUMN_REFERENCE", messageParameters={"val": str(value), "field_name": name}
        )
    return names[0].text


@dataclass
class _Text:
    """One text. ``tables``: what FROM may name; ``named`` are those that WITH has named so far, with their texts."""

    spark: Any
    text: str
    tables: dict[str, Frame]
    named: list[Named] = field(default_factory=list)

    def built(self, given: str) -> CkptDataFrame:
        """``given`` is the text with its pipes."""
        schema = self._analysed(whole(given)).schema  # Spark's own errors come first
        span = whole(self.text)
        found = self._query(within(self.text, span)) if self._reads_stream(span) else None
        if found is None or not is_stream(found):
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
            named = [
                f"{quoted(one.name)}{in_parentheses(one.columns)} AS ({self._placed(one.query, given)})"
                for one in self.named
            ]
            begins = span.tokens[0].word("with")  # one list of names does not stand behind another
            text = f"WITH {', '.join(named)} {f'({text})' if begins else text}"
        return in_spark(self.spark, text, given)

    def _placed(self, span: Span, given: dict[str, Any]) -> str:
        """The text of ``span``, where tables that Spark does not know are ``given``."""
        named = {one.name.lower() for one in self.named}

        def key(name: str) -> str | None:
            frame = None if name in named else self.tables.get(name)
            if frame is None:
                return None
            key = f"t{list(self.tables).index(name)}"
            given[key] = frame._in_spark() if is_stream(frame) else frame
            return key

        return placed(span, lambda name: key(name.lower()))

    def _reads_stream(self, span: Span) -> bool:
        return any(is_stream(self.tables.get(name)) for name in tables_of(span))

    # -- queries -----------------------------------------------------------------------------------------------

    def _query(self, query: Query) -> Frame:
        outer_tables, outer_named = dict(self.tables), list(self.named)
        for one in query.named:
            if one.recursive and self._reads_stream(one.query):
                raise unsupported(
                    f"WITH RECURSIVE {one.name}: it reads a stream, and none of Spark is recursive. Of tables "
                    "it may be, and be joined with the stream"
                )
            frame = self._frame(one.query)
            self.tables[one.name.lower()] = frame.toDF(*one.columns) if one.columns else frame
            self.named.append(one)
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
        read = Expressions(self.spark, dict(self.tables), {one.name.lower(): one for one in self.named})
        read.refuse_streams([found for span in expressions_of(select) for found in sub_queries(span)])
        sources = (select.source, *(step.source for step in select.steps if isinstance(step, Join)))
        tables = [self._table(source) for source in sources]
        if not any(map(is_stream, tables)):
            return self._analysed(select.span)
        frame, told, alias, names = _read_from(select, tables, read)
        schema = self._analysed(select.span).schema
        for condition in _conditions(told.where):
            frame = frame.where(read.column(condition))
        if select.grouping or select.having or any(has_aggregate(i.expression) for i in select.items):
            made = SelectOfAggregates(frame, told, read, alias, names).built(order, schema.names)
            found = _as_spark_says(made, schema)
            return grouped_rows(found) if select.distinct else found
        found = frame.select(*_columns(told.items, read, frame.columns, schema.names if select.steps else []))
        found = _as_spark_says(found, schema)
        found = grouped_rows(found) if select.distinct else found
        return _sorted(found, order, select.items)

    # -- FROM --------------------------------------------------------------------------------------------------

    def _table(self, source: Source) -> Frame:
        if source.inner is not None:
            frame = self._frame(source.inner)
        elif source.name is not None and source.name.lower() in self.tables:
            frame = self._sampled(self.tables[source.name.lower()], source)
        else:
            frame = self.spark.sql(f"SELECT * FROM {source.span.text}")
        return frame.toDF(*source.columns) if source.columns else frame

    def _sampled(self, frame: Frame, source: Source) -> Frame:
        """Of a stream there is ``TABLESAMPLE (n ROWS)``, as of Spark's: so many of all that ever come."""
        if source.sample is None:
            return frame
        if not is_stream(frame):
            return self._analysed(whole(f"SELECT * FROM {source.span.text}"))
        tokens = source.sample.tokens
        if len(tokens) == 2 and tokens[0].kind == "number" and tokens[1].word("rows"):
            return frame.limit(int(tokens[0].text))
        raise InvalidInputError(
            f"TABLESAMPLE ({source.sample.text}) of a stream is not there, in Spark's streams neither; instead: "
            "(n ROWS), or the method sample"
        )


def _read_from(select: Select, tables: list[Frame], read: Expressions) -> tuple[Frame, Select, str | None, Names]:
    """The rows of FROM and ``select`` over them; what sub-queries know them by, and the names of their columns."""
    if select.steps:
        rows, where = rows_of_from(select, tables, read)
        frame, told = rows.selected(replace(select, where=where))
        return frame, told, rows.alias, rows.names
    alias = alias_of(select.source)
    asked = alias is not None and alias.lower() in qualifiers(select.span)
    return tables[0].alias(alias) if asked else tables[0], select, alias, {}


def _conditions(where: Span | None) -> list[str]:
    """In order: sub-queries are not asked for rows that the rest of WHERE leaves out, as in Spark."""
    parts = [] if where is None else conjuncts(where)
    if len(parts) < 2 or not any(map(sub_queries, parts)):
        return [] if where is None else [where.text]
    plain = [f"({part.text})" for part in parts if not sub_queries(part)]
    return [*([" AND ".join(plain)] if plain else []), *(part.text for part in parts if sub_queries(part))]


def _columns(items: tuple[Item, ...], read: Expressions, columns: list[str], names: list[str]) -> list[Any]:
    """``columns`` are those there are; ``names``: what Spark calls what is computed here in other words."""
    found = [column for item in items for column in _star_except(item, columns) or [_column(item, read)]]
    told = len(names) == len(items) == len(found)
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
    if not (is_stream(one) and is_stream(other)):
        raise unsupported("UNION of a stream with a table is not there, in Spark's streams neither")
    both = one.union(other)
    return grouped_rows(both) if distinct else both


def _without(one: Frame, other: Frame, distinct: bool) -> Frame:
    if not is_stream(one):
        raise AnalysisException(NOT_ON_THE_RIGHT)
    if not distinct:
        raise InvalidInputError("EXCEPT ALL is not there: Spark's streams take the table off anew with each batch")
    return one.subtract(other)


def _sorted(frame: Frame, order: tuple[Ordering, ...], items: tuple[Item, ...] = ()) -> Frame:
    """``items``: what the columns are, by which ORDER BY may name them, too."""
    shown = {words(i.expression): name for i, name in zip(items, frame.columns)} if _one_each(items, frame) else {}
    columns = []
    for one in order:
        name = shown.get(words(one.expression))
        column = ordinal(one.expression, frame.columns) if name is None else F.col(quoted(name))
        columns.append(direction(column, one))
    return frame.orderBy(*columns) if columns else frame


def _one_each(items: tuple[Item, ...], frame: Frame) -> bool:
    return len(items) == len(frame.columns) and not any("*" in item.whole.text for item in items)
