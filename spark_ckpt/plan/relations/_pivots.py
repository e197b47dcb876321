"""``pivot``, ``describe`` and ``summary``, as the relations that they stand for. Driver; Spark Connect.

A pivot is two aggregations where all results are numbers or booleans, of each value's rows and of what those put out,
as Spark has it; else one, each result of each value by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import plan as P

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import quoted
from spark_ckpt.operators.aggregates import OfValues
from spark_ckpt.plan.relations._translation import Rows, Translation
from spark_ckpt.plan.relations._tree import kind_of
from spark_ckpt.plan.relations.uids import name_below

Relation = Any

_OF_TWO = (T.NumericType, T.BooleanType)
_VALUE, _RESULT = "__ckpt_pivot", "__ckpt_pivot_"


def of_values(of: Translation, node: Relation) -> OfValues:
    """The results of ``node``, a pivot, of each value."""
    names = of.schema(node).names[len(node._grouping_cols) :]
    return OfValues([is_value(node._pivot_col) for is_value in _telling(of, node)], names)


def pivoted_twice(of: Translation, node: Relation) -> Relation | None:
    """A pivot as two aggregations; None: Spark makes one of it. Of one without values, Spark makes no stream."""
    frame, keys = of.frame(node._child), node._grouping_cols
    found = of.schema(frame.groupBy(*keys).agg(*node._aggregate_cols)._plan).fields[len(keys) :]
    if not all(isinstance(f.dataType, _OF_TWO) for f in found):
        return None
    results = [f"{_RESULT}{i}" for i in range(len(found))]
    named = [c.alias(name) for c, name in zip(node._aggregate_cols, results, strict=True)]
    each = frame.groupBy(*keys, node._pivot_col.alias(_VALUE)).agg(*named)
    name_below(node, each._plan, "values")
    # There is at most one row of each value.
    firsts = [
        F.first(F.when(is_value(F.col(_VALUE)), F.col(name)), True).alias(f"{_RESULT}{at}_{i}")
        for at, is_value in enumerate(_telling(of, node))
        for i, name in enumerate(results)
    ]
    made = each.groupBy(*map(quoted, each.columns[: len(keys)])).agg(*firsts)._plan
    made._root_plan_id = node._plan_id
    return P.ToDF(made, of.schema(node).names)


def _telling(of: Translation, node: Relation) -> list[Callable[[Column], Column]]:
    """Of each value, what says whether a column has it. As in Spark the value gets the column's type, where comparing
    the two would not do that."""
    values = node._pivot_values
    asked = of.frame(node._child).select(node._pivot_col, *values).schema.fields
    kind, *kinds = [f.dataType for f in asked]

    def telling(value: Column, of: T.DataType) -> Callable[[Column], Column]:
        alike = of == kind or isinstance(of, T.StringType | T.NullType)
        whole = isinstance(of, T.IntegralType) and isinstance(kind, T.IntegralType)
        return lambda one: one.eqNullSafe(value if alike or whole else value.cast(kind))

    return [telling(value, of) for value, of in zip(values, kinds, strict=True)]


_DESCRIBED = ("count", "mean", "stddev", "min", "max")
_SUMMARIZED = ("count", "mean", "stddev", "min", "25%", "50%", "75%", "max")
_OF_NUMBERS = {"mean": F.avg, "stddev": F.stddev}
_OF_ALL = {
    "count": F.count,
    "min": F.min,
    "max": F.max,
    "count_distinct": F.count_distinct,
    "approx_count_distinct": F.approx_count_distinct,
}
_NAME, _ROW = "summary", "__ckpt_one"


def summary(of: Translation, node: Relation) -> Rows:
    """As the relations that it stands for."""
    columns = of.schema(node).names[1:]
    if not columns:  # of which Spark makes a table of names, and no stream
        raise InvalidInputError(f"{kind_of(node)}: expected a column with numbers or texts to describe")
    given = _DESCRIBED if kind_of(node) == "StatDescribe" else tuple(node.statistics) or _SUMMARIZED
    made = of.rows(_rows(of.frame(node._child), columns, given)._plan)
    return of.put_out(node, replace(made, schema=of.schema(node)))


def _rows(df: Any, columns: list[str], statistics: tuple[str, ...]) -> Any:
    kinds = {f.name: f.dataType for f in df.schema.fields}
    places = [(s, c, f"__ckpt_{i}_{j}") for i, s in enumerate(statistics) for j, c in enumerate(columns)]
    results = [_statistic(s, c, kinds[c]).alias(name) for s, c, name in places]
    found = df.groupBy().agg(F.count(F.lit(1)).alias(_ROW), *results)
    by_statistic = {s: {c: F.col(name).cast("string") for t, c, name in places if t == s} for s in statistics}
    rows = [
        F.struct(F.lit(s).alias(_NAME), *(value.alias(c) for c, value in by_statistic[s].items())) for s in statistics
    ]
    each = found.select(F.explode(F.array(*rows)).alias(_ROW))
    return each.select(*(F.col(f"{_ROW}.{quoted(name)}").alias(name) for name in (_NAME, *columns)))


def _statistic(name: str, column: str, kind: T.DataType) -> Column:
    """As Spark computes it; of texts, what is no number counts as null."""
    value = F.col(quoted(column))
    if name.lower() in _OF_ALL:
        return _OF_ALL[name.lower()](value)
    number = value.try_cast("double") if isinstance(kind, T.StringType) else value
    of = _OF_NUMBERS.get(name.lower()) or partial(_percentile, share=float(name.removesuffix("%")) / 100)
    return of(number)


def _percentile(value: Column, share: float) -> Column:
    return F.percentile_approx(value, share, 10_000)
