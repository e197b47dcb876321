"""``collect_list`` and ``collect_set``: a row of a family for each value. What comes out is the whole list."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.state.aggregates._accumulators import Accumulator
from spark_ckpt.state.aggregates._in_families import (
    AllLists,
    DistinctLists,
    FamilyAccumulator,
    ValueRows,
    in_order,
    lengths_of,
    list_of,
    owners,
    stored_type,
    sub_fields,
    values_of,
    write_new,
)
from spark_ckpt.state.ipc import Rows, plain_array
from spark_ckpt.state.keys.grouping import Segments, segments_by_index
from spark_ckpt.state.lsm.family import Found


class _Collected(FamilyAccumulator):
    """The key's own row has the number of values."""

    gathers = True

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, pa.int64())]

    @property
    def output_type(self) -> pa.DataType:
        return pa.list_(pa.field("element", self.type, nullable=False))

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        return [column.is_valid().cast(pa.int64())]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        return [pa.array(np.add.reduceat(parts[0].to_numpy(), seg.starts))]

    def _lists(self, lengths: np.ndarray, values: pa.Array) -> pa.Array:
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), values, type=self.output_type)


class CollectAll(_Collected):
    """All values that are not null, in order of arrival, under the numbers 0, 1, 2 ... of each key."""

    @property
    def packer(self) -> Accumulator:
        return AllLists(self.name, self.column, self.type)

    @property
    def sub_schema(self) -> pa.Schema:
        return pa.schema([pa.field(f"{self.name}_place", pa.int64())])

    @property
    def values(self) -> pa.Schema:
        return pa.schema([pa.field(self.name, stored_type(self.type))])

    def absorbed(
        self, family: ValueRows, key_index: Rows, packed: list[pa.Array], stored: list[pa.Array]
    ) -> list[pa.Array]:
        lengths = packed[0].value_lengths().to_numpy().astype(np.int64)
        key = key_index[owners(packed[0])]
        place = pc.fill_null(stored[0], 0).to_numpy()[key] + _numbers(key)
        found = family.get(key, pa.table([pa.array(place)], schema=self.sub_schema))
        values = np.empty(len(found), np.int64)
        values[found.place] = np.arange(len(key))
        family.write(found, pa.table([packed[0].flatten().take(pa.array(values))], schema=self.values))
        return [pa.array(lengths)]

    def packed(self, found: Found, keys: Rows) -> list[pa.Array]:
        values = plain_array(found.state.column(self.name).take(pa.array(found.ordered())))
        return [list_of(lengths_of(found, keys), values, values.type)]

    def gathered(self, family: ValueRows, keys: Rows) -> pa.Array:
        found = family.scan(keys)
        values = plain_array(found.state.column(self.name).take(pa.array(found.ordered())))
        return self._lists(lengths_of(found, keys), values.view(self.type) if values.type != self.type else values)


class CollectSet(_Collected):
    """The distinct values that are not null, ascending; structs field by field."""

    @property
    def packer(self) -> Accumulator:
        return DistinctLists(self.name, self.column, self.type)

    @property
    def sub_schema(self) -> pa.Schema:
        return sub_fields(self.name, self.type)

    def absorbed(
        self, family: ValueRows, key_index: Rows, packed: list[pa.Array], stored: list[pa.Array]
    ) -> list[pa.Array]:
        _, new, belongs = write_new(family, key_index, packed[0], self.sub_schema)
        return [pa.array(np.bincount(belongs[new], minlength=len(key_index)))]

    def gathered(self, family: ValueRows, keys: Rows) -> pa.Array:
        found = family.scan(keys)
        values = values_of(found.sub_keys.take(pa.array(in_order(found))), self.type)
        return self._lists(lengths_of(found, keys), values)


def _numbers(key: Rows) -> np.ndarray:
    """Of each row, how many rows of the same key are in front of it."""
    if not len(key):
        return key
    seg, _ = segments_by_index(key, int(key.max()) + 1)
    numbers = np.empty(len(key), np.int64)
    numbers[np.arange(len(key)) if seg.order is None else seg.order] = np.arange(len(key)) - np.repeat(
        seg.starts, seg.counts
    )
    return numbers
