"""A refused row on its way from the staging table to the table of rejects. In a commit's transaction."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from spark_ckpt.errors import BadRowError
from spark_ckpt.sinks.rejects import SCHEMA, rejected
from spark_ckpt.sinks.sql._committing import Move, Row
from spark_ckpt.sinks.sql._dialects import SEQ, STAGE
from spark_ckpt.sinks.sql.types import sql_type
from spark_ckpt.types import Epoch


def schema_text(schema: pa.Schema) -> str:
    """The rows' types for a committable: the database has others."""
    return b64encode(schema.serialize()).decode()


def reject(connection: sa.Connection, move: Move, staging: str, row: Row, error: BadRowError) -> None:
    """``row`` goes out of the table ``staging``, and into that of rejects."""
    position, seq = row
    staged = move.staged[position]
    names = [*staged["columns"], *([staged["change"]] if staged.get("change") else [])]
    source = sa.table(staging, *(sa.column(c) for c in (STAGE, SEQ, *names)), schema=move.target.schema)
    here = sa.and_(source.c[STAGE] == staged["stage"], source.c[SEQ] == seq)
    values = _values(connection, source, names, here)
    rows = rejected(_arrow(names, values, staged.get("schema")), [error], move.sink, Epoch(move.epochs[position]))
    columns = (sa.column(f.name, sql_type(f.type)) for f in SCHEMA)
    target = sa.table(str(move.target.rejects), *columns, schema=move.target.schema)
    connection.execute(sa.insert(target), rows.to_pylist())
    connection.execute(sa.delete(source).where(here))


def _values(connection: sa.Connection, source: sa.TableClause, names: list[str], here: Any) -> list[Any]:
    try:
        return list(connection.execute(sa.select(*(source.c[n] for n in names)).where(here)).one())
    except (sa.exc.DataError, ValueError, OverflowError):  # the driver has no object of a value, such as a far date
        texts = (sa.cast(source.c[n], sa.Text) for n in names)
        return list(connection.execute(sa.select(*texts).where(here)).one())


def _arrow(names: list[str], values: list[Any], schema: str | None) -> pa.Table:
    known = None if schema is None else pa.ipc.read_schema(pa.BufferReader(b64decode(schema)))
    kinds = [None if known is None else known.field(n).type for n in names]
    return pa.table([_column(v, kind) for v, kind in zip(values, kinds, strict=True)], names=names)


def _column(value: Any, kind: pa.DataType | None) -> pa.Array:
    """Of the query's type; as text where the database has no value of it."""
    if kind is None:
        return pa.array([None if value is None else str(value)], pa.string())
    plain = pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind  # in UTC
    try:
        return pa.array([value], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError, OverflowError):
        pass
    try:
        return pa.array([str(value)]).cast(plain).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.array([str(value)], pa.string())
