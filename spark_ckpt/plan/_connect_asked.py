"""What of an expression of Spark Connect's client only Spark knows the type of. Driver, no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E

from spark_ckpt.plan._connect_functions import BOOL, FUNCTIONS, TEXT

Expression = Any
_CALLS = (E.UnresolvedFunction, E.CallFunction, E.CaseWhen, E.CastExpression)
_JSON = "from_json"
_BOOLEANS = (
    "And", "Contains", "EndsWith", "EqualNullSafe", "EqualTo", "GreaterThan", "GreaterThanOrEqual", "In", "IsNaN",
    "IsNotNull", "IsNull", "LessThan", "LessThanOrEqual", "Like", "Not", "Or", "RLike", "StartsWith",
)  # fmt: skip
_TEXTS = (
    "Concat", "ConcatWs", "InitCap", "Lower", "RegExpExtract", "RegExpReplace", "Reverse", "StringLPad", "StringRPad",
    "StringRepeat", "StringReplace", "StringTranslate", "Substring", "SubstringIndex", "Upper",
)  # fmt: skip
OF_TYPE = {**dict.fromkeys(_BOOLEANS, BOOL), **dict.fromkeys(_TEXTS, TEXT)}


def called(e: Expression) -> str | None:
    """The name of the function that ``e`` calls, if it calls one."""
    if isinstance(e, E.CaseWhen):
        return "when"
    return str(e._name).lower() if isinstance(e, E.UnresolvedFunction | E.CallFunction) else None


def asked(e: Expression) -> Iterator[Expression]:
    """The parts of ``e``, itself among them, whose types only Spark knows."""
    if is_decimal(e) or (isinstance(e, _CALLS) and not _is_known_type(e)):
        yield e
    if isinstance(e, (*_CALLS, E.ColumnAlias, E.UnresolvedExtractValue)):
        for part in _columns(e):
            yield from asked(part)


def _columns(e: Expression) -> list[Expression]:
    """The parts of ``e`` that have a value for each row."""
    if isinstance(e, E.ColumnAlias | E.UnresolvedExtractValue):
        return [e._child]
    return list(e.children)[:1] if called(e) == _JSON else list(e.children)


def is_decimal(e: Expression) -> bool:
    return isinstance(e, E.LiteralExpression) and isinstance(e._dataType, T.DecimalType)


def _is_known_type(e: Expression) -> bool:
    return FUNCTIONS.get(called(e) or "", ("",))[0] in OF_TYPE
