"""Arrow columns as text, without a Python object a row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from spark_ckpt.formats.json_texts import iso_timestamps


def zoned_as_text(table: pa.Table) -> pa.Table:
    """``table`` with its zoned timestamps as UTC texts that end in ``Z``; other columns as they are."""
    for i, field in enumerate(table.schema):
        if pt.is_timestamp(field.type) and field.type.tz:
            table = table.set_column(i, field.name, iso_timestamps(table.column(i), utc_suffix="Z"))
    return table
