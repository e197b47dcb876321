"""What ``orderBy`` is given: columns and expressions, ascending or descending, nulls first or last. Driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan._java_classes import COLUMN, class_name, java_class

Node = Any


@dataclass(frozen=True)
class Ordering:
    """``given`` is a name or an expression. Spark's nulls come first where it ascends and last where it descends."""

    given: Any
    descending: bool = False
    nulls_first: bool = True


def ordering(given: Any) -> Ordering:
    """Of one argument: a name, or a column such as ``F.desc("ts")`` or ``df.n.asc_nulls_last()``."""
    if isinstance(given, str):
        return Ordering(given)
    if not isinstance(given, Column):
        raise InvalidInputError(f"expected columns to order by, names or such as F.desc('ts'); found {given!r}")
    if hasattr(given, "_jc"):
        return _classic(given, given._jc.node())
    tree = given._expr
    if type(tree).__name__ != "SortOrder":
        return Ordering(given)
    return Ordering(type(given)(tree._child), not tree._ascending, tree._nullsFirst)


def _classic(given: Column, node: Node) -> Ordering:
    if class_name(node) != "SortOrder":
        return Ordering(given)
    child = type(given)(java_class(COLUMN)(node.child()))
    return Ordering(child, "Desc" in str(node.sortDirection()), "First" in str(node.nullOrdering()))


def check_orderable(method: str, name: str, kind: T.DataType) -> None:
    """Raises ``InvalidInputError`` for types whose order is not Spark's here."""
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            check_orderable(method, f"{name}.{field.name}", field.dataType)
        return
    collated = isinstance(kind, T.StringType) and not kind.isUTF8BinaryCollation()
    others = (T.ArrayType, T.MapType, T.VariantType, T.CalendarIntervalType, T.YearMonthIntervalType, T.NullType)
    if collated or isinstance(kind, (*others, T.UserDefinedType)):
        raise InvalidInputError(
            f"{method} cannot order by {name!r}, whose type is {kind.simpleString()}: order by flat columns or structs "
            "of such, for example by F.size(...) or an element of an array, or by a cast"
        )
