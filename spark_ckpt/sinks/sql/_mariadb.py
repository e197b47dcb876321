"""What MariaDB and MySQL need: sessions that refuse what they would bend, texts compared exactly, keys that fit.

Left to themselves they cut texts that are too long, take ``a``, ``A``, ``ä`` and ``a `` for one key, give a zero in an
auto-increment column another value, and round a time with a zone into the server's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from spark_ckpt.errors import InvalidInputError

_log = logging.getLogger("spark_ckpt")

DIALECTS = ("mysql", "mariadb")
NAME_LIMIT = 64

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
# What InnoDB takes in one index; a character is up to four bytes. Half of it for two keys, and so on.
_INDEX_BYTES = 3072
_OTHER_KEY_BYTES = 20


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


def exact_collation(dialect: Any) -> str:
    """One under which texts are equal if they are the same, trailing spaces and all."""
    return "utf8mb4_nopad_bin" if dialect.is_mariadb else "utf8mb4_0900_bin"


def is_exact(collation: str) -> bool:
    """``utf8mb4_bin`` is not: it takes ``a`` and ``a `` for the same."""
    return collation == "binary" or collation.endswith(("_nopad_bin", "_0900_bin"))


def table_options(dialect: Any) -> dict[str, str]:
    """For tables that we create: transactions, all of Unicode, exact comparison."""
    if dialect.name not in DIALECTS:
        return {}
    options = {"engine": "InnoDB", "charset": "utf8mb4", "collate": exact_collation(dialect)}
    return {f"{dialect.name}_{name}": value for name, value in options.items()}


def make_exact(connection: sa.Connection, table: sa.Table, columns: Sequence[str]) -> None:
    """Convert one of our tables that an earlier release made with the database's own collation."""
    shown = connection.dialect.identifier_preparer.format_table(table)
    found = connection.exec_driver_sql(f"SHOW FULL COLUMNS FROM {shown}").mappings().all()
    if all(is_exact(row["Collation"]) for row in found if row["Field"] in columns):
        return
    exact = exact_collation(connection.dialect)
    _log.warning("table %s compared names by another rule; it is converted to %s", table.name, exact)
    connection.exec_driver_sql(f"ALTER TABLE {shown} CONVERT TO CHARACTER SET utf8mb4 COLLATE {exact}")


def engine_problems(connection: sa.Connection, table: sa.TableClause) -> list[str]:
    """Rows and ledger can only share a transaction if the target's storage engine has transactions."""
    shown = connection.dialect.identifier_preparer.format_table(table)
    text = str(connection.exec_driver_sql(f"SHOW CREATE TABLE {shown}").one()[1])
    engine = re.search(r"^\) ENGINE=(\w+)", text, re.MULTILINE)
    support = {row[0].lower(): row[3] for row in connection.exec_driver_sql("SHOW ENGINES")}
    if engine is None or support.get(engine[1].lower()) == "YES":
        return []
    return [f"its storage engine {engine[1]} has no transactions; run: ALTER TABLE {shown} ENGINE=InnoDB"]


def key_type(kind: pa.DataType, keys: Sequence[pa.DataType]) -> sa.types.TypeEngine[Any] | None:
    """The longest type that an index over all ``keys`` can hold; None if it has the same length everywhere."""
    sized = [k for k in keys if pt.is_string(k) or pt.is_binary(k)]
    if kind not in sized:
        return None
    share = (_INDEX_BYTES - _OTHER_KEY_BYTES * (len(keys) - len(sized))) // len(sized)
    return sa.String(share // 4) if pt.is_string(kind) else sa.VARBINARY(share)


def without_nan(rows: pa.Table) -> pa.Table:
    """NaN as null, as in SQLite: there is neither NaN nor infinity. An infinity is refused: null would be a guess."""
    for i, field in enumerate(rows.schema):
        if not pt.is_floating(field.type):
            continue
        column = rows.column(i)
        if pc.any(pc.is_inf(column)).as_py():
            raise InvalidInputError(
                f"column '{field.name}' has an infinite value, which MariaDB cannot store; replace it in the query, "
                f"for example F.when(F.abs('{field.name}') != float('inf'), F.col('{field.name}'))"
            )
        nan = pc.is_nan(column)
        if pc.any(nan).as_py():
            rows = rows.set_column(i, field, pc.if_else(nan, pa.scalar(None, field.type), column))
    return rows


def upsert(target: sa.TableClause, columns: Sequence[str], keys: Sequence[str], rows: sa.Select[Any]) -> sa.Insert:
    """``rows`` in order: of equal keys the last wins, and it is the target's index that says what is equal."""
    rest = [c for c in columns if c not in keys]
    # SQLAlchemy's own form of VALUES() quotes a percent sign twice.
    values: dict[str, sa.ColumnElement[Any]] = {c: sa.literal_column(f"VALUES({_quoted(c)})") for c in rest or keys}
    return mysql.insert(target).from_select(list(columns), rows).on_duplicate_key_update(values)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
