"""The executor's half of the ``sql`` sink: rows into the staging table."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from spark_ckpt.arrow_types import database_schema
from spark_ckpt.errors import BadRowError, RetryableError
from spark_ckpt.sinks import _changes as changes
from spark_ckpt.sinks import staging
from spark_ckpt.sinks._arrow_text import refuse_days
from spark_ckpt.sinks.base import SinkWriter, WriterContext
from spark_ckpt.sinks.rejects import accepted
from spark_ckpt.sinks.sql import _dialects as dialects
from spark_ckpt.sinks.sql import _tables as tables
from spark_ckpt.sinks.sql._rejecting import schema_text
from spark_ckpt.storage.sql.database import Database

_CHUNK_ROWS = 64 * 1024
_CHUNK_BYTES = 16 * 1024 * 1024
_KEY_BYTES = 2000
"""Of a row's merge keys: an index may refuse longer ones."""


@dataclass(frozen=True)
class StagingPlace:
    """Where rows for one target wait; ``target`` is its full name, ``table`` the name without its schema. A server that
    is away is waited for ``patience_s``."""

    database: Database
    stages: sa.Table
    schema: str | None
    table: str
    target: str
    patience_s: float


class SqlWriter(SinkWriter):
    """Inserts some 64 K rows a transaction: tasks that write to SQLite at the same time wait for each other."""

    def __init__(self, place: StagingPlace, ctx: WriterContext, keys: Sequence[str], change: str | None = None) -> None:
        self._place, self._ctx, self._keys, self._change = place, ctx, list(keys), change
        self._schema = database_schema(ctx.schema)
        self._chunks = staging.Chunks(_CHUNK_ROWS, _CHUNK_BYTES)
        self._stage = secrets.randbits(62)  # also tells a retried attempt's rows from the first one's
        self._staging = tables.staging_name(place.table, self._schema)
        self._rows = 0
        self._longest_key = 0

    def write(self, batch: pa.RecordBatch) -> None:
        for part in accepted(batch, self._check, self._ctx.refused):
            self._longest_key = max(self._longest_key, sum(_longest(part.column(k)) for k in self._keys))
            self._put(self._chunks.add(part))

    def _check(self, batch: pa.RecordBatch) -> None:
        for key in self._keys:
            column = batch.column(key)
            # Where there is no NaN it would be stored as null.
            found = "a null" if column.null_count else "a NaN" if self._nan_in(column) else None
            if found:
                raise BadRowError(
                    f"mergeKeys column '{key}' has {found}, which a database key cannot be; filter or replace it"
                )
            self._refuse_cut(key, column)
        changes.check_rows(self._change, batch)

    def _refuse_cut(self, key: str, column: pa.Array) -> None:
        """A database refuses a text that is too long, but cuts one that is so by spaces at its end."""
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            return
        spaced = column.filter(pc.ends_with(column, " "))
        limit = self._lengths.get(key) if len(spaced) else None
        if limit is not None and pc.max(pc.utf8_length(spaced)).as_py() > limit:
            raise BadRowError(
                f"mergeKeys column '{key}' has a text that ends with spaces and is longer than the {limit} characters "
                "of the table's column: the database would cut it, and take it for another key. Trim it in the query "
                "(F.rtrim), or make the column longer"
            )

    @cached_property
    def _lengths(self) -> dict[str, int]:
        """Characters of the target's columns of limited length. SQLite declares them, and keeps any length."""
        database, place = self._place.database, self._place
        if database.backend == "sqlite":
            return {}

        def look(connection: sa.Connection) -> dict[str, int]:
            found = tables.columns_of(connection, place.table, place.schema)
            kinds = {
                n: getattr(c["type"], "data_type", c["type"]) for n, c in found.items()
            }  # what a domain is made of
            return {n: k.length for n, k in kinds.items() if getattr(k, "length", None)}

        with database.errors(f"table {place.target} of {database}: looking at its columns"):
            return database.patiently(lambda: database.transaction(look), place.patience_s)

    def _nan_in(self, column: pa.Array) -> bool:
        may = pa.types.is_floating(column.type) and not self._place.database.has_nan
        return may and bool(pc.any(pc.is_nan(column)).as_py())

    def prepare_commit(self) -> Sequence[bytes]:
        self._put(self._chunks.rest())
        if not self._rows:
            if not self._ctx.replacing:
                return []
            self._put(self._ctx.schema.empty_table())
        names = changes.without(self._change, self._schema).names
        what = {"columns": names, "keys": self._keys, **({"change": self._change} if self._change else {})}
        if self._longest_key > _KEY_BYTES:
            what["long_keys"] = True
        if self._ctx.refused is not None:
            what["schema"] = schema_text(self._schema)
        return [staging.encode("sql", stage=self._stage, staging=self._staging, rows=self._rows, **what)]

    def close(self) -> None:
        """Nothing to release: a connection lives only while a chunk is written."""

    def _put(self, rows: pa.Table | None) -> None:
        if rows is not None:
            accepted(rows, self._stage_rows, self._ctx.refused)

    def _stage_rows(self, rows: pa.Table) -> None:
        """In one transaction."""
        plain, tries = rows.cast(self._schema), 0
        backend = self._place.database.backend
        refuse_days(plain, dialects.days_of(backend), f"a database of {backend}")

        def insert(connection: sa.Connection) -> None:
            nonlocal tries
            tries += 1
            # Where the server went away inside of a commit, the rows are there, and nobody heard of it.
            if tries > 1 and self._are_there(connection, self._rows + len(plain)):
                return
            self._register(connection, len(plain))
            if len(plain):
                dialects.stage_rows(connection, self._staging, self._place.schema, plain, self._stage, self._rows)

        database, target = self._place.database, self._place.target
        try:
            with database.errors(f"table {target} of {database}: staging rows of epoch {self._ctx.epoch}"):
                database.patiently(lambda: database.transaction(insert), self._place.patience_s)
        except BadRowError:
            if backend == "postgresql":
                _refuse_nul(plain)
            raise
        self._rows += len(plain)

    def _are_there(self, connection: sa.Connection, rows: int) -> bool:
        stages = self._place.stages.c
        return connection.execute(sa.select(stages.rows).where(stages.id == self._stage)).scalar() == rows

    def _register(self, connection: sa.Connection, rows: int) -> None:
        stages = self._place.stages
        if self._rows:
            grown = sa.update(stages).where(stages.c.id == self._stage).values(rows=stages.c.rows + rows)
            if connection.execute(grown).rowcount != 1:
                raise RetryableError(
                    f"the rows of attempt {self._ctx.attempt} were aborted while it still wrote them; run it again"
                )
            return
        ctx, place = self._ctx, self._place
        entry = {"id": self._stage, "target": place.target, "staging": self._staging, "rows": rows}
        entry |= {"job": ctx.job, "sink": ctx.sink, "epoch": ctx.epoch, "batch": ctx.batch}
        connection.execute(sa.insert(stages), {**entry, "partition": ctx.partition, "attempt": ctx.attempt})


def _refuse_nul(rows: pa.Table) -> None:
    """PostgreSQL says that there is one, and not where. Looked for behind its refusal only: it costs time."""
    for field in rows.schema:
        if pa.types.is_string(field.type) and pc.any(pc.match_substring(rows.column(field.name), "\0")).as_py():
            raise BadRowError(
                f"column '{field.name}' has a text with a NUL character (0x00), which PostgreSQL cannot hold; remove "
                f"it, such as F.translate('{field.name}', '\\0', ''), or filter such rows out"
            )


def _longest(column: pa.Array) -> int:
    """How many bytes the longest of texts or binary values has; 0 of others, which are short."""
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind)):
        return 0
    return pc.max(pc.binary_length(column)).as_py() or 0
