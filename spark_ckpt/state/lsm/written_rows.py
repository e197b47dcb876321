"""Rows of a state that is written whole, and not by an operator: their hashes, and the runs that they make in a file.

An operator's own rows and those of its families are told apart by ``owner_keys``: a family's hash has the upper half of
the hash of its operator's key (:mod:`spark_ckpt.state.lsm.family`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_ckpt.protocol.events import Run
from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.ipc import conform, int64_view, one_batch
from spark_ckpt.state.keys.keys import Hashes, equal_keys, key_group_of
from spark_ckpt.state.keys.spark_hash import normalised, xxhash64
from spark_ckpt.state.lsm._timers import earliest
from spark_ckpt.state.lsm.family import row_hashes
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.types import KEY_GROUP, KEY_HASH, TIMEOUT_MS


@dataclass(frozen=True)
class WrittenRows:
    """The form of one state table's rows. ``owner_keys``: how many of its key columns are those of the operator, if it
    is a family's table; None: it is the operator's own."""

    layout: StateLayout
    key_groups: int
    owner_keys: int | None = None

    @property
    def keys(self) -> list[str]:
        """The columns by which rows are told apart."""
        names: list[str] = self.layout.key_schema.names
        return names

    @property
    def given(self) -> pa.Schema:
        """The columns that a writer of state gives: all but the key hash."""
        return pa.schema([f for f in self.layout.stored_schema if f.name != KEY_HASH])

    def hashes(self, keys: list[pa.Array]) -> Hashes:
        """``keys`` are all key columns, normalised."""
        if self.owner_keys is None:
            return xxhash64(keys)
        return row_hashes(xxhash64(keys[: self.owner_keys]), keys[self.owner_keys :])

    def normalised_keys(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return [normalised(rows.column(name)) for name in self.keys]

    def stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """``rows`` in hash order, with ``KEY_HASH``, as a state file has them."""
        batch = one_batch(conform(rows, self.layout.stored_schema))
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if self.layout.with_timeout:
            columns[TIMEOUT_MS] = columns[TIMEOUT_MS].fill_null(NO_TIMEOUT)
        columns[KEY_GROUP] = pa.array(key_group_of(int64_view(batch.column(KEY_HASH)), self.key_groups))
        schema = self.layout.table_schema
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def repeated(self, rows: pa.RecordBatch) -> int:
        """How many of the rows, in the order of hash and key, have the key of the one before."""
        hashes = int64_view(rows.column(KEY_HASH))
        at = np.flatnonzero(hashes[1:] == hashes[:-1])
        if not len(at):
            return 0
        keys = rows.select(self.keys)
        return int(np.count_nonzero(equal_keys(keys.take(pa.array(at)), keys.take(pa.array(at + 1)))))

    def runs(self, rows: pa.Table, file: str, epoch: int) -> dict[int, Run]:
        """A run for each key group of the rows of a file, which are in hash order."""
        groups = rows.column(KEY_GROUP).to_numpy()
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        ends = np.append(starts[1:], len(groups))
        timeouts = rows.column(TIMEOUT_MS).to_numpy() if self.layout.with_timeout else None
        return {
            int(groups[a]): Run(
                file, int(a), int(b - a), epoch, due_ms=None if timeouts is None else earliest(timeouts[a:b])
            )
            for a, b in zip(starts, ends, strict=True)
        }
