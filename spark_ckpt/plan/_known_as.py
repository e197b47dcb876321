"""Columns under the ids that Spark's analysis has given others. Driver.

Rows that come out of Python have columns of their own ids. An expression that a user took from a static DataFrame,
``prices["net"]``, asks for the id that it has there.
"""

from __future__ import annotations

from typing import Any

from spark_ckpt.plan._java_classes import CATALYST, OPTION, frame_of, java_class, java_package, to_seq
from spark_ckpt.plan.udf_plan import items_of

SparkDF = Any


def known_as(rows: SparkDF, like: SparkDF) -> SparkDF:
    """``rows`` with the ids and qualifiers of the columns of ``like``, by position.

    On Spark Connect as they are: nothing that needs more than names is behind them (``static_side.pin``).
    """
    if not type(rows).__module__.startswith("pyspark.sql.classic"):
        return rows
    spark = rows.sparkSession
    catalyst = java_package(CATALYST)
    plan, wanted = (df._jdf.queryExecution().analyzed() for df in (rows, like))
    none, empty = java_class(OPTION).empty(), to_seq([])
    named = [
        catalyst.expressions.Alias(new, old.name(), old.exprId(), old.qualifier(), none, empty)
        for new, old in zip(items_of(plan.output()), items_of(wanted.output()), strict=True)
    ]
    made = catalyst.plans.logical.Project(to_seq(named), plan)
    return frame_of(made, spark)
