"""Gives generators one element for each control row. Driver; Spark Connect.

The client knows a generator by its function's name. One in a SQL text is refused by
:mod:`spark_ckpt.plan.relations._text_check`.
"""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E
from pyspark.sql.connect.dataframe import DataFrame

from spark_ckpt.execution.spark_errors import unlogged
from spark_ckpt.plan.relations._columns import OF_ELEMENTS, column, is_control
from spark_ckpt.plan.relations._python_calls import rewritten_between, type_of

Relation = Any
Expression = Any


def for_control_rows(after: DataFrame, before: DataFrame) -> DataFrame:
    """As :func:`spark_ckpt.plan.analysed._generators.for_control_rows`."""
    return rewritten_between(after, before, _generator)


def _generator(session: Any, node: Relation, e: Expression) -> Expression | None:
    if isinstance(e, E.UnresolvedFunction) and e._name.lower() in OF_ELEMENTS:
        elements = _one_for_control(session, node._child, e._args[0])
        return e if elements is None else E.UnresolvedFunction(e._name, [elements._expr])
    return _stacked(e) if isinstance(e, E.UnresolvedFunction) and e._name.lower() == "stack" else None


def _one_for_control(session: Any, rows: Relation, elements: Expression) -> Column | None:
    """None if it is nothing that has elements, which Spark says."""
    try:
        with unlogged():
            one = _one(type_of(session, elements, rows))
    except PySparkException:
        return None
    return None if one is None else F.when(is_control(), one).otherwise(column(elements))


def _stacked(e: Expression) -> Expression:
    """``stack(n, a, b, ...)`` as an array of ``n`` structs: it makes ``n`` rows of whatever it gets."""
    first, *values = e._args
    count = first._value if isinstance(first, E.LiteralExpression) else None
    if not isinstance(count, int) or count < 1 or not values:
        return e
    width = -(-len(values) // count)
    columns = [column(v) for v in values] + [F.lit(None)] * (-len(values) % width)
    rows = [
        F.struct(*[c.alias(f"col{i}") for i, c in enumerate(columns[at : at + width])])
        for at in range(0, len(columns), width)
    ]
    rows += [F.lit(None)] * (count - len(rows))
    elements = F.when(is_control(), F.array(F.lit(None))).otherwise(F.array(*rows))
    return E.UnresolvedFunction("inline", [elements._expr])


def _one(kind: T.DataType) -> Column | None:
    """Something with one element that goes together with ``kind``."""
    if isinstance(kind, T.ArrayType):
        return F.array(F.lit(None))
    if not isinstance(kind, T.MapType):
        return None
    if isinstance(kind.keyType, T.BooleanType):
        key = F.lit(True)
    elif isinstance(kind.keyType, T.DateType | T.TimestampType | T.TimestampNTZType):
        key = F.lit("1970-01-01").cast(kind.keyType)
    elif isinstance(kind.keyType, T.StringType | T.BinaryType | T.NumericType):
        key = F.lit("0").cast(kind.keyType)
    else:
        return None
    return F.create_map(key, F.lit(None).cast(kind.valueType))
