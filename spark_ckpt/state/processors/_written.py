"""What a call has written so far into rows that it looked up: a table for each portion of its keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_ckpt.state.ipc import Rows, concat, contiguous, one_batch
from spark_ckpt.state.keys.keys import Mask

_SAME, _ENDED = -1, -2
_MOST_TABLES = 8
"""A portion that reads what more portions wrote puts all that was written together."""


class Written:
    """``rows``: how many were looked up. A row that is written twice has its last value."""

    def __init__(self, rows: int, schema: pa.Schema) -> None:
        self._newest = np.full(rows, _SAME)
        """Which of all rows of ``_tables`` is the value of each row."""
        self._tables = [one_batch(schema.empty_table())]
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._count or (self._newest == _ENDED).any())

    def add(self, rows: Rows, values: pa.Table) -> None:
        self._newest[rows] = np.arange(self._count, self._count + len(values))
        if len(values):
            self._tables.append(one_batch(values))
            self._count += len(values)

    def end(self, rows: Rows) -> None:
        self._newest[rows] = _ENDED

    def changed(self, rows: Rows) -> tuple[Mask, Mask]:
        """Which of the rows were written or ended, and which of them have a value."""
        newest = self._newest[rows]
        return newest != _SAME, newest >= 0

    def values(self, rows: Rows) -> pa.RecordBatch:
        """Of ``rows``, all of which have one."""
        wanted, ends = self._newest[rows], np.cumsum([len(table) for table in self._tables])
        table = np.searchsorted(ends, wanted, side="right")
        found = np.unique(table).tolist()
        if len(found) > _MOST_TABLES:
            self._tables = [concat(self._tables)]
            return self._tables[0].take(pa.array(wanted))
        at = [np.flatnonzero(table == i) for i in found]
        pieces = [
            self._tables[i].take(pa.array(wanted[rows_of] - (ends[i] - len(self._tables[i]))))
            for i, rows_of in zip(found, at, strict=True)
        ]
        return concat(pieces).take(pa.array(np.argsort(np.concatenate(at))))

    def all(self) -> tuple[pa.Table, Mask, Mask]:
        """The values of all rows that were looked up, which of them were written, and which ended."""
        table, newest = pa.Table.from_batches(self._tables), self._newest
        if not (contiguous(newest) and newest[0] == 0 and len(newest) == self._count):
            table = table.take(pa.array(newest, mask=newest < 0))
        return table, newest >= 0, newest == _ENDED
