"""The tables of the ``sql`` sink: the user's target, and beside it a staging table, its register and the ledger."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from spark_ckpt.sinks._options import misfit
from spark_ckpt.sinks.sql import _mariadb as mariadb
from spark_ckpt.sinks.sql import _postgres as postgres
from spark_ckpt.sinks.sql import _sqlite as sqlite
from spark_ckpt.sinks.sql._dialects import SEQ, STAGE
from spark_ckpt.sinks.sql._keys import key_problems
from spark_ckpt.sinks.sql.types import mismatch, sql_type

_FORGOTTEN_AT_ONCE = 500
_STAGING_CHARACTERS, _STAGING_BYTES = 40, 48  # PostgreSQL cuts names at 63 bytes, and 15 are the ending's


def stages_table(schema: str | None, **options: Any) -> sa.Table:
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
        **options,
    )  # fmt: skip


def ledger_table(schema: str | None, **options: Any) -> sa.Table:
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
        **options,
    )  # fmt: skip


def forget(connection: sa.Connection, ledger: sa.Table, row: Mapping[str, Any], oldest: int) -> None:
    """Remove the ledger's entries of checkpoints before ``oldest``, the oldest first and a bounded number.

    In the transaction that commits: a crash leaves either all of it or nothing. Whoever commits such a checkpoint
    again all the same finds its staged rows gone, and is refused.
    """
    mine = (ledger.c.job == row["job"], ledger.c.sink == row["sink"])
    found = sa.select(ledger.c.checkpoint).where(*mine, ledger.c.checkpoint < oldest)
    # By their keys: a range would lock the gaps between them, where MariaDB lets no other job insert.
    old = connection.execute(found.order_by(ledger.c.checkpoint).limit(_FORGOTTEN_AT_ONCE)).scalars().all()
    if old:
        connection.execute(sa.delete(ledger).where(*mine, ledger.c.checkpoint.in_(old)))


def staging_name(table: str, rows: pa.Schema) -> str:
    """One staging table for each target and row schema, so that a changed query never meets the old one's rows."""
    shape = ";".join(f"{f.name}:{f.type}" for f in rows)
    start = table[:_STAGING_CHARACTERS].encode()[:_STAGING_BYTES].decode(errors="ignore")
    return f"{start}__ckpt_{hashlib.sha256(f'{table};{shape}'.encode()).hexdigest()[:8]}"


def create_bookkeeping(connection: sa.Connection, schema: str | None) -> None:
    """The register and the ledger, if they are not there. Names of jobs and sinks are compared exactly."""
    options = mariadb.table_options(connection.dialect)
    for make in (stages_table, ledger_table):
        table = make(schema, **options)
        table.create(connection, checkfirst=True)
        if options:
            mariadb.make_exact(connection, table, ("job", "sink"))


def create_target(
    connection: sa.Connection, name: str, schema: str | None, rows: pa.Schema, keys: Sequence[str]
) -> None:
    options: dict[str, Any] = mariadb.table_options(connection.dialect)
    kinds = [rows.field(k).type for k in keys]
    columns = []
    for f in rows:
        kind = mariadb.key_type(f.type, kinds) if options and f.name in keys else None
        columns.append(sa.Column(f.name, kind or sql_type(f.type), primary_key=f.name in keys, autoincrement=False))
    sa.Table(name, sa.MetaData(), *columns, schema=schema, **options).create(connection, checkfirst=True)


def check_target(
    connection: sa.Connection, name: str, schema: str | None, rows: pa.Schema, keys: Sequence[str]
) -> dict[str, Any]:
    """The target's columns by name. Raises ``InvalidInputError`` if the query's rows cannot go into them."""
    found = columns_of(connection, name, schema)
    problems = _column_problems(found, rows)
    table = sa.table(name, schema=schema)
    problems += key_problems(connection, table, found, rows, keys)
    if connection.dialect.name in mariadb.DIALECTS:
        problems += mariadb.engine_problems(connection, table)
    elif connection.dialect.name == "sqlite" and not problems:
        problems += sqlite.value_problems(connection, name, schema, rows)
    if problems:
        raise misfit(f"table {name}", problems)
    return found


def _column_problems(found: Mapping[str, Any], rows: pa.Schema) -> list[str]:
    problems = [f"it has no column '{f.name}'" for f in rows if f.name not in found]
    problems += [
        f"column '{f.name}' is {found[f.name]['type']} and the query writes {f.type}"
        for f in rows
        if f.name in found and mismatch(found[f.name]["type"], f.type)
    ]
    problems += [
        f"column '{f.name}' has a type that nothing here knows, so no staging table can have it; leave it out with "
        "option 'columns', or give it another one, such as text, and cast it in a view"
        for f in rows
        if f.name in found and isinstance(found[f.name]["type"], sa.types.NullType)
    ]
    problems += [
        f"column '{n}' must not be null, has no default, and the query does not write it"
        for n, c in found.items()
        if n not in rows.names and not c["nullable"] and c["default"] is None and not _is_generated(c)
    ]
    problems += [
        f"column '{f.name}' is computed by the database, and the query writes it"
        for f in rows
        if f.name in found and _is_computed(found[f.name])
    ]
    return problems


def columns_of(connection: sa.Connection, name: str, schema: str | None) -> dict[str, Any]:
    with warnings.catch_warnings():  # of types that it does not know: those columns are refused, if they are written
        warnings.filterwarnings("ignore", message="Did not recognize type", category=sa.exc.SAWarning)
        found = sa.inspect(connection).get_columns(name, schema=schema)
    # SQLAlchemy reads MariaDB's names as they are quoted.
    quoted = connection.dialect.name in mariadb.DIALECTS
    columns: dict[str, Any] = {c["name"].replace("``", "`") if quoted else c["name"]: c for c in found}
    if connection.dialect.name == "postgresql":
        postgres.tell_domains(connection, postgres.quoted(connection, name, schema), columns)
    return columns


def _is_computed(column: Any) -> bool:
    """Always: a value that is given would fail in the commit, when the checkpoint is complete."""
    return bool(column.get("computed") or (column.get("identity") or {}).get("always"))


def _is_generated(column: Any) -> bool:
    return bool(column.get("identity") or column.get("computed") or column.get("autoincrement") is True) or (
        column.get("primary_key", 0) == 1 and isinstance(column["type"], sa.Integer)  # SQLite's rowid
    )


def with_change(target: dict[str, Any], change: str | None) -> dict[str, Any]:
    """The columns of a staging table: the target's, and what says of a row what it changes."""
    return target if change is None else {**target, change: {"type": sa.String(2), "nullable": False}}


def create_staging(
    connection: sa.Connection,
    name: str,
    schema: str | None,
    rows: pa.Schema,
    target: dict[str, Any],
    searched: bool = False,
) -> None:
    """Typed and nullable as the target, so that a row it would refuse fails in its task and not in a commit.

    ``searched``: single rows may be looked for. An empty staging table whose types no longer fit (someone altered the
    target) is made anew.
    """
    columns = [sa.Column(f.name, target[f.name]["type"], nullable=target[f.name]["nullable"]) for f in rows]
    options: dict[str, Any] = mariadb.table_options(connection.dialect)
    # InnoDB keeps rows in the order of a key anyway; with this one, a commit touches its own stages' rows only.
    keyed = bool(options) or searched
    table = sa.Table(
        name, sa.MetaData(),
        sa.Column(STAGE, sa.BigInteger, nullable=False, primary_key=keyed, autoincrement=False),
        sa.Column(SEQ, sa.BigInteger, nullable=False, primary_key=keyed, autoincrement=False),
        *columns,
        schema=schema,
        **options,
    )  # fmt: skip
    inspector = sa.inspect(connection)
    if inspector.has_table(name, schema=schema):
        found = columns_of(connection, name, schema)
        unkeyed = searched and not inspector.get_pk_constraint(name, schema=schema)["constrained_columns"]
        same = all(
            (str(found[c.name]["type"]), found[c.name]["nullable"]) == (str(c.type), c.nullable) for c in columns
        )
        if (same and not unkeyed) or connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first():
            return
        table.drop(connection)
    table.create(connection)
