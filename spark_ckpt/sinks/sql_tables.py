"""The tables of the ``sql`` sink: the user's target, and beside it a staging table, its register and the ledger."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks.sql_dialects import SEQ, STAGE
from spark_ckpt.sinks.sql_types import mismatch, sql_type

_NAME_LIMIT = 40  # PostgreSQL cuts names at 63 bytes


def stages_table(schema: str | None) -> sa.Table:
    """One row for each writer that has rows staged; a chunk of rows and its entry here share a transaction."""
    return sa.Table(
        "spark_ckpt_stages", sa.MetaData(),
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("job", sa.String(255), nullable=False),
        sa.Column("sink", sa.String(255), nullable=False),
        sa.Column("target", sa.String(255), nullable=False),
        sa.Column("staging", sa.String(255), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("partition", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.String(255), nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("position", sa.BigInteger),  # set only inside the transaction that commits and deletes it
        schema=schema,
    )  # fmt: skip


def ledger_table(schema: str | None) -> sa.Table:
    """One row for each checkpoint committed: the database's own word that it did."""
    return sa.Table(
        "spark_ckpt_ledger", sa.MetaData(),
        sa.Column("job", sa.String(255), primary_key=True),
        sa.Column("sink", sa.String(255), primary_key=True),
        sa.Column("checkpoint", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True), server_default=sa.func.current_timestamp()),
        schema=schema,
    )  # fmt: skip


def staging_name(table: str, rows: pa.Schema) -> str:
    """One staging table for each target and row schema, so that a changed query never meets the old one's rows."""
    shape = ";".join(f"{f.name}:{f.type}" for f in rows)
    return f"{table[:_NAME_LIMIT]}__ckpt_{hashlib.sha256(f'{table};{shape}'.encode()).hexdigest()[:8]}"


def create_target(
    connection: sa.Connection, name: str, schema: str | None, rows: pa.Schema, keys: Sequence[str]
) -> None:
    columns = [
        sa.Column(f.name, sql_type(f.type, key=f.name in keys), primary_key=f.name in keys, autoincrement=False)
        for f in rows
    ]
    sa.Table(name, sa.MetaData(), *columns, schema=schema).create(connection, checkfirst=True)


def check_target(
    connection: sa.Connection, name: str, schema: str | None, rows: pa.Schema, keys: Sequence[str]
) -> dict[str, Any]:
    """The target's columns by name. Raises ``InvalidInputError`` if the query's rows cannot go into them."""
    inspector = sa.inspect(connection)
    found = {c["name"]: c for c in inspector.get_columns(name, schema=schema)}
    problems = [f"it has no column '{f.name}'" for f in rows if f.name not in found]
    problems += [
        f"column '{f.name}' is {found[f.name]['type']} and the query writes {f.type}"
        for f in rows
        if f.name in found and mismatch(found[f.name]["type"], f.type)
    ]
    problems += [
        f"column '{n}' must not be null, has no default, and the query does not write it"
        for n, c in found.items()
        if n not in rows.names and not c["nullable"] and c["default"] is None and not _is_generated(c)
    ]
    if keys and not _is_unique(inspector, name, schema, keys):
        problems.append(f"no primary key or unique index is on exactly the mergeKeys ({', '.join(keys)}); create one")
    if problems:
        raise InvalidInputError(f"table {name} does not fit the query: {'; '.join(problems)}")
    return found


def _is_generated(column: Any) -> bool:
    return bool(column.get("identity") or column.get("computed") or column.get("autoincrement") is True) or (
        column.get("primary_key", 0) == 1 and isinstance(column["type"], sa.Integer)  # SQLite's rowid
    )


def _is_unique(inspector: sa.Inspector, name: str, schema: str | None, keys: Sequence[str]) -> bool:
    wanted = set(keys)
    unique = [inspector.get_pk_constraint(name, schema=schema)["constrained_columns"]]
    unique += [c["column_names"] for c in inspector.get_unique_constraints(name, schema=schema)]
    unique += [
        [n for n in i["column_names"] if n is not None]
        for i in inspector.get_indexes(name, schema=schema)
        if i["unique"] and not i.get("dialect_options", {}).get("postgresql_where")
    ]
    return any(set(names) == wanted for names in unique)


def create_staging(
    connection: sa.Connection, name: str, schema: str | None, rows: pa.Schema, target: dict[str, Any]
) -> None:
    """Typed and nullable as the target, so that a row it would refuse fails in its task and not in a commit.

    An empty staging table whose types no longer fit (someone altered the target) is made anew.
    """
    columns = [sa.Column(f.name, target[f.name]["type"], nullable=target[f.name]["nullable"]) for f in rows]
    table = sa.Table(
        name, sa.MetaData(),
        sa.Column(STAGE, sa.BigInteger, nullable=False, index=False),
        sa.Column(SEQ, sa.BigInteger, nullable=False),
        *columns,
        schema=schema,
    )  # fmt: skip
    inspector = sa.inspect(connection)
    if inspector.has_table(name, schema=schema):
        found = {c["name"]: c for c in inspector.get_columns(name, schema=schema)}
        same = all(
            (str(found[c.name]["type"]), found[c.name]["nullable"]) == (str(c.type), c.nullable) for c in columns
        )
        if same or connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first():
            return
        table.drop(connection)
    table.create(connection)
