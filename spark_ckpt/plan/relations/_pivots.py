"""``pivot``: two aggregations where all results are numbers or booleans, of each value's rows and of what those put
out, as Spark has it; else one, each result of each value by itself. Driver; Spark Connect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import plan as P

from spark_ckpt.plan._aggregates import OfValues
from spark_ckpt.plan.columns import quoted
from spark_ckpt.plan.lineage import Lineage
from spark_ckpt.plan.relations._translation import Translation
from spark_ckpt.plan.relations.uids import name_below
from spark_ckpt.plan.spark_errors import UNSUPPORTED, analysis_error

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


def check_values_end(lineage: Lineage) -> None:
    """Raises Spark's ``AnalysisException`` where the first of two aggregations puts out updates."""
    if lineage.operators[-1].behind[-1].output_mode is not None:
        raise analysis_error(
            UNSUPPORTED,
            "Detected pattern of possible 'correctness' issue due to global watermark: a pivot of numbers or booleans "
            "aggregates twice, so one of its keys has to be a window, or the event time, with withWatermark in front, "
            "as in Spark. Without one, one aggregate for each value is a stream: "
            'agg(F.sum(F.when(F.col("kind") == "a", F.col("v"))).alias("a"), ...)',
        )


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
