"""Columns of a database as Spark's types, and a driver's values as Arrow's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import sqlalchemy as sa
from pyspark.sql import types as st
from sqlalchemy.dialects import mysql, postgresql

from spark_ckpt.arrow_types import MAX_PRECISION, wide_decimals
from spark_ckpt.errors import BadRecordError
from spark_ckpt.storage.sql.mariadb import DIALECTS

_PLAIN: tuple[tuple[type[Any], st.DataType], ...] = (
    (sa.Boolean, st.BooleanType()),
    (sa.SmallInteger, st.ShortType()),
    (sa.BigInteger, st.LongType()),
    (sa.Integer, st.IntegerType()),
    (sa.Date, st.DateType()),
    (sa.LargeBinary, st.BinaryType()),
    (sa.BINARY, st.BinaryType()),
    (sa.VARBINARY, st.BinaryType()),
    (mysql.TINYBLOB, st.BinaryType()),
    (mysql.MEDIUMBLOB, st.BinaryType()),
    (mysql.LONGBLOB, st.BinaryType()),
    (sa.Uuid, st.StringType()),
    (sa.JSON, st.StringType()),
    (sa.String, st.StringType()),
)
"""The first that fits; the same pairs as of the sink, where that has them."""


def spark_type(dialect: str, column: sa.types.TypeEngine[Any]) -> st.DataType | None:
    """The type that the values of ``column`` have in Spark, as of Spark's JDBC source; None if there is none."""
    kind: Any = column
    if dialect in DIALECTS and isinstance(kind, mysql.TIMESTAMP):
        return st.TimestampType()
    if isinstance(kind, postgresql.DOMAIN):
        return spark_type(dialect, kind.data_type)
    if isinstance(kind, mysql.BIT):
        return _bits(kind.length or 1)
    if isinstance(kind, sa.DateTime):
        return st.TimestampType() if kind.timezone else st.TimestampNTZType()
    if dialect in DIALECTS and isinstance(kind, sa.Integer):
        return _mariadb_integer(kind)
    if dialect == "sqlite" and isinstance(kind, sa.Integer):
        return st.LongType()  # whatever it is declared as, it holds 64 bits
    if isinstance(kind, sa.Float):
        single = dialect != "sqlite" and isinstance(kind, sa.REAL | mysql.FLOAT) and not isinstance(kind, mysql.DOUBLE)
        return st.FloatType() if single else st.DoubleType()
    if isinstance(kind, sa.Numeric):
        return _decimal(kind)
    return next((found for cls, found in _PLAIN if isinstance(kind, cls)), None)


def _mariadb_integer(kind: Any) -> st.DataType:
    unsigned = bool(getattr(kind, "unsigned", False))
    if isinstance(kind, mysql.TINYINT):
        return st.BooleanType() if kind.display_width == 1 else st.ShortType() if unsigned else st.ByteType()
    if isinstance(kind, sa.BigInteger):
        return st.DecimalType(20, 0) if unsigned else st.LongType()
    if isinstance(kind, sa.SmallInteger):
        return st.IntegerType() if unsigned else st.ShortType()
    return st.LongType() if unsigned and not isinstance(kind, mysql.MEDIUMINT) else st.IntegerType()


def _bits(length: int) -> st.DataType:
    if length == 1:
        return st.BooleanType()
    return st.LongType() if length < 64 else st.DecimalType(20, 0)


def _decimal(kind: Any) -> st.DataType | None:
    if kind.precision is None:
        return st.DecimalType(MAX_PRECISION, 18)
    scale = kind.scale or 0
    precision = kind.precision - min(scale, 0)  # numeric(5, -2) has numbers such as 1234500, of seven digits
    return st.DecimalType(precision, max(scale, 0)) if precision <= MAX_PRECISION else None


def is_bits(column: sa.types.TypeEngine[Any]) -> bool:
    """Whether a driver gives bytes for what is a number, of which the database makes no text of digits."""
    return isinstance(column, mysql.BIT)


def is_text(column: sa.types.TypeEngine[Any]) -> bool:
    """Whether a driver gives texts for it; anything else the database makes one."""
    return isinstance(column, sa.String) and not isinstance(column, sa.Enum)


def arrow_column(name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A driver's ``values`` as ``kind``. Raises ``BadRecordError`` for what does not fit: the table was altered."""
    try:
        return _arrow(values, kind)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError, OverflowError) as error:
        raise BadRecordError(
            f"column '{name}': expected values that fit {kind}, found others ({error}); was the table altered? Start "
            "the query with the type that the column has now, or with the column as a string, by .schema(...)"
        ) from None


def _arrow(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pt.is_boolean(kind):
        return pa.array([None if v is None else _flag(v) for v in values], kind)
    if pt.is_decimal(kind):
        texts = pa.array([None if v is None else str(Decimal(str(v))) for v in values], pa.string())
        return texts.cast(wide_decimals(kind)).cast(kind)
    if pt.is_timestamp(kind):
        return _timestamps(values, kind)
    if pt.is_date(kind):
        return pa.array([str(v)[:10] if v is not None else None for v in values], pa.string()).cast(kind)
    if pt.is_string(kind) or pt.is_large_string(kind):
        return pa.array([None if v is None else _text(v) for v in values], kind)
    return pa.array(values).cast(kind) if pt.is_integer(kind) else pa.array(values, kind)


def _timestamps(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Without a zone they count as UTC, as the sink stores them; SQLite has texts."""
    plain = pa.timestamp("us")
    if any(isinstance(v, str) for v in values):
        return pa.array(values, pa.string()).cast(plain).cast(kind)
    numbers = [v for v in values if isinstance(v, int | float)]
    if numbers:  # SQLite takes them in a column of times: seconds, milliseconds or days, it does not say
        raise TypeError(f"the number {numbers[0]}")
    if not any(v is not None and v.tzinfo is not None for v in values):
        return pa.array(values, plain).cast(kind)
    # In UTC ahead of Arrow: it passes over other zones where pyspark.pandas was imported (PYARROW_IGNORE_TIMEZONE).
    instants = [v.astimezone(timezone.utc) if v is not None and v.tzinfo is not None else v for v in values]
    return pa.array(instants, pa.timestamp("us", "UTC")).cast(kind)


def _flag(value: Any) -> bool:
    """SQLite keeps what it is given in a column of booleans, and to Python the text 'false' is true."""
    if isinstance(value, int):
        return bool(value)
    raise TypeError(f"the {type(value).__name__} {value!r}")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):  # SQLite keeps numbers in columns of texts
        return str(value)
    raise TypeError(f"a {type(value).__name__}")
