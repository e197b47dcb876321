"""Literals of SQL as Spark Connect's client has them. Driver, no Spark."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from zoneinfo import ZoneInfo

from pyspark.sql import types as T
from pyspark.sql.connect import expressions as E

from spark_ckpt.plan._sql_tokens import NotReadError

_NUMBER = re.compile(r"(\d+)(\.\d*)?([eE][+-]?\d+)?([a-zA-Z]*)")
_WHOLE = {"y": (T.ByteType(), 7), "s": (T.ShortType(), 15), "l": (T.LongType(), 63)}
_MICROS = {
    "week": 604_800_000_000, "day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000,
    "millisecond": 1_000, "microsecond": 1,
}  # fmt: skip


class Interval(E.SQLExpression):  # type: ignore[misc]
    """An interval of ``micros``, whose type of Spark's only the text tells."""

    def __init__(self, text: str, micros: int) -> None:
        super().__init__(text)
        self.micros = micros


def micros(value: str, unit: str) -> int:
    """Of ``value`` units, such as ``-2`` days. Raises ``NotReadError``."""
    one = _MICROS.get(unit.lower().removesuffix("s"))
    if one is None or not re.fullmatch(r"-?\d{1,9}", value):
        raise NotReadError
    return int(value) * one


def moment(text: str, zone: str) -> E.LiteralExpression:
    """Of the clock of ``zone``, without a zone of its own."""
    found = dt.datetime.fromisoformat(text)
    if found.tzinfo is not None:
        raise NotReadError
    made = E.LiteralExpression(None, T.TimestampType())
    since = found.replace(tzinfo=ZoneInfo(zone)) - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
    made._value = since // dt.timedelta(microseconds=1)
    return made


def number(text: str, sign: int) -> E.LiteralExpression:
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise NotReadError
    whole, fraction, exponent, suffix = found.groups()
    end = suffix.lower()
    if end in ("d", "f"):
        return E.LiteralExpression(sign * float(text[:-1]), T.DoubleType() if end == "d" else T.FloatType())
    if exponent and not end:
        return E.LiteralExpression(sign * float(text), T.DoubleType())
    if end in _WHOLE and not fraction and not exponent:
        kind, bits = _WHOLE[end]
        return E.LiteralExpression(_within(sign * int(whole), bits), kind)
    if end not in ("", "bd") or (end and exponent):
        raise NotReadError
    return _exact(sign, whole, (fraction or "")[1:], bool(fraction) or bool(end))


def _exact(sign: int, whole: str, fraction: str, is_decimal: bool) -> E.LiteralExpression:
    value = sign * int(whole)
    if not is_decimal and -(2**63) <= value < 2**63:
        return E.LiteralExpression._from_value(value)
    exact = Decimal(f"{whole}.{fraction}" if fraction else whole) * sign
    digits = max(len((whole + fraction).lstrip("0")), len(fraction), 1)
    return E.LiteralExpression(exact, T.DecimalType(digits, len(fraction)))


def _within(value: int, bits: int) -> int:
    if not -(2**bits) <= value < 2**bits:
        raise NotReadError
    return value
