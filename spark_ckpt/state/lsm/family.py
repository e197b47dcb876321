"""State with many rows a key: a set, a map or a list of each key, its windows, the rows that wait for a join.

A row is (key, sub-key, values, expiry). :class:`KeyedState` keeps it as the state of the key (key, sub-key), under a
hash of two halves: the upper one is that of the key's hash, which alone decides the key group, the lower one is of key
and sub-key together. So the rows of a key lie side by side in every run, and one of them is found by its hash like any
key, however many there are. All that :class:`KeyedState` promises holds: versions, tombstones, flushes, time-outs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.errors import ProtocolBugError
from spark_ckpt.state.ipc import Rows, conform, nullable_schema, one_batch, picked
from spark_ckpt.state.keys.grouping import group_rows
from spark_ckpt.state.keys.keys import Hashes, Mask, match
from spark_ckpt.state.keys.spark_hash import normalised, xxhash64
from spark_ckpt.state.lsm._scan import UPPER
from spark_ckpt.state.lsm.keyed_state import KeyedState, Lookup
from spark_ckpt.state.lsm.layout import FamilyLayout


@dataclass(frozen=True)
class Found:
    """Rows of a family, in hash order; everything is aligned. Valid until the next write of the family.

    ``key_index`` is each row's key, by its place among the touched keys. ``place[i]`` is the row that was asked for
    *i*-th by :meth:`Family.get`; elsewhere row *i* itself.
    """

    lookup: Lookup
    key_index: Rows
    place: Rows
    layout: FamilyLayout

    def __len__(self) -> int:
        return len(self.lookup)

    @property
    def exists(self) -> Mask:
        return self.lookup.exists

    @property
    def sub_keys(self) -> pa.Table:
        return self.lookup.keys.select(self.layout.sub_schema.names)

    @property
    def state(self) -> pa.Table:
        """The value columns, null where ``exists`` is False."""
        return self.lookup.state

    @property
    def timeout_ms(self) -> npt.NDArray[np.int64]:
        return self.lookup.timeout_ms

    def ordered(self) -> Rows:
        """The rows by key, and within a key by sub-key: nulls first, NaN last, as Spark orders."""
        columns = [pa.array(self.key_index)]
        for column in one_batch(self.sub_keys).columns:
            columns += [column.is_valid(), column] if column.null_count else [column]
        table = pa.table(columns, [str(i) for i in range(len(columns))])
        order: Rows = pc.sort_indices(table, [(name, "ascending") for name in table.column_names]).to_numpy()
        return order.astype(np.int64)


class Family:
    """The rows that the keys of one call have in a family. ``hashes`` and ``keys`` are the keys: distinct, in hash
    order. ``now_ms``: when rows expire, in a call for what has expired; None in others. Executor.
    """

    def __init__(
        self, state: KeyedState, layout: FamilyLayout, hashes: Hashes, keys: pa.Table, now_ms: int | None = None
    ) -> None:
        self._state, self._layout, self._now_ms = state, layout, now_ms
        self._hashes = hashes
        self._keys = one_batch(conform(keys, nullable_schema(layout.key_schema)))

    def get(self, key_index: Rows, sub_keys: pa.Table | pa.RecordBatch) -> Found:
        """The rows (key ``key_index[i]``, sub-key *i*), those that are missing too; each once, however often asked for.

        Costs what is asked for, not what its keys have.
        """
        wanted = one_batch(conform(sub_keys, self._layout.sub_schema))
        columns = [normalised(column) for column in wanted.columns]
        hashes = row_hashes(self._hashes[key_index], columns)
        keys = picked(self._keys, key_index)
        identity = pa.Table.from_arrays([*keys.columns, *columns], schema=self._layout.stored.key_schema)
        seg = group_rows(hashes, identity)
        first = seg.firsts()
        lookup = self._state.touch(hashes[first], identity.take(pa.array(first)))
        return Found(lookup, key_index[first], seg.places(), self._layout)

    def scan(self, key_index: Rows | None = None) -> Found:
        """All rows of the keys ``key_index`` (ascending, distinct), or of all. Costs what they have."""
        if key_index is None:
            lookup, key = self._state.scan(self._hashes, self._keys)
        else:
            lookup, key = self._state.scan(self._hashes[key_index], self._keys.take(pa.array(key_index)))
            key = key_index[key]
        return Found(lookup, key, np.arange(len(lookup)), self._layout)

    def sizes(self) -> Rows:
        """How many rows each key has at most: versions and tombstones count. Reads hashes only."""
        return self._state.sizes(self._hashes)

    def sample(self, key_index: int, limit: int) -> Found:
        """Some rows of a key that has many; if none exists, that says nothing of the others."""
        at = np.array([key_index])
        tried = self._state.sample(self._hashes[at], self._keys.take(pa.array(at)), limit)
        return self.get(np.full(len(tried), key_index), tried.select(self._layout.sub_schema.names))

    def due(self) -> Found:
        """The rows that have expired; none in a call for rows that arrived. They stay due until they are written with
        another expiry or removed."""
        lookup = self._state.due(-1 if self._now_ms is None else self._now_ms)
        names = self._keys.schema.names
        keys = one_batch(lookup.keys.select(names))
        hashes = xxhash64(keys.columns) if len(keys) else lookup.hashes
        key = match(hashes, keys, self._hashes, self._keys)
        if (key < 0).any():
            raise ProtocolBugError(f"{np.count_nonzero(key < 0)} rows expired of keys that the call does not concern")
        return Found(lookup, key, np.arange(len(lookup)), self._layout)

    def write(
        self,
        found: Found,
        state: pa.Table | None = None,
        write: Mask | None = None,
        remove: Mask | None = None,
        timeout_ms: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Store ``state`` in the rows marked ``write`` (None: all that are not removed), end those marked ``remove``.

        ``state`` None: the values as they were found. ``timeout_ms``: when rows expire, where the family's do. Raises
        as :meth:`KeyedState.write`.
        """
        remove = np.zeros(len(found), bool) if remove is None else remove
        write = ~remove if write is None else write
        timeouts = found.timeout_ms if timeout_ms is None else timeout_ms
        self._state.write(found.lookup, found.state if state is None else state, write, remove, timeouts)

    def remove(self, found: Found, where: Mask | None = None) -> None:
        """End the rows ``where`` (None: all of them), and leave the others as they are."""
        where = np.ones(len(found), bool) if where is None else where
        self.write(found, write=np.zeros(len(found), bool), remove=where)


def row_hashes(key_hashes: Hashes, sub_keys: list[pa.Array]) -> Hashes:
    """The hash a row is kept under. ``sub_keys`` are normalised, as keys are."""
    lower = xxhash64([pa.array(key_hashes), *sub_keys])
    return (key_hashes & UPPER) | (lower & ~UPPER)
