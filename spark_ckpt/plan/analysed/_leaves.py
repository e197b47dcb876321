"""A stream of ours as a leaf of Spark's plans: an empty streaming relation with a tag. Driver; classic Spark.

Spark analyses everything over it, and copies its tag wherever it copies the leaf: into views, and to the second side
of a join of the stream with itself. It costs no Python worker, as a Python data source would.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from pyspark.sql.types import StructType

from spark_ckpt.plan.analysed._nodes import new_attributes, relation
from spark_ckpt.plan.analysed._tags import tag, tag_of
from spark_ckpt.plan.java_classes import frame_of
from spark_ckpt.plan.lineage import SourceNode

SparkDF = Any
JavaObject = Any

_TAG = "spark_ckpt.source"
_known: dict[str, SourceNode] = {}
"""Of this process. A source is known as long as the process lives, as Spark's plans name it by a number."""
_numbers = count()


def stream_frame(spark: Any, source: SourceNode, schema: StructType) -> SparkDF:
    """The DataFrame that is ``source``: PySpark's own, with the columns of ``schema``."""
    number = str(next(_numbers))
    _known[number] = source
    return frame_of(tag(relation(new_attributes(schema)), _TAG, number), spark)


def source_of(leaf: JavaObject) -> SourceNode | None:
    """The source that ``leaf`` is; None for other leaves."""
    number = tag_of(leaf, _TAG)
    return None if number is None else _known[number]
