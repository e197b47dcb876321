"""What MariaDB and MySQL need: texts compared exactly, keys that fit, numbers that they have.

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

from spark_ckpt.errors import BadRowError
from spark_ckpt.storage.sql.mariadb import DIALECTS as DIALECTS

_log = logging.getLogger("spark_ckpt")

NAME_LIMIT = 64
_SURELY_TAKEN = 1 << 21
"""Characters, of up to four bytes; the least that a server is set to by default is 16 MB."""

# What InnoDB takes in one index; a character is up to four bytes. Half of it for two keys, and so on.
_INDEX_BYTES = 3072
_OTHER_KEY_BYTES = 20


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
            raise BadRowError(
                f"column '{field.name}' has an infinite value, which MariaDB cannot store; replace it in the query, "
                f"for example F.when(F.abs('{field.name}') != float('inf'), F.col('{field.name}'))"
            )
        nan = pc.is_nan(column)
        if pc.any(nan).as_py():
            rows = rows.set_column(i, field, pc.if_else(nan, pa.scalar(None, field.type), column))
    return rows


def execute_insert(cursor: Any, statement: str) -> None:
    """Raises ``BadRowError`` for one that the server would hang up on, without a word of why."""
    if len(statement) > _SURELY_TAKEN:
        cursor.execute("SELECT @@max_allowed_packet")
        (allowed,) = cursor.fetchone()
        size = len(statement.encode())
        if size >= allowed:
            raise BadRowError(
                f"a row makes a statement of {size:,} bytes, and the server takes {allowed:,} (max_allowed_packet). "
                "Bytes of binary columns count twice. Raise it with SET GLOBAL max_allowed_packet = ... and in the "
                "server's configuration, or leave such rows out"
            )
    cursor.execute(statement)  # without parameters, so that a percent sign is one


def unique_indexes(connection: sa.Connection, table: sa.TableClause) -> dict[str, list[tuple[str | None, int | None]]]:
    """Columns by index, and how many of their first characters are in it, where not all are."""
    unique: dict[str, list[tuple[str | None, int | None]]] = {}
    shown = connection.dialect.identifier_preparer.format_table(table)
    for row in connection.exec_driver_sql(f"SHOW INDEX FROM {shown}").mappings():
        if not row["Non_unique"]:
            unique.setdefault(row["Key_name"], []).append((row["Column_name"], row["Sub_part"]))
    return unique


def keys_decide(connection: sa.Connection, table: sa.TableClause, columns: Sequence[str], keys: Sequence[str]) -> bool:
    """Whether rows of other ``keys`` cannot meet in any unique index when ``columns`` are written."""
    names = [{name for name, _ in parts} for parts in unique_indexes(connection, table).values()]
    others = [n for n in names if not n >= set(keys)]
    if not others:
        return True
    shown = connection.dialect.identifier_preparer.format_table(table)
    found = connection.exec_driver_sql(f"SHOW COLUMNS FROM {shown}").mappings()
    counted = {r["Field"] for r in found if "auto_increment" in str(r["Extra"]).lower()} - set(columns)
    return all(n & counted for n in others)


def beside(target: sa.TableClause, rows: sa.Select[Any]) -> sa.Subquery:
    """``rows`` for a join with ``target``, which must have another name."""
    name = "_ckpt_rows"
    return rows.subquery(name if target.name.casefold() != name else f"{name}_")


def update_and_insert(
    connection: sa.Connection, target: sa.TableClause, columns: Sequence[str], keys: Sequence[str], rows: sa.Select[Any]
) -> None:
    """``rows``, one of each key, into ``target``. ``ON DUPLICATE KEY`` acts on any unique index: where there is one
    besides that on the keys, it would replace a row of another key."""
    new, rest = beside(target, rows), [c for c in columns if c not in keys]
    same = sa.and_(*(target.c[k] == new.c[k] for k in keys))
    if rest:
        connection.execute(sa.update(target).where(same).values({c: new.c[c] for c in rest}))
    absent = sa.select(*(new.c[c] for c in columns)).where(sa.not_(sa.exists().where(same).correlate(new)))
    connection.execute(sa.insert(target).from_select(list(columns), absent))


def upsert(target: sa.TableClause, columns: Sequence[str], keys: Sequence[str], rows: sa.Select[Any]) -> sa.Insert:
    """``rows`` in order: of equal keys the last wins, and it is the target's index that says what is equal."""
    rest = [c for c in columns if c not in keys]
    # SQLAlchemy's own form of VALUES() quotes a percent sign twice.
    values: dict[str, sa.ColumnElement[Any]] = {c: sa.literal_column(f"VALUES({quoted(c)})") for c in rest or keys}
    return mysql.insert(target).from_select(list(columns), rows).on_duplicate_key_update(values)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
