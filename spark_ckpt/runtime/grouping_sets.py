"""Each row once for each grouping set, in Arrow. Executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_ckpt.runtime.stateless import split_control, with_columns


@dataclass(frozen=True)
class ExpandSets:
    """What ``cube``, ``rollup`` and ``groupingSets`` put in front of an aggregate: ``keys`` are null in the rows of
    sets that are without them, ``kept`` are columns of ``keys`` under other names, as they were, and ``number`` tells
    the set: Spark's ``grouping_id()``. ``sets`` are places in ``keys``. Control rows pass as they are, once.
    """

    keys: Sequence[str]
    sets: Sequence[Sequence[int]]
    kept: Sequence[tuple[str, str]]
    number: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            data, control = split_control(batch)
            if data.num_rows:
                yield from (self._of_set(data, places) for places in self.sets)
            if control.num_rows:
                yield self._of_set(control, range(len(self.keys)))

    def _of_set(self, batch: pa.RecordBatch, places: Sequence[int]) -> pa.RecordBatch:
        rows, without = batch.num_rows, {key for i, key in enumerate(self.keys) if i not in places}
        named = zip(batch.schema.names, batch.columns, strict=True)
        columns = [pa.nulls(rows, column.type) if name in without else column for name, column in named]
        number = pa.repeat(pa.scalar(grouping_id(len(self.keys), places), pa.int64()), rows)
        added = [*((name, batch.column(key)) for key, name in self.kept), (self.number, number)]
        return with_columns(pa.RecordBatch.from_arrays(columns, batch.schema.names), added)


def grouping_id(keys: int, places: Sequence[int]) -> int:
    """A bit for each key, the first one's is the highest: 1 where the set is without it."""
    return sum(1 << (keys - 1 - i) for i in range(keys) if i not in places)
