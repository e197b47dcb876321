"""Arrow types as a SQL database stores them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks._arrow_text import iso_timestamps
from spark_ckpt.sinks.sql._mariadb import DIALECTS

_SQLITE_EXACT_DIGITS = 15  # SQLite turns longer numbers into a double; as text they stay what they are


def plain_type(column: str, kind: pa.DataType) -> pa.DataType:
    """The few Arrow types rows are staged as: microseconds, UTC, no dictionaries, no large or view types.

    Raises ``InvalidInputError`` naming ``column`` if a database column cannot hold it.
    """
    if pt.is_dictionary(kind):
        return plain_type(column, kind.value_type)
    if pt.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pt.is_time(kind):
        return pa.time64("us")
    if pt.is_date(kind):
        return pa.date32()
    if pt.is_large_string(kind) or pt.is_string_view(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_binary_view(kind) or pt.is_fixed_size_binary(kind):
        return pa.binary()
    if pt.is_float16(kind):
        return pa.float32()
    flat = (pt.is_boolean, pt.is_integer, pt.is_floating, pt.is_decimal, pt.is_string, pt.is_binary)
    if any(test(kind) for test in flat):
        return kind
    raise InvalidInputError(
        f"column '{column}' has type {kind}, which a database column cannot hold; "
        "cast it (nested columns: to_json), or leave it out with option 'columns'"
    )


def plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, plain_type(f.name, f.type)) for f in schema])


def sql_type(kind: pa.DataType) -> sa.types.TypeEngine[Any]:
    """The column type a new table gets for a plain type."""
    if pt.is_boolean(kind):
        return sa.Boolean()
    if pt.is_integer(kind):
        return _integer_type(kind)
    if pt.is_floating(kind):
        return sa.REAL() if kind.bit_width <= 32 else sa.Double()
    if pt.is_decimal(kind):
        exact: sa.types.TypeEngine[Any] = sa.Numeric(kind.precision, kind.scale)
        return exact.with_variant(sa.Text(), "sqlite") if kind.precision > _SQLITE_EXACT_DIGITS else exact
    if pt.is_date(kind):
        return sa.Date()
    if pt.is_time(kind):
        return sa.Time().with_variant(mysql.TIME(fsp=6), *DIALECTS)
    if pt.is_timestamp(kind):
        return sa.DateTime(timezone=kind.tz is not None).with_variant(mysql.DATETIME(fsp=6), *DIALECTS)
    if pt.is_binary(kind):
        return sa.LargeBinary().with_variant(mysql.LONGBLOB(), *DIALECTS)
    return sa.Text().with_variant(mysql.LONGTEXT(), *DIALECTS)


def _integer_type(kind: pa.DataType) -> sa.types.TypeEngine[Any]:
    bits = kind.bit_width + (0 if pt.is_signed_integer(kind) else 1)
    if bits <= 16:
        return sa.SmallInteger()
    if bits <= 32:
        return sa.Integer()
    return sa.BigInteger() if bits <= 64 else sa.Numeric(20, 0)


_FAMILIES: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("number", (sa.Numeric, sa.Float, sa.Integer, sa.Boolean)),
    ("timestamp", (sa.DateTime,)),
    ("date", (sa.Date,)),
    ("time", (sa.Time,)),
    ("binary", (sa.LargeBinary, sa.BINARY, sa.VARBINARY)),
)


def mismatch(there: sa.types.TypeEngine[Any], kind: pa.DataType) -> bool:
    """Whether an existing column surely cannot take a plain type. Texts take anything; unknown types may."""
    family = _family(there)
    return family is not None and family != _family(sql_type(kind))


def _family(kind: sa.types.TypeEngine[Any]) -> str | None:
    return next((name for name, types in _FAMILIES if isinstance(kind, types)), None)


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Temporal and decimal columns as ISO and decimal text (UTC, no zone suffix); others as they are."""
    kind = column.type
    if pt.is_timestamp(kind):
        return iso_timestamps(column)
    return column.cast(pa.string()) if pt.is_temporal(kind) or pt.is_decimal(kind) else column
