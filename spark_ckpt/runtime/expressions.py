"""Filters and computed columns in Python, as :mod:`spark_ckpt.plan.analysed._in_arrow` found them. Executor.

Control rows are rows like others here, as they are for Spark: the condition of a filter says itself that they stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_ckpt.expressions.columns import Computed
from spark_ckpt.expressions.evaluate import column
from spark_ckpt.expressions.tree import Tree, may_raise
from spark_ckpt.runtime.lazy_batch import LazyBatch, RowOperation


class Keep(RowOperation):
    """The rows for which ``condition`` is true."""

    def __init__(self, condition: Tree) -> None:
        self.condition = condition

    def lazily(self, batches: Iterator[LazyBatch]) -> Iterator[LazyBatch]:
        for batch in batches:
            kept = batch.where(column(self.condition, batch.columns, batch.num_rows))
            if kept.num_rows:
                yield kept


class Compute(RowOperation):
    """New columns of a batch; those that are there already are passed on as they are."""

    def __init__(self, columns: Sequence[tuple[str, Tree]]) -> None:
        self.columns = columns
        self.fails = any(may_raise(tree) for _, tree in columns)

    def lazily(self, batches: Iterator[LazyBatch]) -> Iterator[LazyBatch]:
        names, trees = [name for name, _ in self.columns], [tree for _, tree in self.columns]
        return (LazyBatch(names, Computed(trees, batch.columns, column)) for batch in batches)
