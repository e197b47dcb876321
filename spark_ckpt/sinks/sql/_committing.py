"""Staged rows of one checkpoint on their way into their tables, inside of one transaction: tried, or committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from spark_ckpt.errors import CorruptStorageError
from spark_ckpt.sinks import staging
from spark_ckpt.sinks._options import altered
from spark_ckpt.sinks.sql._dialects import SEQ, STAGE
from spark_ckpt.sinks.sql._keys import index_problems
from spark_ckpt.sinks.sql._moves import Staged, put, remove
from spark_ckpt.sinks.sql._rules import Moved, may_refuse, referred
from spark_ckpt.types import Committable

IDS_AT_ONCE = 5_000
Numbered = Sequence[tuple[int, Mapping[str, Any]]]
"""What was staged, with its place in commit order."""
Row = tuple[int, int]
"""The place of its stage in commit order, and its number in there."""


@dataclass(frozen=True)
class Piece:
    """Rows from ``first`` to ``last``, in commit order: of one stage, or all of several."""

    first: Row
    last: Row

    def within(self, staged: Sequence[Mapping[str, Any]], position: Any, source: sa.TableClause) -> Any:
        """Of one stage by its number, for which ``source`` has an index."""
        (p, s), (q, t) = self.first, self.last
        if p < q:
            return position.between(p, q)
        return sa.and_(source.c[STAGE] == staged[p]["stage"], source.c[SEQ].between(s, t))


@dataclass(frozen=True)
class Target:
    """A target and the register of what is staged for it. ``name`` is its full name, ``shown`` how messages call it,
    ``rejects`` the table for rows that it refuses, if there is one, ``checkpoint`` the column that says which
    checkpoint a row came with."""

    table: str
    schema: str | None
    name: str
    shown: str
    stages: sa.Table
    replacing: bool
    rejects: str | None = None
    checkpoint: str | None = None

    def clause(self, columns: Sequence[str] = ()) -> sa.TableClause:
        return sa.table(self.table, *(sa.column(c) for c in columns), schema=self.schema)


class Move:
    """What one sink has in a checkpoint, on its way. Stopped anywhere: the database rolls back to staged rows."""

    def __init__(self, target: Target, committables: Sequence[Committable]) -> None:
        self.target = target
        self.sink = staging.sink_of(committables)
        self.staged = [staging.decode("sql", c) for c in committables]
        self.epochs = [c.epoch for c in committables]

    @cached_property
    def groups(self) -> list[tuple[str, Numbered]]:
        """Neighbours in commit order that were staged in one table. Where the query changed there are several."""
        found = groupby(enumerate(self.staged), key=lambda s: str(s[1]["staging"]))
        return [(name, list(group)) for name, group in found]

    def may_be_refused(self, connection: sa.Connection) -> bool:
        at = self.target
        return any(
            bool(s.get("long_keys"))
            or may_refuse(
                connection,
                Moved(
                    at.table,
                    name,
                    at.schema,
                    tuple(s["columns"]),
                    tuple(s["keys"]),
                    bool(s.get("change")) or at.replacing,
                ),
            )
            for name, group in self.groups
            for s in [group[-1][1]]
        )

    def mark(self, connection: sa.Connection) -> None:
        """Number the stages in commit order; all of them must be there, whole, and wait for this target."""
        self._refuse_other_targets(connection)
        stages = self.target.stages
        update = sa.update(stages).where(stages.c.id == sa.bindparam("b_id"), stages.c.rows == sa.bindparam("b_rows"))
        marks = [{"b_id": s["stage"], "b_rows": s["rows"], "position": i} for i, s in enumerate(self.staged)]
        marked = connection.execute(update.values(position=sa.bindparam("position")), marks).rowcount
        if marked != len(self.staged):
            raise CorruptStorageError(
                f"{self.target.shown}: {len(self.staged) - marked} of {len(self.staged)} staged transactions are "
                "missing or incomplete in the staging table. Nothing was committed"
            )

    def _refuse_other_targets(self, connection: sa.Connection) -> None:
        """A uid may be another table's now: the option changed, or ``alsoTo`` names two in another order."""
        stages, ids = self.target.stages.c, [s["stage"] for s in self.staged]
        for start in range(0, len(ids), IDS_AT_ONCE):
            chosen = stages.id.in_(ids[start : start + IDS_AT_ONCE])
            found = set(connection.execute(sa.select(stages.target).where(chosen)).scalars())
            for other in sorted(found - {self.target.name}):
                raise staging.waits_elsewhere(f"table {other}", self.target.shown)

    def remove(self, connection: sa.Connection) -> None:
        """What goes, in front of all that comes: a key or another unique value may move from one row to another."""
        self.clear(connection)
        if len(self.groups) == 1:
            self.remove_some(connection, *self.groups[0])

    def clear(self, connection: sa.Connection) -> None:
        if self.target.replacing:
            connection.execute(sa.delete(self.target.clause()))

    def put(self, connection: sa.Connection, checkpoint: int | None) -> None:
        """What comes. ``checkpoint``: that which is committed; None: it is only tried."""
        for name, group in self.groups:
            if len(self.groups) > 1:
                # A later group may take a key away that an earlier one brought.
                self.remove_some(connection, name, group)
            said = group[-1][1]
            target = self.target.clause(said["columns"])
            problems = index_problems(connection, target, said["keys"]) if said["keys"] else []
            if problems:
                raise altered(self.target.shown, checkpoint, problems)
            self.put_some(connection, name, group, checkpoint=checkpoint or 0)

    def finish(self, connection: sa.Connection) -> None:
        for name, group in self.groups:
            empty(connection, name, self.target.schema, [s["stage"] for _, s in group])
        stages = self.target.stages
        connection.execute(sa.delete(stages).where(stages.c.position.is_not(None), *self._mine))

    @property
    def _mine(self) -> tuple[sa.ColumnElement[bool], ...]:
        """Of the marked ones, those of this sink: others of the query may share the transaction. Another job's are in
        its own."""
        stages = self.target.stages.c
        return stages.sink == self.sink, stages.target == self.target.name

    def remove_some(self, connection: sa.Connection, name: str, group: Numbered, piece: Piece | None = None) -> None:
        said, rows = group[-1][1], self.rows(name, group, piece)
        remove(connection, self.target.clause(said["keys"]), rows, said["keys"], said.get("change"))

    def put_some(
        self, connection: sa.Connection, name: str, group: Numbered, piece: Piece | None = None, checkpoint: int = 0
    ) -> None:
        said, rows = group[-1][1], self.rows(name, group, piece)
        noted = None if self.target.checkpoint is None else (self.target.checkpoint, checkpoint)
        target = self.target.clause([*said["columns"], *(noted or ())[:1]])
        put(connection, target, rows, said["columns"], said["keys"], said.get("change"), noted)

    def rows(self, name: str, group: Numbered, piece: Piece | None = None) -> Staged:
        """Those of ``group``, which wait in table ``name``. Of a ``piece``, each is taken for the last of its key."""
        said, stages = group[-1][1], self.target.stages.c
        more = (said["change"],) if said.get("change") else ()
        names = (STAGE, SEQ, *said["columns"], *more)
        source = sa.table(name, *(sa.column(c) for c in names), schema=self.target.schema)
        ours = sa.and_(stages.position.between(group[0][0], group[-1][0]), *self._mine)
        joined = source.join(self.target.stages, stages.id == source.c[STAGE])
        order = stages.position, source.c[SEQ]
        if piece is None:
            return Staged(source, joined, ours, order)
        within = piece.within(self.staged, stages.position, source)
        return Staged(source, joined, sa.and_(ours, within), order, are_last=True)


def in_order(connection: sa.Connection, moves: Sequence[Move]) -> list[Move]:
    """Tables that others refer to come first."""
    return [moves[i] for i in referred(connection, [(m.target.table, m.target.schema) for m in moves])]


def empty(connection: sa.Connection, name: str, schema: str | None, ids: Sequence[int]) -> None:
    """Remove the stages ``ids`` from the staging table ``name``."""
    source = sa.table(name, sa.column(STAGE), schema=schema)
    for start in range(0, len(ids), IDS_AT_ONCE):
        connection.execute(sa.delete(source).where(source.c[STAGE].in_(ids[start : start + IDS_AT_ONCE])))
