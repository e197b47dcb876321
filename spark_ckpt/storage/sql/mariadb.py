"""Sessions with MariaDB and MySQL, and what their errors say."""

from __future__ import annotations

from typing import Any

DIALECTS = ("mysql", "mariadb")

_SESSION = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', "
    "innodb_lock_wait_timeout = {wait_s}, lock_wait_timeout = {wait_s}"
)
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"  # tasks and commits need no locks between rows
_AGAIN = (1213, 1020, 1050)  # deadlock, row changed since it was read, somebody else made the table first
_LOCKED = (1205,)
_GONE = (
    1021, 1040, 1053, 1077, 1079, 1080, 1158, 1159, 1160, 1161, 1203, 1226, 1290, 1317, 1836, 1927,
    2002, 2003, 2006, 2013, 2055, 4031,
)  # fmt: skip


def prepare_session(connection: Any, wait_ms: int) -> None:
    """Each new connection, before anything else."""
    with connection.cursor() as cursor:
        cursor.execute(_SESSION.format(wait_s=max(1, round(wait_ms / 1000))))
        cursor.execute(_ISOLATION)


def error_code(error: Any) -> int | None:
    """The server's or client's error number; None for errors of other databases."""
    code = getattr(error, "errno", None) or next(iter(getattr(error, "args", ())), None)
    return code if isinstance(code, int) else None


def is_transient(error: Any) -> bool:
    return error_code(error) in _AGAIN


def is_lock_timeout(error: Any) -> bool:
    return error_code(error) in _LOCKED


def is_outage(error: Any) -> bool:
    return error_code(error) in _GONE or is_transient(error) or is_lock_timeout(error)
