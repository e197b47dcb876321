"""Values of partition columns, which the log has as text. Pure; executor."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.expressions.time_texts import TimeTexts

_TIMES = TimeTexts("UTC", numbered_days=False)
"""Spark's reader of them, whose years go beyond 9999 (``+10000-01-01``)."""


def repeated(text: str | None, kind: pa.DataType, rows: int, where: str) -> pa.Array:
    """A column of ``rows`` times the value. An empty text is null, as in Delta; times without a zone are UTC.

    Raises ``InvalidInputError`` for a text that is no such value.
    """
    if text is None or text == "":
        return pa.nulls(rows, kind)
    try:
        return pa.repeat(_scalar(text, kind), rows)
    except (pa.ArrowInvalid, ValueError):
        raise InvalidInputError(f"{where}: expected a partition value that is {kind}, found {text!r}") from None


def _scalar(text: str, kind: pa.DataType) -> pa.Scalar:
    if pt.is_string(kind) or pt.is_large_string(kind):
        return pa.scalar(text, kind)
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return pa.scalar(text.encode(), kind)
    if pt.is_floating(kind):
        return pa.scalar(float(text), kind)
    if pt.is_date(kind):
        return pa.scalar(_found(_TIMES.day(text)), pa.int32()).cast(kind)
    if pt.is_timestamp(kind):
        micros = _TIMES.local(text.removesuffix("Z")) if kind.tz is None else _TIMES.moment(text)
        return pa.scalar(_found(micros), pa.int64()).cast(kind)
    return pa.scalar(text).cast(kind)


def _found(number: int | None) -> int:
    if number is None:
        raise ValueError("no day and no moment")
    return number
