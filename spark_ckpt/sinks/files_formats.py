"""Writing staged files as Parquet, JSON lines, CSV or lines of text, a table at a time."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from spark_ckpt.arrow_types import types_in
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.formats.json_texts import check_json, json_name, json_texts
from spark_ckpt.sinks._arrow_text import csv_texts
from spark_ckpt.sinks._parquet import open_parquet

EXTENSIONS = {"parquet": "parquet", "json": "json", "csv": "csv", "text": "txt"}


class FileWriter(Protocol):
    """Appends tables of one schema to an open binary stream; ``close`` finishes the file, not the stream."""

    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


def check_schema(file_format: str, schema: pa.Schema) -> None:
    """Raises ``InvalidInputError`` naming a column the format cannot hold."""
    if file_format == "text" and not (len(schema) == 1 and _is_text(schema.field(0).type)):
        raise InvalidInputError(
            f"text files have one column, a string, found {', '.join(f'{f.name}: {f.type}' for f in schema)}; make "
            "one, such as F.to_json(F.struct('*')).alias('value'), or use fileFormat parquet, json or csv"
        )
    for field in schema:
        if file_format == "csv" and (pt.is_nested(field.type) or pt.is_binary(field.type)):
            raise InvalidInputError(
                f"column '{field.name}' has type {field.type}, which a CSV file cannot hold; cast it, leave it out "
                "with option 'columns', or use fileFormat parquet or json"
            )
        if file_format == "json":
            check_json(field.name, field.type)
        elif any(_has_no_file_type(kind) for kind in types_in(field.type)):
            raise InvalidInputError(
                f"column '{field.name}' has type {field.type}, and {file_format} files hold no intervals, no columns "
                "without a type and no structs without fields; cast it, or leave it out with option 'columns'"
            )


@dataclass(frozen=True)
class FileOptions:
    """How files are written, where their format has a choice."""

    header: bool = True
    sep: str = ","
    escape: str = '"'
    compression: str = "snappy"


def open_writer(file_format: str, stream: Any, schema: pa.Schema, options: FileOptions) -> FileWriter:
    if file_format == "parquet":
        return _Parquet(stream, schema, options.compression)
    if file_format == "csv":
        return _Csv(stream, schema, options)
    return _Text(stream) if file_format == "text" else _Json(stream)


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


class _Lines:
    """Rows as lines, which a writer makes of a table's columns."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, table: pa.Table) -> None:
        lines = self._lines(table.cast(_without_dictionaries(table.schema)).combine_chunks())
        self._stream.write(b"".join(_bytes(chunk) for chunk in pa.chunked_array(lines).chunks))

    @abstractmethod
    def _lines(self, flat: pa.Table) -> Any:
        """Line breaks included."""

    def close(self) -> None:
        pass


class _Csv(_Lines):
    """Null is an empty field, an empty text is ``""``; zoned timestamps are in UTC; numbers as Spark reads them."""

    def __init__(self, stream: Any, schema: pa.Schema, options: FileOptions) -> None:
        super().__init__(stream)
        self._sep, self._escape = options.sep, options.escape
        if options.header:
            names = pa.chunked_array([schema.names], pa.string())
            stream.write(options.sep.join(csv_texts(names, options.escape).to_pylist()).encode() + b"\n")

    def _lines(self, flat: pa.Table) -> Any:
        # A line without anything in it, of one column, would be none to its readers.
        null = "" if flat.num_columns > 1 else '""'
        fields = [pc.fill_null(csv_texts(column, self._escape), null) for column in flat.columns]
        return pc.binary_join_element_wise(*_between(fields, self._sep), "\n", "")


class _Text(_Lines):
    """A line a row, an empty one for null, as Spark writes it."""

    def _lines(self, flat: pa.Table) -> Any:
        (column,) = flat.columns
        return pc.binary_join_element_wise(pc.fill_null(column.cast(pa.string()), ""), "\n", "")


class _Json(_Lines):
    """One object a line, nulls written out; binary as base64, timestamps as ISO 8601, NaN as Spark reads it."""

    def _lines(self, flat: pa.Table) -> Any:
        parts: list[Any] = []
        for i, name in enumerate(flat.column_names):
            parts += [("{" if i == 0 else ",") + json_name(name) + ":", json_texts(flat.column(i))]
        return pc.binary_join_element_wise(*parts, "}\n", "")


def _has_no_file_type(kind: pa.DataType) -> bool:
    empty = pt.is_struct(kind) and not kind.num_fields
    return bool(empty or pt.is_null(kind) or pt.is_duration(kind) or pt.is_interval(kind))


def _without_dictionaries(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f.with_type(f.type.value_type) if pt.is_dictionary(f.type) else f for f in schema])


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pt.is_dictionary(kind) else kind
    return bool(pt.is_string(plain) or pt.is_large_string(plain))


def _between(parts: list[Any], sep: str) -> list[Any]:
    """With ``sep`` between each two of them."""
    return [x for part in parts for x in (sep, part)][1:]


def _bytes(texts: pa.Array) -> bytes:
    """The texts one behind the other, without making a Python object of each."""
    offsets, data = texts.buffers()[1:3]
    places = memoryview(offsets).cast("i")[texts.offset : texts.offset + len(texts) + 1]
    return b"" if data is None else bytes(memoryview(data)[places[0] : places[-1]])
