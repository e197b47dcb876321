"""What PySpark's own DataFrame gets for streams of ours: ``writeStream``, ``uid``, and behind ``groupBy`` the operators
that PySpark has not. Driver; classic Spark."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql import GroupedData
from pyspark.sql.classic.dataframe import DataFrame

from spark_ckpt.api.write import CkptDataStreamWriter
from spark_ckpt.plan.analysed._leaves import streams_of
from spark_ckpt.plan.analysed._nodes import analysed
from spark_ckpt.plan.analysed._uids import with_uid
from spark_ckpt.plan.analysed.grouped_methods import aggregate, applyInArrowWithState, topN

_of_spark: Any = DataFrame.writeStream


def add_methods() -> None:
    """Once for a process is enough. DataFrames without a stream of ours are as they were."""
    DataFrame.writeStream = property(_write_stream, doc=_of_spark.__doc__)
    DataFrame.uid = property(_uid)
    for method in (aggregate, applyInArrowWithState, topN):
        setattr(GroupedData, method.__name__, method)


def _write_stream(df: DataFrame) -> Any:
    session = _session_of(df)
    return _of_spark.__get__(df) if session is None else CkptDataStreamWriter(df, session)


def _uid(df: DataFrame) -> Any:
    if _session_of(df) is None:  # then it is a column, or Spark's error
        raise AttributeError("uid")
    return partial(with_uid, df)


def _session_of(df: DataFrame) -> Any:
    """The session of its first stream of ours, None if it has none."""
    if not df.isStreaming:
        return None
    return next((stream.session for _, stream in streams_of(analysed(df))), None)
