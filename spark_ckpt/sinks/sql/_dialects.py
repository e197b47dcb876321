"""Everything that differs between databases: connecting, staging rows fast, and upserts.

PostgreSQL takes rows as CSV through ``COPY``, made by Arrow without touching a row in Python. SQLite takes columns
zipped into tuples, MariaDB the same in batches (:mod:`spark_ckpt.sinks.sql._mariadb`).
"""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.types as pt
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sinks._arrow_text import zoned_as_text
from spark_ckpt.sinks.sql import _mariadb as mariadb
from spark_ckpt.sinks.sql.types import as_text

STAGE, SEQ = "_ckpt_stage", "_ckpt_seq"
_DRIVERS = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
_TRY_AGAIN = ("40001", "40P01")  # serialization failure, deadlock
_LOCKED = "55P03"  # lock not available
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


def absolute_url(text: str) -> str:
    """``text`` with a SQLite file that means the same in every process."""
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        return text  # said by parse_url
    file = url.database or ""
    if (
        url.get_backend_name() != "sqlite"
        or file in ("", ":memory:")
        or os.path.isabs(file)
        or file.startswith("file:")
    ):
        return text
    return url.set(database=os.path.abspath(file)).render_as_string(hide_password=False)


def connect_engine(url: sa.URL, lock_wait_ms: int) -> sa.Engine:
    """An engine without a pool: a task holds a connection only while it writes.

    A statement waits ``lock_wait_ms`` for a lock and then fails (:func:`is_lock_timeout`). Raises ``ConfigError`` if
    SQLAlchemy does not know the database, or its driver is not installed.
    """
    try:
        engine = sa.create_engine(url, poolclass=sa.pool.NullPool, hide_parameters=True)
    except sa.exc.NoSuchModuleError:
        raise ConfigError(f"sink 'sql': SQLAlchemy knows no database '{url.drivername}'") from None
    except ModuleNotFoundError as error:
        raise ConfigError(f"sink 'sql': '{url.drivername}' needs the package '{error.name}'; install it") from None
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", lambda connection, _: _sqlite_connected(connection, lock_wait_ms))
        sa.event.listen(engine, "begin", _sqlite_begin)
    elif engine.dialect.name == "postgresql":
        # Inside the transaction and for it alone, because a pooler may hand the session to others.
        wait = f"SET LOCAL lock_timeout = {lock_wait_ms}"
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(wait))
    elif engine.dialect.name in mariadb.DIALECTS:
        sa.event.listen(engine, "connect", lambda c, _: mariadb.prepare_session(c, lock_wait_ms))
    return engine


def _sqlite_connected(connection: Any, lock_wait_ms: int) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves, below
    connection.execute(f"PRAGMA busy_timeout = {lock_wait_ms}")
    # Also where SQLite was built to sync less with a write-ahead log: what is staged is authorised right afterwards.
    connection.execute("PRAGMA synchronous = FULL")


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
    """Whether the same transaction may succeed if tried again now: a deadlock, or a race with another job."""
    return getattr(error, "sqlstate", None) in _TRY_AGAIN or mariadb.is_transient(error)


def is_lock_timeout(error: Any) -> bool:
    """Whether a lock that another session holds did not become free in time."""
    locked = getattr(error, "sqlstate", None) == _LOCKED or "database is locked" in str(error)
    return locked or mariadb.is_lock_timeout(error)


def is_outage(error: Any) -> bool:
    """Whether the database, and not what we asked of it, is the problem."""
    if mariadb.error_code(error) is not None:
        return mariadb.is_outage(error)
    state = getattr(error, "sqlstate", None)
    if state is None:
        # SQLite has one class for a full disk and for a missing table; the second does not heal by trying again.
        if str(error).startswith("no such") or "has no column" in str(error):
            return False
        return type(error).__name__ in ("OperationalError", "InterfaceError")
    return is_transient(error) or state == _LOCKED or str(state).startswith(_GONE)


_WHO = {
    "postgresql": "select pid, query from pg_stat_activity where state <> 'idle'; select pg_terminate_backend(pid)",
    "mysql": "show full processlist; kill <id>",
    "mariadb": "show full processlist; kill <id>",
}


def who_waits(backend: str) -> str:
    """How to find and end the session that holds a lock."""
    return f" ({_WHO[backend]})" if backend in _WHO else ""


def check_names(connection: sa.Connection, table: str, schema: str | None, columns: Sequence[str]) -> None:
    """Refuse names that the database would cut: the next start would look for the whole one and not find it."""
    if connection.dialect.name in mariadb.DIALECTS:
        limit, unit = mariadb.NAME_LIMIT, "characters"
    elif connection.dialect.name == "postgresql":
        limit, unit = int(connection.exec_driver_sql("SHOW max_identifier_length").scalar_one()), "bytes"
    else:
        return
    for kind, name in [("table", table), ("schema", schema or ""), *(("column", c) for c in columns)]:
        if unit == "characters" and max(name, default="") > "\uffff":
            raise InvalidInputError(
                f"{kind} name {name!r} has a character beyond U+FFFF, which {connection.dialect.name} does not take in "
                "names; choose another"
            )
        length = len(name.encode()) if unit == "bytes" else len(name)
        if length > limit:
            raise InvalidInputError(
                f"{kind} name {name!r} is {length} {unit} long, and {connection.dialect.name} takes {limit}; "
                "choose a shorter one"
            )


def stage_rows(
    connection: sa.Connection, staging: str, schema: str | None, rows: pa.Table, stage: int, seq: int
) -> None:
    """Insert ``rows`` (plain types) into the staging table, numbered from ``seq`` on, inside the open transaction."""
    names = [STAGE, SEQ, *rows.column_names]
    table = sa.table(staging, *(sa.column(n) for n in names), schema=schema)
    if (connection.dialect.name, connection.dialect.driver) == ("postgresql", "psycopg"):
        _copy(connection, table, rows, stage, seq)
    elif connection.dialect.name == "sqlite":
        cursor: Any = connection.connection.cursor()
        cursor.executemany(_insert(connection, table, "?"), _tuples(rows, stage, seq, text=True))
    elif connection.dialect.name in mariadb.DIALECTS:
        tuples = list(_tuples(mariadb.without_nan(rows), stage, seq, text=True))
        connection.exec_driver_sql(_insert(connection, table, "%s"), tuples)
    else:
        values = _tuples(rows, stage, seq, text=False)
        connection.execute(sa.insert(table), [dict(zip(names, row, strict=True)) for row in values])


def _insert(connection: sa.Connection, table: sa.TableClause, mark: str) -> str:
    quote = connection.dialect.identifier_preparer
    names = ", ".join(quote.quote(c.name) for c in table.columns)
    marks = ", ".join(mark for _ in table.columns)
    return f"INSERT INTO {quote.format_table(table)} ({names}) VALUES ({marks})"


def _tuples(rows: pa.Table, stage: int, seq: int, *, text: bool) -> Iterator[tuple[Any, ...]]:
    values = [(as_text(c) if text else c).to_pylist() for c in rows.columns]
    return zip(itertools.repeat(stage, len(rows)), range(seq, seq + len(rows)), *values, strict=True)


def _copy(connection: sa.Connection, table: sa.TableClause, rows: pa.Table, stage: int, seq: int) -> None:
    from psycopg import sql  # quotes names as COPY takes them, percent signs included

    numbers = [pa.repeat(pa.scalar(stage, pa.int64()), len(rows)), pa.array(range(seq, seq + len(rows)), pa.int64())]
    columns = [_hex(c) if pt.is_binary(c.type) else c for c in zoned_as_text(rows).columns]
    names = [c.name for c in table.columns]
    text = io.BytesIO()
    pacsv.write_csv(pa.table([*numbers, *columns], names=names), text, pacsv.WriteOptions(include_header=False))
    driver: Any = connection.connection.driver_connection
    target = sql.Identifier(*([table.schema] if table.schema else []), table.name)
    columns_sql = sql.SQL(", ").join(map(sql.Identifier, names))
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(target, columns_sql)
    with driver.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(text.getbuffer())


def _hex(column: pa.ChunkedArray) -> pa.Array:
    return pa.array([None if v is None else "\\x" + v.hex() for v in column.to_pylist()], pa.string())


def upsert(
    dialect: str, target: sa.TableClause, columns: Sequence[str], keys: Sequence[str], rows: sa.Select[Any]
) -> sa.Insert:
    """``INSERT ... SELECT`` that replaces rows of the same ``keys``. ``rows`` must have a WHERE (SQLite's parser)."""
    rest = [c for c in columns if c not in keys]
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
