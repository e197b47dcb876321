"""Connecting to a database, and telling from its errors whose problem it is."""

from __future__ import annotations

import atexit
import os
import threading
from collections import OrderedDict
from typing import Any

import sqlalchemy as sa

from spark_ckpt.errors import ConfigError
from spark_ckpt.storage.sql import mariadb

_DRIVERS = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
_TRY_AGAIN = ("40001", "40P01")  # serialization failure, deadlock
_LOCKED = "55P03"  # lock not available
_GONE = ("08", "57P", "53")  # connection, operator intervention, out of resources


def parse_url(what: str, text: str, user: str | None, password: str | None) -> sa.URL:
    """The database's URL with our choice of driver. ``what`` begins messages: ``sink 'sql'``.

    Raises ``ConfigError`` without quoting ``text``: it is secret.
    """
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise ConfigError(
            f"{what}: option 'url' is not a SQLAlchemy URL (dialect://user:password@host/database)"
        ) from None
    url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise ConfigError(f"{what}: an in-memory SQLite database is invisible to other processes; name a file")
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


_ENGINES = 16
_engines: OrderedDict[tuple[Any, ...], sa.Engine] = OrderedDict()
_engines_lock = threading.Lock()


def connect_engine(what: str, url: sa.URL, lock_wait_ms: int, reading: bool) -> sa.Engine:
    """One for all tasks of a process, as each new one asks the server for its version and settings before its first
    statement. A server's connection is kept between two uses: to make one took half of what a task's rows took.

    With ``reading`` nothing can be written. A statement waits ``lock_wait_ms`` for a lock and then fails
    (:func:`is_lock_timeout`). Raises ``ConfigError`` if SQLAlchemy does not know the database, or its driver is not
    installed.
    """
    key = (what, url, lock_wait_ms, reading)
    with _engines_lock:
        if key not in _engines:
            _engines[key] = _new_engine(*key)
        _engines.move_to_end(key)
        if len(_engines) > _ENGINES:
            _engines.popitem(last=False)[1].dispose()
        return _engines[key]


@atexit.register
def _close_all() -> None:
    for engine in _engines.values():
        engine.dispose()


def _new_engine(what: str, url: sa.URL, lock_wait_ms: int, reading: bool) -> sa.Engine:
    try:
        engine = sa.create_engine(url, hide_parameters=True, **_kept(url))
    except sa.exc.NoSuchModuleError:
        raise ConfigError(f"{what}: SQLAlchemy knows no database '{url.drivername}'") from None
    except ModuleNotFoundError as error:
        raise ConfigError(f"{what}: '{url.drivername}' needs the package '{error.name}'; install it") from None
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", lambda connection, _: _sqlite_connected(connection, lock_wait_ms))
        sa.event.listen(engine, "begin", _sqlite_begin_reading if reading else _sqlite_begin)
    elif engine.dialect.name == "postgresql":
        # Inside the transaction and for it alone, because a pooler may hand the session to others.
        wait = f"SET LOCAL lock_timeout = {lock_wait_ms}{'; SET TRANSACTION READ ONLY' if reading else ''}"
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(wait))
    elif engine.dialect.name in mariadb.DIALECTS:
        sa.event.listen(engine, "connect", lambda c, _: mariadb.prepare_session(c, lock_wait_ms))
    return engine


def _kept(url: sa.URL) -> dict[str, Any]:
    """What keeps a connection, and finds out whether the server still knows it. A file is opened anew: cheap."""
    if url.get_backend_name() == "sqlite":
        return {"poolclass": sa.pool.NullPool}
    kept: dict[str, Any] = {"pool_size": 1, "max_overflow": -1, "pool_pre_ping": True}
    if url.get_driver_name() == "psycopg":
        # It would prepare statements that it sees often; a pooler may hand the session that has them to others.
        kept["connect_args"] = {"prepare_threshold": None}
    return kept


def _sqlite_connected(connection: Any, lock_wait_ms: int) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves, below
    connection.execute(f"PRAGMA busy_timeout = {lock_wait_ms}")
    # Also where SQLite was built to sync less with a write-ahead log: what is staged is authorised right afterwards.
    connection.execute("PRAGMA synchronous = FULL")


def _sqlite_begin(connection: sa.Connection) -> None:
    # A transaction that reads first and then writes fails at once if another wrote in between; this one waits.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _sqlite_begin_reading(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN")
    connection.exec_driver_sql("PRAGMA query_only = ON")


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
