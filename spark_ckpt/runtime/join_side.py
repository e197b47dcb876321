"""The rows of one side of a join, as the rows of its operator: both sides have one schema there. Executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.runtime.lazy_batch import Read
from spark_ckpt.state.joins.function import RIGHT
from spark_ckpt.types import CTL

TIME = "__ckpt_time"
"""A row's event time, whichever column of its side it is."""


@dataclass(frozen=True)
class JoinSide:
    """``columns``: of the operator's rows, by name, from the side's columns; the others are null.

    ``needed`` columns are not null, ``true`` ones are true in the rows that go on: Spark filters by them ahead of
    ``withWatermark``, so the others do not move the watermark, either.
    """

    schema: pa.Schema
    of_right: bool
    columns: Mapping[str, str]
    needed: tuple[str, ...] = ()
    true: tuple[str, ...] = ()

    def reads(self, _behind: Read | None) -> Read:
        return frozenset((*self.columns.values(), *self.needed, *self.true, CTL))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (self._of_operator(self._filtered(batch)) for batch in batches)

    def _filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        kept = [pc.is_valid(batch.column(name)) for name in self.needed]
        kept += [pc.fill_null(batch.column(name), False) for name in self.true]
        if not kept:
            return batch
        goes_on = kept[0]
        for more in kept[1:]:
            goes_on = pc.and_(goes_on, more)
        goes_on = pc.or_(goes_on, pc.is_valid(batch.column(CTL)))
        return batch if pc.all(goes_on).as_py() is not False else batch.filter(goes_on)

    def _of_operator(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.num_rows
        columns = []
        for field in self.schema:
            if field.name == RIGHT:
                columns.append(pa.repeat(pa.scalar(self.of_right), rows))
            elif field.name in self.columns:
                columns.append(batch.column(self.columns[field.name]).cast(field.type))
            else:
                columns.append(pa.nulls(rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
