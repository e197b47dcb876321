"""How the sinks write Parquet: dictionaries only where values repeat."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

_SAMPLE_ROWS = 4096
_MOST_DISTINCT = 0.5


def open_parquet(stream: Any, schema: pa.Schema, first: pa.Table, **options: Any) -> pq.ParquetWriter:
    """A writer of ``schema`` into ``stream``. ``first`` is what will be written first, and stands for the rest."""
    return pq.ParquetWriter(stream, schema, use_dictionary=dictionary_columns(first), **options)


def dictionary_columns(table: pa.Table) -> list[str]:
    """Parquet paths of the columns to be written with a dictionary.

    Building one for values that hardly repeat is most of what writing such a column costs, and the file does not
    get smaller. Flat columns are judged by their first rows; nested ones always get one.
    """
    sample = table.slice(0, _SAMPLE_ROWS)
    nested = [f for f in table.schema if pt.is_nested(f.type)]
    flat = [f.name for f in table.schema if not pt.is_nested(f.type) and _repeats(sample.column(f.name))]
    return flat + (_leaves(pa.schema(nested)) if nested else [])


def _repeats(column: pa.ChunkedArray) -> bool:
    try:
        return bool(pc.count_distinct(column, mode="all").as_py() <= _MOST_DISTINCT * len(column))
    except pa.ArrowNotImplementedError:  # of a type that has no hash, or a dictionary already
        return True


def _leaves(schema: pa.Schema) -> list[str]:
    buffer = io.BytesIO()
    pq.write_metadata(schema, buffer)
    columns = pq.read_metadata(io.BytesIO(buffer.getvalue())).schema
    return [columns.column(i).path for i in range(len(columns))]
