"""A stream of ours as a relation of Spark Connect: columns of nulls over a stream of Spark's. Driver; Spark Connect.

The server analyses everything over it, as of any stream: ``withWatermark`` would be nothing to it over a table. The
client remembers which source it is, by the plan id.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_ckpt.plan.lineage import SourceNode

SparkDF = Any
Relation = Any

_known: dict[int, SourceNode] = {}
"""Of this process, in which plan ids are unique."""


def stream_frame(spark: Any, source: SourceNode, schema: StructType) -> SparkDF:
    """The DataFrame that is ``source``: PySpark's own, with the columns of ``schema``."""
    columns = [F.lit(None).cast(f.dataType).alias(f.name, metadata=f.metadata) for f in schema.fields]
    made = spark.readStream.format("rate").load().select(*columns)
    _known[made._plan._plan_id] = source
    return made


def any_stream(spark: Any, schema: StructType) -> Relation:
    """A stream of no source with these columns, to ask Spark's optimizer by: it knows nothing of their values."""
    return spark.readStream.format("rate").load().mapInArrow(lambda batches: batches, schema)._plan


def source_of(node: Relation) -> SourceNode | None:
    """The source that ``node`` is; None for other relations."""
    return _known.get(node._plan_id)
