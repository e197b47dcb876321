"""Expressions of ``ckpt.sql``, with sub-queries over static tables in them. Driver; classic and Connect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.sql_given import in_spark, placed
from spark_ckpt.plan.sql_names import whole
from spark_ckpt.plan.sql_pinned import named_table, pinned
from spark_ckpt.plan.sql_query import Named, Span
from spark_ckpt.plan.sql_sub_queries import inlined, sub_queries, tables_of

GIVEN = "_given_"
"""How the names of DataFrames begin that ``ckpt.sql`` is given."""
_STREAMING = (
    "[INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY] Invalid subquery: Streaming query is not allowed in subquery "
    "expressions. SQLSTATE: 42823"
)


class Expressions:
    """``tables``: what FROM may name beside Spark's own tables; ``named`` are those of WITH, with their texts."""

    def __init__(self, spark: Any, tables: Mapping[str, Any], named: Mapping[str, Named]) -> None:
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

    def query(self, span: Span) -> tuple[str, dict[str, Any]]:
        """A query over static tables alone, for ``spark.sql``, and the DataFrames that it is given for its tables."""
        keys, given = dict[str, str | None](), dict[str, Any]()

        def key(name: str) -> str | None:
            if name not in keys:
                table = self._table([name])
                keys[name] = None if table is None else f"t{len(given)}"
                given.update({} if table is None else {str(keys[name]): table})
            return keys[name]

        return placed(whole(inlined(span, self._named)), lambda name: key(name.lower())), given

    def analysed(self, text: str, given: Mapping[str, Any]) -> Any:
        return in_spark(self._spark, text, given)

    def refuse_streams(self, found: list[Span]) -> None:
        """Raises for sub-queries that read one, as Spark does."""
        for name in (name for span in found for name in tables_of(span)):
            if hasattr(type(self._tables.get(name)), "transformSpark"):
                raise AnalysisException(_STREAMING)

    def _table(self, name: list[str]) -> Any:
        if len(name) == 1 and name[0].lower() in self._tables:
            return self._tables[name[0].lower()]
        return named_table(self._spark, name)
