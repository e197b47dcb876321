"""Aggregates of distinct values, exactly: the values are a family, the key's row has what they come to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_ckpt.state.aggregates._accumulators import Accumulator
from spark_ckpt.state.aggregates._in_families import (
    DistinctLists,
    FamilyAccumulator,
    ValueRows,
    sub_fields,
    values_of,
    write_new,
)
from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.keys.grouping import Segments, segments_by_index


class Distinct(FamilyAccumulator):
    """``inner`` of each value that is new to its key: ``count(DISTINCT v)``, ``sum(DISTINCT v)`` and so on.

    ``inner`` has to give nothing for null.
    """

    def __init__(self, inner: Accumulator) -> None:
        super().__init__(inner.name, inner.column, inner.type)
        self.inner = inner

    @property
    def fields(self) -> list[pa.Field]:
        return self.inner.fields

    @property
    def output_type(self) -> pa.DataType:
        return self.inner.output_type

    @property
    def packer(self) -> Accumulator:
        return DistinctLists(self.name, self.column, self.type)

    @property
    def sub_schema(self) -> pa.Schema:
        return sub_fields(self.name, self.type)

    def absorbed(
        self, family: ValueRows, key_index: Rows, packed: list[pa.Array], stored: list[pa.Array]
    ) -> list[pa.Array]:
        """A value that several rows have counts in one of them. They are stored: they are not new a second time."""
        found, new, belongs = write_new(family, key_index, packed[0], self.sub_schema)
        fresh = values_of(found.sub_keys.filter(pa.array(new)), self.type)
        # A null in front gives each row a partial, values or not.
        nothing = pa.nulls(len(key_index), self.type)
        seg, _ = segments_by_index(np.concatenate([np.arange(len(key_index)), belongs[new]]), len(key_index))
        return self.inner.fold(pa.concat_arrays([nothing, fresh]), seg)

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        return self.inner.lift(column, rows)

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        return self.inner.merge(parts, seg)

    def join(self, stored: list[pa.Array], parts: list[pa.Array]) -> list[pa.Array]:
        return self.inner.join(stored, parts)

    def result(self, parts: list[pa.Array]) -> pa.Array:
        return self.inner.result(parts)
