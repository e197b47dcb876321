"""Each row once for each grouping set, in Arrow. Executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_ckpt.runtime.lazy_batch import Read
from spark_ckpt.runtime.stateless import split_control
from spark_ckpt.types import CTL


@dataclass(frozen=True)
class ExpandSets:
    """What ``cube``, ``rollup`` and ``groupingSets`` put in front of an aggregate: each of ``sets`` has its number, for
    the column ``number``, and the places in ``keys`` of those that are not null in its rows. Control rows pass as they
    are, once.
    """

    keys: Sequence[str]
    sets: Sequence[tuple[int, Sequence[int]]]
    number: str

    def reads(self, behind: Read | None) -> Read | None:
        return None if behind is None else behind | {CTL}

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            data, control = split_control(batch)
            if data.num_rows:
                yield from (self._of_set(data, number, places) for number, places in self.sets)
            if control.num_rows:
                yield control

    def _of_set(self, batch: pa.RecordBatch, number: int, places: Sequence[int]) -> pa.RecordBatch:
        rows, without = batch.num_rows, {key for i, key in enumerate(self.keys) if i not in places}
        numbers = pa.repeat(pa.scalar(number, pa.int64()), rows)
        columns = [
            numbers if name == self.number else pa.nulls(rows, column.type) if name in without else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, batch.schema.names)
