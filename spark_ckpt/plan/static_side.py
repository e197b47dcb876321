"""How the static side of a join comes to the tasks that join with it in Python. Driver, at start; classic Spark.

What is made of local data and ranges alone never changes: it is collected once, and Spark brings it to the executors as
a file. Spark deletes its copies with the application; this process deletes its own when it ends.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from spark_ckpt.plan.chain import Chain
from spark_ckpt.plan.in_arrow import Stays
from spark_ckpt.plan.udf_plan import items_of
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.runtime.static_join import JoinColumns, JoinStatic
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
        if not never_changes(self.static):
            return "in Spark: the static side may change"
        return "in Python, if its rows are there and the static side is not above spark.ckpt.staticJoin.maxBytes"

    def joined(self, ctx: Any, chain: Chain, like: SparkDF) -> Chain | None:
        """The join behind ``chain``; None if Spark has to do it. ``like`` has the columns that come out."""
        limit = ctx.run.config.static_join_max_bytes
        if isinstance(self.columns, Stays) or self.pinned or not chain.open or not limit:
            return None
        if not never_changes(self.static) or expected_bytes(self.static) > limit:
            return None
        side = as_file(ctx.spark, self.static, limit)
        return None if side is None else chain.then(JoinStatic(self.columns, side), like.schema, like)


def pin(places: Iterable[StaticPlace], before: SparkDF, after: SparkDF) -> bool:
    """Keep these joins in Spark if ``after``, made of ``before``, looks behind its columns; whether it does."""
    movable = [place for place in places if not isinstance(place.columns, Stays)]
    if not movable:
        return False
    stop = before._jdf.queryExecution().analyzed()
    if any(node.fastEquals(stop) for node in _nodes(after._jdf.queryExecution().analyzed())):
        return False
    for place in movable:
        place.pinned = True
    return True


_folders: dict[str, tempfile.TemporaryDirectory[str]] = {}
"""Of files that were added, for each Spark application."""


def never_changes(static: SparkDF) -> bool:
    """Whether each batch would read the same rows."""
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


def expected_bytes(static: SparkDF) -> int:
    """What Spark's statistics say of its size; a very large number where they say nothing."""
    return int(str(static._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


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
    return StaticFile(_added(spark.sparkContext, f"static-{digest}.arrow", data), digest)


def _collected(static: SparkDF) -> pa.Table:
    """In the types that rows have here; columns are called by their places, as names may come twice."""
    table, kinds = static.toArrow(), arrow_schema(static.schema)
    columns = [c.cast(f.type) for c, f in zip(table.columns, kinds, strict=True)]
    return pa.Table.from_arrays(columns, [f"c{i}" for i in range(len(columns))]).combine_chunks()


def _added(context: Any, name: str, data: pa.Buffer) -> str:
    application = context.applicationId
    if application not in _folders:
        _folders[application] = tempfile.TemporaryDirectory(prefix="spark_ckpt_static-")
    path = Path(_folders[application].name) / name
    if not path.exists():
        path.write_bytes(data)
        context.addFile(str(path))
    return name
