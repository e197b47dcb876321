"""A stream that Spark itself reads, ``spark.readStream...load()``, in the plan of a query of ours. Driver; classic
Spark."""

from __future__ import annotations

from typing import Any

from spark_ckpt.plan._java_classes import frame_of
from spark_ckpt.plan.analysed._nodes import Rows, output_of
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.spark_stream_rows import spark_stream_rows

JavaObject = Any


def spark_stream(of: Translation, node: JavaObject) -> Rows:
    """It rides under barriers, as a stream of ``readStream.spark(df)``; what stands above it is translated."""
    made = spark_stream_rows(of.spark, frame_of(node, of.spark), None)
    return Rows(made.recipe, made.lineage, output_of(node), made.schema)
