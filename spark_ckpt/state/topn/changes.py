"""What changed in the first rows of each key, as change rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_ckpt.change_rows import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.topn._rows import TopRows
from spark_ckpt.state.topn.ordering import Ordered

_KINDS = [DELETE, UPDATE_BEFORE, INSERT, UPDATE_AFTER]


@dataclass(frozen=True)
class Changes:
    """``columns`` of a row come out, behind them its ``rank``, from 1, if that has a name, and the kind of ``change``.
    Without a name for that, only what is there now comes out, for who finds by rank what it takes the place of.

    All that is not there any more stands in front of all that is: whatever columns a sink merges by, what it meets last
    of a key is what is there.
    """

    columns: pa.Schema
    rank: str | None
    change: str | None

    @property
    def schema(self) -> pa.Schema:
        rank = [] if self.rank is None else [pa.field(self.rank, pa.int32())]
        change = [] if self.change is None else [pa.field(self.change, pa.string())]
        return pa.schema([*self.columns, *rank, *change])

    def rows(self, rows: TopRows, before: Ordered, after: Ordered, identity: Rows | None = None) -> pa.Table:
        """From ``before`` to ``after``, each the first rows of all keys, by number.

        What is in the place of another is an update of it: with a rank the row that had that rank, else the one with
        the same ``identity`` (a number for each row; None: each row has its own).
        """
        was, now = self._ids(rows, before, identity), self._ids(rows, after, identity)
        _, at_was, at_now = np.intersect1d(was, now, assume_unique=True, return_indices=True)
        same = before.rows[at_was] == after.rows[at_now]
        gone, come = _kinds(len(was), at_was, same, 0), _kinds(len(now), at_now, same, 2)
        if self.change is None:
            gone = np.full(len(was), -1)
        return self._table(rows.table, _only(before, gone), _only(after, come), gone[gone >= 0], come[come >= 0])

    def _ids(self, rows: TopRows, some: Ordered, identity: Rows | None) -> Rows:
        if self.rank is None:
            return some.rows if identity is None else identity[some.rows]
        return rows.owner[some.rows] << 32 | some.place  # ranks are 32 bits long

    def _table(self, table: pa.RecordBatch, gone: Ordered, come: Ordered, *kinds: Rows) -> pa.Table:
        which = table.select(self.columns.names).take(pa.array(np.concatenate([gone.rows, come.rows])))
        columns = list(which.columns)
        if self.rank is not None:
            columns.append(pa.array((np.concatenate([gone.place, come.place]) + 1).astype(np.int32)))
        if self.change is not None:
            columns.append(pa.array(_KINDS).take(pa.array(np.concatenate(kinds))))
        return pa.Table.from_arrays(columns, schema=self.schema)


def _kinds(count: int, matched: Rows, same: np.ndarray, kind: int) -> Rows:
    """Of each row the number of its kind of change; -1: none."""
    kinds = np.full(count, kind)
    kinds[matched] = np.where(same, -1, kind + 1)
    return kinds


def _only(some: Ordered, kinds: Rows) -> Ordered:
    return Ordered(some.rows[kinds >= 0], some.place[kinds >= 0])
