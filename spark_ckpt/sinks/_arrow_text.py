"""Arrow columns as text, without a Python object a row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_ckpt.formats.json_texts import float_texts, iso_timestamps


def zoned_as_text(table: pa.Table) -> pa.Table:
    """``table`` with its zoned timestamps as UTC texts that end in ``Z``; other columns as they are."""
    for i, field in enumerate(table.schema):
        if pt.is_timestamp(field.type) and field.type.tz:
            table = table.set_column(i, field.name, iso_timestamps(table.column(i), utc_suffix="Z"))
    return table


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
        return float_texts(column, {"nan": "NaN", "-nan": "NaN", "inf": "Inf", "-inf": "-Inf"})
    if pt.is_timestamp(kind):
        return _quoted(iso_timestamps(column, utc_suffix="Z")) if kind.tz else column.cast(pa.string())
    if pt.is_string(kind) or pt.is_large_string(kind):
        texts = column.cast(pa.string())
        for special in dict.fromkeys((escape, '"')):
            texts = pc.replace_substring(texts, special, escape + special)
        return _quoted(texts)
    return column.cast(pa.string())


def _quoted(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.binary_join_element_wise('"', texts, '"', "")
