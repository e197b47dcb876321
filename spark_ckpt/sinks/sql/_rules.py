"""Whether a target has rules by which it may refuse rows that its staging table took. Driver, in each checkpoint.

One look into the catalogue and no more: what is found decides whether the rows are tried. When in doubt they are. Not a
rule is what the staging table has, too: types, nulls, and the index on the merge keys, which an upsert never breaks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from spark_ckpt.sinks.sql import _mariadb as mariadb
from spark_ckpt.sinks.sql._postgres import quoted


@dataclass(frozen=True)
class Moved:
    """What is about to be moved: rows of ``staging`` into ``columns`` of ``table``, by ``keys`` if there are some.
    ``removes``: rows of the target may go."""

    table: str
    staging: str
    schema: str | None
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    removes: bool


def may_refuse(connection: sa.Connection, moved: Moved) -> bool:
    looks = {"postgresql": _postgres, "sqlite": _sqlite, "mysql": _mariadb, "mariadb": _mariadb}
    look = looks.get(connection.dialect.name)
    return look is None or look(connection, moved)


# --- PostgreSQL ------------------------------------------------------------------------------------------------

_POSTGRES = """
WITH t AS (SELECT * FROM pg_catalog.pg_class WHERE oid = CAST(:table AS regclass)),
     a AS (SELECT * FROM pg_catalog.pg_attribute WHERE attrelid = (SELECT oid FROM t) AND attnum > 0
        AND NOT attisdropped),
     s AS (SELECT * FROM pg_catalog.pg_attribute WHERE attrelid = CAST(:staging AS regclass) AND attnum > 0)
SELECT (SELECT relkind <> 'r' OR relispartition OR relhasrules OR relrowsecurity FROM t)
OR EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = (SELECT oid FROM t) AND NOT tgisinternal)
OR EXISTS (SELECT FROM pg_catalog.pg_constraint
    WHERE conrelid = (SELECT oid FROM t) AND contype IN ('c', 'f', 'x', 't'))
OR EXISTS (SELECT FROM pg_catalog.pg_constraint c WHERE confrelid = (SELECT oid FROM t)
    AND (:removes OR :merges AND EXISTS (SELECT FROM a
        WHERE attnum = ANY (c.confkey) AND attname::text <> ALL (CAST(:keys AS text[])))))
OR EXISTS (SELECT FROM pg_catalog.pg_index i WHERE indrelid = (SELECT oid FROM t) AND (indexprs IS NOT NULL
    OR indpred IS NOT NULL
    OR indisunique AND (SELECT array_agg(attname::text ORDER BY attname) FROM a
        WHERE attnum = ANY (i.indkey[0:i.indnkeyatts - 1])) IS DISTINCT FROM CAST(:keys AS text[])
    OR NOT indisunique AND EXISTS (SELECT FROM a WHERE attnum = ANY (i.indkey) AND attlen = -1 AND atttypid <> 1700)))
OR EXISTS (SELECT FROM a WHERE attgenerated <> '')
OR EXISTS (SELECT FROM a JOIN pg_catalog.pg_type y ON y.oid = a.atttypid WHERE typtype = 'd')
OR EXISTS (SELECT FROM a WHERE attnotnull AND NOT atthasdef AND attidentity = ''
    AND attname::text <> ALL (CAST(:columns AS text[])))
OR EXISTS (SELECT FROM unnest(CAST(:columns AS text[])) AS c(name)
    LEFT JOIN a ON a.attname::text = c.name LEFT JOIN s ON s.attname::text = c.name
    WHERE a.atttypid IS DISTINCT FROM s.atttypid OR a.atttypmod IS DISTINCT FROM s.atttypmod
    OR a.attnotnull AND NOT s.attnotnull)
"""  # 1700: numeric, whose values are short


def _postgres(connection: sa.Connection, moved: Moved) -> bool:
    given = {"table": quoted(connection, moved.table, moved.schema)}
    given["staging"] = quoted(connection, moved.staging, moved.schema)
    keys, columns = sorted(moved.keys), list(moved.columns)
    found = connection.execute(
        sa.text(_POSTGRES),
        {**given, "keys": keys, "columns": columns, "removes": moved.removes, "merges": bool(keys)},
    )
    return bool(found.scalar_one())


_REPLACEABLE = """
SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_trigger
    WHERE tgrelid = CAST(:t AS regclass) AND NOT tgisinternal AND tgtype & 8 > 0)
AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint
    WHERE confrelid = CAST(:t AS regclass) AND confdeltype IN ('c', 'n', 'd'))
AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = CAST(:t AS regclass) AND attnum > 0
    AND NOT attisdropped AND attgenerated = '' AND attname::text <> ALL (CAST(:columns AS text[])))
"""


def can_replace_rows(connection: sa.Connection, target: sa.TableClause, columns: Sequence[str]) -> bool:
    """Whether rows may be deleted and inserted again in place of being updated: no trigger and no foreign key acts on
    their going, and no column is lost."""
    if connection.dialect.name == "postgresql":
        given = {"t": quoted(connection, target.name, target.schema), "columns": list(columns)}
        return bool(connection.execute(sa.text(_REPLACEABLE), given).scalar_one())
    if connection.dialect.name in mariadb.DIALECTS:
        found = _columns(connection, target.name, target.schema).values()
        there = {c["Field"].casefold() for c in found if "GENERATED" not in c["Extra"]}
        acts = _mariadb_triggers(connection, target, "DELETE") or bool(_mariadb_referred(connection, target))
    else:
        named = sa.text("SELECT name FROM pragma_table_info(:t)")
        there = {n.casefold() for (n,) in connection.execute(named, {"t": target.name})}
        acts = _sqlite_acts(connection, target)
    return not acts and there <= {c.casefold() for c in columns}


_NULLABLE = """
SELECT DISTINCT attname::text FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE indrelid = CAST(:t AS regclass) AND indisunique AND NOT attnotnull
AND attname::text = ANY (CAST(:columns AS text[]))
AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger
    WHERE tgrelid = CAST(:t AS regclass) AND NOT tgisinternal AND tgtype & 16 > 0)
AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint
    WHERE confrelid = CAST(:t AS regclass) AND confupdtype IN ('c', 'n', 'd'))
"""


def can_be_null_meanwhile(connection: sa.Connection, target: sa.TableClause, columns: Sequence[str]) -> list[str]:
    """Those of ``columns`` in unique indexes that may be null until they are written again: no trigger and no foreign
    key acts on it."""
    if connection.dialect.name == "postgresql":
        given = {"t": quoted(connection, target.name, target.schema), "columns": list(columns)}
        return list(connection.execute(sa.text(_NULLABLE), given).scalars())
    if connection.dialect.name in mariadb.DIALECTS:
        if _mariadb_triggers(connection, target, "UPDATE"):
            return []
        unique = {n for parts in mariadb.unique_indexes(connection, target).values() for n, _ in parts}
        nullable = {n for n, c in _columns(connection, target.name, target.schema).items() if c["Null"] == "YES"}
        return [c for c in columns if c in (unique & nullable) - _mariadb_referred(connection, target)]
    indexed = sa.text(
        "SELECT t.name FROM pragma_index_list(:t) AS l, pragma_index_info(l.name) AS i, pragma_table_info(:t) AS t "
        'WHERE l."unique" = 1 AND t.name = i.name AND t."notnull" = 0'
    )
    if _sqlite_acts(connection, target):
        return []
    found = set(connection.execute(indexed, {"t": target.name}).scalars())
    return [c for c in columns if c in found]


def _sqlite_acts(connection: sa.Connection, target: sa.TableClause) -> bool:
    """Whether a trigger, or a foreign key, may act on what becomes of a row."""
    triggers = sa.text("SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(:t)")
    keys = connection.exec_driver_sql("PRAGMA foreign_keys").scalar()
    return bool(keys) or connection.execute(triggers, {"t": target.name}).first() is not None


# --- SQLite ----------------------------------------------------------------------------------------------------

_SQLITE_WORDS = re.compile(r"\b(CHECK|GENERATED|STRICT|CONFLICT)\b|\bAS\s*\(", re.IGNORECASE)
_SQLITE_KEYS = re.compile(r"\bREFERENCES\b", re.IGNORECASE)


def _sqlite(connection: sa.Connection, moved: Moved) -> bool:
    name = {"t": moved.table}
    kind, text = connection.execute(
        sa.text("SELECT type, coalesce(sql, '') FROM sqlite_master WHERE lower(name) = lower(:t)"), name
    ).one()
    triggers = sa.text("SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(:t)")
    if kind != "table" or _SQLITE_WORDS.search(text) or connection.execute(triggers, name).first():
        return True
    # Foreign keys are looked at only if somebody built or set SQLite so.
    if connection.exec_driver_sql("PRAGMA foreign_keys").scalar():
        return True
    return _sqlite_indexes(connection, moved) or _sqlite_columns(connection, moved)


def _sqlite_indexes(connection: sa.Connection, moved: Moved) -> bool:
    unique = sa.text('SELECT name, "unique", partial FROM pragma_index_list(:t)')
    columns = sa.text("SELECT name FROM pragma_index_xinfo(:i) WHERE key = 1")
    for index, is_unique, partial in connection.execute(unique, {"t": moved.table}).all():
        names = {n for (n,) in connection.execute(columns, {"i": index})}
        if partial or None in names or (is_unique and names != set(moved.keys)):
            return True
    primary = sa.text("SELECT name FROM pragma_table_info(:t) WHERE pk > 0")
    found = {n for (n,) in connection.execute(primary, {"t": moved.table})}
    return bool(found) and found != set(moved.keys)


def _sqlite_columns(connection: sa.Connection, moved: Moved) -> bool:
    columns = sa.text('SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(:t)')
    there = {r.name: r for r in connection.execute(columns, {"t": moved.table})}
    staged = {r.name: r for r in connection.execute(columns, {"t": moved.staging})}
    if any(r.notnull and r.dflt_value is None and n not in moved.columns for n, r in there.items()):
        return True
    return any(c not in there or c not in staged or (there[c].notnull and not staged[c].notnull) for c in moved.columns)


# --- MariaDB and MySQL -----------------------------------------------------------------------------------------

_MARIADB_WORDS = re.compile(
    r"\bCHECK \(|\bFOREIGN KEY\b|\bGENERATED ALWAYS\b|\bPARTITION BY\b|^CREATE (?!TABLE)| AS \(", re.MULTILINE
)
_MARIADB_UNIQUE = re.compile(r"^\s*(?:PRIMARY|UNIQUE|FULLTEXT|SPATIAL) KEY (?:`(?:[^`]|``)*` )?\((.*)\)", re.MULTILINE)
_REFERRED = """
SELECT DISTINCT referenced_column_name FROM information_schema.key_column_usage
WHERE referenced_table_schema = coalesce(:schema, database()) AND referenced_table_name = :table
"""


def _mariadb(connection: sa.Connection, moved: Moved) -> bool:
    table = sa.table(moved.table, schema=moved.schema)
    shown = connection.dialect.identifier_preparer.format_table(table)
    text = str(connection.exec_driver_sql(f"SHOW CREATE TABLE {shown}").one()[1])
    keys = {mariadb.quoted(k) for k in moved.keys}
    if _MARIADB_WORDS.search(text) or any(set(k.split(",")) != keys for k in _MARIADB_UNIQUE.findall(text)):
        return True
    if _mariadb_triggers(connection, table) or (moved.removes and bool(_mariadb_referred(connection, table))):
        return True
    return _mariadb_columns(connection, moved)


def _mariadb_triggers(connection: sa.Connection, table: sa.TableClause, event: str = "%") -> bool:
    schema = f" FROM {mariadb.quoted(table.schema)}" if table.schema else ""
    triggers = sa.text(f"SHOW TRIGGERS{schema} WHERE `Table` = :t AND `Event` LIKE :e")
    return connection.execute(triggers, {"t": table.name, "e": event}).first() is not None


def _mariadb_referred(connection: sa.Connection, table: sa.TableClause) -> set[str]:
    """Columns that foreign keys refer to, of itself or of other tables."""
    named = {"schema": table.schema, "table": table.name}
    return set(connection.execute(sa.text(_REFERRED), named).scalars())


def _mariadb_columns(connection: sa.Connection, moved: Moved) -> bool:
    there, staged = (_columns(connection, t, moved.schema) for t in (moved.table, moved.staging))
    needed = (n for n, c in there.items() if c["Null"] == "NO" and c["Default"] is None and "auto" not in c["Extra"])
    if any(n not in moved.columns for n in needed):
        return True
    return any(
        c not in there
        or c not in staged
        or there[c]["Type"] != staged[c]["Type"]
        or (there[c]["Null"] == "NO" and staged[c]["Null"] == "YES")
        for c in moved.columns
    )


def _columns(connection: sa.Connection, table: str, schema: str | None) -> dict[str, Any]:
    shown = connection.dialect.identifier_preparer.format_table(sa.table(table, schema=schema))
    found = connection.exec_driver_sql(f"SHOW COLUMNS FROM {shown}").mappings()
    return {str(row["Field"]): row for row in found}


def referred(connection: sa.Connection, tables: Sequence[tuple[str, str | None]]) -> list[int]:
    """The numbers of ``tables``, those that others of them refer to first. A circle stays in the order given."""
    if len(tables) < 2:
        return list(range(len(tables)))
    inspector = sa.inspect(connection)
    refers = {
        i: {(k["referred_table"], k["referred_schema"] or schema) for k in inspector.get_foreign_keys(name, schema)}
        for i, (name, schema) in enumerate(tables)
    }
    order: list[int] = []

    def visit(i: int, above: frozenset[int]) -> None:
        for j in range(len(tables)):
            if j not in above and j != i and tables[j] in refers[i]:
                visit(j, above | {i})
        if i not in order:
            order.append(i)

    for i in range(len(tables)):
        visit(i, frozenset())
    return order
