"""Operators of ours that PySpark has no method for, as nodes of Spark's plan: ``FlatMapGroupsInArrow`` with a tag.
Driver; classic Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column, GroupedData
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType

from spark_ckpt.execution.java_classes import attribute_id, frame_of, items_of, seq_items
from spark_ckpt.operators.own_operators import Groups, OwnOperator
from spark_ckpt.plan.analysed._nodes import (
    OWN,
    Rows,
    analysed,
    column_of,
    kind_of,
    named_as,
    output_of,
    project,
    relation,
    resolved,
    tag,
)
from spark_ckpt.plan.analysed._readers import function_of
from spark_ckpt.plan.analysed._row_by_row import step
from spark_ckpt.plan.analysed._translation import Translation

SparkDF = Any
JavaObject = Any


class NodeGroups(Groups):
    """Of classic Spark. A tag says of the node that it stands for a method of ours."""

    def columns_of(self, given: Sequence[Column]) -> list[str | None]:
        own = {attribute_id(a): str(a.name()) for a in output_of(analysed(self.df))}
        trees = seq_items(analysed(self.df.select(*given)).projectList()) if given else []
        # A window is an attribute, too: of the node that computes it.
        return [own.get(attribute_id(e)) if kind_of(e) == "AttributeReference" else None for e in trees]

    def applied(self, function: Callable[..., Any], schema: StructType) -> SparkDF:
        over = pandas_udf(function, schema, PythonEvalType.SQL_GROUPED_MAP_ARROW_UDF)
        called = over(*map(column_of, output_of(analysed(self.df))))
        jvm = self.df.groupBy(*self.by)._jgd.flatMapGroupsInArrow(called._jc)
        return DataFrame(jvm, self.df.sparkSession)

    def operator(self, method: str, *given: Any, **how: Any) -> SparkDF:
        made = super().operator(method, *given, **how)
        tag(analysed(made), OWN, method)
        return made


def groups_of(grouped: GroupedData) -> Groups:
    return NodeGroups(grouped._df, [column_of(e) for e in items_of(grouped._jgd.groupingExprs())])


def own_operator(of: Translation, node: JavaObject) -> Rows:
    """A ``FlatMapGroupsInArrow`` with the tag of a method of ours."""
    asked: OwnOperator = function_of(node).asked
    grouped = node.child()
    listed = seq_items(grouped.projectList())
    count = len(seq_items(node.groupingAttributes()))
    rows = _with_keys(of, of.rows(grouped.child()), asked, listed[:count], listed[count:])
    return of.put_out(node, asked.keyed(rows, of.uid(node)))


def _with_keys(
    of: Translation, rows: Rows, asked: OwnOperator, keys: list[JavaObject], columns: list[JavaObject]
) -> Rows:
    """The columns as the method saw them, and behind them the keys that are computed."""
    values = [k.child() if kind_of(k) == "Alias" else k for k in keys]
    values = values or resolved(frame_of(relation([]), of.spark), [F.lit(0)])
    pairs = zip(values, asked.keys, strict=True)
    computed = [named_as(value, name) for value, name in pairs if name not in asked.plain]
    made = step(of, project([*columns, *computed], relation(rows.attributes)), rows)
    return of.with_names(made, [*asked.names, *(name for name in asked.keys if name not in asked.plain)])
