"""What PySpark's own DataFrame gets for streams of ours: ``writeStream``, ``uid``, and behind ``groupBy`` the operators
that PySpark has not. Driver; classic Spark."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql import GroupedData
from pyspark.sql.classic.dataframe import DataFrame

from spark_ckpt.api.write import CkptDataStreamWriter
from spark_ckpt.plan.analysed.grouped_methods import aggregate, applyInArrowWithState, topN
from spark_ckpt.plan.analysed.leaves import session_of
from spark_ckpt.plan.analysed.uids import with_uid

_of_spark: Any = DataFrame.writeStream


def add_methods() -> None:
    """Once for a process is enough. DataFrames without a stream of ours are as they were."""
    DataFrame.writeStream = property(_write_stream, doc=_of_spark.__doc__)
    DataFrame.uid = property(_uid)
    for method in (aggregate, applyInArrowWithState, topN):
        setattr(GroupedData, method.__name__, method)


def _write_stream(df: DataFrame) -> Any:
    session = session_of(df)
    return _of_spark.__get__(df) if session is None else CkptDataStreamWriter(df, session)


def _uid(df: DataFrame) -> Any:
    if session_of(df) is None:  # then it is a column, or Spark's error
        raise AttributeError("uid")
    return partial(with_uid, df)
