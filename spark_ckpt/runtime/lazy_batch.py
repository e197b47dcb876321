"""Batches whose columns are made when they are asked for, and the operations that take such. Executor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Protocol, runtime_checkable

import pyarrow as pa

from spark_ckpt.expressions.columns import Columns, Given, Placed, Selection, where_true

Read = frozenset[str]
"""Names of the columns that an operation reads."""


class LazyBatch:
    """A record batch to be."""

    def __init__(self, names: Sequence[str], columns: Columns) -> None:
        self.names, self.columns = names, columns

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> LazyBatch:
        return cls(batch.schema.names, Given(batch.columns, batch.num_rows))

    @property
    def num_rows(self) -> int:
        return self.columns.rows

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, self.columns.kind(at)) for at, name in enumerate(self.names)])

    def place(self, name: str) -> int:
        return self.names.index(name)

    def column(self, name: str) -> pa.Array:
        return self.columns[self.place(name)]

    def only(self, rows: Selection) -> LazyBatch:
        return LazyBatch(self.names, self.columns.only(rows))

    def where(self, wanted: pa.Array) -> LazyBatch:
        """The rows for which ``wanted`` is true."""
        kept = where_true(wanted)
        return self if kept.count == self.num_rows else self.only(kept)

    def select(self, places: Sequence[int], names: Sequence[str]) -> LazyBatch:
        """The columns at ``places``, called ``names``."""
        return LazyBatch(names, Placed([self.columns], [(0, at) for at in places], self.num_rows))

    def without(self, name: str) -> LazyBatch:
        kept = [at for at, called in enumerate(self.names) if called != name]
        return self.select(kept, [self.names[at] for at in kept])

    def replaced(self, name: str, values: pa.Array) -> LazyBatch:
        at, new = self.place(name), Given([values], self.num_rows)
        places = [(1, 0) if i == at else (0, i) for i in range(len(self.names))]
        return LazyBatch(self.names, Placed([self.columns, new], places, self.num_rows))

    def with_columns(self, added: Sequence[tuple[str, pa.Array]]) -> LazyBatch:
        """``added`` behind the other columns, in front of the control columns, which are the last two."""
        names, places = list(self.names), [(0, i) for i in range(len(self.names))]
        for at, (name, _) in enumerate(added):
            names.insert(-2, name)
            places.insert(-2, (1, at))
        new = Given([values for _, values in added], self.num_rows)
        return LazyBatch(names, Placed([self.columns, new], places, self.num_rows))

    def made(self, read: Read | None) -> pa.RecordBatch:
        """With nulls for columns that are not ``read``; None: all are."""
        columns, count = self.columns, self.num_rows
        arrays = [
            columns[at] if read is None or name in read else pa.nulls(count, columns.kind(at))
            for at, name in enumerate(self.names)
        ]
        return pa.RecordBatch.from_arrays(arrays, list(self.names))


class RowOperation:
    """An operation that makes rows of rows, in order, and looks at few of their columns itself."""

    def lazily(self, batches: Iterator[LazyBatch]) -> Iterator[LazyBatch]:
        raise NotImplementedError

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return in_a_row([self], None, batches)


@runtime_checkable
class Reading(Protocol):
    """An operation that says what it reads, where ``behind`` is what is read of its result."""

    def reads(self, behind: Read | None) -> Read | None: ...


def in_a_row(
    operations: Sequence[RowOperation], read: Read | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """``operations``, of the result of which ``read`` is read."""
    return (batch.made(read) for batch in all_lazily(operations, map(LazyBatch.of, batches)))


def all_lazily(operations: Iterable[RowOperation], rows: Iterator[LazyBatch]) -> Iterator[LazyBatch]:
    """One behind the other."""
    return reduce(lambda batches, operation: operation.lazily(batches), operations, rows)
