"""Which joins with a static DataFrame run in Python, on Arrow batches, with the rows of Spark's join. Driver.

Spark's analysed plan says what is equal to what, with every cast. A join is taken whose static side is looked up by at
least one equality of types that compare alike here; what else its condition says must be for expressions in Python. The
rest stays in Spark.
"""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import StructType

from spark_ckpt.execution.chain import Chain
from spark_ckpt.execution.java_classes import items_of
from spark_ckpt.execution.lineage import Leaves, Place, Stays
from spark_ckpt.expressions.tree import Call, Tree
from spark_ckpt.plan.analysed._in_arrow import RowColumns, StaysError, Trees, arrow_type
from spark_ckpt.plan.analysed._nodes import analysed, parts_of, walk
from spark_ckpt.runtime.operations import MARKED, EncloseMarked
from spark_ckpt.runtime.stateless import arrow_schema, nullable, spark_schema
from spark_ckpt.runtime.static_join import JoinCarried, JoinColumns, JoinStatic
from spark_ckpt.runtime.static_sides import StaticFile
from spark_ckpt.state.keys.keys import is_flat

SparkDF = Any
JavaObject = Any

_FLAT = (
    T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType,
    T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip
_NO_KEY = "no column of the stream is equal to one of the static side"


def join_columns(
    condition: JavaObject, kind: str, stream: RowColumns, table: RowColumns, out: list[tuple[str, int]], session: Any
) -> JoinColumns:
    """A join of rows of ``stream``, control columns among them, with ``table``. ``condition`` is Spark's, an option;
    ``out`` are the names of the columns that come out, and their places in those of both sides.

    Raises ``StaysError`` for what runs in Spark only.
    """
    return _Condition(stream, table, session).columns(condition, kind, out)


class _Condition:
    """Reads what rows of both sides are joined by."""

    def __init__(self, stream: RowColumns, table: RowColumns, session: Any) -> None:
        self._stream, self._table = Trees(stream, session), Trees(table, session)
        both = RowColumns([*stream.ids, *table.ids], [*stream.types, *table.types])
        self._both, self._width = Trees(both, session), len(stream.ids)

    def columns(self, condition: JavaObject, kind: str, out: list[tuple[str, int]]) -> JoinColumns:
        keys, others = self._parts(condition)
        if not keys:
            raise StaysError(_NO_KEY, Leaves.TABLE)
        stream, table = zip(*keys, strict=True)
        return JoinColumns(kind, stream, table, _all([self._both.tree(e) for e in others]), tuple(out), self._width)

    def _parts(self, condition: JavaObject) -> tuple[list[tuple[Tree, Tree]], list[JavaObject]]:
        """The equalities of both sides, and what else it is the AND of."""
        keys, others = list[tuple[Tree, Tree]](), []
        for part in parts_of(condition.get()) if condition.isDefined() else ():
            found = self._equality(part)
            keys.extend([found] if found else [])
            others.extend([] if found else [part])
        return keys, others

    def _equality(self, e: JavaObject) -> tuple[Tree, Tree] | None:
        if e.nodeName() != "EqualTo":
            return None
        for one, two in ((e.left(), e.right()), (e.right(), e.left())):
            try:
                return self._key(self._stream, one), self._key(self._table, two)
            except StaysError:
                continue
        return None

    def _key(self, trees: Trees, e: JavaObject) -> Tree:
        if not _harmless(e):
            raise StaysError(f"a key is {e.prettyName()} of columns", Leaves.TABLE)
        tree = trees.tree(e)
        if not is_flat(tree.type):
            raise StaysError(f"keys of type {tree.type} are compared in Spark only", Leaves.TYPE)
        return tree


def _harmless(e: JavaObject) -> bool:
    """A column, or one in a wider type: what cannot fail for a row that finds nothing."""
    if e.nodeName() == "AttributeReference":
        return True
    return e.nodeName() == "Cast" and _harmless(e.child()) and _wider(arrow_type(e.child()), arrow_type(e))


def _wider(one: pa.DataType, other: pa.DataType) -> bool:
    if one == other:
        return True
    if pa.types.is_integer(one):
        digits = len(str(2 ** (one.bit_width - 1)))
        if pa.types.is_decimal128(other):
            return bool(other.precision - other.scale >= digits)
        return bool(
            (pa.types.is_integer(other) and other.bit_width > one.bit_width)
            or (pa.types.is_float64(other) and one.bit_width <= 32)
        )
    if pa.types.is_decimal128(one) and pa.types.is_decimal128(other):
        return bool(other.scale >= one.scale and other.precision - other.scale >= one.precision - one.scale)
    return bool(pa.types.is_float32(one) and pa.types.is_float64(other))


def _all(conditions: list[Tree]) -> Tree | None:
    if not conditions:
        return None
    return reduce(lambda one, two: Call("And", (one, two), pa.bool_()), conditions)


def check_types(schema: T.StructType) -> None:
    """Raises ``StaysError`` for columns that Arrow and Spark do not hand to each other as they are."""
    for f in schema.fields:
        if not _plain(f.dataType):
            raise StaysError(f"{f.name} is {f.dataType.simpleString()}", Leaves.TYPE)


def _plain(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _plain(kind.elementType)
    if isinstance(kind, T.StructType):
        return all(_plain(f.dataType) for f in kind.fields)
    return isinstance(kind, _FLAT)


_log = logging.getLogger("spark_ckpt")

_UNCHANGING = {
    "LocalRelation", "Range", "OneRowRelation", "Project", "Filter", "SubqueryAlias", "ResolvedHint", "Union",
    "Distinct", "Aggregate",
}  # fmt: skip
_CHANGING = ("Current", "Now", "Local", "Python", "Scala", "Invoke", "Static", "Apply", "Call", "UserDefined")
"""How the names of expressions begin that ask the clock or the session, or run somebody's code."""


@dataclass
class StaticPlace:
    """Where a join runs. ``columns``: how it does in Python, if it can."""

    columns: JoinColumns | Stays
    static: SparkDF

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

    def joined(self, ctx: Any, chain: Chain, schema: StructType) -> Chain | None:
        """The join behind ``chain``; None if Spark has to do it. ``schema`` is of what comes out."""
        columns, limit = self.columns, ctx.run.config.static_join_max_bytes
        if isinstance(columns, Stays) or not chain.open:
            return None
        if not never_changes(self.static):
            small = _bytes(self.static) <= min(limit, _broadcast_threshold(ctx.spark))
            return _carried(ctx, chain, columns, self.static, schema) if small else None
        side = as_file(ctx.spark, self.static, limit) if _bytes(self.static) <= limit else None
        return None if side is None else chain.then(JoinStatic(columns, side), schema)


def _carried(ctx: Any, chain: Chain, columns: JoinColumns, static: SparkDF, schema: StructType) -> Chain:
    chain, later = chain.left_to_python()
    enclosed = ctx.place(chain.then(EncloseMarked(), spark_schema(MARKED)))
    names = [f"c{i}" for i in range(len(static.columns))]
    # One task reads it, so that its rows need no shuffle to come together.
    row = static.toDF(*names).coalesce(1).agg(F.collect_list(F.struct(*names)).alias("static"))
    carrying = enclosed.crossJoin(F.broadcast(row)).select(
        "body", F.when(F.col("first"), F.col("static")).alias("static")
    )
    operation = JoinCarried(columns, arrow_schema(chain.schema), _canonical(static), later)
    return Chain(carrying, nullable(schema), (operation,))


_UNKNOWN = 1 << 62
"""What Spark takes for the size of what it knows nothing of is more."""

_folders: dict[str, tempfile.TemporaryDirectory[str]] = {}
"""Of files that were added, for each Spark application."""


def never_changes(static: SparkDF) -> bool:
    """Whether each batch would read the same rows, as far as that is sure."""
    return all(map(_same_again, walk(analysed(static))))


def _same_again(node: JavaObject) -> bool:
    return node.nodeName() in _UNCHANGING and all(map(_expression_same_again, items_of(node.expressions())))


def _expression_same_again(e: JavaObject) -> bool:
    if not e.deterministic():
        return False
    names = [str(each.nodeName()) for each in walk(e)]
    return not any(n.startswith(_CHANGING) or "Subquery" in n or n in ("Exists", "ListQuery") for n in names)


def _bytes(static: SparkDF) -> int:
    """Its size as Spark's statistics have it. Where they have none, as of an RDD, its rows are counted."""
    said = int(str(static._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    return said if said < _UNKNOWN else static.count() * int(static._jdf.schema().defaultSize())


def _broadcast_threshold(spark: Any) -> int:
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
    owner = spark.sparkContext.applicationId
    if owner not in _folders:
        _folders[owner] = tempfile.TemporaryDirectory(prefix="spark_ckpt_static-")
    path = Path(_folders[owner].name) / name
    if not path.exists():
        path.write_bytes(data)
        spark.sparkContext.addFile(str(path))
    return name
