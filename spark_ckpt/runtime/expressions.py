"""Filters and computed columns in Python: what :mod:`spark_ckpt.plan.in_arrow` found that Spark need not do. Executor.

Control rows are rows like others here, as they are for Spark: the condition of a filter says itself that they stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from spark_ckpt.expressions.evaluate import column
from spark_ckpt.expressions.tree import Input, Tree

_PLAIN = {
    **{kind: kind for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())},
    pa.date32(): pa.int32(),
    **{pa.timestamp("us", zone): pa.int64() for zone in (None, "UTC")},
}
"""Types whose values are numbers to NumPy, and those numbers' types."""


class Keep:
    """The rows for which ``condition`` is true."""

    def __init__(self, condition: Tree) -> None:
        self.condition = condition

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = kept_rows(batch, column(self.condition, batch.columns, batch.num_rows))
            if kept.num_rows:
                yield kept


def kept_rows(batch: pa.RecordBatch, wanted: pa.Array) -> pa.RecordBatch:
    """Those for which ``wanted`` is true, column by column: Arrow's filter of a whole batch looks up each row."""
    wanted = wanted.fill_null(False) if wanted.null_count else wanted
    mask = wanted.to_numpy(zero_copy_only=False)
    count = int(np.count_nonzero(mask))
    if count == batch.num_rows:
        return batch
    columns = [_kept(c, wanted, mask, count) for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _kept(values: pa.Array, wanted: pa.Array, mask: np.ndarray, count: int) -> pa.Array:
    if values.null_count == len(values):
        return pa.nulls(count, values.type)
    if values.null_count or values.type not in _PLAIN:
        return values.filter(wanted)
    as_numbers = values.view(_PLAIN[values.type])
    return pa.array(as_numbers.to_numpy()[mask]).view(values.type)


def picked(values: pa.Array, at: np.ndarray) -> pa.Array:
    """The values at these places; null at -1."""
    if values.null_count == len(values):
        return pa.nulls(len(at), values.type)
    alone = at < 0
    missing = alone if alone.any() else None
    if values.null_count or values.type not in _PLAIN:
        return values.take(pa.array(at, mask=missing))
    found = values.view(_PLAIN[values.type]).to_numpy().take(at)  # the last one at -1
    return pa.array(found, mask=missing).view(values.type)


class Compute:
    """New columns of a batch; those that are there already are passed on as they are."""

    def __init__(self, columns: Sequence[tuple[str, Tree]]) -> None:
        self.columns = columns

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = [name for name, _ in self.columns]
        for batch in batches:
            inputs = batch.columns
            arrays = [
                inputs[tree.at] if isinstance(tree, Input) else column(tree, inputs, batch.num_rows)
                for _, tree in self.columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, names)
