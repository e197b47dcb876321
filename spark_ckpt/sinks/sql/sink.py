"""The ``sql`` sink: rows wait in a staging table of the same database and move in one transaction a checkpoint.

That transaction also writes the checkpoint into a ledger, whose primary key makes a second commit of it impossible:
the ledger, not anybody's memory of the commit, tells committed from lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import sqlalchemy as sa

from spark_ckpt.arrow_types import database_schema
from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sinks import _changes as changes
from spark_ckpt.sinks import rejects, staging
from spark_ckpt.sinks._options import SinkOption, SinkOptions, option_names
from spark_ckpt.sinks.base import Part, PastRows, SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.sinks.sql import _dialects as dialects
from spark_ckpt.sinks.sql import _tables as tables
from spark_ckpt.sinks.sql._committing import IDS_AT_ONCE, Move, Target, empty
from spark_ckpt.sinks.sql._refusals import Turn, definition
from spark_ckpt.sinks.sql._searching import let_speak, move_all
from spark_ckpt.sinks.sql._writer import SqlWriter, StagingPlace
from spark_ckpt.sinks.sql.types import arrow_values
from spark_ckpt.storage.sql import connections
from spark_ckpt.storage.sql.database import Database
from spark_ckpt.types import CheckpointId, CommitPermit, Committable

_KIND = "sql"


class SqlSink(TwoPhaseSink):
    """Options: ``url``, ``user``, ``password``, ``table``, ``schema``, ``createTable``, ``mode``, ``mergeKeys``,
    ``changeColumn``, ``checkpointColumn``, ``lockTimeout``, ``errorValues``, ``rejects``.

    ``mode`` is append or upsert; upserting, the last row a key wins, keys must not be null, and a target that takes
    different keys for the same (by its collation, say) is refused. ``createTable`` (true) makes a missing target.
    ``lockTimeout`` (5min) is how long to wait, in all, for locks that other sessions hold. ``errorValues`` (false):
    whether errors may quote values of rows.

    Where the target has rules that its staging table has not (constraints, unique indexes, triggers, partitions), a
    checkpoint's rows are tried before the checkpoint is complete: see docs/design/prepared.md. Tables of one database
    in one query show a checkpoint in one transaction.

    Timestamps with a zone are stored in UTC. SQLite stores temporal values as ISO text and decimals of more than 15
    digits as text. NaN becomes null in SQLite and MariaDB, which have none; MariaDB refuses infinities, too.
    PostgreSQL refuses texts with a NUL character.

    Beside the target live its staging table, ``spark_ckpt_stages`` and ``spark_ckpt_ledger``; do not drop the last
    two while any job writes to the database. The ledger keeps to the checkpoints that the job retains. Passwords never
    appear in errors, reprs or committables.
    """

    DECLARED: ClassVar[tuple[SinkOption, ...]] = (
        SinkOption("url", "a SQLAlchemy URL", "The database: SQLite, PostgreSQL or MariaDB.", required=True),
        SinkOption("user", meaning="In place of one in the URL."),
        SinkOption("password", meaning="In place of one in the URL. Never shown."),
        SinkOption("table", meaning="The target.", required=True),
        SinkOption("schema", meaning="The database schema of the target and of the sink's own tables."),
        SinkOption("createTable", "true or false", "Make the target if there is none.", "true"),
        SinkOption(
            "mode",
            "append or upsert",
            "With `mergeKeys` it is `upsert`, without `append`.",
            choices=("append", "upsert"),
        ),
        SinkOption("mergeKeys", "columns, comma separated", "The last row of each key replaces the one in the table."),
        changes.CHANGE_OPTION,
        SinkOption(
            "checkpointColumn",
            "a column's name",
            "Appending, each row says in it which checkpoint it came with: a `bigint`. With it `as_of` and `rollback` "
            "work; the table has rows of this query only.",
        ),
        SinkOption("lockTimeout", "a duration", "How long to wait, in all, for locks of other sessions.", "5min"),
        SinkOption("errorValues", "true or false", "Whether errors may quote values of rows.", "false"),
        rejects.option("a table of the same schema"),
    )
    REJECTS = ("table", "url", "user", "password", "schema", "lockTimeout", "errorValues")
    OPTIONS = option_names(DECLARED)
    CAN_REPLACE = True
    SIDE_BY_SIDE = True

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        parsed = SinkOptions(_KIND, options, self.DECLARED)
        url = connections.parse_url("sink 'sql'", parsed.required("url"), parsed.text("user"), parsed.text("password"))
        self._database = Database(
            "sink 'sql'", url, parsed.duration_ms("lockTimeout"), error_values=parsed.flag("errorValues")
        )
        self._table = parsed.required("table")
        self._schema = parsed.text("schema")
        self._create = parsed.flag("createTable")
        self._rejects = parsed.text(rejects.NAME)
        self._keys = parsed.merge_keys()
        self._change = changes.change_column(_KIND, parsed, self._keys)
        self._checkpoint = parsed.text("checkpointColumn")
        if self._checkpoint and (self._keys or self._rejects):
            raise ConfigError(
                "sink 'sql': expected option 'checkpointColumn' without 'mergeKeys', by which rows replace others, and "
                "without 'rejects'"
            )
        self._stages = tables.stages_table(self._schema)
        self._ledger = tables.ledger_table(self._schema)

    @classmethod
    def absolute(cls, options: Mapping[str, str]) -> dict[str, str]:
        return {k: connections.absolute_url(v) if k.lower() == "url" else v for k, v in options.items()}

    def __repr__(self) -> str:
        return f"SqlSink({self._place})"

    @property
    def _place(self) -> str:
        return f"table {self._target_name} of {self._database}"

    @property
    def _target_name(self) -> str:
        return f"{self._schema}.{self._table}" if self._schema else self._table

    def validate(self, schema: pa.Schema) -> None:
        """Connects, creates what is missing, and checks an existing target column by column."""
        changes.check_column(self._change, schema)
        staged = database_schema(schema)
        rows = self._with_checkpoint(changes.without(self._change, staged))
        staging.require_columns("mergeKeys", self._keys, rows)
        dialects.check_own_names(self._table, staged.names, (self._stages.name, self._ledger.name))

        def prepare(connection: sa.Connection) -> None:
            dialects.check_names(connection, self._table, self._schema, rows.names)
            if not sa.inspect(connection).has_table(self._table, schema=self._schema):
                if not self._create:
                    raise InvalidInputError(f"{self._place} does not exist and option 'createTable' is false")
                tables.create_target(connection, self._table, self._schema, rows, self._keys)
            found = tables.check_target(connection, self._table, self._schema, rows, self._keys)
            self._check_noted(found)
            tables.create_bookkeeping(connection, self._schema)
            name = tables.staging_name(self._table, staged)
            columns = tables.with_change(found, self._change)
            tables.create_staging(connection, name, self._schema, staged, columns, searched=self._rejects is not None)

        with self._database.errors(f"{self._place}: preparing it", outage=InvalidInputError):
            self._database.check()
            connections.prepare_database(self._database.engine)
            # Another job may create the same tables at the same time: then ours fails once and finds them.
            self._database.transaction(prepare, again_on=(sa.exc.ProgrammingError, sa.exc.IntegrityError))

    def _with_checkpoint(self, rows: pa.Schema) -> pa.Schema:
        if self._checkpoint is None:
            return rows
        if self._checkpoint.casefold() in (n.casefold() for n in rows.names) or self.replacing:
            raise InvalidInputError(
                f"{self._place}: expected in option 'checkpointColumn' a column that the query does not write, and "
                f"output mode append or update, found {self._checkpoint!r}"
            )
        return rows.append(pa.field(self._checkpoint, pa.int64(), nullable=False))

    def writer(self, ctx: WriterContext) -> SinkWriter:
        names = self._schema, self._table, self._target_name
        place = StagingPlace(self._database, self._stages, *names, self.patience_s)
        return SqlWriter(place, ctx, self._keys, self._change)

    @property
    def shares(self) -> str | None:
        """Tables of one database show a checkpoint in one transaction, and rows of one may refer to rows of another."""
        return self._database.identity

    def try_commit(self, parts: Sequence[Part]) -> Sequence[int]:
        """Moves the rows as a commit does, lets deferred constraints speak, and rolls back; only where a target has
        rules that its staging table has not."""
        moves, at = _moves(parts), Turn()

        def attempt(connection: sa.Connection) -> list[int]:
            if not any(m.may_be_refused(connection) for m in moves):
                return []
            rejected = move_all(connection, moves, at, None, self._database)
            let_speak(connection)
            connection.get_transaction().rollback()  # type: ignore[union-attr]
            return [rejected[m.sink] for m in moves]

        with at.telling(moves), self._database.errors(at.doing(moves, "taking the rows"), more=self._rule):
            return self._database.transaction(attempt)

    def commit(self, permit: CommitPermit, committables: Sequence[Committable]) -> None:
        self.commit_together(permit, [Part(self, committables)])

    def commit_together(self, permit: CommitPermit, parts: Sequence[Part]) -> None:
        """All of ``parts`` in one transaction."""
        at = Turn()

        def commit(connection: sa.Connection) -> None:
            open_ = [p for p in parts if _sql(p.sink)._note(connection, permit, p.committables)]
            self._step("after ledger")  # a crash anywhere in here: the database rolls back to staged rows, no ledger
            moves = _moves(open_)
            move_all(connection, moves, at, permit.checkpoint, self._database)
            self._step("after move")
            for move in moves:
                move.finish(connection)

        doing = at.doing(_moves(parts), f"committing checkpoint {permit.checkpoint}")
        with at.telling(_moves(parts)), self._database.errors(doing, more=self._rule):
            # Whoever commits the same checkpoint first wins the ledger's key; the other then finds it there.
            self._database.transaction(commit, again_on=(sa.exc.IntegrityError,))
        self._step("after transaction")  # a crash here: the ledger tells the next commit it is done

    def _note(self, connection: sa.Connection, permit: CommitPermit, committables: Sequence[Committable]) -> bool:
        """Write into the ledger that the checkpoint is committed; False if it is there already."""
        sink, found = staging.sink_of(committables), staging.digest(committables)
        if self._is_committed(connection, permit, sink, found):
            return False
        row = {"job": permit.job, "sink": sink, "checkpoint": permit.checkpoint}
        rows = sum(staging.decode(_KIND, c)["rows"] for c in committables)
        entry = {**row, "generation": permit.generation, "rows": rows, "digest": found}
        connection.execute(sa.insert(self._ledger), entry)
        if permit.oldest is not None:
            tables.forget(connection, self._ledger, row, permit.oldest)
        return True

    def _target(self) -> Target:
        names = self._table, self._schema, self._target_name, self._place
        return Target(*names, self._stages, self.replacing, self._rejects, self._checkpoint)

    def _rule(self, error: BaseException) -> str:
        """The text of the constraint that ``error`` is about, if the database has it."""
        try:
            found = self._database.transaction(lambda connection: definition(connection, error))
        except sa.exc.SQLAlchemyError:
            return ""
        return f" ({found})" if found else ""

    def newest_checkpoint(self, job: str, sink: str) -> int:
        ledger = self._ledger.c
        newest = sa.select(sa.func.max(ledger.checkpoint)).where(ledger.job == job, ledger.sink == sink)
        with self._database.errors(f"{self._place}: looking for the newest checkpoint"):
            return self._database.transaction(
                lambda connection: int(connection.execute(newest).scalar() or 0) if self._has_ledger(connection) else 0
            )

    def _check_noted(self, columns: Mapping[str, Any]) -> None:
        """Texts come in another order than numbers."""
        kind = columns[self._checkpoint]["type"] if self._checkpoint else None
        if kind is not None and not isinstance(kind, sa.Integer | sa.Numeric):
            raise InvalidInputError(
                f"{self._place}: expected column {self._checkpoint!r} of option 'checkpointColumn' to be a bigint, "
                f"found {kind}"
            )

    def as_of(self, job: str, sink: str, checkpoint: CheckpointId) -> PastRows:
        """Rows of before the table had the column are there at every checkpoint."""
        column = self._noted()

        def rows(connection: sa.Connection) -> pa.Table:
            names = [c for c in tables.columns_of(connection, self._table, self._schema) if c != self._checkpoint]
            table = self._target().clause([*names, column.name])
            shown = sa.or_(column <= checkpoint, column.is_(None))
            found = connection.execute(sa.select(*(table.c[n] for n in names)).where(shown)).all()
            return pa.table([arrow_values([row[i] for row in found]) for i in range(len(names))], names=names)

        def read() -> pa.RecordBatchReader:
            with self._database.errors(f"{self._place}: reading the rows of a checkpoint"):
                return self._database.transaction(rows).to_reader()

        with self._database.errors(f"{self._place}: looking for rows of later checkpoints"):
            self._database.transaction(lambda c: self._noted_behind(c, job, sink, checkpoint, may_run=True))
        return PastRows(f"{self._target_name} where {column.name} <= {checkpoint}", read)

    def to_undo(self, job: str, sink: str, checkpoint: CheckpointId) -> str:
        with self._database.errors(f"{self._place}: looking for rows of later checkpoints"):
            return self._database.transaction(lambda connection: self._told(connection, job, sink, checkpoint))

    def _told(self, connection: sa.Connection, job: str, sink: str, checkpoint: int) -> str:
        noted = self._noted_behind(connection, job, sink, checkpoint)
        return f"{sum(noted.values())} row(s) of checkpoint(s) {_listed(noted)}" if noted else ""

    def _noted_behind(
        self, connection: sa.Connection, job: str, sink: str, checkpoint: int, may_run: bool = False
    ) -> dict[int, int]:
        """By checkpoint behind ``checkpoint``: how many rows the ledger says that it brought. Raises
        ``InvalidInputError`` unless the table has as many. ``may_run``: the job may commit another one meanwhile."""
        noted: dict[int, int] = {}
        if self._has_ledger(connection):
            ledger = sa.select(self._ledger.c.checkpoint, self._ledger.c.rows)
            behind = self._behind(job, sink, checkpoint)
            noted = {int(k): int(n) for k, n in connection.execute(ledger.where(behind)).all()}
        if not noted:
            return {}
        column = self._noted()
        within = column.between(checkpoint + 1, max(noted)) if may_run else column > checkpoint
        counted = sa.select(column, sa.func.count()).select_from(self._target().clause([column.name]))
        there = {int(k): int(n) for k, n in connection.execute(counted.where(within).group_by(column)).all()}
        if there != {k: n for k, n in noted.items() if n}:
            raise InvalidInputError(
                f"{self._place}: {sum(there.values())} rows say in {column.name!r} that they came with checkpoint(s) "
                f"{_listed(there)}, behind checkpoint {checkpoint}, and the ledger has {sum(noted.values())} rows of "
                f"this job, of checkpoint(s) {_listed(noted)}: somebody else writes there, or changed them. Set the "
                "table back yourself"
            )
        return noted

    def roll_back(self, job: str, sink: str, checkpoint: CheckpointId) -> None:
        def undo(connection: sa.Connection) -> None:
            if self._told(connection, job, sink, checkpoint):
                column = self._noted()
                connection.execute(sa.delete(self._target().clause([column.name])).where(column > checkpoint))
                connection.execute(sa.delete(self._ledger).where(self._behind(job, sink, checkpoint)))

        with self._database.errors(f"{self._place}: going back to checkpoint {checkpoint}"):
            self._database.transaction(undo)  # a crash in it: the database undoes it

    def _behind(self, job: str, sink: str, checkpoint: int) -> sa.ColumnElement[bool]:
        ledger = self._ledger.c
        return sa.and_(ledger.job == job, ledger.sink == sink, ledger.checkpoint > checkpoint)

    def _noted(self) -> sa.ColumnClause[int]:
        if self._checkpoint is None:
            raise InvalidInputError(
                f"{self._place} does not say which checkpoint a row came with, so it cannot be taken back to one. Rows "
                "that are appended say it with option 'checkpointColumn'"
            )
        return sa.column(self._checkpoint, sa.BigInteger)

    def _has_ledger(self, connection: sa.Connection) -> bool:
        return sa.inspect(connection).has_table(self._ledger.name, schema=self._schema)

    def abort(self, committables: Sequence[Committable]) -> None:
        ids = [staging.decode(_KIND, c)["stage"] for c in committables]
        with self._database.errors(f"{self._place}: aborting"):
            self._database.transaction(lambda connection: self._discard(connection, ids))

    def gc(self, job: str, keep: Sequence[Committable]) -> list[str]:
        return self._collect(job, {staging.decode_any(c).get("stage") for c in keep})

    def discard(self, who: str) -> list[str]:
        return self._collect(who, set())

    def staged_by(self) -> dict[str, int]:
        stages = self._stages.c
        counted = sa.select(stages.job, sa.func.count()).where(stages.target == self._target_name)

        def count(connection: sa.Connection) -> dict[str, int]:
            if not sa.inspect(connection).has_table(self._stages.name, schema=self._schema):
                return {}
            return {str(r[0]): int(r[1]) for r in connection.execute(counted.group_by(stages.job).order_by(stages.job))}

        with self._database.errors(f"{self._place}: looking for what is staged"):
            return self._database.transaction(count)

    def _collect(self, job: str, named: set[Any]) -> list[str]:
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

        with self._database.errors(f"{self._place}: collecting garbage"):
            return self._database.transaction(collect)

    def forget(self, job: str, oldest: CheckpointId) -> list[str]:
        ledger = self._ledger.c
        newest = sa.select(ledger.sink, sa.func.max(ledger.checkpoint)).where(ledger.job == job).group_by(ledger.sink)

        def remove(connection: sa.Connection) -> int:
            if not self._has_ledger(connection):
                return 0
            mine, removed = sa.delete(self._ledger).where(ledger.job == job), 0
            for sink, k in connection.execute(newest).all():
                old = mine.where(ledger.sink == sink, ledger.checkpoint < min(oldest, k))
                removed += connection.execute(old).rowcount
            return removed

        with self._database.errors(f"{self._place}: trimming the ledger"):
            removed = self._database.transaction(remove)
        return [f"{removed} ledger entries of checkpoints before {oldest}"] if removed else []

    def _is_committed(self, connection: sa.Connection, permit: CommitPermit, sink: str, found: str) -> bool:
        ledger = self._ledger.c
        recorded = connection.execute(
            sa.select(ledger.digest).where(
                ledger.job == permit.job, ledger.sink == sink, ledger.checkpoint == permit.checkpoint
            )
        ).scalar()
        staging.check_same_life(self._place, permit, sink, recorded, found)
        return recorded is not None

    def _discard(self, connection: sa.Connection, ids: Sequence[int]) -> None:
        """Committed stages are no longer in the register, so nothing of theirs can be touched."""
        for start in range(0, len(ids), IDS_AT_ONCE):
            chosen = self._stages.c.id.in_(ids[start : start + IDS_AT_ONCE])
            found = connection.execute(sa.select(self._stages.c.id, self._stages.c.staging).where(chosen)).all()
            for name in {r.staging for r in found}:
                empty(connection, name, self._schema, [r.id for r in found if r.staging == name])
            connection.execute(sa.delete(self._stages).where(chosen))


def _sql(sink: TwoPhaseSink) -> SqlSink:
    assert isinstance(sink, SqlSink)
    return sink


def _moves(parts: Sequence[Part]) -> list[Move]:
    return [Move(_sql(p.sink)._target(), p.committables) for p in parts]


def _listed(checkpoints: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(checkpoints))) or "none"
