"""Arrow tables as bytes and back, without the schema: writer and reader both know it.

Leaving the schema message out makes the many small payloads of a batch (one a key group) five times cheaper to read.
The price is that a reader with another schema would misread them, so whoever stores such bytes stores
:func:`fingerprint` beside them and checks it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_ckpt.arrow_layouts import ordinary
from spark_ckpt.errors import CorruptStorageError, InvalidInputError

_LENGTH_BYTES = 8
_LARGEST_LZ4_RATIO = 255

Rows = npt.NDArray[np.int64]
"""Row positions."""


def plain_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array, whatever the number of chunks."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


@lru_cache(maxsize=256)
def nullable_schema(schema: pa.Schema) -> pa.Schema:
    """``schema`` with every field nullable and without metadata, so that schemas of one meaning compare equal."""
    return pa.schema([pa.field(f.name, nullable_type(f.type)) for f in schema])


def nullable_type(kind: pa.DataType) -> pa.DataType:
    """``kind`` with nullable children: missing state is null all the way down."""
    if pa.types.is_list(kind):
        return pa.list_(nullable_type(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(nullable_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(nullable_type(kind.key_type), nullable_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, nullable_type(f.type)) for f in kind])
    if pa.types.is_dictionary(kind):
        return nullable_type(kind.value_type)  # a record batch message alone carries no dictionary
    return kind


@lru_cache(maxsize=256)
def fingerprint(schema: pa.Schema) -> str:
    """A short text that differs between schemas that cannot read each other's bytes."""
    text = ";".join(f"{f.name}:{f.type}" for f in nullable_schema(schema))
    return f"{zlib.crc32(text.encode()):08x}"


def schema_to_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def schema_from_text(text: str) -> pa.Schema:
    """Inverse of :func:`schema_to_text`. Raises ``CorruptStorageError``."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    except (pa.ArrowInvalid, OSError, ValueError) as e:
        raise CorruptStorageError(f"expected an Arrow schema, found {text[:40]!r}: {e}") from e


def conform(table: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """The columns of ``schema``, in its order and types; free where they already are.

    Raises ``InvalidInputError`` if a column is missing or cannot be cast.
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if table.schema.equals(schema, check_metadata=False):
        return table
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            raise InvalidInputError(f"expected columns {schema.names}, found {table.column_names}: add {field.name!r}")
        column = table.column(field.name)
        try:
            columns.append(column if column.type.equals(field.type) else ordinary(column).cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise InvalidInputError(f"column {field.name!r}: expected {field.type}, found {column.type}: {e}") from e
    return pa.Table.from_arrays(columns, schema=schema)


def one_batch(table: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """``table`` in one piece; free if it already is."""
    if isinstance(table, pa.RecordBatch):
        return table
    batches = table.to_batches()
    if len(batches) > 1:
        batches = table.combine_chunks().to_batches()
    if not batches:
        return empty(table.schema)
    if len(batches) > 1:
        raise InvalidInputError(f"{table.nbytes} bytes of strings of one key group exceed 2 GB: use more key groups")
    return batches[0]


@lru_cache(maxsize=256)
def empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def nulls(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows, f.type) for f in schema], schema=schema)


def no_columns(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], ["rows"]).select([])


def concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else one_batch(pa.Table.from_batches(batches))


def contiguous(rows: Rows) -> bool:
    """Whether ``rows`` are neighbours in order; they mostly are or begin otherwise."""
    if not len(rows) or int(rows[-1]) - int(rows[0]) + 1 != len(rows):
        return False
    return np.array_equal(rows, np.arange(rows[0], rows[-1] + 1))


def picked(batch: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
    """Those rows in that order; zero-copy if they are neighbours."""
    return batch.slice(int(rows[0]), len(rows)) if contiguous(rows) else batch.take(pa.array(rows))


def int64_view(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """The values of a column without nulls as numpy; zero-copy if it is in one piece."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            return np.asarray(column.to_numpy(), np.int64)
    values: npt.NDArray[np.int64] = column.to_numpy(zero_copy_only=True)
    return values


def as_integers(column: pa.Array) -> npt.NDArray[np.int64] | npt.NDArray[np.int32]:
    """The bits of a column of 4 or 8 bytes a value, without nulls, as whole numbers; zero-copy."""
    whole = pa.int64() if column.type.bit_width == 64 else pa.int32()
    return np.asarray(column.view(whole).to_numpy())


def to_bytes(batch: pa.RecordBatch) -> bytes:
    """The batch as one Arrow message without schema; a slice carries only its own rows."""
    data: bytes = batch.serialize().to_pybytes()
    return data


def messages(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.Buffer]:
    """The batch in as many messages as it takes (a single larger row exceeds ``max_bytes``), each with its own rows."""
    if len(batch) > 1 and batch.nbytes > max_bytes:
        half = len(batch) // 2
        yield from messages(batch.slice(0, half), max_bytes)
        yield from messages(batch.slice(half), max_bytes)
    else:
        yield batch.serialize()


def from_bytes(data: bytes | pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Inverse of :func:`to_bytes`, zero-copy. Raises ``CorruptStorageError`` if ``data`` is no such message."""
    try:
        batch = pa.ipc.read_record_batch(data if isinstance(data, pa.Buffer) else pa.py_buffer(data), schema)
        batch.validate()  # the ends of its offsets, in microseconds: they are not to lead out of the buffers
    except (pa.ArrowInvalid, OSError, EOFError) as e:
        raise CorruptStorageError(
            f"expected an Arrow record batch of {schema.names}, found {len(data)} bytes: {e}"
        ) from e
    return batch


def compress(data: bytes) -> bytes:
    """LZ4 with the length in front. For what passes through Spark's state store: every MB costs it about 18 ms."""
    packed: bytes = pa.Codec("lz4").compress(data, asbytes=True)
    return len(data).to_bytes(_LENGTH_BYTES, "little") + packed


def decompress(data: bytes) -> pa.Buffer:
    """Inverse of :func:`compress`. Raises ``CorruptStorageError``."""
    size = int.from_bytes(data[:_LENGTH_BYTES], "little")
    try:
        if size > len(data) * _LARGEST_LZ4_RATIO:
            raise CorruptStorageError(
                f"expected LZ4 data of at most {len(data) * _LARGEST_LZ4_RATIO} bytes, found {size}"
            )
        return pa.Codec("lz4").decompress(pa.py_buffer(data).slice(_LENGTH_BYTES), size)
    except (pa.ArrowInvalid, OSError, IndexError) as e:
        raise CorruptStorageError(f"expected LZ4 data, found {len(data)} bytes: {e}") from e
