"""The state of one key group: a memtable over immutable sorted runs, a small log-structured merge tree.

A key is looked up newest first: memtable, then runs from the newest to the oldest; a tombstone ends the search.
Writes go to the memtable. A flush turns it into runs. The rows of older runs that a write overrides or removes are
remembered as *dead* and reported by the flush, so that the state table as others read it (all rows of all files
but the dead ones) is exactly the live keys.

The idea is that of O'Neil et al., "The Log-Structured Merge-Tree" (1996), one tree a key group as in Flink's RocksDB.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from spark_ckpt.errors import CorruptStorageError, ProtocolBugError, TopologyError, UserFunctionError
from spark_ckpt.protocol.events import GroupManifest, Run, run_from_json, run_to_json
from spark_ckpt.state.compaction import CompactionPolicy, Sorted, merge
from spark_ckpt.state.function import NO_TIMEOUT
from spark_ckpt.state.graveyard import Graveyard
from spark_ckpt.state.ipc import Rows, conform, int64_view, one_batch
from spark_ckpt.state.keys import Hashes, Mask
from spark_ckpt.state.layout import StateLayout
from spark_ckpt.state.levels import MEMTABLE, NOWHERE, Levels, Sources
from spark_ckpt.state.memtable import Memtable
from spark_ckpt.state.ports import RunAppender, RunReader
from spark_ckpt.state.timers import Searched, earliest, find_due, next_due_ms
from spark_ckpt.types import KEY_HASH, TIMEOUT_MS


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
    source: Sources
    row: Rows
    version: int

    def __len__(self) -> int:
        return len(self.hashes)


@dataclass(frozen=True)
class FlushResult:
    """``dead`` names, by file, the absolute row positions that died since the last flush, new tombstones included."""

    dead: Mapping[str, BitMap] = field(default_factory=dict)
    rows_written: int = 0
    runs_merged: int = 0


class KeyedState:
    """One key group's state for the time of one call. Executor; not shared between threads."""

    def __init__(self, layout: StateLayout, reader: RunReader, policy: CompactionPolicy | None = None) -> None:
        self.layout = layout
        self.keys = 0
        """Number of live keys."""
        self._policy = policy or CompactionPolicy()
        self._levels = Levels(layout, reader, Memtable.empty(layout))
        self._dead = Graveyard()
        self._searched: dict[int, Searched] = {}
        self._version = 0

    @classmethod
    def open(
        cls,
        layout: StateLayout,
        meta: Mapping[str, Any] | bytes | str | None,
        memtable: bytes | None,
        reader: RunReader,
        policy: CompactionPolicy | None = None,
    ) -> KeyedState:
        """State as :meth:`seal` left it; empty if ``meta`` is None. Reads no run.

        Raises ``TopologyError`` if it was sealed with another layout, ``CorruptStorageError`` if it is damaged.
        """
        state = cls(layout, reader, policy)
        if meta is None:
            return state
        meta = json.loads(meta) if isinstance(meta, bytes | str) else meta
        if meta["layout"] != layout.fingerprint:
            raise TopologyError(
                f"state was written with other key or state columns than {layout.stored_schema.names}: "
                "restore it into a new Spark checkpoint location, or go back to the old columns"
            )
        state.keys = meta["keys"]
        state._levels.runs = [run_from_json(r) for r in meta["runs"]]
        state._dead = Graveyard.from_json(meta["dead"])
        if memtable is not None:
            state._levels.memtable = Memtable.from_bytes(memtable, layout)
        elif meta["rows"]:
            raise CorruptStorageError(f"expected a memtable of {meta['rows']} rows, found none")
        return state

    def seal(self) -> tuple[dict[str, Any], bytes | None]:
        """What :meth:`open` needs next time: a JSON-able dict, and the memtable or None if it is empty."""
        self._raise_due_bounds()
        meta = {
            "layout": self.layout.fingerprint,
            "keys": self.keys,
            "rows": len(self._levels.memtable),
            "runs": [run_to_json(r) for r in self._levels.runs],
            "dead": self._dead.to_json(),
        }
        return meta, self._levels.memtable.to_bytes() if len(self._levels.memtable) else None

    @property
    def memtable_bytes(self) -> int:
        """Size of what goes through Spark's state store with every batch until the next flush."""
        return self._levels.memtable.size_bytes

    @property
    def memtable_rows(self) -> int:
        return len(self._levels.memtable)

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(self._levels.runs)

    def touch(self, hashes: Hashes, keys: pa.Table) -> Lookup:
        """Look distinct keys up. ``hashes`` ascending, as :func:`spark_ckpt.state.keys.group_rows` orders them."""
        table = conform(keys, self.layout.key_schema)
        source, row = self._levels.locate(hashes, one_batch(table))
        return self._lookup(hashes, table, source, row)

    def due(self, now_ms: int) -> Lookup:
        """The live keys whose time-out is before ``now_ms``, in hash order.

        Strictly before, as ``FlatMapGroupsWithStateExec.processTimedOutState`` in Spark: ``now_ms`` is the batch's
        time or the watermark. A key stays due until it is written with another time-out or removed.
        """
        if not self.layout.with_timeout:
            return self._nothing()
        source, row, searched = find_due(self._levels, now_ms)
        self._searched.update(searched)
        if not len(row):
            return self._nothing()
        names = self.layout.key_schema.names
        found = self._levels.gather([*names, KEY_HASH], source, row)
        order = np.argsort(int64_view(found.column(KEY_HASH)), kind="stable")
        found = found.take(pa.array(order))
        keys = pa.Table.from_batches([found.select(names)])
        return self._lookup(int64_view(found.column(KEY_HASH)), keys, source[order], row[order])

    def next_due_ms(self) -> int | None:
        """A lower bound of the live keys' time-outs in milliseconds; None if none has a time-out. Reads no run.

        After :meth:`seal` the bound accounts for what :meth:`due` found and the writes behind it.
        """
        return next_due_ms(self._levels) if self.layout.with_timeout else None

    def write(
        self,
        lookup: Lookup,
        state: pa.Table,
        write: Mask,
        remove: Mask,
        timeout_ms: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Store ``state`` (and ``timeout_ms``) for keys marked ``write``, end those marked ``remove``.

        Everything is aligned with ``lookup``; removing a key that does not exist changes nothing. Raises
        ``UserFunctionError`` if a key is marked both, ``ProtocolBugError`` if the lookup is out of date.
        """
        self._check(lookup, state, write, remove)
        ended = remove & lookup.exists
        self.keys += int(np.count_nonzero(write & ~lookup.exists)) - int(np.count_nonzero(ended))
        in_memtable = lookup.source == MEMTABLE
        self._bury(lookup, write | ended)
        tombstone, dropped = ended & ~in_memtable, np.flatnonzero(ended & in_memtable)
        if len(dropped) and len(self._levels.runs):
            beneath = self._beneath_memtable(lookup, dropped)
            tombstone[dropped[beneath]] = True
            dropped = dropped[~beneath]
        changed = np.flatnonzero(write | tombstone)
        rows = self._stored_rows(lookup, state, timeout_ms, changed, tombstone[changed])
        at = np.where(in_memtable[changed], lookup.row[changed], -1)
        self._levels.memtable = self._levels.memtable.replaced(rows, at, lookup.row[dropped])
        self._version += 1

    def flush(self, appender: RunAppender, epoch: int, key_group: int) -> FlushResult:
        """Turn the memtable into runs, merging older ones as the policy says. Call at a barrier or when it is full.

        The new runs' rows are handed to ``appender``; until this state is opened again they are read from memory.
        """
        self._raise_due_bounds()
        if not len(self._levels.memtable):
            return FlushResult()
        merged = self._policy.runs_to_merge([r.count for r in self._levels.runs], len(self._levels.memtable), self.keys)
        kept = len(self._levels.runs) - merged
        parts = [Sorted(self._levels.memtable.rows, self._levels.memtable.removed)]
        parts += [self._sorted_run(i) for i in reversed(range(kept, len(self._levels.runs)))]
        result = merge(self.layout, parts, keep_tombstones=kept > 0)
        for run in self._levels.runs[kept:]:
            self._dead.bury_run(run)
        del self._levels.runs[kept:]
        self._append(appender, epoch, key_group, result)
        self._levels.memtable = Memtable.empty(self.layout)
        self._version += 1
        return FlushResult(self._dead.take(), len(result.removed), merged)

    def adopt(self, manifest: GroupManifest) -> None:
        """Take over a checkpoint's state: its runs and keys replace everything, memtable and pending dead rows too."""
        self._levels.runs = list(manifest.runs)
        self.keys = manifest.keys
        self._levels.memtable = Memtable.empty(self.layout)
        self._dead, self._searched = Graveyard(), {}
        self._version += 1

    def manifest(self, watermarks_us: Mapping[str, int]) -> GroupManifest:
        """The state right after a flush. Raises ``ProtocolBugError`` if something is still in the memtable."""
        if len(self._levels.memtable) or len(self._dead):
            raise ProtocolBugError(f"manifest of a key group with {len(self._levels.memtable)} unflushed rows")
        return GroupManifest(self.runs, self.keys, dict(watermarks_us))

    def _lookup(self, hashes: Hashes, keys: pa.Table, source: Sources, row: Rows) -> Lookup:
        exists = self._levels.live(source, row)
        columns = self.layout.value_schema.names + ([TIMEOUT_MS] if self.layout.with_timeout else [])
        found = self._levels.gather(columns, np.where(exists, source, NOWHERE), row)
        timeout_ms = np.full(len(hashes), NO_TIMEOUT, np.int64)
        if self.layout.with_timeout:
            timeout_ms = found.column(TIMEOUT_MS).fill_null(NO_TIMEOUT).to_numpy()
        state = pa.Table.from_batches([found.select(self.layout.value_schema.names)])
        return Lookup(hashes, keys, exists, state, timeout_ms, source, row, self._version)

    def _nothing(self) -> Lookup:
        keys, state = self.layout.key_schema.empty_table(), self.layout.value_schema.empty_table()
        no_rows = np.empty(0, np.int64)
        return Lookup(no_rows, keys, no_rows > 0, state, no_rows, no_rows.astype(np.int32), no_rows, self._version)

    def _check(self, lookup: Lookup, state: pa.Table, write: Mask, remove: Mask) -> None:
        if lookup.version != self._version:
            raise ProtocolBugError("a lookup was used after the state had changed: look the keys up again")
        if not len(state) == len(write) == len(remove) == len(lookup):
            raise UserFunctionError(f"expected state for {len(lookup)} keys, found {len(state)} rows")
        if (write & remove).any():
            raise UserFunctionError(f"{np.count_nonzero(write & remove)} keys are both written and removed: choose one")

    def _stored_rows(
        self, lookup: Lookup, state: pa.Table, timeout_ms: npt.NDArray[np.int64] | None, rows: Rows, removed: Mask
    ) -> Memtable:
        """Memtable rows for rows ``rows`` of a lookup; those ``removed`` keep their keys only."""
        state = conform(state, self.layout.value_schema)
        everything = len(rows) == len(lookup)
        keys = lookup.keys if everything else lookup.keys.take(pa.array(rows))
        if not everything or removed.any():
            state = state.take(pa.array(rows, mask=removed))
        columns = [*one_batch(keys).columns, *one_batch(state).columns]
        if self.layout.with_timeout:
            if timeout_ms is None or len(timeout_ms) != len(lookup):
                raise UserFunctionError(f"expected timeout_ms for {len(lookup)} keys: NO_TIMEOUT where a key has none")
            columns.append(pa.array(np.where(removed, NO_TIMEOUT, timeout_ms[rows])))
        columns.append(pa.array(lookup.hashes[rows]))
        return Memtable(pa.RecordBatch.from_arrays(columns, schema=self.layout.stored_schema), removed)

    def _beneath_memtable(self, lookup: Lookup, rows: Rows) -> Mask:
        """Whether a run holds a live version of these keys too, so that their end needs a tombstone."""
        hashes, keys = lookup.hashes[rows], one_batch(lookup.keys).take(pa.array(rows))
        source, row = np.full(len(rows), NOWHERE, np.int32), np.full(len(rows), -1, np.int64)
        self._levels.locate_in_runs(hashes, keys, source, row)
        return self._levels.live(source, row)

    def _bury(self, lookup: Lookup, changed: Mask) -> None:
        """Remember the run rows that these writes and removals kill. Tombstone rows are dead already."""
        buried = np.where(changed & lookup.exists, lookup.source, NOWHERE)
        for i, run in enumerate(self._levels.runs):
            self._dead.bury(run, lookup.row[buried == i])

    def _append(self, appender: RunAppender, epoch: int, key_group: int, rows: Sorted) -> None:
        for tombstones in (False, True):
            part = rows.of_kind(tombstones)
            if not len(part):
                continue
            groups = pa.array(np.full(len(part), key_group, np.int32))
            columns = [*part.columns[:-1], groups, part.columns[-1]]
            batch = pa.RecordBatch.from_arrays(columns, schema=self.layout.table_schema)
            file, start = appender.append(pa.Table.from_batches([batch]))
            timed = self.layout.with_timeout and not tombstones
            due_ms = earliest(int64_view(batch.column(TIMEOUT_MS))) if timed else None
            run = Run(file, start, len(batch), epoch, tombstones, due_ms)
            self._levels.add_run(run, batch)
            if tombstones:
                self._dead.bury_run(run)

    def _sorted_run(self, index: int) -> Sorted:
        rows = one_batch(conform(self._levels.run_rows(index), self.layout.stored_schema))
        return Sorted(rows, np.full(len(rows), self._levels.runs[index].tombstones))

    def _raise_due_bounds(self) -> None:
        """Raise the bound of searched runs whose due rows were all written anew or removed since."""
        for i, searched in self._searched.items():
            run = self._levels.runs[i]
            if self._dead.holds(run, searched.fired):
                self._levels.runs[i] = replace(run, due_ms=searched.next_due_ms)
        self._searched = {}
