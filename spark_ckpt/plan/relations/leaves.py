"""A stream of ours as a relation of Spark Connect: columns of nulls over a stream of Spark's. Driver; Spark Connect.

The server analyses everything over it, as of any stream: ``withWatermark`` would be nothing to it over a table. The
client remembers which stream it is, by the plan id. The server has a filter in it that raises: a query of Spark's own,
as of a view of the stream, would read nothing but nulls.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.analysed.leaves import Stream
from spark_ckpt.plan.relations._names import TEXTS
from spark_ckpt.plan.relations._tree import kind_of, walk

SparkDF = Any
Relation = Any

REFUSED = (
    "a stream of spark_ckpt in a query of Spark's own. Over Spark Connect the client does not see what a SQL text or a "
    "view has of a stream: write it with methods of the stream's DataFrame, as ckpt.readStream...load().select(...)"
)

_known: dict[int, tuple[Relation, Stream]] = {}
"""Of this process, in which plan ids are unique. What a job reads in the place of a stream has its plan id, too."""


def stream_frame(stream: Stream) -> SparkDF:
    """The DataFrame that ``stream`` is: PySpark's own, with its columns."""
    columns = [F.lit(None).cast(f.dataType).alias(f.name, metadata=f.metadata) for f in stream.schema.fields]
    rate = stream.session.spark.readStream.format("rate").load()
    made = rate.where(F.raise_error(F.lit(REFUSED)).cast("boolean")).select(*columns)
    _known[made._plan._plan_id] = made._plan, stream
    return made


def any_stream(spark: Any, schema: StructType) -> Relation:
    """A stream of no source with these columns, to ask Spark's optimizer by: it knows nothing of their values."""
    return spark.readStream.format("rate").load().mapInArrow(lambda batches: batches, schema)._plan


def stream_of(node: Relation) -> Stream | None:
    """The stream that ``node`` is; None for other relations."""
    leaf, stream = _known.get(node._plan_id, (None, None))
    return stream if leaf is node else None


def session_of(df: SparkDF) -> Any:
    """The session whose reader made the first stream of ours in ``df``; None if there is none. Raises
    ``InvalidInputError`` if ``df`` is of a SQL text that has one."""
    nodes = list(walk(df._plan))
    found = next((stream.session for node in nodes if (stream := stream_of(node)) is not None), None)
    of_text = found is None and any(kind_of(node) in TEXTS for node in nodes)
    if of_text and df.isStreaming and REFUSED in df._explain_string(mode="extended"):
        raise InvalidInputError(f"spark.sql: {REFUSED}")
    return found


def refuse_views(frames: Any) -> None:
    """In ``frames``, the client's class of DataFrames: a stream of ours is no view, which a SQL text would read."""
    for name in ("createTempView", "createOrReplaceTempView", "createGlobalTempView", "createOrReplaceGlobalTempView"):
        setattr(frames, name, _refusing(getattr(frames, name)))


def _refusing(method: Any) -> Any:
    @wraps(method)
    def called(df: SparkDF, name: str) -> Any:
        if session_of(df) is not None:
            raise InvalidInputError(f"{method.__name__}({name!r}): it would be {REFUSED}")
        return method(df, name)

    return called
