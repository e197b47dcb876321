"""Values of the growing column: in offsets as JSON, in queries as the driver takes them, and between two of them."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any

import sqlalchemy as sa
from pyspark.sql import types as st

INTEGER, DATE, TIMESTAMP, TIMESTAMP_NTZ, TEXT = "integer", "date", "timestamp", "timestamp_ntz", "text"
_UTC = dt.timezone.utc
_NARROW = 1000
"""A range of fewer whole numbers is one split."""


def kind_of(dialect: str, found: st.DataType | None) -> str | None:
    """How a column of type ``found`` grows; None if it cannot be a growing column."""
    if isinstance(found, st.IntegralType) or (isinstance(found, st.DecimalType) and found.scale == 0):
        return INTEGER
    if isinstance(found, st.TimestampType | st.TimestampNTZType | st.DateType):
        # SQLite has texts for them, which sort as the times do.
        if dialect == "sqlite" or isinstance(found, st.DateType):
            return TEXT if dialect == "sqlite" else DATE
        return TIMESTAMP if isinstance(found, st.TimestampType) else TIMESTAMP_NTZ
    return None


def normal(kind: str, value: Any) -> Any:
    """``value``, of a driver or a user, as all of its kind are: they can be compared."""
    if value is None or kind in (TEXT, DATE):
        return value
    if kind == INTEGER:
        return int(value)
    if kind == TIMESTAMP:
        return value.replace(tzinfo=_UTC) if value.tzinfo is None else value
    return value.astimezone(_UTC).replace(tzinfo=None) if value.tzinfo is not None else value


def is_over(day: dt.date | str, now_ms: int) -> bool:
    """Whether no clock of the world shows ``day`` any more, a date or SQLite's text of one: the last is 12 hours behind
    UTC."""
    try:
        found = day if isinstance(day, dt.date) else dt.date.fromisoformat(day[:10])
    except ValueError:
        return False
    anywhere = dt.datetime.fromtimestamp(now_ms / 1000, _UTC) - dt.timedelta(hours=12)
    return anywhere.date() > found


def to_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.date) else value  # a datetime is a date, too


def from_json(kind: str, value: Any) -> Any:
    """Inverse of :func:`to_json`. Raises ``ValueError``."""
    if value is None or kind == TEXT:
        return value
    if kind == DATE:
        return dt.date.fromisoformat(value)
    return normal(kind, value if kind == INTEGER else dt.datetime.fromisoformat(value))


def ranges(kind: str, low: Any, high: Any, count: int) -> list[tuple[Any, Any]]:
    """``(low, high]`` in at most ``count`` neighbouring ranges of the same width; ``low`` may be None."""
    if low is None or kind in (TEXT, DATE) or (kind == INTEGER and high - low < _NARROW) or high <= low:
        return [(low, high)]
    width = high - low
    edges = [low + (width * i // count if kind == INTEGER else width * i / count) for i in range(count)]
    return list(pairwise([*edges, high]))


def within(column: sa.ColumnElement[Any], start: tuple[str, Any], end: Any) -> list[sa.ColumnElement[bool]]:
    """``start`` is ("after", value) or ("from", value), and a value of None is no bound."""
    rule, low = start
    above = [] if low is None else [column >= low if rule == "from" else column > low]
    return [*above, column <= end]
