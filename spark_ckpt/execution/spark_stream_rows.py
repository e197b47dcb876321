"""Streams that Spark itself reads, in the plan of a start. Driver; classic and Connect.

Spark's offset log has a line for each place of a source in the plan, in the plan's order and without a name. So each
stream is marked by an alias there, and the control source is told whose line is which. It has to know before there is
a plan: the plan is built in the order of the lineage, and once more if that is not what came out, as where a stream
stands in it twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_ckpt.errors import InvalidInputError, ProtocolBugError
from spark_ckpt.execution.chain import Chain, Recipe, StreamRows
from spark_ckpt.execution.columns import refuse_repeated, refuse_reserved
from spark_ckpt.execution.lineage import SPARK_STREAMS, Lineage, SparkStreamNode
from spark_ckpt.execution.plan_text import Node, plan_nodes
from spark_ckpt.jobs.spark_folder import SparkFolder
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.runtime.stateless import with_control
from spark_ckpt.sources.spark_stream import LOCATION, position_of
from spark_ckpt.sources.starting import starting_options
from spark_ckpt.types import BEFORE_BARRIERS, CTL, TAG, make_tag

Built = tuple[Any, tuple[Operation, ...]]
"""What the sink's writer gets from Spark, and the operations it does first."""

_MARK = "__ckpt_stream_"
_MARKED = re.compile(rf"~?SubqueryAlias {_MARK}(\d+)")


def marked(rows: Any, number: int) -> Any:
    """``rows`` of the query's stream ``number``."""
    return rows.alias(f"{_MARK}{number}")


def in_order(build: Callable[[tuple[str, ...]], Built], streams: tuple[str, ...]) -> Built:
    """What ``build`` makes when it is told the names of the query's ``streams`` as they stand in the plan it makes."""
    told, built = streams, build(streams)
    if not streams:
        return built
    found = _names(built[0], streams)
    if found != told:
        told, built = found, build(found)
        found = _names(built[0], streams)
    if found != told or set(found) != set(streams):
        raise ProtocolBugError(f"expected the streams {told} in this order in Spark's plan, found {found}")
    return built


def _names(df: Any, streams: tuple[str, ...]) -> tuple[str, ...]:
    marks = (_MARKED.match(node.text) for node in plan_nodes(df))
    return tuple(streams[int(mark.group(1))] for mark in marks if mark)


SparkStreamMaker = Callable[[Any], Any]
"""From a position (None: from where it likes) to a streaming DataFrame of Spark's."""

_BARRIERS = Recipe(lambda _ctx: Chain(SPARK_STREAMS, with_control(SPARK_STREAMS.schema)))
"""The control rows, once a query."""

_STREAMS = {"StreamingRelationV2", "StreamingRelation"}
_ROW_BY_ROW = {
    *_STREAMS,
    "CollectMetrics",
    "Expand",
    "Filter",
    "Generate",
    "Join",
    "MapInArrow",
    "MapInPandas",
    "Project",
    "RebalancePartitions",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
    "Sample",
    "SubqueryAlias",
    "View",
}
_STREAMING = "~"
"""In front of each node of Spark's plan that has a stream below it."""


def spark_stream_rows(spark: Any, stream: SparkStreamMaker | Any, uid: str | None) -> StreamRows:
    """The rows of ``stream``, with barriers: a streaming DataFrame of Spark's, or a function that makes one of a
    position. Raises ``InvalidInputError`` for what is not one stream, or keeps state."""
    make: SparkStreamMaker | None = stream if callable(stream) else None
    df: Any = stream if make is None else make(None)
    _check(df)
    schema = StructType(df.schema.fields)
    refuse_reserved(schema.fieldNames(), "the stream")
    refuse_repeated(schema.fieldNames(), spark)
    node, full = SparkStreamNode(uid, make is not None), with_control(schema)

    def build(ctx: Any) -> Chain:
        # The source will read this folder: refused now if it cannot.
        folder = SparkFolder(ctx.source_options(SPARK_STREAMS)[LOCATION], ctx.run.config)
        name = ctx.streams[node]
        position = position_of(ctx.restored_position(SPARK_STREAMS), name)
        if make is None:
            _refuse_lost_place(folder, name, position, ctx.run.restored_from)
        rows = df if make is None else _made(make, position, schema)
        tag, none = F.lit(make_tag(BEFORE_BARRIERS)).cast("long"), F.lit(None).cast("binary")
        rows = marked(rows.select("*", tag.alias(TAG), none.alias(CTL)), list(ctx.streams).index(node))
        return Chain(_with_nulls(ctx.frame(_BARRIERS), schema).union(rows), full)

    lineage = Lineage(1, (SPARK_STREAMS,), spark_streams=(node,))
    return StreamRows(Recipe(build, (_BARRIERS,)), lineage, schema)


def _with_nulls(barriers: Any, schema: StructType) -> Any:
    """Control rows with the columns of a stream."""
    return barriers.select(*(F.lit(None).cast(f.dataType).alias(f.name) for f in schema), TAG, CTL)


def _check(df: Any) -> None:
    """Raises ``InvalidInputError`` unless ``df`` is one stream of Spark's without state."""
    if not getattr(df, "isStreaming", False):
        raise InvalidInputError(
            f"readStream.spark: expected a streaming DataFrame, spark.readStream...load(), found {df!r}; join a static "
            "one with stream.join(df)"
        )
    nodes = [(node.text.startswith(_STREAMING), Node(node.text.lstrip(_STREAMING), 0).name) for node in plan_nodes(df)]
    streams = sum(name in _STREAMS for _, name in nodes)
    if streams != 1:
        raise InvalidInputError(
            f"readStream.spark: expected a DataFrame that reads one stream, found {streams}. Of several tables or "
            "topics, let one reader read all; else read them here, by a format of spark_ckpt"
        )
    others = sorted({name for streaming, name in nodes if streaming} - _ROW_BY_ROW)
    if others:
        raise InvalidInputError(
            f"readStream.spark: expected what works on each row alone, found {', '.join(others)} in Spark's plan of "
            "the stream: what it keeps would not be in the checkpoints. Do it with what readStream.spark(...) returns"
        )


def _made(make: SparkStreamMaker, position: Any, schema: StructType) -> Any:
    df = make(position)
    _check(df)
    found = [(f.name, f.dataType) for f in df.schema]
    if found != [(f.name, f.dataType) for f in schema]:
        raise InvalidInputError(
            f"readStream.spark: the function gave {schema.simpleString()} when the query was built and "
            f"{df.schema.simpleString()} at start; expected the same columns"
        )
    return df


def _refuse_lost_place(folder: SparkFolder, name: str, position: Any, restored: int | None) -> None:
    """At an empty location a DataFrame begins where its options say, which is not where the checkpoint stood."""
    if position is None or folder.location().planned is not None:
        return
    where = (
        f"readStream.spark: the job goes on from checkpoint {restored} at an empty Spark location, and its stream "
        f"{name} is to begin at {json.dumps(position)}, which its DataFrame does not say. "
    )
    try:
        options = starting_options(position)
    except InvalidInputError as no_way:
        raise InvalidInputError(f"{where}{str(no_way).removeprefix('starting_options: ')}") from None
    raise InvalidInputError(
        f"{where}Give readStream.spark a function that takes this position and returns the stream that begins there, "
        f"with the options of spark_ckpt.starting_options(position), here {json.dumps(options)}; or start at the old "
        "location"
    )
