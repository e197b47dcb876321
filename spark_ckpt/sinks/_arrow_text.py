"""Arrow columns as text, without a Python object a row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_ckpt.formats.json_texts import iso_timestamps


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
