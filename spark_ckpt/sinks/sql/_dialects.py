"""What differs between databases in writing: staging rows fast, and upserts.

PostgreSQL takes rows as CSV through ``COPY``, made by Arrow without touching a row in Python. MariaDB takes
statements of many rows, made the same way (:mod:`spark_ckpt.sinks.sql._literals`), SQLite columns zipped into tuples.
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
from sqlalchemy.dialects import postgresql, sqlite

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.expressions.printed_times import IN_PYTHON, Days, within
from spark_ckpt.sinks._arrow_text import texts_of_days, texts_of_moments
from spark_ckpt.sinks.sql import _mariadb as mariadb
from spark_ckpt.sinks.sql._literals import inserts
from spark_ckpt.sinks.sql.types import as_text

STAGE, SEQ = "_ckpt_stage", "_ckpt_seq"


_DAYS = {"postgresql": Days(-2_440_588, 2_145_042_905)}
"""4714-11-24 BC to 5874897-12-31. Others have years 1 to 9999, as MariaDB and SQLite's own functions and its driver."""


def days_of(dialect: str) -> Days:
    """The days that a database called ``dialect`` has."""
    return _DAYS.get(dialect, IN_PYTHON)


def check_own_names(table: str, columns: Sequence[str], own_tables: Sequence[str]) -> None:
    """Refuse names that the sink has for itself, in any case of letters: databases may not tell these apart."""
    if table.casefold() in own_tables:
        raise InvalidInputError(
            f"table {table!r} is the sink's own in every database; choose another name for the target"
        )
    for name in columns:
        if name.casefold() in (STAGE, SEQ):
            raise InvalidInputError(
                f"column {name!r} has a name that the sink needs in its staging table; rename it in the query, for "
                f"example withColumnRenamed({name!r}, {name.strip('_')!r})"
            )


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
        marks = ", ".join("?" for _ in table.columns)
        cursor.executemany(f"{_insert_head(connection, table)} ({marks})", _tuples(rows, stage, seq, text=True))
    elif connection.dialect.name in mariadb.DIALECTS:
        cursor = connection.connection.cursor()
        for statement in inserts(_insert_head(connection, table), _numbered(mariadb.without_nan(rows), stage, seq)):
            mariadb.execute_insert(cursor, statement)
    else:
        values = _tuples(rows, stage, seq, text=False)
        connection.execute(sa.insert(table), [dict(zip(names, row, strict=True)) for row in values])


def _insert_head(connection: sa.Connection, table: sa.TableClause) -> str:
    quote = connection.dialect.identifier_preparer
    names = ", ".join(quote.quote(c.name) for c in table.columns)
    text = f"INSERT INTO {quote.format_table(table)} ({names}) VALUES"
    # SQLAlchemy doubles percent signs of names for drivers that format.
    return text.replace("%%", "%") if connection.dialect.paramstyle in ("format", "pyformat") else text


def _numbered(rows: pa.Table, stage: int, seq: int) -> pa.Table:
    """With the columns that a staging table has in front."""
    numbers = [pa.repeat(pa.scalar(stage, pa.int64()), len(rows)), pa.array(range(seq, seq + len(rows)), pa.int64())]
    return pa.table([*numbers, *rows.columns], names=[STAGE, SEQ, *rows.column_names])


def _tuples(rows: pa.Table, stage: int, seq: int, *, text: bool) -> Iterator[tuple[Any, ...]]:
    values = [(as_text(c) if text else c).to_pylist() for c in rows.columns]
    return zip(itertools.repeat(stage, len(rows)), range(seq, seq + len(rows)), *values, strict=True)


def _copy(connection: sa.Connection, table: sa.TableClause, rows: pa.Table, stage: int, seq: int) -> None:
    from psycopg import sql  # quotes names as COPY takes them, percent signs included

    names = [c.name for c in table.columns]
    columns = [_for_copy(c) for c in _numbered(rows, stage, seq).columns]
    text = io.BytesIO()
    pacsv.write_csv(pa.table(columns, names=names), text, pacsv.WriteOptions(include_header=False))
    driver: Any = connection.connection.driver_connection
    target = sql.Identifier(*([table.schema] if table.schema else []), table.name)
    columns_sql = sql.SQL(", ").join(map(sql.Identifier, names))
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(target, columns_sql)
    with driver.cursor() as cursor:
        # A time without a zone that goes into a timestamptz counts as UTC, not as one of the server's zone. In this
        # transaction, which only stages: a commit's defaults and triggers have the session's zone.
        cursor.execute("SET LOCAL TIME ZONE 'UTC'")
        with cursor.copy(statement) as copy:
            copy.write(text.getbuffer())


def _for_copy(column: pa.ChunkedArray) -> Any:
    """Arrow writes the rest as PostgreSQL reads it."""
    kind = column.type
    if pt.is_binary(kind):
        return _hex(column)
    far = (pt.is_date(kind) or pt.is_timestamp(kind)) and not within(column, IN_PYTHON)
    if pt.is_timestamp(kind) and (far or kind.tz):
        texts = texts_of_moments(column, "Z")
        return _with_era(texts) if far else texts
    return _with_era(texts_of_days(column)) if far else column


def _with_era(texts: pa.ChunkedArray) -> pa.Array:
    """Years as PostgreSQL reads them: without a plus, and with BC for those before the first."""

    def with_era(text: str) -> str:
        sign, rest = (text[0], text[1:]) if text[0] in "+-" else ("", text)
        year, _, behind = rest.partition("-")
        if sign == "-" or not int(year):
            return f"{int(year) + 1:04}-{behind} BC"
        return rest

    return pa.array([None if text is None else with_era(text) for text in texts.to_pylist()], pa.string())


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
