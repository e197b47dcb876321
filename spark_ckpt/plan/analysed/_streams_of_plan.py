"""The streams of ours that a plan reads, and who reads them: we, or Spark for us. Driver; classic Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.types import StructType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.chain import Chain, Recipe
from spark_ckpt.execution.java_classes import frame_of
from spark_ckpt.execution.plan_text import OF_FILES
from spark_ckpt.execution.spark_stream_rows import spark_stream_rows
from spark_ckpt.plan.analysed._nodes import Rows, output_of, schema_of, walk
from spark_ckpt.plan.analysed._translation import Translation
from spark_ckpt.plan.analysed.leaves import Stream, stream_of, streams_of
from spark_ckpt.runtime.stateless import with_control

JavaObject = Any

METADATA = "_metadata"


@dataclass(frozen=True)
class StreamsOfPlan:
    """``by_spark``: those that Spark reads, as the plan asks for what Spark alone tells of files."""

    by_spark: Mapping[Stream, Stream]

    def rows(self, leaf: JavaObject) -> Rows | None:
        """Of the stream that ``leaf`` is; None for a node that is no stream of ours."""
        stream = stream_of(leaf)
        if stream is None:
            return None
        made, schema = self.by_spark.get(stream, stream), schema_of(leaf)
        recipe = made.recipe if len(schema) == len(made.schema) else _without_metadata(made.recipe, schema)
        return Rows(recipe, made.lineage, schema, output_of(leaf))


def streams_in(plan: JavaObject) -> StreamsOfPlan:
    """Each is read once, so all its leaves are read by the same source.

    Raises ``InvalidInputError`` for ``input_file_name()`` of rows that Spark cannot read.
    """
    leaves = streams_of(plan)
    hidden = {stream for leaf, stream in leaves if len(output_of(leaf)) > len(stream.schema)}
    asked = _asked_of_files(plan) if OF_FILES.search(str(plan.toString())) else None
    found = {}
    for _, stream in leaves:
        if stream in hidden:
            found[stream] = _by_spark(stream, f"column {METADATA} is asked for", METADATA)
        elif asked is not None:
            found[stream] = _by_spark(stream, f"{asked} is asked for")
    return StreamsOfPlan(found)


def _asked_of_files(plan: JavaObject) -> str | None:
    """The first function over a stream that Spark answers of the file that it reads."""
    for node in walk(plan):
        found = OF_FILES.search(str(node.expressions().toString())) if node.isStreaming() else None
        if found is not None:
            return found[0]
    return None


def _by_spark(stream: Stream, why: str, *columns: str) -> Stream:
    if all(source.by_spark for source in stream.lineage.sources):
        return stream
    if stream.by_spark is None:
        raise InvalidInputError(
            f"{why}: it would be empty in every row, as Spark does not read the sources of spark_ckpt. Read the files "
            "by Spark's name of their format, such as format('parquet')"
        )
    made = stream.by_spark(why, *columns)
    return replace(stream, recipe=made.recipe, lineage=made.lineage, schema=made.schema)


def _without_metadata(recipe: Recipe, schema: StructType) -> Recipe:
    full = with_control(schema)
    return Recipe(lambda ctx: Chain(ctx.frame(recipe).drop(METADATA), full), (recipe,))


def spark_stream(of: Translation, node: JavaObject) -> Rows:
    """It rides under barriers, as a stream of ``readStream.spark(df)``; what stands above it is translated."""
    return of.put_out(node, spark_stream_rows(of.spark, frame_of(node, of.spark), None))
