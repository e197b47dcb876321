"""Gives generators one element for each control row. Driver; Spark Connect.

The client knows a generator by its function's name, or finds it at the head of a SQL text. One that stands deeper in a
SQL text is left as it is, and refused by :mod:`spark_ckpt.plan.relations._text_check` if it lost control rows.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.plan.relations._python_calls import PlanRewriter
from spark_ckpt.plan.spark_errors import unlogged
from spark_ckpt.types import CTL

SparkDF = Any

_OF_ELEMENTS = {f"{name}{outer}" for name in ("explode", "posexplode", "inline") for outer in ("", "_outer")}
OF_TEXT = re.compile(
    rf"\s*({'|'.join(sorted(_OF_ELEMENTS, reverse=True))})\s*\((.*)\)(?:\s+as\s+(?:(`?\w+`?)|\((.*)\)))?\s*",
    re.IGNORECASE | re.DOTALL,
)


def for_control_rows(after: SparkDF, before: SparkDF) -> SparkDF:
    """As :func:`spark_ckpt.plan.analysed._generators.for_control_rows`."""
    from pyspark.sql.connect.dataframe import DataFrame

    plan = _Rewriter(after.sparkSession, before._plan).plan(after._plan)
    return after if plan is after._plan else DataFrame(plan, after.sparkSession)


class _Rewriter(PlanRewriter):
    def __init__(self, session: Any, stop: Any) -> None:
        from pyspark.sql.connect import expressions

        super().__init__(session, stop)
        self._function, self._text = expressions.UnresolvedFunction, expressions.SQLExpression
        self._literal = expressions.LiteralExpression

    def expression(self, e: Any, child: Any) -> Any:
        if isinstance(e, self._function) and e._name.lower() in _OF_ELEMENTS:
            elements = self._one_for_control(e._args[0], child)
            return e if elements is None else self._function(e._name, [elements._expr])
        if isinstance(e, self._function) and e._name.lower() == "stack":
            return self._stacked(e)
        if isinstance(e, self._text):
            return self._of_text(e, child)
        return self._rebuilt(e, lambda inner: self.expression(inner, child))

    def _one_for_control(self, elements: Any, child: Any) -> Column | None:
        """None if it is nothing that has elements, which Spark says."""
        try:
            with unlogged():
                kind = self._type(elements, child)
        except PySparkException:
            return None
        one = _one(kind)
        return None if one is None else F.when(F.col(CTL).isNotNull(), one).otherwise(self._column(elements))

    def _stacked(self, e: Any) -> Any:
        """``stack(n, a, b, ...)`` as an array of ``n`` structs: it makes ``n`` rows of whatever it gets."""
        count, *values = e._args
        if not isinstance(count, self._literal) or not isinstance(count._value, int) or count._value < 1 or not values:
            return e
        width = -(-len(values) // count._value)
        columns = [self._column(v) for v in values] + [F.lit(None)] * (-len(values) % width)
        rows = [
            F.struct(*[c.alias(f"col{i}") for i, c in enumerate(columns[at : at + width])])
            for at in range(0, len(columns), width)
        ]
        rows += [F.lit(None)] * (count._value - len(rows))
        elements = F.when(F.col(CTL).isNotNull(), F.array(F.lit(None))).otherwise(F.array(*rows))
        return self._function("inline", [elements._expr])

    def _of_text(self, e: Any, child: Any) -> Any:
        found = OF_TEXT.fullmatch(e._expr)
        elements = found and self._one_for_control(self._text(found[2]), child)
        if not found or elements is None:
            return e
        made = self._column(self._function(found[1].lower(), [elements._expr]))
        names = [found[3]] if found[3] else found[4].split(",") if found[4] else []
        return made.alias(*[name.strip().strip("`") for name in names])._expr if names else made._expr


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
