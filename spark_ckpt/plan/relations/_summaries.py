"""``describe`` and ``summary``: aggregates over everything, a row each. Driver; Spark Connect."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.relations._translation import Rows, Translation
from spark_ckpt.plan.relations._tree import kind_of

Relation = Any

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
    return Rows(made.recipe, made.lineage, node, of.schema(node), tuple(of.schema(node).names))


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
