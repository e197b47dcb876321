"""Which joins with a static DataFrame run in Python, on Arrow batches, with the rows of Spark's join. Driver.

Spark's analysed plan says what is equal to what, with every cast. A join is taken whose static side is looked up by at
least one equality of types that compare alike here; what else its condition says must be for expressions in Python. The
rest stays in Spark. Spark Connect has no such plan to give: :mod:`spark_ckpt.plan._static_in_arrow_connect`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as T

from spark_ckpt.expressions.tree import Call, Input, Tree
from spark_ckpt.plan._in_arrow import RowColumns, Stays, StaysError, Trees, arrow_type
from spark_ckpt.plan.analysed.ledger_of_expressions import Leaves
from spark_ckpt.plan.udf_plan import items_of
from spark_ckpt.runtime.static_join import JoinColumns
from spark_ckpt.state.keys.keys import is_flat
from spark_ckpt.types import CONTROL_COLUMNS

SparkDF = Any
JavaObject = Any

_FLAT = (
    T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType,
    T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip
_NO_KEY = "no column of the stream is equal to one of the static side"


def joined_in_arrow(left: SparkDF, right: SparkDF, on: Any, kind: str, result: SparkDF) -> JoinColumns | Stays:
    """How ``left`` (control columns last) and ``right`` become the columns of ``result``."""
    if on is None:
        return Stays(Leaves.TABLE, "every row meets every row")
    try:
        check_types(right.schema)
        return _of_connect(left, right, on, kind, result)
    except StaysError as e:
        return e.stays()
    except PySparkException:
        return Stays(Leaves.TABLE, "Spark tells its two sides apart in another way")


def _of_connect(left: SparkDF, right: SparkDF, on: Any, kind: str, result: SparkDF) -> JoinColumns:
    from spark_ckpt.plan._static_in_arrow_connect import join_parts

    names = [name.lower() for name in result.columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise StaysError(f"two columns are called {twice}, which Spark Connect tells apart in Spark only")
    parts = join_parts(left, right, on, kind)
    keys, others = list[tuple[Tree, Tree]](), list[Tree]()
    for tree in parts.conjuncts:
        found = _key_pair(tree, parts.width)
        keys.extend([found] if found else [])
        others.extend([] if found else [tree])
    if not keys:
        raise StaysError(_NO_KEY, Leaves.TABLE)
    stream, static = zip(*keys, strict=True)
    return _ordered(JoinColumns(kind, stream, static, _all(others), tuple(parts.out), parts.width), result)


def _key_pair(tree: Tree, width: int) -> tuple[Tree, Tree] | None:
    if not isinstance(tree, Call) or tree.function != "EqualTo":
        return None
    one, two = tree.parts
    for first, second in ((one, two), (two, one)):
        at = _place(first), _place(second)
        if at[0] is not None and at[1] is not None and at[0] < width <= at[1] and is_flat(tree.parts[0].type):
            return first, _shifted(second, width)
    return None


def _place(tree: Tree) -> int | None:
    """Of the column that it is, or is in a wider type."""
    if isinstance(tree, Input):
        return tree.at
    if isinstance(tree, Call) and tree.function == "Cast" and _wider(tree.parts[0].type, tree.type):
        return _place(tree.parts[0])
    return None


def _shifted(tree: Tree, by: int) -> Tree:
    if isinstance(tree, Input):
        return replace(tree, at=tree.at - by)
    return replace(tree, parts=tuple(_shifted(p, by) for p in tree.parts)) if isinstance(tree, Call) else tree


def _ordered(found: JoinColumns, result: SparkDF) -> JoinColumns:
    """``found``, with the control columns last, as in ``result``."""
    out = found.out
    out = (*(o for o in out if o[0] not in CONTROL_COLUMNS), *(o for o in out if o[0] in CONTROL_COLUMNS))
    if [name for name, _ in out] != result.columns:
        raise StaysError("Spark gives its columns another order", Leaves.TABLE)
    return replace(found, out=out)


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
        for part in _conjuncts(condition.get()) if condition.isDefined() else ():
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


def _conjuncts(e: JavaObject) -> Iterator[JavaObject]:
    if e.nodeName() == "And":
        for part in items_of(e.children()):
            yield from _conjuncts(part)
    else:
        yield e


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
