"""Values of partition columns, which the log has as text. Pure; executor."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from spark_ckpt.errors import InvalidInputError


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
    if pt.is_timestamp(kind):
        local = pa.scalar(text.replace("T", " ").removesuffix("Z")).cast(pa.timestamp("us"))
        return local.cast(kind)
    return pa.scalar(text).cast(kind)
