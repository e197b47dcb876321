"""Writing staged files as Parquet, JSON lines or CSV, a table at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pyarrow.types as pt

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.formats.json_texts import json_name, json_texts
from spark_ckpt.sinks._arrow_text import zoned_as_text
from spark_ckpt.sinks._parquet import open_parquet

EXTENSIONS = {"parquet": "parquet", "json": "json", "csv": "csv"}


class FileWriter(Protocol):
    """Appends tables of one schema to an open binary stream; ``close`` finishes the file, not the stream."""

    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


def check_schema(file_format: str, schema: pa.Schema) -> None:
    """Raises ``InvalidInputError`` naming a column the format cannot hold."""
    for field in schema:
        if file_format == "csv" and (pt.is_nested(field.type) or pt.is_binary(field.type)):
            raise InvalidInputError(
                f"column '{field.name}' has type {field.type}, which a CSV file cannot hold; cast it, leave it out "
                "with option 'columns', or use fileFormat parquet or json"
            )
        if pt.is_null(field.type) or pt.is_duration(field.type) or pt.is_interval(field.type):
            raise InvalidInputError(f"column '{field.name}' has type {field.type}, which files cannot hold; cast it")


@dataclass(frozen=True)
class FileOptions:
    """How files are written, where their format has a choice."""

    header: bool = True
    sep: str = ","
    compression: str = "snappy"


def open_writer(file_format: str, stream: Any, schema: pa.Schema, options: FileOptions) -> FileWriter:
    if file_format == "parquet":
        return _Parquet(stream, schema, options.compression)
    return _Csv(stream, schema, options) if file_format == "csv" else _Json(stream)


class _Parquet:
    def __init__(self, stream: Any, schema: pa.Schema, compression: str) -> None:
        self._stream, self._schema = stream, schema
        self._compression = "none" if compression == "uncompressed" else compression
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        self._opened(table).write_table(table)

    def close(self) -> None:
        self._opened(self._schema.empty_table()).close()

    def _opened(self, first: pa.Table) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = open_parquet(self._stream, self._schema, first, compression=self._compression)
        return self._writer


class _Csv:
    """Null is an empty field, an empty text is ``""``; timestamps with a zone are in UTC; NaN as Spark reads it."""

    def __init__(self, stream: Any, schema: pa.Schema, options: FileOptions) -> None:
        self._schema = _without_dictionaries(schema)
        texts = zoned_as_text(self._schema.empty_table()).schema
        self._stream, self._sep = stream, options.sep
        written = pacsv.WriteOptions(include_header=options.header, delimiter=options.sep)
        self._writer = pacsv.CSVWriter(stream, texts, write_options=written)

    def write(self, table: pa.Table) -> None:
        plain = zoned_as_text(table.cast(self._schema))
        spelt = _with_odd_floats_spelt(plain)
        if spelt is plain:
            self._writer.write_table(plain)
            return
        # Text where the file's other rows have numbers, so a writer of its own, behind what is there.
        written = pacsv.WriteOptions(include_header=False, delimiter=self._sep)
        with pacsv.CSVWriter(self._stream, spelt.schema, write_options=written) as own:
            own.write_table(spelt)

    def close(self) -> None:
        self._writer.close()


class _Json:
    """One object a line, nulls written out; binary as base64, timestamps as ISO 8601, NaN as Spark reads it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, table: pa.Table) -> None:
        flat = table.cast(_without_dictionaries(table.schema)).combine_chunks()
        parts: list[Any] = []
        for i, name in enumerate(flat.column_names):
            parts += [("{" if i == 0 else ",") + json_name(name) + ":", json_texts(flat.column(i))]
        lines = pc.binary_join_element_wise(*parts, "}\n", "")
        self._stream.write(b"".join(_bytes(chunk) for chunk in pa.chunked_array(lines).chunks))

    def close(self) -> None:
        pass


def _with_odd_floats_spelt(table: pa.Table) -> pa.Table:
    """``table`` itself, or with columns that hold NaN or infinities as text, spelt as Spark's CSV does."""
    for at, field in enumerate(table.schema):
        if not pt.is_floating(field.type) or pc.all(pc.is_finite(table.column(at))).as_py() is not False:
            continue
        texts = table.column(at).cast(pa.string())
        for value, name in (("nan", "NaN"), ("-nan", "NaN"), ("inf", "Inf"), ("-inf", "-Inf")):
            texts = pc.if_else(pc.equal(texts, value), name, texts)
        table = table.set_column(at, pa.field(field.name, pa.string()), texts)
    return table


def _without_dictionaries(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f.with_type(f.type.value_type) if pt.is_dictionary(f.type) else f for f in schema])


def _bytes(texts: pa.Array) -> bytes:
    """The texts one behind the other, without making a Python object of each."""
    offsets, data = texts.buffers()[1:3]
    places = memoryview(offsets).cast("i")[texts.offset : texts.offset + len(texts) + 1]
    return b"" if data is None else bytes(memoryview(data)[places[0] : places[-1]])
