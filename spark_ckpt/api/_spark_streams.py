"""``readStream.spark``: a stream that Spark itself reads, as one of ours. Driver."""

from __future__ import annotations

from typing import Any

from spark_ckpt.api.dataframe import CkptDataFrame
from spark_ckpt.plan.spark_stream_rows import SparkStreamMaker, spark_stream_rows
from spark_ckpt.runtime.stateless import with_control


def spark_stream(session: Any, stream: SparkStreamMaker | Any, uid: str | None) -> CkptDataFrame:
    """See :meth:`spark_ckpt.api.session.CkptDataStreamReader.spark`."""
    made = spark_stream_rows(session.spark, stream, uid)
    return CkptDataFrame(session, made.recipe, made.lineage, session.preview(with_control(made.schema)))
