"""Moves staged rows into their targets; rows that a target refuses go to its table of rejects. In one transaction.

All rows are moved together. Only if they are refused, and a sink has option ``rejects``, the refused ones are looked
for: the rows are moved by halves, what fails by quarters and so on, until rows are left that fail by themselves, and
all of it is rolled back. Those rows go to the table of rejects and out of the staging table, and the rest is moved
together again, as if the others had never come: an earlier row of the same key counts again, and a row that referred
to a refused one is the next to be refused. Each round takes one row away at least, so it ends.

The commit searches by itself, in the transaction that writes the ledger. Whatever changed since the checkpoint was
tried, each row ends up in the target or among the rejects, once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate

import sqlalchemy as sa

from spark_ckpt.sinks.sql._committing import Move, Numbered, Piece, Row, in_order
from spark_ckpt.sinks.sql._moves import WAYS, keep_last
from spark_ckpt.sinks.sql._refusals import Turn, definition
from spark_ckpt.sinks.sql._rejecting import reject
from spark_ckpt.storage.sql.bad_rows import is_about_row, may_pass_with_others
from spark_ckpt.storage.sql.database import Database


@dataclass(frozen=True)
class Refused:
    """A row that its target does not take."""

    move: Move
    staging: str
    row: Row
    error: sa.exc.DBAPIError


def move_all(
    connection: sa.Connection, moves: Sequence[Move], at: Turn, checkpoint: int | None, database: Database
) -> Counter[str]:
    """Returns how many rows were rejected, by sink. ``at`` hears whose turn it is; ``checkpoint`` None: only tried."""
    rejected: Counter[str] = Counter()
    if not any(m.target.rejects for m in moves):
        _move(connection, moves, at, checkpoint)
        return rejected
    while True:
        try:
            with connection.begin_nested():
                _move(connection, moves, at, checkpoint)
                let_speak(connection)
            return rejected
        except sa.exc.DBAPIError as error:
            found = search(connection, moves, at) if is_about_row(error.orig) else []
            if not found:  # about no single row: the target was altered, or a statement's trigger raised
                raise
        for one in found:
            text = definition(connection, one.error.orig) if one.error.orig is not None else None
            bad = database.bad_row(one.error, f" ({text})" if text else "")
            reject(connection, one.move, one.staging, one.row, bad)
            rejected[one.move.sink] += 1


def let_speak(connection: sa.Connection) -> None:
    """Deferred constraints look at the rows now, and not when the transaction is committed."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")


def _move(connection: sa.Connection, moves: Sequence[Move], at: Turn, checkpoint: int | None) -> None:
    """What goes, then what comes; rows that others refer to come first, and go last."""
    ordered = in_order(connection, moves)
    for move in reversed(ordered):
        at.of(move)
        move.mark(connection)
        move.remove(connection)
    for move in ordered:
        at.of(move)
        move.put(connection, checkpoint)


def search(connection: sa.Connection, moves: Sequence[Move], at: Turn) -> list[Refused]:
    """Rows that are refused by themselves, in the order of :func:`_move`; leaves everything as it was. Raises what is
    said of one whose sink has no table of rejects."""
    attempt, ordered, found = connection.begin_nested(), in_order(connection, moves), []
    try:
        for move in reversed(ordered):
            at.of(move)
            move.mark(connection)
            move.clear(connection)
            for name, group in move.groups:
                _Search(connection, move, name, group).keep_last()
            if len(move.groups) == 1:
                found += _Search(connection, move, *move.groups[0]).of(move.remove_some)
        for move in ordered:
            at.of(move)
            for name, group in move.groups:
                looking = _Search(connection, move, name, group)
                if len(move.groups) > 1:
                    found += looking.of(move.remove_some)
                looking.make_way()
                found += looking.of(move.put_some)
    finally:
        attempt.rollback()
    return found


class _Search:
    """Of rows that were staged in one table."""

    def __init__(self, connection: sa.Connection, move: Move, name: str, group: Numbered) -> None:
        self._connection, self._move, self._name, self._group = connection, move, name, group
        self._ends = list(accumulate(int(s["rows"]) for _, s in group))
        self._keys: Sequence[str] = group[-1][1]["keys"]

    def keep_last(self) -> None:
        if self._keys:
            keep_last(self._connection, self._move.rows(self._name, self._group), self._keys)

    def make_way(self) -> None:
        """A unique value may move from row to row, which no half of the rows shows."""
        columns: Sequence[str] = self._group[-1][1]["columns"]
        rows, target = self._move.rows(self._name, self._group).select(columns), self._move.target.clause(columns)
        for way in WAYS if self._keys else ():
            with suppress(sa.exc.IntegrityError), self._connection.begin_nested():  # others refer to them
                if way(self._connection, target, columns, self._keys, rows):
                    return

    def of(self, action: Callable[[sa.Connection, str, Numbered, Piece], None]) -> list[Refused]:
        """Rows for which ``action`` fails; those that others may have been missing to are tried behind them again."""

        def fails(start: int, end: int) -> sa.exc.DBAPIError | None:
            (position, seq) = self._row(start)
            piece = Piece((position, seq), self._row(end - 1) if end > start else (position, seq - 1))
            try:
                with self._connection.begin_nested():
                    action(self._connection, self._name, self._group, piece)
                    let_speak(self._connection)
            except sa.exc.DBAPIError as error:
                if not is_about_row(error.orig):
                    raise
                return error
            return None

        if not self._ends[-1]:
            return []
        whole = fails(0, 0)
        if whole is not None:  # no row's fault: a trigger raises for every statement
            raise whole
        found = self._halved(fails, 0, self._ends[-1])
        while True:
            better = [i for i, error in found.items() if may_pass_with_others(error.orig) and fails(i, i + 1) is None]
            if not better:
                break
            for i in better:
                del found[i]
        if found and self._move.target.rejects is None:
            raise next(iter(found.values()))
        return [Refused(self._move, self._name, self._row(i), error) for i, error in sorted(found.items())]

    def _halved(
        self, fails: Callable[[int, int], sa.exc.DBAPIError | None], start: int, end: int
    ) -> dict[int, sa.exc.DBAPIError]:
        error = fails(start, end)
        if error is None:
            return {}
        if end - start == 1:
            return {start: error}
        half = self._cut(start, end)
        return {**self._halved(fails, start, half), **self._halved(fails, half, end)}

    def _cut(self, start: int, end: int) -> int:
        """The middle, between two stages if there are several."""
        middle = (start + end) // 2
        edges = [e for e in self._ends if start < e < end]
        return min(edges, key=lambda edge: abs(edge - middle)) if edges else middle

    def _row(self, number: int) -> Row:
        """Of the how manieth row of all."""
        i = bisect_right(self._ends, number)
        return self._group[i][0], number - (self._ends[i - 1] if i else 0)
