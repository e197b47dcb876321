"""``zipWithIndex`` around the control rows, in Arrow. Executor.

Spark numbers all rows of a batch, in the order of its tasks. So that control rows take no numbers of the data rows',
those of a task travel in one row behind them, and each task has such a row, with or without control rows: a task's data
rows are as many numbers too high as there are tasks in front of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_ckpt.runtime.stateless import split_control
from spark_ckpt.state.ipc import concat, from_bytes, nulls, to_bytes
from spark_ckpt.types import CONTROL_COLUMNS, CTL, TAG

_CARRIED = pa.schema([(TAG, pa.int64()), (CTL, pa.binary())])


class CarryControlRows:
    """A task's data rows, and one row that has all of its control rows in the control column, the last one. ``schema``:
    of a task without rows; others are not to change theirs."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found, schema = [nulls(_CARRIED, 0)], self.schema
        for batch in batches:
            schema = batch.schema
            data, control = split_control(batch)
            found.append(control.select(list(CONTROL_COLUMNS)).cast(_CARRIED))
            yield data
        columns = [*nulls(schema, 1).columns[:-1], pa.array([to_bytes(concat(found))], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


class DropControlRowsOff:
    """The inverse of :class:`CarryControlRows`, whatever columns have been added."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            data, carriers = split_control(batch)
            if data.num_rows:
                yield data
            for body in carriers.column(CTL):
                control = from_bytes(body.as_buffer(), _CARRIED)
                if control.num_rows:
                    empty = nulls(batch.schema, control.num_rows)
                    kept = [control.column(n) if n in CONTROL_COLUMNS else empty.column(n) for n in batch.schema.names]
                    yield pa.RecordBatch.from_arrays(kept, schema=batch.schema)
