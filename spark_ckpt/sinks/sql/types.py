"""Column types of a SQL database for Arrow's plain types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from spark_ckpt.arrow_types import SQL_NAMES
from spark_ckpt.sinks._arrow_text import decimals_as_text, texts_of_days, texts_of_moments
from spark_ckpt.storage.sql.mariadb import DIALECTS

SQLITE_EXACT_DIGITS = 15  # SQLite turns longer numbers into a double; as text they stay what they are


_IN_MARIADB: dict[type, sa.types.TypeEngine[Any]] = {
    sa.Time: mysql.TIME(fsp=6),
    sa.DateTime: mysql.DATETIME(fsp=6),
    sa.LargeBinary: mysql.LONGBLOB(),
    sa.Text: mysql.LONGTEXT(),
}


def sql_type(kind: pa.DataType) -> sa.types.TypeEngine[Any]:
    """The column type a new table gets for a plain type."""
    if pt.is_decimal(kind):
        exact: sa.types.TypeEngine[Any] = sa.Numeric(kind.precision, kind.scale)
        return exact.with_variant(sa.Text(), "sqlite") if kind.precision > SQLITE_EXACT_DIGITS else exact
    made = getattr(sa, SQL_NAMES[kind])
    column = made(timezone=kind.tz is not None) if pt.is_timestamp(kind) else made()
    return column.with_variant(_IN_MARIADB[made], *DIALECTS) if made in _IN_MARIADB else column


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
        return texts_of_moments(column)
    if pt.is_date(kind):
        return texts_of_days(column)
    if pt.is_decimal(kind):
        return decimals_as_text(column)
    return column.cast(pa.string()) if pt.is_temporal(kind) else column


def arrow_values(values: Sequence[Any]) -> pa.Array:
    """What a driver gave for a column, of the type that its values have; as text what Arrow has no type for."""
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError):
        return pa.array([None if value is None else str(value) for value in values])
