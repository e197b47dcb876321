"""A stream of ours as a relation of Spark Connect: columns of nulls over a stream of Spark's. Driver; Spark Connect.

The server analyses everything over it, as of any stream: ``withWatermark`` would be nothing to it over a table. The
client remembers which stream it is, by the plan id. The server has a filter in it that raises: a query of Spark's own,
as of a view of the stream, would read nothing but nulls.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_ckpt.plan.analysed.leaves import Stream
from spark_ckpt.plan.relations._tree import walk

SparkDF = Any
Relation = Any

REFUSED = (
    "a stream of spark_ckpt in a query of Spark's own. Over Spark Connect the client does not see what a SQL text or a "
    "view has of a stream: write it with methods of the stream's DataFrame, as ckpt.readStream...load().select(...)"
)

_known: dict[int, Stream] = {}
"""Of this process, in which plan ids are unique."""


def stream_frame(stream: Stream) -> SparkDF:
    """The DataFrame that ``stream`` is: PySpark's own, with its columns."""
    columns = [F.lit(None).cast(f.dataType).alias(f.name, metadata=f.metadata) for f in stream.schema.fields]
    rate = stream.session.spark.readStream.format("rate").load()
    made = rate.where(F.raise_error(F.lit(REFUSED)).cast("boolean")).select(*columns)
    _known[made._plan._plan_id] = stream
    return made


def any_stream(spark: Any, schema: StructType) -> Relation:
    """A stream of no source with these columns, to ask Spark's optimizer by: it knows nothing of their values."""
    return spark.readStream.format("rate").load().mapInArrow(lambda batches: batches, schema)._plan


def stream_of(node: Relation) -> Stream | None:
    """The stream that ``node`` is; None for other relations."""
    return _known.get(node._plan_id)


def session_of(df: SparkDF) -> Any:
    """The session whose reader made the first stream of ours in ``df``; None if there is none."""
    return next((found.session for node in walk(df._plan) if (found := stream_of(node)) is not None), None)
