"""``readStream.spark``: a stream that Spark itself reads, as one of ours. Driver."""

from __future__ import annotations

from typing import Any

from spark_ckpt.plan.spark_stream_rows import SparkStreamMaker, spark_stream_rows


def spark_stream(session: Any, stream: SparkStreamMaker | Any, uid: str | None) -> Any:
    """See :meth:`spark_ckpt.api.session.CkptDataStreamReader.spark`."""
    made = spark_stream_rows(session.spark, stream, uid)
    return session._frame(made.recipe, made.lineage, made.schema)
