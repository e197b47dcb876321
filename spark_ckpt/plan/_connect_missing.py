"""``fillna`` and ``replace`` as the expressions that Spark makes of them. Driver; Spark Connect.

Whether they are those is not taken on trust: :mod:`spark_ckpt.plan._in_arrow_connect` asks Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect import plan as P
from pyspark.sql.pandas.types import from_arrow_type

from spark_ckpt.plan._connect_functions import is_number
from spark_ckpt.plan._connect_scope import Scope
from spark_ckpt.plan._in_arrow import StaysError

Expression = Any


def filled(node: P.NAFill, scope: Scope) -> Iterator[tuple[int, str, Expression]]:
    """Place, name and expression of each column that has its nulls filled."""
    chosen = [scope.find(name)[0] for name in node.cols or ()] or list(range(len(scope.names)))
    values = node.values * len(chosen) if len(node.values) == 1 else node.values
    for place, value in dict(zip(chosen, values, strict=True)).items():
        kind = _kind(scope, place)
        if kind is None or (len(node.values) == 1 and not _suits(kind, value)):
            continue
        column, to = E.ColumnReference(scope.quoted(place)), from_arrow_type(kind)
        there = _call("nanvl", column, _null(to)) if pt.is_floating(kind) else column
        sent = T.LongType() if isinstance(value, int) and not isinstance(value, bool) else None
        given = E.LiteralExpression(value, sent) if sent else E.LiteralExpression._from_value(value)
        yield place, str(scope.names[place]), _call("coalesce", there, E.CastExpression(given, to))


def replaced(node: P.NAReplace, scope: Scope) -> Iterator[tuple[int, str, Expression]]:
    """Likewise of each column in which values are replaced."""
    pairs = [(_given(old), _given(new)) for old, new in node.replacements]
    if len({old for old, _ in pairs}) < len(pairs):
        raise StaysError("it replaces one value by several")
    chosen = {scope.find(name)[0] for name in node.cols or ()} or set(range(len(scope.names)))
    for place in sorted(chosen):
        kind = _kind(scope, place)
        if kind is None or not pairs or not _suits(kind, pairs[0][0]):
            continue
        column, to = E.ColumnReference(scope.quoted(place)), from_arrow_type(kind)
        parts = [part for old, new in pairs for part in (_call("=", column, _literal(old)), _as(new, to))]
        yield place, str(scope.names[place]), _call("when", *parts, column)


def _kind(scope: Scope, place: int) -> pa.DataType | None:
    """None of what neither of them looks at."""
    try:
        kind = scope.type(place)
    except StaysError:
        if isinstance(scope.types[place], T.StringType):
            raise
        return None
    return kind if is_number(kind) or pt.is_string(kind) or pt.is_boolean(kind) else None


def _suits(kind: pa.DataType, value: Any) -> bool:
    if isinstance(value, bool):
        return bool(pt.is_boolean(kind))
    return bool(pt.is_string(kind)) if isinstance(value, str) else is_number(kind)


def _given(column: Any) -> Any:
    """Numbers are doubles to Spark."""
    value = column._expr._value
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _as(value: Any, to: T.DataType) -> Expression:
    return E.CastExpression(_literal(value), to)


def _literal(value: Any) -> Expression:
    return E.LiteralExpression._from_value(value)


def _null(to: T.DataType) -> Expression:
    return _as(None, to)


def _call(name: str, *args: Expression) -> Expression:
    return E.UnresolvedFunction(name, list(args))
