"""Aggregates that keep values: they are rows of a family of the operator, and never part of the key's own row.

A value costs where it is new to its key, or where it is counted; what a key has is never rewritten whole. In the
shuffle each task sends the values of a key as one list.
"""

from __future__ import annotations

import zlib
from abc import abstractmethod
from typing import Protocol

import numpy as np
import pyarrow as pa

from spark_ckpt.names import similar_name
from spark_ckpt.state.aggregates._accumulators import Accumulator
from spark_ckpt.state.aggregates.ordinals import ranks
from spark_ckpt.state.ipc import Rows, plain_array
from spark_ckpt.state.keys.grouping import Segments, group_rows
from spark_ckpt.state.keys.keys import Mask
from spark_ckpt.state.keys.spark_hash import normalised, xxhash64
from spark_ckpt.state.lsm.family import Found

Parts = list[pa.Array]
"""An aggregate's columns."""
_LONGEST = 110
"""Bytes of an aggregate's name in that of a folder, which holds the operator's uid, too."""


class ValueRows(Protocol):
    """The rows of a family, as :class:`spark_ckpt.state.lsm.family.Family` has them of keys."""

    def get(self, key_index: Rows, sub_keys: pa.Table | pa.RecordBatch) -> Found: ...

    def scan(self, key_index: Rows | None = None) -> Found: ...

    def write(
        self, found: Found, state: pa.Table | None = None, write: Mask | None = None, remove: Mask | None = None
    ) -> None: ...


class FamilyAccumulator(Accumulator):
    """In the state: the columns of the key's own row, and the rows of a family."""

    gathers = False
    """Whether :meth:`gathered` gives the results, of the family's rows, and not ``result``."""
    values: pa.Schema = pa.schema([])
    """The value columns of the family's rows."""

    @property
    def family(self) -> str:
        """The aggregate's name, as far as a folder can have it."""
        name = similar_name(self.name)
        if len(name.encode()) <= _LONGEST:
            return name
        cut = name.encode()[: _LONGEST - 10].decode(errors="ignore").strip()
        return f"{cut}-{zlib.crc32(self.name.encode()):08x}"

    @property
    @abstractmethod
    def sub_schema(self) -> pa.Schema:
        """What tells the rows of its family apart, besides the key."""

    @abstractmethod
    def absorbed(
        self, family: ValueRows, key_index: Rows, packed: list[pa.Array], stored: list[pa.Array]
    ) -> list[pa.Array]:
        """The partials, as the state has them, of what the rows of keys ``key_index`` bring, whose values are written.

        ``packed`` are the columns of :attr:`packer`; ``stored`` the partials of all touched keys, null where they have
        none.
        """

    def packed(self, found: Found, keys: Rows) -> list[pa.Array]:
        """The columns of :attr:`packer` again, for each of ``keys``, ascending: of all rows that these have."""
        order, lengths = pa.array(in_order(found)), lengths_of(found, keys)
        kind = stored_type(self.type)
        lists = [list_of(lengths, values_of(found.sub_keys.take(order), kind), kind)]
        return lists + [list_of(lengths, c.take(order), c.type) for c in found.state.columns]

    def gathered(self, family: ValueRows, keys: Rows) -> pa.Array:
        """The results of ``keys``, ascending: what is read of the family is what these have."""
        raise NotImplementedError(type(self).__name__)


class DistinctLists(Accumulator):
    """In the shuffle: the distinct values that are not null, as a list; with ``counted`` also how often each came."""

    def __init__(self, name: str, column: str | None, type_: pa.DataType, counted: bool = False) -> None:
        super().__init__(name, column, stored_type(type_))
        self.counted = counted

    @property
    def fields(self) -> list[pa.Field]:
        counts = [pa.field(f"{self.name}_times", pa.list_(pa.int64()))] if self.counted else []
        return [pa.field(self.name, self.output_type), *counts]

    @property
    def output_type(self) -> pa.DataType:
        return pa.list_(self.type)

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        known = column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        values = list_of(known, stored(column.drop_null()), self.type)
        return (
            [values, list_of(known, pa.array(np.ones(known.sum(), np.int64)), pa.int64())] if self.counted else [values]
        )

    def fold(self, column: pa.Array, seg: Segments) -> list[pa.Array]:
        column = seg.arrange(column)
        owner = np.repeat(np.arange(len(seg.starts)), seg.counts)
        known = column.is_valid().to_numpy(zero_copy_only=False)
        return self._distinct(owner[known], column.drop_null(), None, len(seg.starts))

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        owner = np.repeat(np.arange(len(seg.starts)), seg.counts)
        lengths = parts[0].value_lengths().to_numpy()
        times = parts[1].flatten().to_numpy() if self.counted else None
        return self._distinct(np.repeat(owner, lengths), parts[0].flatten(), times, len(seg.starts))

    def _distinct(self, owner: Rows, values: pa.Array, times: Rows | None, owners: int) -> list[pa.Array]:
        """``owner`` ascends."""
        values = stored(values)
        seg = by_value(owner, values)
        firsts = seg.firsts()
        order = np.argsort(firsts)
        firsts = firsts[order]
        lengths = np.bincount(owner[firsts], minlength=owners)
        lists = [list_of(lengths, values.take(pa.array(firsts)), self.type)]
        if self.counted:
            counts = seg.counts
            if times is not None and len(times):
                counts = np.add.reduceat(times if seg.order is None else times[seg.order], seg.starts)
            lists.append(list_of(lengths, pa.array(counts[order].astype(np.int64)), pa.int64()))
        return lists


class AllLists(Accumulator):
    """In the shuffle: all values that are not null, in order of arrival."""

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, self.output_type)]

    @property
    def output_type(self) -> pa.DataType:
        return pa.list_(stored_type(self.type))

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        known = column.is_valid().to_numpy(zero_copy_only=False)
        return [list_of(known.astype(np.int64), stored(column.drop_null()), self.output_type.value_type)]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        lengths = np.add.reduceat(parts[0].value_lengths().to_numpy().astype(np.int64), seg.starts)
        return [list_of(lengths, parts[0].flatten(), self.output_type.value_type)]


def owners(lists: pa.Array) -> Rows:
    """Of each value in ``lists``, which list it is in."""
    return np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy())


def write_new(family: ValueRows, key_index: Rows, lists: pa.Array, schema: pa.Schema) -> tuple[Found, np.ndarray, Rows]:
    """Write the values in ``lists``, one of each key of ``key_index``, that are new to their key.

    Returns the family's rows of all of them, a mask of the new ones, and the place in ``key_index`` of each one's key.
    """
    row = owners(lists)
    found = family.get(key_index[row], sub_keys_of(lists.flatten(), schema))
    new = ~found.exists
    if new.any():
        family.write(found, write=new)
    belongs = np.empty(len(found), np.int64)
    belongs[found.place] = row
    return found, new, belongs


def by_value(owner: Rows, values: pa.Array) -> Segments:
    """Groups values that are one value to Spark's groupBy, owner by owner."""
    columns = [pa.array(owner), *columns_of(values)]
    table = pa.table(columns, [str(i) for i in range(len(columns))])
    return group_rows(xxhash64(columns) if len(owner) else owner, table)


def columns_of(values: pa.Array) -> list[pa.Array]:
    """Of structs their fields, else the values themselves; normalised, as keys are."""
    parts = values.flatten() if pa.types.is_struct(values.type) else [values]
    return [normalised(plain_array(part)) for part in parts]


def sub_keys_of(values: pa.Array, schema: pa.Schema) -> pa.Table:
    return pa.table(columns_of(values), schema=schema)


def values_of(rows: pa.Table, type_: pa.DataType) -> pa.Array:
    """Inverse of :func:`sub_keys_of`."""
    columns = [plain_array(column) for column in rows.columns]
    if not pa.types.is_struct(type_):
        return columns[0].view(type_) if pa.types.is_duration(type_) else columns[0].cast(type_)
    return pa.StructArray.from_arrays([c.cast(f.type) for c, f in zip(columns, type_)], fields=list(type_))


def in_order(found: Found) -> Rows:
    """The rows by key, and those of a key in the order of their values, as Spark compares them."""
    if not any(pa.types.is_nested(field.type) for field in found.sub_keys.schema):
        return found.ordered()
    columns = [ranks(plain_array(column)) for column in found.sub_keys.columns]
    return np.lexsort((*columns[::-1], found.key_index))


def sub_fields(name: str, type_: pa.DataType) -> pa.Schema:
    """The columns that hold values of a type: one of the aggregate's name, or one for each field of a struct."""
    if not pa.types.is_struct(type_):
        return pa.schema([pa.field(name, stored_type(type_))])
    return pa.schema([pa.field(f"{name}_{i + 1}", f.type) for i, f in enumerate(type_)])


def stored_type(type_: pa.DataType) -> pa.DataType:
    """Delta tables have no day-time intervals: they are stored as microseconds."""
    return pa.int64() if pa.types.is_duration(type_) else type_


def stored(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    values = plain_array(values)
    return values.view(pa.int64()) if pa.types.is_duration(values.type) else values


def list_of(lengths: np.ndarray, values: pa.Array, type_: pa.DataType) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), plain_array(values), type=pa.list_(type_))


def lengths_of(found: Found, keys: Rows) -> np.ndarray:
    """How many of the rows found each of ``keys``, ascending, has."""
    return np.bincount(np.searchsorted(keys, found.key_index), minlength=len(keys))
