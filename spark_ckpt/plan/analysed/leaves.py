"""A stream of ours as a leaf of Spark's plans: an empty streaming relation with a mark. Driver; classic Spark.

Spark analyses everything over it, and copies its tag wherever it copies the leaf: into views, and to the second side
of a join of the stream with itself. It costs no Python worker, as a Python data source would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from pyspark.sql.types import StructType

from spark_ckpt.execution.chain import Recipe, StreamRows
from spark_ckpt.execution.java_classes import CATALYST, OPTION, frame_of, java_class, seq_items, to_seq
from spark_ckpt.execution.lineage import Lineage
from spark_ckpt.plan.analysed._nodes import analysed, java_type, kind_of, new_attributes, relation, tag, tag_of
from spark_ckpt.spark_versions import spark_version
from spark_ckpt.spark_versions.java_names import STREAMING_RELATION

SparkDF = Any
JavaObject = Any

_TAG = "spark_ckpt.source"
_DATA_SOURCE = "org.apache.spark.sql.execution.datasources.DataSource"
_known: dict[str, Stream] = {}
"""Of this process. A source is known as long as the process lives, as Spark's plans name it by a number."""
_numbers = count()


@dataclass(frozen=True, eq=False)
class Stream:
    """What a leaf stands for. ``session``: the one that its reader is of, whose settings a query of it has.

    All leaves of one stream have one recipe, so a query reads it once. ``files``: Spark's name of a format of
    files, which have a hidden column ``_metadata``. Then ``by_spark(why, *columns)`` are the same rows as Spark's own
    source reads them, with hidden ``columns`` behind the others.
    """

    session: Any
    recipe: Recipe
    lineage: Lineage
    schema: StructType
    files: str = ""
    by_spark: Callable[..., StreamRows] | None = None


def stream_frame(stream: Stream) -> SparkDF:
    """The DataFrame that ``stream`` is: PySpark's own, with its columns."""
    number = str(next(_numbers))
    _known[number] = stream
    spark, attributes = stream.session.spark, new_attributes(stream.schema)
    made = _files(spark, stream, attributes, number) if stream.files else tag(relation(attributes), _TAG, number)
    return frame_of(made, spark)


def stream_of(leaf: JavaObject) -> Stream | None:
    """The stream that ``leaf`` is; None for other leaves."""
    number = _number_of_files(leaf) if kind_of(leaf) == "StreamingRelation" else tag_of(leaf, _TAG)
    return None if number is None else _known[number]


def streams_of(plan: JavaObject) -> list[tuple[JavaObject, Stream]]:
    """The leaves of ``plan`` that are streams of ours."""
    leaves = seq_items(plan.collectLeaves())
    return [(leaf, found) for leaf in leaves if (found := stream_of(leaf)) is not None]


def session_of(df: SparkDF) -> Any:
    """The session whose reader made the first stream of ours in ``df``; None if there is none."""
    if not df.isStreaming:
        return None
    return next((stream.session for _, stream in streams_of(analysed(df))), None)


def _files(spark: Any, stream: Stream, attributes: Sequence[JavaObject], number: str) -> JavaObject:
    """Spark's own relation of a stream of files, so that Spark's analyser finds ``_metadata``. It has an option in the
    place of the tag, as the analyser makes another relation of it then, without its tags."""
    option, none = java_class(OPTION), java_class(OPTION).empty()
    options = java_class("org.apache.spark.api.python.PythonUtils").toScalaMap({_TAG: number})
    schema, nothing = option.apply(java_type(stream.schema)), to_seq(())
    unnamed: tuple[Any, ...] = ()
    last: tuple[Any, ...] = ()
    if spark_version() >= (4, 2):  # in which a source may be given a name
        unnamed = (getattr(java_class(f"{CATALYST}.streaming.Unassigned$"), "MODULE$"),)
        last = (none,)
    source = java_class(_DATA_SOURCE)(
        spark._jsparkSession, stream.files, nothing, schema, nothing, none, options, none, *last
    )
    return java_class(STREAMING_RELATION)(source, stream.files, to_seq(attributes), *unnamed)


def _number_of_files(leaf: JavaObject) -> str | None:
    found = leaf.dataSource().options().get(_TAG)
    return str(found.get()) if found.isDefined() else None
