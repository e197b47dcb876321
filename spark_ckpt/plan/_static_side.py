"""How the static side of a join comes to the tasks that join with it in Python. Driver, at start.

What is made of local data and ranges alone never changes: it is collected once, and Spark brings it to the executors as
a file. Spark deletes its copies with the application; this process deletes its own when it ends.

All else is read by each batch, in Spark's plan of the batch, as one row that Spark broadcasts. The stream's rows pass
the JVM as whole record batches, and the first of a task carries that row along.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_ckpt.plan._in_arrow import Stays
from spark_ckpt.plan.chain import Chain
from spark_ckpt.plan.lineage import Place
from spark_ckpt.plan.udf_plan import items_of
from spark_ckpt.runtime.operations import MARKED, EncloseMarked
from spark_ckpt.runtime.stateless import arrow_schema, nullable, spark_schema
from spark_ckpt.runtime.static_join import JoinCarried, JoinColumns, JoinStatic
from spark_ckpt.runtime.static_sides import StaticFile

SparkDF = Any
JavaObject = Any

_log = logging.getLogger("spark_ckpt")

_UNCHANGING = {
    "LocalRelation", "Range", "OneRowRelation", "Project", "Filter", "SubqueryAlias", "ResolvedHint", "Union",
    "Distinct", "Aggregate",
}  # fmt: skip
_CHANGING = ("Current", "Now", "Local", "Python", "Scala", "Invoke", "Static", "Apply", "Call", "UserDefined")
"""How the names of expressions begin that ask the clock or the session, or run somebody's code."""


@dataclass
class StaticPlace:
    """Where a join runs. ``columns``: how it does in Python, if it can. ``pinned``: what is behind it asks for columns
    that Spark hides behind joins, ``prices["k"]`` of a join by ``"k"``, and that rows in Python have not."""

    columns: JoinColumns | Stays
    static: SparkDF
    pinned: bool = False

    @property
    def told(self) -> str:
        """For people, before the start."""
        if isinstance(self.columns, Stays):
            return f"in Spark: {self.columns.why}"
        if never_changes(self.static):
            return "in Python, if its rows are there and the static side is not above spark.ckpt.staticJoin.maxBytes"
        return "in Python, if its rows are there and Spark would broadcast the static side; each batch reads that again"

    def of(self, node: str, called: str = "") -> Place:
        """The same for the job graph."""
        leaves = self.columns.leaves if isinstance(self.columns, Stays) else None
        return Place(node, self.told, leaves, called)

    def joined(self, ctx: Any, chain: Chain, schema: StructType, like: SparkDF | None = None) -> Chain | None:
        """The join behind ``chain``; None if Spark has to do it. ``schema``, and ``like``, are of what comes out."""
        columns, limit = self.columns, ctx.run.config.static_join_max_bytes
        if isinstance(columns, Stays) or self.pinned or not chain.open:
            return None
        if not never_changes(self.static):
            small = _bytes(self.static) <= min(limit, _broadcast_threshold(ctx.spark))
            return _carried(ctx, chain, columns, self.static, schema, like) if small else None
        side = as_file(ctx.spark, self.static, limit) if _bytes(self.static) <= limit else None
        return None if side is None else chain.then(JoinStatic(columns, side), schema, like)


def _carried(
    ctx: Any, chain: Chain, columns: JoinColumns, static: SparkDF, schema: StructType, like: SparkDF | None
) -> Chain:
    chain, later = chain.left_to_python()
    enclosed = ctx.place(chain.then(EncloseMarked(), spark_schema(MARKED)))
    names = [f"c{i}" for i in range(len(static.columns))]
    # One task reads it, so that its rows need no shuffle to come together.
    row = static.toDF(*names).coalesce(1).agg(F.collect_list(F.struct(*names)).alias("static"))
    carrying = enclosed.crossJoin(F.broadcast(row)).select(
        "body", F.when(F.col("first"), F.col("static")).alias("static")
    )
    operation = JoinCarried(columns, arrow_schema(chain.schema), _canonical(static), later)
    return Chain(carrying, nullable(schema), (operation,), like)


def by_names(rows: SparkDF, column: Any) -> Any:
    """``column`` over ``rows``, which come of a static join, known by names where Spark Connect knows it otherwise."""
    if _is_classic(rows) or not isinstance(column, Column):
        return column
    from spark_ckpt.plan._static_side_connect import by_names as connect

    return connect(rows, column)


def _is_classic(df: SparkDF) -> bool:
    return type(df).__module__.startswith("pyspark.sql.classic")


_UNKNOWN = 1 << 62
"""What Spark takes for the size of what it knows nothing of is more."""

_folders: dict[str, tempfile.TemporaryDirectory[str]] = {}
"""Of files that were added, for each Spark application, or session of Spark Connect."""


def never_changes(static: SparkDF) -> bool:
    """Whether each batch would read the same rows, as far as that is sure."""
    if not _is_classic(static):
        from spark_ckpt.plan._static_side_connect import same_again

        return same_again(static, _UNCHANGING)
    return all(map(_same_again, _nodes(static._jdf.queryExecution().analyzed())))


def _same_again(node: JavaObject) -> bool:
    return node.nodeName() in _UNCHANGING and all(map(_expression_same_again, items_of(node.expressions())))


def _expression_same_again(e: JavaObject) -> bool:
    if not e.deterministic():
        return False
    inner = (each for part in items_of(e.children()) for each in _nodes(part))
    names = [str(each.nodeName()) for each in (e, *inner)]
    return not any(n.startswith(_CHANGING) or "Subquery" in n or n in ("Exists", "ListQuery") for n in names)


def _nodes(node: JavaObject) -> Iterator[JavaObject]:
    yield node
    for child in items_of(node.children()):
        yield from _nodes(child)


def _bytes(static: SparkDF) -> int:
    """Its size as Spark's statistics have it. Where they have none, as of an RDD, its rows are counted."""
    if not _is_classic(static):
        from spark_ckpt.plan._static_side_connect import size_in_bytes

        found = size_in_bytes(static)
        return _UNKNOWN if found is None else found
    said = int(str(static._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    return said if said < _UNKNOWN else static.count() * int(static._jdf.schema().defaultSize())


def _broadcast_threshold(spark: Any) -> int:
    if not hasattr(spark, "_jsparkSession"):
        from spark_ckpt.plan._static_side_connect import broadcast_threshold

        return broadcast_threshold(spark)
    return int(spark._jsparkSession.sessionState().conf().autoBroadcastJoinThreshold())


def as_file(spark: Any, static: SparkDF, limit: int) -> StaticFile | None:
    """``static``, collected, as a file that all executors get; None if it has more than ``limit`` bytes."""
    table = _collected(static)
    if table.nbytes > limit:
        _log.info("A static side has %d bytes, more than %d: Spark joins it.", table.nbytes, limit)
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue()
    digest = xxhash.xxh3_128_hexdigest(data)
    return StaticFile(_added(spark, f"static-{digest}.arrow", data), digest)


def _collected(static: SparkDF) -> pa.Table:
    """In the types that rows have here; columns are called by their places, as names may come twice."""
    table, schema = static.toArrow(), _canonical(static)
    columns = [c.cast(f.type) for c, f in zip(table.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema).combine_chunks()


def _canonical(static: SparkDF) -> pa.Schema:
    return pa.schema([(f"c{i}", f.type) for i, f in enumerate(arrow_schema(static.schema))])


def _added(spark: Any, name: str, data: pa.Buffer) -> str:
    """A session of Spark Connect has files of its own, classic sessions those of the application."""
    classic = hasattr(spark, "_jsparkSession")
    owner = spark.sparkContext.applicationId if classic else spark.session_id
    if owner not in _folders:
        _folders[owner] = tempfile.TemporaryDirectory(prefix="spark_ckpt_static-")
    path = Path(_folders[owner].name) / name
    if not path.exists():
        path.write_bytes(data)
        if classic:
            spark.sparkContext.addFile(str(path))
        else:
            spark.addArtifacts(str(path), file=True)
    return name
