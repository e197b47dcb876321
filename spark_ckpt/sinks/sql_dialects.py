"""Everything that differs between databases: connecting, staging rows fast, and upserts.

PostgreSQL takes rows as CSV through ``COPY``, made by Arrow without touching a row in Python. SQLite takes columns
zipped into tuples. Others (MariaDB) take SQLAlchemy's own batches.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.types as pt
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from spark_ckpt.errors import ConfigError
from spark_ckpt.sinks.arrow_text import zoned_as_text
from spark_ckpt.sinks.sql_types import as_text

STAGE, SEQ = "_ckpt_stage", "_ckpt_seq"
BUSY_TIMEOUT_MS = 120_000
_DRIVERS = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
_TRY_AGAIN = ("40001", "40P01", "55P03")  # serialization failure, deadlock, lock not available
_GONE = ("08", "57P", "53")  # connection, operator intervention, out of resources


def parse_url(text: str, user: str | None, password: str | None) -> sa.URL:
    """The database's URL with our choice of driver. Raises ``ConfigError`` without quoting ``text``: it is secret."""
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise ConfigError(
            "sink 'sql': option 'url' is not a SQLAlchemy URL (dialect://user:password@host/database)"
        ) from None
    url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise ConfigError("sink 'sql': an in-memory SQLite database is invisible to other processes; name a file")
    return url.set(username=user or url.username, password=password or url.password)


def connect_engine(url: sa.URL) -> sa.Engine:
    """An engine without a pool: a task holds a connection only while it writes.

    Raises ``ConfigError`` if SQLAlchemy does not know the database, or its driver is not installed.
    """
    try:
        engine = sa.create_engine(url, poolclass=sa.pool.NullPool, hide_parameters=True)
    except sa.exc.NoSuchModuleError:
        raise ConfigError(f"sink 'sql': SQLAlchemy knows no database '{url.drivername}'") from None
    except ModuleNotFoundError as error:
        raise ConfigError(f"sink 'sql': '{url.drivername}' needs the package '{error.name}'; install it") from None
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _sqlite_connected)
        sa.event.listen(engine, "begin", _sqlite_begin)
    return engine


def _sqlite_connected(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves, below
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")


def _sqlite_begin(connection: sa.Connection) -> None:
    # A transaction that reads first and then writes fails at once if another wrote in between; this one waits.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def prepare_database(engine: sa.Engine) -> None:
    """Once, before a query starts: SQLite readers and the writer no longer block each other."""
    if engine.dialect.name == "sqlite":
        connection = engine.raw_connection()
        try:
            connection.cursor().execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()


def is_transient(error: Any) -> bool:
    """Whether the same transaction may succeed if tried again now."""
    return getattr(error, "sqlstate", None) in _TRY_AGAIN or "database is locked" in str(error)


def is_outage(error: Any) -> bool:
    """Whether the database, and not what we asked of it, is the problem."""
    state = getattr(error, "sqlstate", None)
    if state is None:
        # SQLite has one class for a full disk and for a missing table; the second does not heal by trying again.
        if str(error).startswith("no such") or "has no column" in str(error):
            return False
        return type(error).__name__ in ("OperationalError", "InterfaceError")
    return is_transient(error) or str(state).startswith(_GONE)


def stage_rows(
    connection: sa.Connection, staging: str, schema: str | None, rows: pa.Table, stage: int, seq: int
) -> None:
    """Insert ``rows`` (plain types) into the staging table, numbered from ``seq`` on, inside the open transaction."""
    names = [STAGE, SEQ, *rows.column_names]
    table = sa.table(staging, *(sa.column(n) for n in names), schema=schema)
    quote = connection.dialect.identifier_preparer
    target = f"{quote.format_table(table)} ({', '.join(quote.quote(n) for n in names)})"
    if (connection.dialect.name, connection.dialect.driver) == ("postgresql", "psycopg"):
        _copy(connection, target, rows, stage, seq)
    elif connection.dialect.name == "sqlite":
        marks = ", ".join("?" * len(names))
        cursor: Any = connection.connection.cursor()
        cursor.executemany(f"INSERT INTO {target} VALUES ({marks})", _tuples(rows, stage, seq, text=True))
    else:
        values = _tuples(rows, stage, seq, text=False)
        connection.execute(sa.insert(table), [dict(zip(names, row, strict=True)) for row in values])


def _tuples(rows: pa.Table, stage: int, seq: int, *, text: bool) -> Iterator[tuple[Any, ...]]:
    values = [(as_text(c) if text else c).to_pylist() for c in rows.columns]
    return zip(itertools.repeat(stage, len(rows)), range(seq, seq + len(rows)), *values, strict=True)


def _copy(connection: sa.Connection, target: str, rows: pa.Table, stage: int, seq: int) -> None:
    numbers = [pa.repeat(pa.scalar(stage, pa.int64()), len(rows)), pa.array(range(seq, seq + len(rows)), pa.int64())]
    columns = [_hex(c) if pt.is_binary(c.type) else c for c in zoned_as_text(rows).columns]
    names = [STAGE, SEQ, *rows.column_names]
    text = io.BytesIO()
    pacsv.write_csv(pa.table([*numbers, *columns], names=names), text, pacsv.WriteOptions(include_header=False))
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy(f"COPY {target} FROM STDIN (FORMAT csv)") as copy:
        copy.write(text.getbuffer())


def _hex(column: pa.ChunkedArray) -> pa.Array:
    return pa.array([None if v is None else "\\x" + v.hex() for v in column.to_pylist()], pa.string())


def upsert(
    dialect: str, target: sa.TableClause, columns: Sequence[str], keys: Sequence[str], rows: sa.Select[Any]
) -> sa.Insert:
    """``INSERT ... SELECT`` that replaces rows of the same ``keys``. ``rows`` must have a WHERE (SQLite's parser)."""
    rest = [c for c in columns if c not in keys]
    if dialect in ("mysql", "mariadb"):
        replace = mysql.insert(target).from_select(list(columns), rows)
        return replace.on_duplicate_key_update({c: replace.inserted[c] for c in rest or keys})
    build: Any = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}.get(dialect)
    if build is None:
        raise ConfigError(f"sink 'sql': no upsert for {dialect} databases; use mode append")
    insert = build(target).from_select(list(columns), rows)
    merged: sa.Insert = (
        insert.on_conflict_do_update(index_elements=list(keys), set_={c: insert.excluded[c] for c in rest})
        if rest
        else insert.on_conflict_do_nothing(index_elements=list(keys))
    )
    return merged
