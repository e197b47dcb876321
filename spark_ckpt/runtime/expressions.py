"""Filters and computed columns in Python: what :mod:`spark_ckpt.plan.in_arrow` found that Spark need not do. Executor.

Control rows are rows like others here, as they are for Spark: the condition of a filter says itself that they stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from spark_ckpt.expressions.evaluate import column
from spark_ckpt.expressions.tree import Input, Tree


class Keep:
    """The rows for which ``condition`` is true."""

    def __init__(self, condition: Tree) -> None:
        self.condition = condition

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = batch.filter(column(self.condition, batch.columns, batch.num_rows))
            if kept.num_rows:
                yield kept


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
