"""Exact numbers of distinct values: the values are rows of a family of the operator, the accumulator only counts them.

A value costs where it is new to its key; where it is not, it is looked up. What a key has seen is never read whole.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_ckpt.names import similar_name
from spark_ckpt.state.aggregates._accumulators import Accumulator, Count
from spark_ckpt.state.aggregates.segments import plain_array
from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.keys.grouping import Segments, group_rows
from spark_ckpt.state.keys.spark_hash import normalised, xxhash64
from spark_ckpt.state.lsm.family import Family


class CountDistinct(Count):
    """In the state. Day-time intervals are stored as microseconds: Delta tables have no such type."""

    can_run = False

    @property
    def stored_type(self) -> pa.DataType:
        return pa.int64() if pa.types.is_duration(self.type) else self.type

    @property
    def family(self) -> str:
        """The aggregate's name, as far as a folder can have it."""
        return similar_name(self.name)

    @property
    def sub_schema(self) -> pa.Schema:
        """What tells the rows of its family apart, besides the key: the value, under the aggregate's name."""
        return pa.schema([pa.field(self.name, self.stored_type)])

    @property
    def packer(self) -> Accumulator:
        return _Distinct(self.name, self.column, self.stored_type)

    def counted(self, family: Family, key_index: Rows, lists: pa.ListArray) -> pa.Array:
        """Of the values in each of ``lists``, which are those of keys ``key_index``, how many are new to the key.

        A value that several have counts in one of them. They are stored: they are not new a second time.
        """
        row = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy())
        found = family.get(key_index[row], pa.table([lists.flatten()], schema=self.sub_schema))
        new = ~found.exists
        if new.any():
            family.write(found, write=new)
        counts_in = np.empty(len(found), np.int64)
        counts_in[found.place] = row
        return pa.array(np.bincount(counts_in[new], minlength=len(lists)))


class _Distinct(Accumulator):
    """In the shuffle: the distinct values that are not null, as a list."""

    can_run = False

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, self.output_type)]

    @property
    def output_type(self) -> pa.DataType:
        return pa.list_(self.type)

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        return [self._lists(column.is_valid().to_numpy(zero_copy_only=False), column.drop_null())]

    def fold(self, column: pa.Array, seg: Segments) -> list[pa.Array]:
        column = seg.arrange(column)
        owner = np.repeat(np.arange(len(seg.starts)), seg.counts)
        known = column.is_valid().to_numpy(zero_copy_only=False)
        return [self._distinct(owner[known], column.drop_null(), len(seg.starts))]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        owner = np.repeat(np.arange(len(seg.starts)), seg.counts)
        lengths = parts[0].value_lengths().to_numpy()
        return [self._distinct(np.repeat(owner, lengths), parts[0].flatten(), len(seg.starts))]

    def _distinct(self, owner: Rows, values: pa.Array, owners: int) -> pa.Array:
        """``owner`` ascends."""
        values = normalised(self._stored(values))
        pairs = pa.table([pa.array(owner), values], ["owner", "value"])
        first = (
            np.sort(group_rows(xxhash64([pairs["owner"].chunk(0), values]), pairs).firsts()) if len(owner) else owner
        )
        return self._lists(np.bincount(owner[first], minlength=owners), values.take(pa.array(first)))

    def _lists(self, lengths: np.ndarray, values: pa.Array) -> pa.Array:
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), self._stored(values), type=self.output_type)

    def _stored(self, values: pa.Array) -> pa.Array:
        return plain_array(values).view(self.type) if pa.types.is_duration(values.type) else plain_array(values)
