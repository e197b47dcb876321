"""Arrow columns as text, without a Python object a row, and days that a target has no text of."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_ckpt.errors import BadRowError
from spark_ckpt.expressions.printed_times import Days, day_text, day_texts, moment_texts, within
from spark_ckpt.formats.float_texts import float_texts

_CSV_SPECIAL: Final = {"nan": "NaN", "-nan": "NaN", "inf": "Inf", "-inf": "-Inf"}
"""As Spark's CSV reader knows them unless an option says otherwise."""


def refuse_days(rows: pa.Table, days: Days, target: str) -> None:
    """Raises ``BadRowError`` naming a column, or a field of structs, that has a date or a timestamp outside of
    ``days``."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        _refuse_days(name, column, days, target)


def _refuse_days(name: str, column: pa.ChunkedArray, days: Days, target: str) -> None:
    kind = column.type
    if pt.is_struct(kind):
        for field, part in zip(kind, column.flatten(), strict=True):
            _refuse_days(f"{name}.{field.name}", part, days, target)
    elif (pt.is_date(kind) or pt.is_timestamp(kind)) and not within(column, days):
        raise BadRowError(
            f"column '{name}' has a {'date' if pt.is_date(kind) else 'timestamp'} before {day_text(days.first)} or "
            f"after {day_text(days.last)}, which {target} cannot hold; filter such rows out, or cast it to string"
        )


def texts_of_days(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """As Spark casts dates to strings."""
    return _each(day_texts, column)


def texts_of_moments(column: pa.ChunkedArray, utc_suffix: str = "") -> pa.ChunkedArray:
    """``2020-01-31 12:00:00.000000``; those with a zone in UTC, with ``utc_suffix`` behind."""
    texts = _each(moment_texts, column)
    return pc.binary_join_element_wise(texts, utc_suffix, "") if column.type.tz and utc_suffix else texts


def decimals_as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decimals with all their digits. Arrow writes those below a millionth, zeros too, as ``1E-18``, which databases
    read as a double, and which is no text that compares."""
    texts = column.cast(pa.string())
    if not pc.any(pc.match_substring(texts, "E")).as_py():
        return texts
    return pa.chunked_array([[None if v is None else format(v, "f") for v in column.to_pylist()]], pa.string())


def csv_texts(column: pa.ChunkedArray, escape: str) -> pa.ChunkedArray:
    """Each value as a field of CSV: texts and times in quotes, numbers as they are, so that who goes by what he sees
    takes 1.0 for no whole number. Null stays null. ``escape`` stands in front of quotes in a text, and of itself."""
    kind = column.type
    if pt.is_floating(kind):
        return _each(lambda chunk: float_texts(chunk, _CSV_SPECIAL), column)
    if pt.is_date(kind):
        return texts_of_days(column)
    if pt.is_timestamp(kind):
        return _quoted(texts_of_moments(column, "Z")) if kind.tz else texts_of_moments(column)
    if pt.is_string(kind) or pt.is_large_string(kind):
        texts = column.cast(pa.string())
        for special in dict.fromkeys((escape, '"')):
            texts = pc.replace_substring(texts, special, escape + special)
        return _quoted(texts)
    return column.cast(pa.string())


def _each(made: Any, column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([made(chunk) for chunk in column.chunks], pa.string())


def _quoted(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.binary_join_element_wise('"', texts, '"', "")
