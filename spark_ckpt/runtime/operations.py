"""Python operations that follow each other in one worker, and what rows look like between two stages. Executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby

import pyarrow as pa

from spark_ckpt.runtime._worker_gc import freeze
from spark_ckpt.runtime.lazy_batch import LazyBatch, Read, Reading, RowOperation, in_a_row
from spark_ckpt.state.envelope import MAX_BODY_BYTES
from spark_ckpt.state.ipc import from_bytes, messages

Operation = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""From a task's record batches to those of the next operation. Pickled to every task; called once a task."""

ENCLOSED = pa.schema([("body", pa.binary())])
"""Of what :class:`Enclose` makes."""
MARKED = pa.schema([*ENCLOSED, ("first", pa.bool_())])


class Operations:
    """Several operations as one function: what a Python stage does with its task's batches."""

    def __init__(self, operations: tuple[Operation, ...]) -> None:
        self.operations = tuple(_apart(operations))
        self.fails = any(getattr(operation, "fails", False) for operation in self.operations)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze()
        batches = map(_of_nullable_fields, batches)
        for operation in self._stages():
            batches = operation(batches)
        return batches

    def _stages(self) -> list[Operation]:
        """Operations on rows that follow each other are one: of their columns those are made that are read behind."""
        stages: list[Operation] = []
        read: Read | None = None
        for rows, several in groupby(reversed(self.operations), lambda one: isinstance(one, RowOperation)):
            behind = list(several)
            if rows:
                stages.append(partial(in_a_row, behind[::-1], read))
                continue
            for operation in behind:
                read = operation.reads(read) if isinstance(operation, Reading) else None
                stages.append(operation)
        return stages[::-1]


def _of_nullable_fields(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Spark says which columns have no nulls, and batches made here do not: all of a task have to have one schema."""
    return pa.RecordBatch.from_arrays(batch.columns, batch.schema.names)


def row_by_row(operation: Operation) -> list[RowOperation]:
    """The operations that it is, if all are such; else none."""
    parts = list(_apart([operation]))
    found = [one for one in parts if isinstance(one, RowOperation)]
    return found if len(found) == len(parts) else []


def _apart(operations: Iterable[Operation]) -> Iterator[Operation]:
    for operation in operations:
        if isinstance(operation, Operations):
            yield from operation.operations
        else:
            yield operation


class Renamed(RowOperation):
    """Give the columns names, by position."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def lazily(self, batches: Iterator[LazyBatch]) -> Iterator[LazyBatch]:
        return (LazyBatch(self.names, batch.columns) for batch in batches)


class Enclose:
    """Whole record batches as binary rows: between two Python stages the JVM need not turn them into rows and back."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for message in messages(batch, MAX_BODY_BYTES):
                body = pa.array([message.to_pybytes()], pa.binary())
                yield pa.RecordBatch.from_arrays([body], schema=ENCLOSED)


class EncloseMarked(Enclose):
    """The same, and which of a task's binary rows is its first: what comes along with that one, a task gets once."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = True
        for enclosed in super().__call__(batches):
            yield pa.RecordBatch.from_arrays([*enclosed.columns, pa.array([first])], schema=MARKED)
            first = False


class Disclose:
    """The inverse of :class:`Enclose`."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for body in batch.column("body"):
                yield from_bytes(body.as_buffer(), self.schema)
