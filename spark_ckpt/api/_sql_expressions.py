"""Expressions of ``ckpt.sql``, with sub-queries over static tables in them. Driver; classic and Connect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import free, quoted
from spark_ckpt.plan.sql_names import alias_of, qualified, whole
from spark_ckpt.plan.sql_pinned import named_table, pinned
from spark_ckpt.plan.sql_query import Select, Span
from spark_ckpt.plan.sql_sub_queries import inlined, sub_queries, tables_of, with_names_inside

if TYPE_CHECKING:
    from spark_ckpt.api.dataframe import CkptDataFrame

GIVEN = "_given_"
"""How the names of DataFrames begin that ``ckpt.sql`` is given."""
_STREAMING = (
    "[INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY] Invalid subquery: Streaming query is not allowed in subquery "
    "expressions. SQLSTATE: 42823"
)


class Expressions:
    """``tables``: what FROM may name beside Spark's own tables; ``named`` are those of WITH, with their texts."""

    def __init__(self, spark: Any, tables: Mapping[str, Any], named: Mapping[str, Span]) -> None:
        self._spark, self._tables, self._named = spark, tables, named

    def column(self, text: str) -> Column:
        """Raises Spark's ``AnalysisException`` for a sub-query over a stream."""
        inner = sub_queries(whole(text))
        if not inner:
            return F.expr(text)
        self.refuse_streams(inner)
        text = inlined(whole(text), self._named)
        if hasattr(self._spark, "_jsparkSession"):
            return pinned(self._spark, text, self._table)
        given = [name for span in sub_queries(whole(text)) for name in tables_of(span) if name.startswith(GIVEN)]
        if given:
            raise InvalidInputError(
                f"a sub-query reads {{{given[0].removeprefix(GIVEN)}}}, a DataFrame that ckpt.sql was given: on Spark "
                "Connect it has to have a name, by createOrReplaceTempView"
            )
        return F.expr(text)

    def refuse_streams(self, found: list[Span]) -> None:
        """Raises for sub-queries that read one, as Spark does."""
        for name in (name for span in found for name in tables_of(span)):
            if hasattr(type(self._tables.get(name)), "transformSpark"):
                raise AnalysisException(_STREAMING)

    def _table(self, name: list[str]) -> Any:
        if len(name) == 1 and name[0].lower() in self._tables:
            return self._tables[name[0].lower()]
        return named_table(self._spark, name)


def with_outer_columns(frame: CkptDataFrame, select: Select) -> tuple[CkptDataFrame, Select, list[str]]:
    """Behind a join of streams: what sub-queries name of its tables, in columns of their own, whose names are last."""
    spans = [select.where, *(i.whole for i in select.items)]
    inner = [found for span in spans if span is not None for found in sub_queries(span)]
    tables = {str(alias_of(s)).lower() for s in (select.source, *(join.source for join in select.joins))}
    names: dict[tuple[str, str], str] = {}
    for pair in (pair for span in inner for pair in qualified(span) if pair[0] in tables):
        names.setdefault(pair, free(f"outer_{pair[1]}", [*frame.columns, *names.values()]))
    if not names:
        return frame, select, []
    columns = {name: F.col(f"{quoted(table)}.{quoted(column)}") for (table, column), name in names.items()}
    items = tuple(replace(i, whole=with_names_inside(i.whole, names)) for i in select.items)
    where = None if select.where is None else with_names_inside(select.where, names)
    return frame.withColumns(columns), replace(select, items=items, where=where), list(columns)
