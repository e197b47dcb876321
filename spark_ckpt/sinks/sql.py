"""The ``sql`` sink: rows wait in a staging table of the same database and move in one transaction a checkpoint.

That transaction also writes the checkpoint into a ledger, whose primary key makes a second commit of it impossible:
the ledger, not anybody's memory of the commit, tells committed from lost.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar
from urllib.parse import quote, quote_plus

import pyarrow as pa
import sqlalchemy as sa

from spark_ckpt.errors import CkptError, CorruptStorageError, InvalidInputError, RetryableError
from spark_ckpt.sinks import sql_dialects, sql_tables, staging
from spark_ckpt.sinks.base import SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.sinks.options import SinkOptions
from spark_ckpt.sinks.sql_dialects import SEQ, STAGE
from spark_ckpt.sinks.sql_types import plain_schema
from spark_ckpt.types import CommitPermit, Committable

_KIND = "sql"
_TRIES = 8
_FIRST_PAUSE_S = 0.05
_IDS_AT_ONCE = 5_000
_CHUNK_ROWS = 64 * 1024
_CHUNK_BYTES = 16 * 1024 * 1024


class SqlSink(TwoPhaseSink):
    """Options: ``url``, ``user``, ``password``, ``table``, ``schema``, ``createTable``, ``mode``, ``mergeKeys``.

    ``mode`` is append or upsert; upserting, the last row a key wins and keys must not be null. ``createTable``
    (true) makes a missing target. Timestamps with a zone are stored in UTC. SQLite stores temporal values as ISO
    text, decimals of more than 15 digits as text, and NaN as null (it has none).

    Beside the target live its staging table, ``spark_ckpt_stages`` and ``spark_ckpt_ledger``; do not drop the last
    two while any job writes to the database. Passwords never appear in errors, reprs or committables.
    """

    OPTIONS: ClassVar[tuple[str, ...]] = (
        "url", "user", "password", "table", "schema", "createTable", "mode", "mergeKeys",
    )  # fmt: skip

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        parsed = SinkOptions(_KIND, options, self.OPTIONS)
        self._url = sql_dialects.parse_url(parsed.required("url"), parsed.text("user"), parsed.text("password"))
        self._table = parsed.required("table")
        self._schema = parsed.text("schema")
        self._create = parsed.flag("createTable", True)
        self._keys = parsed.merge_keys(("append", "upsert"))
        self._stages = sql_tables.stages_table(self._schema)
        self._ledger = sql_tables.ledger_table(self._schema)

    def __repr__(self) -> str:
        return f"SqlSink({self._place})"

    @property
    def _place(self) -> str:
        return f"table {self._target_name} of {self._redacted(self._url.render_as_string(hide_password=True))}"

    @property
    def _target_name(self) -> str:
        return f"{self._schema}.{self._table}" if self._schema else self._table

    @cached_property
    def engine(self) -> sa.Engine:
        return sql_dialects.connect_engine(self._url)

    def validate(self, schema: pa.Schema) -> None:
        """Connects, creates what is missing, and checks an existing target column by column."""
        rows = plain_schema(schema)
        staging.require_columns("mergeKeys", self._keys, rows)

        def prepare(connection: sa.Connection) -> None:
            if not sa.inspect(connection).has_table(self._table, schema=self._schema):
                if not self._create:
                    raise InvalidInputError(f"{self._place} does not exist and option 'createTable' is false")
                sql_tables.create_target(connection, self._table, self._schema, rows, self._keys)
            found = sql_tables.check_target(connection, self._table, self._schema, rows, self._keys)
            self._stages.create(connection, checkfirst=True)
            self._ledger.create(connection, checkfirst=True)
            name = sql_tables.staging_name(self._table, rows)
            sql_tables.create_staging(connection, name, self._schema, rows, found)

        with self._errors("preparing", outage=InvalidInputError):
            sql_dialects.prepare_database(self.engine)
            # Another job may create the same tables at the same time: then ours fails once and finds them.
            self._transaction(prepare, again_on=(sa.exc.ProgrammingError, sa.exc.IntegrityError))

    def writer(self, ctx: WriterContext) -> SinkWriter:
        return _SqlWriter(self, ctx)

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        sink = staging.sink_of(committables)
        staged = [staging.decode(_KIND, c) for c in committables]
        found = staging.digest(committables)
        row = {"job": permit.job, "sink": sink, "checkpoint": permit.checkpoint}

        def move(connection: sa.Connection) -> None:
            if self._is_committed(connection, permit, sink, found):
                return
            rows = sum(s["rows"] for s in staged)
            entry = {**row, "generation": permit.generation, "rows": rows, "digest": found}
            connection.execute(sa.insert(self._ledger), entry)
            self._step("after ledger")  # a crash anywhere in here: the database rolls back to staged rows, no ledger
            self._mark(connection, staged)
            for name, group in groupby(staged, key=lambda s: str(s["staging"])):
                self._move(connection, name, list(group))
            self._step("after move")
            connection.execute(sa.delete(self._stages).where(self._stages.c.position.is_not(None), *self._mine(row)))

        with self._errors(f"committing checkpoint {permit.checkpoint}"):
            # Whoever commits the same checkpoint first wins the ledger's key; the other then finds it there.
            self._transaction(move, again_on=(sa.exc.IntegrityError,))
        self._step("after transaction")  # a crash here: the ledger tells the next commit it is done

    def abort(self, committables: Sequence[Committable]) -> None:
        ids = [staging.decode(_KIND, c)["stage"] for c in committables]
        with self._errors("aborting"):
            self._transaction(lambda connection: self._discard(connection, ids))

    def gc(self, job: str, keep: Sequence[Committable]) -> list[str]:
        named = {staging.decode_any(c).get("stage") for c in keep}
        stages = self._stages.c
        mine = sa.select(stages.id, stages.epoch, stages.batch, stages.attempt, stages.rows).where(
            stages.job == job, stages.target == self._target_name
        )

        def collect(connection: sa.Connection) -> list[str]:
            if not sa.inspect(connection).has_table(self._stages.name, schema=self._schema):
                return []
            lost = [r for r in connection.execute(mine.order_by(stages.id)) if r.id not in named]
            self._discard(connection, [r.id for r in lost])
            return [f"stage {r.id} (epoch {r.epoch}, batch {r.batch}, {r.attempt}): {r.rows} rows" for r in lost]

        with self._errors("collecting garbage"):
            return self._transaction(collect)

    def _mine(self, row: Mapping[str, Any]) -> tuple[sa.ColumnElement[bool], ...]:
        return self._stages.c.job == row["job"], self._stages.c.sink == row["sink"]

    def _is_committed(self, connection: sa.Connection, permit: CommitPermit, sink: str, found: str) -> bool:
        ledger = self._ledger.c
        recorded = connection.execute(
            sa.select(ledger.digest).where(
                ledger.job == permit.job, ledger.sink == sink, ledger.checkpoint == permit.checkpoint
            )
        ).scalar()
        staging.check_same_life(self._place, permit, sink, recorded, found)
        return recorded is not None

    def _mark(self, connection: sa.Connection, staged: Sequence[Mapping[str, Any]]) -> None:
        """Number the stages in commit order; all of them must be there, whole."""
        update = sa.update(self._stages).where(
            self._stages.c.id == sa.bindparam("b_id"), self._stages.c.rows == sa.bindparam("b_rows")
        )
        marks = [{"b_id": s["stage"], "b_rows": s["rows"], "position": i} for i, s in enumerate(staged)]
        marked = connection.execute(update.values(position=sa.bindparam("position")), marks).rowcount
        if marked != len(staged):
            raise CorruptStorageError(
                f"{self._place}: {len(staged) - marked} of {len(staged)} staged transactions are missing or "
                "incomplete in the staging table. Nothing was committed; restore an earlier checkpoint"
            )

    def _move(self, connection: sa.Connection, name: str, staged: Sequence[Mapping[str, Any]]) -> None:
        columns, keys = staged[-1]["columns"], staged[-1]["keys"]
        source = sa.table(name, *(sa.column(c) for c in (STAGE, SEQ, *columns)), schema=self._schema)
        target = sa.table(self._table, *(sa.column(c) for c in columns), schema=self._schema)
        stages = self._stages.c
        ids = stages.id.in_([s["stage"] for s in staged])
        joined = source.join(self._stages, stages.id == source.c[STAGE])
        picked = [source.c[c] for c in columns]
        if keys:
            newest = sa.func.row_number().over(
                partition_by=[source.c[k] for k in keys], order_by=[stages.position.desc(), source.c[SEQ].desc()]
            )
            numbered = sa.select(*picked, newest.label("_ckpt_rank")).select_from(joined).where(ids).subquery()
            rows = sa.select(*(numbered.c[c] for c in columns)).where(numbered.c["_ckpt_rank"] == 1)
            connection.execute(sql_dialects.upsert(connection.dialect.name, target, columns, keys, rows))
        else:
            rows = sa.select(*picked).select_from(joined).where(ids)
            connection.execute(sa.insert(target).from_select(columns, rows))
        connection.execute(sa.delete(source).where(source.c[STAGE].in_([s["stage"] for s in staged])))

    def _discard(self, connection: sa.Connection, ids: Sequence[int]) -> None:
        """Committed stages are no longer in the register, so nothing of theirs can be touched."""
        for start in range(0, len(ids), _IDS_AT_ONCE):
            chosen = self._stages.c.id.in_(ids[start : start + _IDS_AT_ONCE])
            found = connection.execute(sa.select(self._stages.c.id, self._stages.c.staging).where(chosen)).all()
            for name in {r.staging for r in found}:
                source = sa.table(name, sa.column(STAGE), schema=self._schema)
                rows = [r.id for r in found if r.staging == name]
                connection.execute(sa.delete(source).where(source.c[STAGE].in_(rows)))
            connection.execute(sa.delete(self._stages).where(chosen))

    def _transaction(
        self, work: Callable[[sa.Connection], Any], again_on: tuple[type[Exception], ...] = ()
    ) -> Any:
        """Run ``work`` in one transaction; again if the database asks for it, and once if ``again_on`` is met."""
        pause_s, met = _FIRST_PAUSE_S, 0
        for last in [False] * (_TRIES - 1) + [True]:
            try:
                with self.engine.begin() as connection:
                    return work(connection)
            except sa.exc.DBAPIError as error:
                met += isinstance(error, again_on)
                if last or not (sql_dialects.is_transient(error.orig) or (isinstance(error, again_on) and met == 1)):
                    raise
            time.sleep(pause_s)
            pause_s *= 2
        raise AssertionError("unreachable")

    @contextmanager
    def _errors(self, doing: str, outage: type[CkptError] = RetryableError) -> Iterator[None]:
        """Database errors as ours, without secrets; the original is not shown with them."""
        drivers: tuple[type[BaseException], ...] = (sa.exc.SQLAlchemyError, self._driver_error())
        try:
            yield
        except drivers as error:
            cause = getattr(error, "orig", None) or error
            kind = outage if sql_dialects.is_outage(cause) else InvalidInputError
            failure = kind(f"{self._place}: {doing} failed: {self._redacted(str(cause)).strip()}")
        else:
            return
        raise failure from None

    def _driver_error(self) -> type[BaseException]:
        dbapi = self.engine.dialect.dbapi
        error: type[BaseException] = sa.exc.SQLAlchemyError if dbapi is None else dbapi.Error
        return error

    def _redacted(self, text: str) -> str:
        for secret in [self._url.password, *self._url.query.values()]:
            for form in (str(secret), quote(str(secret), safe=""), quote_plus(str(secret))) if secret else ():
                text = text.replace(form, "***")
        return text


class _SqlWriter(SinkWriter):
    """Inserts some 64 K rows a transaction: tasks that write to SQLite at the same time wait for each other."""

    def __init__(self, sink: SqlSink, ctx: WriterContext) -> None:
        self._sink, self._ctx = sink, ctx
        self._schema = plain_schema(ctx.schema)
        self._chunks = staging.Chunks(_CHUNK_ROWS, _CHUNK_BYTES)
        self._stage = secrets.randbits(62)  # also tells a retried attempt's rows from the first one's
        self._staging = sql_tables.staging_name(sink._table, self._schema)
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        for key in self._sink._keys:
            if batch.column(key).null_count:
                raise InvalidInputError(f"mergeKeys column '{key}' has a null; a database key cannot be null")
        self._put(self._chunks.add(batch))

    def prepare_commit(self) -> Sequence[bytes]:
        self._put(self._chunks.rest())
        if not self._rows:
            return []
        return [staging.encode(
            _KIND, stage=self._stage, staging=self._staging, rows=self._rows, columns=self._schema.names,
            keys=list(self._sink._keys),
        )]  # fmt: skip

    def close(self) -> None:
        """Nothing to release: a connection lives only while a chunk is written."""

    def _put(self, rows: pa.Table | None) -> None:
        if rows is None:
            return
        plain = rows.cast(self._schema)

        def insert(connection: sa.Connection) -> None:
            self._register(connection, len(plain))
            schema = self._sink._schema
            sql_dialects.stage_rows(connection, self._staging, schema, plain, self._stage, self._rows)

        with self._sink._errors(f"staging epoch {self._ctx.epoch}"):
            self._sink._transaction(insert)
        self._rows += len(plain)

    def _register(self, connection: sa.Connection, rows: int) -> None:
        stages = self._sink._stages
        if not self._rows:
            entry = {
                "id": self._stage, "job": self._ctx.job, "sink": self._ctx.sink, "target": self._sink._target_name,
                "staging": self._staging, "epoch": self._ctx.epoch, "batch": self._ctx.batch,
                "partition": self._ctx.partition, "attempt": self._ctx.attempt, "rows": rows,
            }  # fmt: skip
            connection.execute(sa.insert(stages), entry)
            return
        grown = sa.update(stages).where(stages.c.id == self._stage).values(rows=stages.c.rows + rows)
        if connection.execute(grown).rowcount != 1:
            raise RetryableError(
                f"{self._sink!r}: the rows of attempt {self._ctx.attempt} were aborted while it still wrote; run it again"
            )
