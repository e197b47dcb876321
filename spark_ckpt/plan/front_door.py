"""Which translation a session's DataFrames have: that of Spark's plans, or that of Spark Connect's relations. Driver.

The only place that chooses. Spark Connect's client is imported where a session is one of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from spark_ckpt.execution.job_graph import Translated
from spark_ckpt.execution.semi_columns import SemiColumns
from spark_ckpt.operators.own_operators import Groups
from spark_ckpt.plan.analysed.leaves import Stream

SparkDF = Any


@dataclass(frozen=True)
class FrontDoor:
    """What both have, as :mod:`spark_ckpt.plan.analysed` describes it. ``frames`` is PySpark's class of DataFrames,
    ``grouped`` that of what ``groupBy`` gives."""

    translated: Callable[[Any, SparkDF], Translated]
    stream_frame: Callable[[Stream], SparkDF]
    session_of: Callable[[SparkDF], Any]
    with_uid: Callable[[SparkDF, str], SparkDF]
    groups_of: Callable[[Any], Groups]
    frames: Any
    grouped: Any
    semi_columns: Callable[[SparkDF], SemiColumns | None] = lambda _: None
    """See :func:`spark_ckpt.plan.analysed.semi_joins.semi_columns`; not known over Spark Connect."""


def front_door(spark: Any) -> FrontDoor:
    return _classic() if hasattr(spark, "_jsparkSession") else _connect()


def translated(session: Any, df: SparkDF) -> Translated:
    """See :func:`spark_ckpt.plan.analysed.translate.translated`."""
    return front_door(session.spark).translated(session, df)


def groups_of(grouped: Any) -> Groups:
    """What ``groupBy`` gave, for the methods that PySpark has not."""
    return front_door(grouped._df.sparkSession).groups_of(grouped)


@cache
def _classic() -> FrontDoor:
    from pyspark.sql import GroupedData
    from pyspark.sql.classic.dataframe import DataFrame

    from spark_ckpt.plan.analysed.leaves import session_of, stream_frame
    from spark_ckpt.plan.analysed.own_operators import groups_of
    from spark_ckpt.plan.analysed.semi_joins import semi_columns
    from spark_ckpt.plan.analysed.translate import translated
    from spark_ckpt.plan.analysed.uids import with_uid

    return FrontDoor(translated, stream_frame, session_of, with_uid, groups_of, DataFrame, GroupedData, semi_columns)


@cache
def _connect() -> FrontDoor:
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.group import GroupedData

    from spark_ckpt.plan.relations.leaves import refuse_views, session_of, stream_frame
    from spark_ckpt.plan.relations.own_operators import groups_of
    from spark_ckpt.plan.relations.translate import translated
    from spark_ckpt.plan.relations.uids import with_uid

    refuse_views(DataFrame)  # once in a process
    return FrontDoor(translated, stream_frame, session_of, with_uid, groups_of, DataFrame, GroupedData)
