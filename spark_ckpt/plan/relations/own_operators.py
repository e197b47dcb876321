"""``groupBy(...).topN``, ``.aggregate`` and ``.applyInArrowWithState``, as relations of ``applyInArrow``. Driver; Spark
Connect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.connect import plan as P
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.udf import UserDefinedFunction
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import is_case_sensitive, quoted
from spark_ckpt.operators.own_operators import Groups, OwnOperator
from spark_ckpt.plan.relations._columns import bare, column, name_among
from spark_ckpt.plan.relations._readers import function_of
from spark_ckpt.plan.relations._row_by_row import step
from spark_ckpt.plan.relations._translation import Rows, Translation
from spark_ckpt.plan.relations._window_calls import is_window

Relation = Any


class RelationGroups(Groups):
    """Of Spark Connect's client."""

    def columns_of(self, given: Sequence[Column]) -> list[str | None]:
        names, sensitive = self.df.columns, is_case_sensitive(self.df.sparkSession)
        places = [name_among(names, c._expr, sensitive) for c in given]
        return [None if place is None else names[place] for place in places]

    def applied(self, function: Callable[..., Any], schema: StructType) -> DataFrame:
        over = UserDefinedFunction(function, schema, evalType=PythonEvalType.SQL_GROUPED_MAP_ARROW_UDF)
        by = self.df.groupBy(*self.by)._grouping_cols
        made = P.GroupMap(self.df._plan, by, over, [quoted(name) for name in self.df.columns])
        return DataFrame(made, session=self.df._session)


def groups_of(grouped: Any) -> Groups:
    return RelationGroups(grouped._df, grouped._grouping_cols)


def asked_of(node: Relation) -> OwnOperator | None:
    """What a method of ours wants of ``node``; None for a function of the user's."""
    return getattr(function_of(node), "asked", None)


def own_operator(of: Translation, node: Relation, asked: OwnOperator) -> Rows:
    rows = of.with_own_names(of.rows(node._child))
    if any(is_window(bare(c._expr)) for c in node._grouping_cols):
        raise InvalidInputError(
            f"{asked.method}: over Spark Connect its keys are columns, found a window. Compute it in front: "
            'stream.withColumn("w", F.window(...)).groupBy("w")'
        )
    computed = [name for name in asked.keys if name not in asked.plain]
    if computed:
        pairs = zip(node._grouping_cols or [F.lit(0)], asked.keys, strict=True)
        keys = [column(bare(c._expr)).alias(name) for c, name in pairs if name in computed]
        rows = step(of, P.Project(rows.plan, [*(F.col(quoted(name)) for name in asked.names), *keys]), rows)
    return of.put_out(node, asked.keyed(rows, of.uid(node)))
