"""How the sinks write Parquet: dictionaries only where values repeat."""

from __future__ import annotations

import io
from collections import Counter
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
    get smaller. Flat columns are judged by their first rows; nested ones always get one, but for :func:`shared_paths`.
    """
    sample = table.slice(0, _SAMPLE_ROWS)
    flat = [f.name for f in table.schema if not pt.is_nested(f.type)]
    leaves = _nested_leaves(table.schema)
    shared = _repeated([*flat, *leaves])
    return [p for p in flat if p not in shared and _repeats(sample.column(p))] + [p for p in leaves if p not in shared]


def shared_paths(schema: pa.Schema) -> set[str]:
    """Dotted paths that two columns have, such as a flat ``host.name`` beside the field ``name`` of a struct ``host``.

    Java's Parquet, Spark's too, looks dictionaries up by dotted path when it filters row groups
    (``DictionaryPageReader``). It takes the other column's and leaves out row groups that have the value. So these
    columns must be written without.
    """
    return _repeated([f.name for f in schema if not pt.is_nested(f.type)] + _nested_leaves(schema))


def _repeated(paths: list[str]) -> set[str]:
    return {path for path, count in Counter(paths).items() if count > 1}


def _repeats(column: pa.ChunkedArray) -> bool:
    try:
        return bool(pc.count_distinct(column, mode="all").as_py() <= _MOST_DISTINCT * len(column))
    except pa.ArrowNotImplementedError:  # of a type that has no hash, or a dictionary already
        return True


def _nested_leaves(schema: pa.Schema) -> list[str]:
    nested = [f for f in schema if pt.is_nested(f.type)]
    if not nested:
        return []
    buffer = io.BytesIO()
    pq.write_metadata(pa.schema(nested), buffer)
    columns = pq.read_metadata(io.BytesIO(buffer.getvalue())).schema
    return [columns.column(i).path for i in range(len(columns))]
