"""What is found for keys, and the rows that are stored for them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_ckpt.errors import ProtocolBugError, UserFunctionError
from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.ipc import Rows, conform, one_batch
from spark_ckpt.state.keys.keys import Hashes, Mask
from spark_ckpt.state.lsm._levels import MEMTABLE, Hit
from spark_ckpt.state.lsm._memtable import Memtable
from spark_ckpt.state.lsm.layout import StateLayout


@dataclass(frozen=True)
class Lookup:
    """What was found for distinct keys in hash order; all columns and arrays are aligned.

    ``state`` has the value columns, null where ``exists`` is False; ``timeout_ms`` is ``NO_TIMEOUT`` there. Valid
    until the next ``write``, ``flush`` or ``adopt`` of the state it came from.
    """

    hashes: Hashes
    keys: pa.Table
    exists: Mask
    state: pa.Table
    timeout_ms: npt.NDArray[np.int64]
    hits: Sequence[Hit]
    version: int

    def __len__(self) -> int:
        return len(self.hashes)

    def memtable_rows(self) -> Rows:
        """Each key's row in the memtable; -1 where it has none there."""
        rows = np.full(len(self), -1, np.int64)
        for hit in self.hits:
            if hit.source == MEMTABLE:
                rows[hit.at] = hit.rows
        return rows

    def check(self, version: int, state: pa.Table, write: Mask, remove: Mask) -> None:
        """That state of this ``version`` may be written so. Raises as :meth:`KeyedState.write`."""
        if self.version != version:
            raise ProtocolBugError("a lookup was used after the state had changed: look the keys up again")
        if not len(state) == len(write) == len(remove) == len(self):
            raise UserFunctionError(f"expected state for {len(self)} keys, found {len(state)} rows")
        if (write & remove).any():
            raise UserFunctionError(f"{np.count_nonzero(write & remove)} keys are both written and removed: choose one")


def stored_rows(
    layout: StateLayout,
    lookup: Lookup,
    state: pa.Table,
    timeout_ms: npt.NDArray[np.int64] | None,
    rows: Rows,
    removed: Mask,
) -> Memtable:
    """Memtable rows for rows ``rows`` of a lookup; those ``removed`` keep their keys only."""
    state = conform(state, layout.value_schema)
    everything = len(rows) == len(lookup)
    keys = lookup.keys if everything else lookup.keys.take(pa.array(rows))
    if not everything or removed.any():
        state = state.take(pa.array(rows, mask=removed))
    columns = [*one_batch(keys).columns, *one_batch(state).columns]
    if layout.with_timeout:
        if timeout_ms is None or len(timeout_ms) != len(lookup):
            raise UserFunctionError(f"expected timeout_ms for {len(lookup)} keys: NO_TIMEOUT where a key has none")
        columns.append(pa.array(np.where(removed, NO_TIMEOUT, timeout_ms[rows])))
    columns.append(pa.array(lookup.hashes if everything else lookup.hashes[rows]))
    return Memtable(pa.RecordBatch.from_arrays(columns, schema=layout.stored_schema), removed)
