"""A SELECT with aggregates in ``ckpt.sql``: its keys, aggregates, HAVING and ORDER BY as methods. Driver only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.api._sql_expressions import Expressions
from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.sql_aggregates import Aggregated, has_aggregate
from spark_ckpt.plan.sql_names import bare, is_name, is_window, string_of
from spark_ckpt.plan.sql_query import Grouping, Ordering, Select, Span, between_commas, words
from spark_ckpt.plan.sql_renamed import Names, with_names
from spark_ckpt.plan.sql_sub_queries import sub_queries

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame


class SelectOfAggregates:
    """A SELECT with aggregates over ``frame``."""

    def __init__(
        self, frame: CkptDataFrame, select: Select, read: Expressions, alias: str | None, names: Names
    ) -> None:
        """``alias``: what sub-queries know the rows by; ``names``: of their columns."""
        self._frame, self._select, self._read = frame, select, read
        self._alias, self._told = alias, names
        self._grouping = self._select.grouping or Grouping(())
        self._columns = {name.lower() for name in self._frame.columns}
        self._keys = [bare(key, alias) for key in self._spans()]
        self._names: list[str] = []
        for key in self._keys:
            self._names.append(free(self._name(key), [*self._names, *(self._taken(key))]))
        pairs = [(words(key), name) for key, name in zip(self._keys, self._names, strict=True)]
        self._aggregated = Aggregated(pairs, alias)

    def _spans(self) -> list[Span]:
        """The keys, where numbers and aliases stand for items."""
        grouping = self._grouping
        items = self._select.items
        if grouping.all_items:
            return [i.expression for i in items if not has_aggregate(i.expression)]
        aliases = {i.alias.lower(): i.expression for i in items if i.alias is not None}
        found = []
        for key in grouping.keys:
            name = key.tokens[0].name.lower() if len(key.tokens) == 1 else ""
            if name.isdigit() and 0 < int(name) <= len(items):
                key = items[int(name) - 1].expression
            elif name in aliases and name not in self._columns:
                key = aliases[name]
            found.append(key)
        return found

    def _name(self, key: Span) -> str:
        if is_window(key):
            return key.tokens[0].text.lower()
        if is_name(key):
            return key.tokens[-1].name
        alias = next((i.alias for i in self._select.items if i.alias and words(i.expression) == words(key)), None)
        return alias or f"key_{len(self._names) + 1}"

    def _taken(self, key: Span) -> set[str]:
        """A key that is an expression, or a field among grouping sets, has the name of no column."""
        return set() if is_window(key) or self._is_column(key) else self._columns

    def _is_column(self, key: Span) -> bool:
        """Whether it stands in the rows already. Grouping sets are by columns, so they need fields made such."""
        return is_name(key) and not (self._grouping.sets and len(key.tokens) > 1)

    def built(self, order: tuple[Ordering, ...], names: list[str]) -> CkptDataFrame:
        """``names`` are those that Spark gives the items."""
        items, having = self._select.items, self._select.having
        texts = [self._aggregated.rewritten(item.expression) for item in items]
        aliases = {i.alias.lower(): text for i, text in zip(items, texts, strict=True) if i.alias is not None}
        kept = None if having is None else self._aggregated.rewritten(having, aliases)
        orders, hidden, lower = list[Any](), dict[str, str](), {name.lower() for name in names}
        for one in order:
            shown, text = ordinal(one.expression, names), one.expression.text
            by_name = len(one.expression.tokens) == 1 and one.expression.tokens[0].name.lower() in lower
            if not text.isdigit() and not by_name:
                name = free(f"order_{len(hidden) + 1}", [*names, *hidden])
                hidden[name] = self._aggregated.rewritten(with_names(one.expression, self._told), aliases)
                shown = F.col(quoted(name))
            orders.append(direction(shown, one))
        result = self._named(self._grouped(), order)
        result = result if kept is None else result.where(self._read.column(kept))
        wanted = [self._read.column(text).alias(name) for text, name in zip(texts, names, strict=True)]
        found = result.select(*wanted, *[self._read.column(text).alias(name) for name, text in hidden.items()])
        found = found.orderBy(*orders) if orders else found
        return found.select(*map(quoted, names)) if hidden else found

    def _named(self, result: CkptDataFrame, order: tuple[Ordering, ...]) -> CkptDataFrame:
        """By the name that sub-queries know the table by."""
        spans = [*(i.whole for i in self._select.items), *(o.expression for o in order)]
        asked = [found for span in (*spans, self._select.having) if span for found in sub_queries(span)]
        return result.alias(self._alias) if asked and self._alias else result

    def _grouped(self) -> CkptDataFrame:
        results = self._aggregated.results
        aggregates: Any = [self._read.column(text).alias(name) for text, name in results.items()] or [{}]
        grouping, frame = self._grouping, self._frame
        columns = [self._key(key, name) for key, name in zip(self._keys, self._names, strict=True)]
        if not grouping.sets:
            return frame.groupBy(*columns).agg(*aggregates) if columns else frame.agg(*aggregates)
        computed = {
            name: column
            for key, name, column in zip(self._keys, self._names, columns, strict=True)
            if not self._is_column(key)
        }
        frame = frame.withColumns(computed) if computed else frame
        by = [quoted(name) for name in self._names]
        if grouping.sets == "grouping sets":
            return frame.groupingSets([[by[i] for i in places] for places in grouping.places], *by).agg(*aggregates)
        return (frame.cube if grouping.sets == "cube" else frame.rollup)(*by).agg(*aggregates)

    def _key(self, key: Span, name: str) -> Any:
        if is_window(key):
            time, *others = [key.piece(tokens).text for tokens in between_commas(key.tokens[2:-1])]
            if key.tokens[0].word("session_window"):
                return F.session_window(self._read.column(time), string_of(others[0]) or self._read.column(others[0]))
            return F.window(self._read.column(time), *[string_of(text) or text for text in others])
        if len(key.tokens) == 1:
            return F.col(quoted(key.tokens[0].name))
        return self._read.column(key.text).alias(name)


def ordinal(span: Span, columns: list[str]) -> Column:
    """A number stands for the column at that place."""
    at = int(span.text) if span.text.isdigit() else 0
    return F.col(quoted(columns[at - 1])) if 0 < at <= len(columns) else F.expr(span.text)


def direction(column: Column, order: Ordering) -> Column:
    first = order.nulls_first
    if order.descending:
        return column.desc_nulls_first() if first else column.desc_nulls_last()
    return column.asc_nulls_last() if first is False else column.asc_nulls_first()
