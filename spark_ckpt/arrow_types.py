"""One table of types: what Arrow has, and what Spark, Delta and SQL databases call it.

Rows come from Spark or from a source of the user's, so the same value may be a ``large_string``, a dictionary, a
timestamp in nanoseconds. Everything that stores rows first asks for the *plain* type, of which there is one for each
kind of value: microseconds, UTC, the layout of :mod:`spark_ckpt.arrow_layouts`, no unsigned numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_ckpt.arrow_layouts import ordinary, ordinary_type
from spark_ckpt.errors import InvalidInputError

MAX_PRECISION: Final = 38
"""Digits of the longest decimal of Spark and Delta."""


class Row(NamedTuple):
    """One plain type. ``delta`` is None where Spark and Delta lack it; ``also`` are written as it, without loss."""

    plain: pa.DataType
    delta: str | None
    sql: str
    """The name of SQLAlchemy's type."""
    also: tuple[pa.DataType, ...] = ()


TABLE: Final = (
    Row(pa.bool_(), "boolean", "Boolean"),
    Row(pa.int8(), "byte", "SmallInteger"),
    Row(pa.int16(), "short", "SmallInteger", (pa.uint8(),)),
    Row(pa.int32(), "integer", "Integer", (pa.uint16(),)),
    Row(pa.int64(), "long", "BigInteger", (pa.uint32(),)),
    Row(pa.float32(), "float", "REAL", (pa.float16(),)),
    Row(pa.float64(), "double", "Double"),
    Row(pa.string(), "string", "Text", (pa.large_string(), pa.string_view())),
    Row(pa.binary(), "binary", "LargeBinary", (pa.large_binary(), pa.binary_view())),
    Row(pa.date32(), "date", "Date", (pa.date64(),)),
    Row(pa.timestamp("us", "UTC"), "timestamp", "DateTime"),
    Row(pa.timestamp("us"), "timestamp_ntz", "DateTime"),
    Row(pa.time64("us"), None, "Time"),
)
"""Types without parameters. Decimals, and lists, maps and structs of these, are in the functions below."""

DELTA_NAMES: Final = {row.plain: row.delta for row in TABLE if row.delta is not None}
SQL_NAMES: Final = {row.plain: row.sql for row in TABLE}
_PLAIN: Final = {kind: row.plain for row in TABLE for kind in (row.plain, *row.also)} | {
    pa.uint64(): pa.decimal128(20, 0),
}


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The plain type every value of ``kind`` fits into; ``kind`` itself if there is none."""
    kind = ordinary_type(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pt.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pt.is_time(kind):
        return pa.time64("us")
    if pt.is_fixed_size_binary(kind):
        return pa.binary()
    if pt.is_decimal(kind) and kind.precision <= MAX_PRECISION:
        return pa.decimal128(kind.precision, kind.scale)
    return _plain_nested(kind)


def _plain_nested(kind: pa.DataType) -> pa.DataType:
    if pt.is_list(kind):
        return pa.list_(pa.field("element", plain_type(kind.value_type)))
    if pt.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pt.is_struct(kind):
        return pa.struct([pa.field(f.name, plain_type(f.type)) for f in kind])
    return kind


def types_in(kind: pa.DataType) -> Iterator[pa.DataType]:
    """``kind`` and those of its parts, of theirs, and so on."""
    yield kind
    for i in range(kind.num_fields):
        yield from types_in(kind.field(i).type)


def wide_decimals(kind: pa.DataType) -> pa.DataType:
    """``kind`` with decimals of twice the bits, also inside of structs and lists: what to read or cast by way of.

    Where Arrow brings a number of 128 bits, or a text, to more digits behind the point than it has room for, high bits
    are lost and no error says so: another number comes out. Of 256 bits the last step, to 128, finds it.
    """
    if pt.is_decimal128(kind):
        return pa.decimal256(2 * MAX_PRECISION, kind.scale)
    if pt.is_list(kind):
        return pa.list_(kind.value_field.with_type(wide_decimals(kind.value_type)))
    if pt.is_struct(kind):
        return pa.struct([f.with_type(wide_decimals(f.type)) for f in kind])
    return kind


def exact_cast(
    values: pa.Array | pa.ChunkedArray, kind: pa.DataType, truncates_times: bool = False
) -> pa.Array | pa.ChunkedArray:
    """``values`` of any layout as ``kind``, by way of :func:`wide_decimals`; with ``truncates_times`` to coarser units.

    Raises ``pyarrow.ArrowInvalid`` for what does not fit.
    """
    if values.type.equals(kind):
        return values
    values = ordinary(values)
    wide = wide_decimals(values.type)
    values = values if wide.equals(values.type) else values.cast(wide)
    return pc.cast(values, options=pc.CastOptions(target_type=kind, allow_time_truncate=truncates_times))


def delta_type(column: str, kind: pa.DataType) -> pa.DataType:
    """The plain type a Delta table stores ``kind`` as.

    Raises ``InvalidInputError`` naming ``column`` if Delta has no such type.
    """
    plain = plain_type(kind)
    if not _in_delta(plain):
        raise InvalidInputError(f"column '{column}' has type {kind}, which Delta cannot store; cast or drop it")
    return plain


def delta_schema(schema: pa.Schema) -> pa.Schema:
    """``schema`` as a Delta table stores it; every column is nullable. Raises as :func:`delta_type` does."""
    return pa.schema([pa.field(f.name, delta_type(f.name, f.type)) for f in schema])


def _in_delta(plain: pa.DataType) -> bool:
    if pt.is_struct(plain) and not plain.num_fields:
        return False
    if pt.is_list(plain) or pt.is_map(plain) or pt.is_struct(plain):
        return all(_in_delta(plain.field(i).type) for i in range(plain.num_fields))
    return plain in DELTA_NAMES or pt.is_decimal128(plain)


def database_type(column: str, kind: pa.DataType) -> pa.DataType:
    """The plain type a column of a SQL database gets its values as.

    Raises ``InvalidInputError`` naming ``column`` if a database column cannot hold it.
    """
    plain = plain_type(kind)
    if plain not in SQL_NAMES and not pt.is_decimal(plain):
        raise InvalidInputError(
            f"column '{column}' has type {kind}, which a database column cannot hold; "
            "cast it (nested columns: to_json), or leave it out with option 'columns'"
        )
    return plain


def database_schema(schema: pa.Schema) -> pa.Schema:
    """``schema`` as a SQL database gets it; every column is nullable. Raises as :func:`database_type` does."""
    return pa.schema([pa.field(f.name, database_type(f.name, f.type)) for f in schema])
