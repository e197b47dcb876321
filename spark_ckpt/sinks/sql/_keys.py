"""Whether a target tells different keys apart and the same keys together, as the query does. Driver, at start.

A column that folds case, accents or trailing spaces, rounds, or is indexed by its first characters only would make
rows of different keys overwrite each other without a word. Such a target is refused, with the way out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from spark_ckpt.sinks.sql import _mariadb as mariadb
from spark_ckpt.sinks.sql import _postgres as postgres

Columns = Mapping[str, Mapping[str, Any]]
_SINGLE = {"postgresql": "REAL", "mysql": "FLOAT", "mariadb": "FLOAT"}
"""What floating columns of 32 bits are called; in SQLite there are none."""


def key_problems(
    connection: sa.Connection, table: sa.TableClause, found: Columns, rows: pa.Schema, keys: Sequence[str]
) -> list[str]:
    """Why upserts by ``keys`` into ``table`` could go wrong; empty if they cannot. ``found``: its columns by name."""
    if not keys or any(k not in found for k in keys):
        return []
    special = {"postgresql": _postgres, "sqlite": _sqlite, "mysql": _mariadb, "mariadb": _mariadb}
    look = special.get(connection.dialect.name, _others)
    rounded = [
        f"key column '{k}' is {found[k]['type']}, which rounds {rows.field(k).type}"
        for k in keys
        if _rounds(connection.dialect.name, found[k]["type"], rows.field(k).type)
    ]
    return [*rounded, *look(connection, table, keys)]


def index_problems(connection: sa.Connection, table: sa.TableClause, keys: Sequence[str]) -> list[str]:
    """What to look at again in each commit: others refuse an upsert without the index, MariaDB would append."""
    return list(_mariadb_indexes(connection, table, keys)) if connection.dialect.name in mariadb.DIALECTS else []


def _rounds(dialect: str, there: Any, kind: pa.DataType) -> bool:
    if isinstance(there, postgresql.DOMAIN):
        return _rounds(dialect, there.data_type, kind)
    if isinstance(there, mysql.YEAR | postgresql.MONEY):
        return True  # 5 is 2005, and 1.001 is $1.00
    if isinstance(there, sa.DateTime):
        return pt.is_timestamp(kind) and _microseconds(dialect, there) < 6
    if isinstance(there, sa.Float):
        single = _SINGLE.get(dialect) == type(there).__name__ and kind != pa.float32()
        return single or pt.is_decimal(kind) or (pt.is_integer(kind) and kind.bit_width > 32)
    if isinstance(there, sa.Integer):
        return pt.is_floating(kind) or (pt.is_decimal(kind) and kind.scale > 0)
    if isinstance(there, sa.Numeric) and there.precision is not None:
        return pt.is_floating(kind) or (pt.is_decimal(kind) and kind.scale > (there.scale or 0))
    return False


def _microseconds(dialect: str, there: Any) -> int:
    """Digits of a second that a column keeps; where nothing is said, MariaDB keeps none."""
    if dialect in mariadb.DIALECTS:
        return getattr(there, "fsp", None) or 0
    precision = getattr(there, "precision", None)
    return 6 if precision is None else int(precision)


def _others(connection: sa.Connection, table: sa.TableClause, keys: Sequence[str]) -> list[str]:
    unique = _unique_of_inspector(sa.inspect(connection), table)
    return [] if any(set(names) == set(keys) for names in unique) else [_no_index(keys)]


def _no_index(keys: Sequence[str]) -> str:
    return f"no primary key or unique index is on exactly the mergeKeys ({', '.join(keys)}); create one"


def _unique_of_inspector(inspector: sa.Inspector, table: sa.TableClause) -> Iterator[Sequence[str]]:
    name, schema = table.name, table.schema
    yield inspector.get_pk_constraint(name, schema=schema)["constrained_columns"]
    for constraint in inspector.get_unique_constraints(name, schema=schema):
        yield constraint["column_names"]
    for index in inspector.get_indexes(name, schema=schema):
        partial = {"postgresql_where", "sqlite_where"} & set(index.get("dialect_options", {}))
        if index["unique"] and not partial and None not in index["column_names"]:
            yield [n for n in index["column_names"] if n is not None]


# --- PostgreSQL ------------------------------------------------------------------------------------------------

_POSTGRES_KEYS = """
WITH RECURSIVE base AS (
  SELECT a.attname, a.attnum, a.attcollation, t.typname, t.typbasetype FROM pg_catalog.pg_attribute a
  JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
  WHERE a.attrelid = CAST(:name AS regclass) AND a.attname IN :keys
  UNION ALL SELECT attname, attnum, attcollation, t.typname, t.typbasetype FROM base
  JOIN pg_catalog.pg_type t ON t.oid = base.typbasetype)
SELECT attname, typname, c.collname, c.collisdeterministic FROM base
LEFT JOIN pg_catalog.pg_collation c ON c.oid = attcollation ORDER BY attnum
"""
"""A domain, and what it is made of."""

_FOLDED = {"citext": "upper and lower case", "bpchar": "trailing spaces", "name": "texts of more than 63 bytes"}


def _postgres(connection: sa.Connection, table: sa.TableClause, keys: Sequence[str]) -> list[str]:
    query = sa.text(_POSTGRES_KEYS).bindparams(sa.bindparam("keys", expanding=True))
    shown = _plain(connection, table)
    wrong = postgres.index_problems(connection, shown, keys, _no_index(keys))
    if table.name == "excluded":
        wrong.append("in an upsert PostgreSQL calls the new row 'excluded', so the table needs another name")
    for name, kind, collation, exact in connection.execute(query, {"name": shown, "keys": list(keys)}):
        alter = f"ALTER TABLE {shown} ALTER COLUMN {_plain(connection, sa.column(name))} TYPE"
        if kind in _FOLDED:
            wrong.append(f"key column '{name}' is {kind}, which does not tell {_FOLDED[kind]} apart; run: {alter} text")
        elif exact is False:
            wrong.append(
                f"key column '{name}' has the collation {collation}, which takes different texts for the same; "
                f'run: {alter} text COLLATE "C"'
            )
    return list(dict.fromkeys(wrong))


# --- SQLite ----------------------------------------------------------------------------------------------------


def _sqlite(connection: sa.Connection, table: sa.TableClause, keys: Sequence[str]) -> list[str]:
    wrong = _others(connection, table, keys)
    indexes = sa.text('SELECT name FROM pragma_index_list(:t) WHERE "unique" = 1')
    columns = sa.text("SELECT name, coll FROM pragma_index_xinfo(:i) WHERE key = 1")
    for (index,) in connection.execute(indexes, {"t": table.name}).all():
        found = connection.execute(columns, {"i": index}).all()
        if {n for n, _ in found} != set(keys):
            continue
        wrong += [
            f"key column '{name}' is compared with COLLATE {collation}, which takes different texts for the same; "
            "make the table anew with COLLATE BINARY, SQLite's default"
            for name, collation in found
            if collation.upper() != "BINARY"
        ]
    return wrong


# --- MariaDB and MySQL -----------------------------------------------------------------------------------------


def _mariadb(connection: sa.Connection, table: sa.TableClause, keys: Sequence[str]) -> list[str]:
    return [*_mariadb_columns(connection, table, keys), *_mariadb_indexes(connection, table, keys)]


def _mariadb_columns(connection: sa.Connection, table: sa.TableClause, keys: Sequence[str]) -> Iterator[str]:
    exact = mariadb.exact_collation(connection.dialect)
    shown = _plain(connection, table)
    for row in connection.exec_driver_sql(f"SHOW FULL COLUMNS FROM {_format(connection, table)}").mappings():
        name, kind, collation = row["Field"], str(row["Type"]), row["Collation"]
        fixed = kind.lower().startswith(("char(", "binary("))
        if name not in keys or (not fixed and (collation is None or mariadb.is_exact(collation))):
            continue
        wider = f"var{kind}" if fixed else kind
        text = f" CHARACTER SET utf8mb4 COLLATE {exact}" if collation is not None else ""
        null = "" if row["Null"] == "YES" else " NOT NULL"
        yield (
            f"key column '{name}' is {kind}{f' with the collation {collation}' if collation else ''}, which takes "
            "different values for the same key (upper and lower case, accents, or trailing spaces); run: "
            f"ALTER TABLE {shown} MODIFY {_plain(connection, sa.column(name))} {wider}{text}{null}"
        )


def _mariadb_indexes(connection: sa.Connection, table: sa.TableClause, keys: Sequence[str]) -> Iterator[str]:
    unique = mariadb.unique_indexes(connection, table)
    ours = [parts for parts in unique.values() if {n for n, _ in parts} == set(keys)]
    if not any(all(length is None for _, length in parts) for parts in ours):
        yield _no_index(keys) + (" of whole columns, not of their first characters" if ours else "")


def _format(connection: sa.Connection, table: sa.TableClause) -> str:
    """For ``exec_driver_sql``, which takes ``%%`` for a percent sign where the driver formats."""
    return connection.dialect.identifier_preparer.format_table(table)


def _plain(connection: sa.Connection, thing: Any) -> str:
    """The quoted name for people, and for functions that take it as text."""
    quote = connection.dialect.identifier_preparer
    text = quote.format_table(thing) if isinstance(thing, sa.TableClause) else quote.quote(thing.name)
    return text.replace("%%", "%") if connection.dialect.paramstyle in ("format", "pyformat") else text
