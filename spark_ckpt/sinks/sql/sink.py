"""The ``sql`` sink: rows wait in a staging table of the same database and move in one transaction a checkpoint.

That transaction also writes the checkpoint into a ledger, whose primary key makes a second commit of it impossible:
the ledger, not anybody's memory of the commit, tells committed from lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar

import pyarrow as pa
import sqlalchemy as sa

from spark_ckpt.arrow_types import database_schema
from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.sinks import _changes as changes
from spark_ckpt.sinks import staging
from spark_ckpt.sinks._options import SinkOption, SinkOptions, altered, option_names
from spark_ckpt.sinks.base import SinkWriter, TwoPhaseSink, WriterContext
from spark_ckpt.sinks.sql import _dialects as dialects
from spark_ckpt.sinks.sql import _tables as tables
from spark_ckpt.sinks.sql._dialects import SEQ, STAGE
from spark_ckpt.sinks.sql._keys import index_problems
from spark_ckpt.sinks.sql._moves import Staged, into
from spark_ckpt.sinks.sql._writer import SqlWriter, StagingPlace
from spark_ckpt.storage.sql import connections
from spark_ckpt.storage.sql.database import Database
from spark_ckpt.types import CheckpointId, CommitPermit, Committable

_KIND = "sql"
_IDS_AT_ONCE = 5_000


class SqlSink(TwoPhaseSink):
    """Options: ``url``, ``user``, ``password``, ``table``, ``schema``, ``createTable``, ``mode``, ``mergeKeys``,
    ``changeColumn``, ``lockTimeout``.

    ``mode`` is append or upsert; upserting, the last row a key wins, keys must not be null, and a target that takes
    different keys for the same (by its collation, say) is refused. ``createTable`` (true) makes a missing target.
    ``lockTimeout`` (5min) is how long to wait, in all, for locks that other sessions hold.

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
        SinkOption("lockTimeout", "a duration", "How long to wait, in all, for locks of other sessions.", "5min"),
    )
    OPTIONS = option_names(DECLARED)
    CAN_REPLACE = True
    SIDE_BY_SIDE = True

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        parsed = SinkOptions(_KIND, options, self.DECLARED)
        url = connections.parse_url("sink 'sql'", parsed.required("url"), parsed.text("user"), parsed.text("password"))
        self._database = Database("sink 'sql'", url, parsed.duration_ms("lockTimeout"))
        self._table = parsed.required("table")
        self._schema = parsed.text("schema")
        self._create = parsed.flag("createTable")
        self._keys = parsed.merge_keys()
        self._change = changes.change_column(_KIND, parsed, self._keys)
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
        rows = changes.without(self._change, staged)
        staging.require_columns("mergeKeys", self._keys, rows)

        def prepare(connection: sa.Connection) -> None:
            dialects.check_names(connection, self._table, self._schema, rows.names)
            if not sa.inspect(connection).has_table(self._table, schema=self._schema):
                if not self._create:
                    raise InvalidInputError(f"{self._place} does not exist and option 'createTable' is false")
                tables.create_target(connection, self._table, self._schema, rows, self._keys)
            found = tables.check_target(connection, self._table, self._schema, rows, self._keys)
            tables.create_bookkeeping(connection, self._schema)
            name = tables.staging_name(self._table, staged)
            tables.create_staging(connection, name, self._schema, staged, tables.with_change(found, self._change))

        with self._database.errors(f"{self._place}: preparing it", outage=InvalidInputError):
            self._database.check()
            connections.prepare_database(self._database.engine)
            # Another job may create the same tables at the same time: then ours fails once and finds them.
            self._database.transaction(prepare, again_on=(sa.exc.ProgrammingError, sa.exc.IntegrityError))

    def writer(self, ctx: WriterContext) -> SinkWriter:
        names = self._schema, self._table, self._target_name
        place = StagingPlace(self._database, self._stages, *names, self.patience_s)
        return SqlWriter(place, ctx, self._keys, self._change)

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
            if permit.oldest is not None:
                tables.forget(connection, self._ledger, row, permit.oldest)
            self._step("after ledger")  # a crash anywhere in here: the database rolls back to staged rows, no ledger
            self._mark(connection, staged)
            if self.replacing:
                connection.execute(sa.delete(sa.table(self._table, schema=self._schema)))
            for name, group in groupby(enumerate(staged), key=lambda s: str(s[1]["staging"])):
                self._move(connection, name, list(group), self._mine(row), permit.checkpoint)
            self._step("after move")
            connection.execute(sa.delete(self._stages).where(self._stages.c.position.is_not(None), *self._mine(row)))

        with self._database.errors(f"{self._place}: committing checkpoint {permit.checkpoint}"):
            # Whoever commits the same checkpoint first wins the ledger's key; the other then finds it there.
            self._database.transaction(move, again_on=(sa.exc.IntegrityError,))
        self._step("after transaction")  # a crash here: the ledger tells the next commit it is done

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

        def remove(connection: sa.Connection) -> int:
            if not sa.inspect(connection).has_table(self._ledger.name, schema=self._schema):
                return 0
            done = sa.delete(self._ledger).where(ledger.job == job, ledger.checkpoint < oldest)
            return connection.execute(done).rowcount

        with self._database.errors(f"{self._place}: trimming the ledger"):
            removed = self._database.transaction(remove)
        return [f"{removed} ledger entries of checkpoints before {oldest}"] if removed else []

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
        """Number the stages in commit order; all of them must be there, whole, and wait for this target."""
        self._refuse_other_targets(connection, [s["stage"] for s in staged])
        update = sa.update(self._stages).where(
            self._stages.c.id == sa.bindparam("b_id"), self._stages.c.rows == sa.bindparam("b_rows")
        )
        marks = [{"b_id": s["stage"], "b_rows": s["rows"], "position": i} for i, s in enumerate(staged)]
        marked = connection.execute(update.values(position=sa.bindparam("position")), marks).rowcount
        if marked != len(staged):
            raise CorruptStorageError(
                f"{self._place}: {len(staged) - marked} of {len(staged)} staged transactions are missing or "
                "incomplete in the staging table. Nothing was committed"
            )

    def _refuse_other_targets(self, connection: sa.Connection, ids: Sequence[int]) -> None:
        """A uid may be another table's now: the option changed, or ``alsoTo`` names two in another order."""
        stages = self._stages.c
        for start in range(0, len(ids), _IDS_AT_ONCE):
            chosen = stages.id.in_(ids[start : start + _IDS_AT_ONCE])
            found = set(connection.execute(sa.select(stages.target).where(chosen)).scalars())
            for other in sorted(found - {self._target_name}):
                raise staging.waits_elsewhere(f"table {other}", self._place)

    def _move(
        self,
        connection: sa.Connection,
        name: str,
        staged: Sequence[tuple[int, Mapping[str, Any]]],
        mine: Sequence[sa.ColumnElement[bool]],
        checkpoint: int,
    ) -> None:
        """Move neighbours in commit order that were staged in table ``name``."""
        said = staged[-1][1]
        columns, change = said["columns"], said.get("change")
        more = () if change is None else (change,)
        source = sa.table(name, *(sa.column(c) for c in (STAGE, SEQ, *columns, *more)), schema=self._schema)
        target = sa.table(self._table, *(sa.column(c) for c in columns), schema=self._schema)
        stages = self._stages.c
        ours = sa.and_(stages.position.between(staged[0][0], staged[-1][0]), *mine)
        joined = source.join(self._stages, stages.id == source.c[STAGE])
        problems = index_problems(connection, target, said["keys"]) if said["keys"] else []
        if problems:
            raise altered(self._place, checkpoint, problems)
        rows = Staged(source, joined, ours, (stages.position, source.c[SEQ]))
        into(connection, target, rows, columns, said["keys"], change)
        self._empty(connection, name, [s["stage"] for _, s in staged])

    def _discard(self, connection: sa.Connection, ids: Sequence[int]) -> None:
        """Committed stages are no longer in the register, so nothing of theirs can be touched."""
        for start in range(0, len(ids), _IDS_AT_ONCE):
            chosen = self._stages.c.id.in_(ids[start : start + _IDS_AT_ONCE])
            found = connection.execute(sa.select(self._stages.c.id, self._stages.c.staging).where(chosen)).all()
            for name in {r.staging for r in found}:
                self._empty(connection, name, [r.id for r in found if r.staging == name])
            connection.execute(sa.delete(self._stages).where(chosen))

    def _empty(self, connection: sa.Connection, name: str, ids: Sequence[int]) -> None:
        """Remove the stages ``ids`` from the staging table ``name``."""
        source = sa.table(name, sa.column(STAGE), schema=self._schema)
        for start in range(0, len(ids), _IDS_AT_ONCE):
            connection.execute(sa.delete(source).where(source.c[STAGE].in_(ids[start : start + _IDS_AT_ONCE])))
