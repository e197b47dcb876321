"""The state of one operator task: a memtable over layers of immutable sorted runs, a log-structured merge tree.

It covers a contiguous range of key groups and works on all of them at once; only manifests speak of single ones.

A key is looked up newest first: memtable, then runs from the newest to the oldest; a tombstone ends the search.
Writes go to the memtable. A flush turns it into runs. The rows of older runs that a write overrides or removes are
remembered as *dead* and reported by the flush, so that the state table as others read it (all rows of all files
but the dead ones) is exactly the live keys.

The idea is that of O'Neil et al., "The Log-Structured Merge-Tree" (1996), as in Flink's RocksDB.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_ckpt.errors import CorruptStorageError, ProtocolBugError
from spark_ckpt.protocol.events import GroupManifest
from spark_ckpt.protocol.file_format import FIELD, require_known
from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.ipc import Rows, conform, int64_view, no_columns, one_batch
from spark_ckpt.state.keys.keys import Hashes, Mask
from spark_ckpt.state.lsm._dead_rows import DeadRows
from spark_ckpt.state.lsm._flush import Flush, FlushResult, Unflushed
from spark_ckpt.state.lsm._interfaces import RunAppender, RunReader
from spark_ckpt.state.lsm._levels import MEMTABLE, Hit, Level, Levels
from spark_ckpt.state.lsm._lookup import Lookup, stored_rows
from spark_ckpt.state.lsm._manifests import joined, layered, sliced
from spark_ckpt.state.lsm._memtable import Memtable
from spark_ckpt.state.lsm._scan import everything, sample, scan, sizes
from spark_ckpt.state.lsm._sealed import (
    FORMAT,
    KEPT,
    damage_told,
    groups_to_json,
    keys_from_json,
    levels_from_json,
    levels_to_json,
    opened_memtable,
    refuse_other_groups,
    refuse_other_layout,
)
from spark_ckpt.state.lsm._timers import Searched, find_due, next_due_ms
from spark_ckpt.state.lsm.compaction import CompactionPolicy
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.state.lsm.ranges import KeyRange, RangeRun, numbers_to_json
from spark_ckpt.types import KEY_HASH, TIMEOUT_MS


class KeyedState:
    """The state of a range of key groups for the time of one call. Executor; not shared between threads."""

    def __init__(
        self, layout: StateLayout, groups: KeyRange, reader: RunReader, policy: CompactionPolicy | None = None
    ) -> None:
        self.layout = layout
        self.groups = groups
        self._policy = policy or CompactionPolicy()
        self._levels = Levels(layout, groups, reader)
        self._keys = np.zeros(len(groups), np.int64)
        self._dead = DeadRows()
        self._searched: dict[RangeRun, Searched] = {}
        self._version = 0

    @classmethod
    def open(
        cls,
        layout: StateLayout,
        groups: KeyRange,
        meta: Mapping[str, Any] | bytes | str | None,
        memtable: bytes | None,
        reader: RunReader,
        policy: CompactionPolicy | None = None,
        carried: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    ) -> KeyedState:
        """State as :meth:`seal` left it; empty if ``meta`` is None. Reads no run.

        ``carried`` makes rows of this layout from those of another, if the query may have been another one. Raises
        ``TopologyError`` if it was sealed with another layout or other key groups, ``CorruptStorageError`` if it is
        damaged.
        """
        state = cls(layout, groups, reader, policy)
        if meta is None:
            return state
        meta = json.loads(meta) if isinstance(meta, bytes | str) else meta
        require_known(meta.get(FIELD), FORMAT, KEPT)
        with damage_told():
            refuse_other_layout(meta, layout, carried is not None)
            refuse_other_groups(meta["groups"], groups)
            state._keys = keys_from_json(meta["keys"], groups)
            state._levels.levels = levels_from_json(meta["runs"], groups)
            state._levels.changed()
            state._dead = DeadRows.from_json(meta["dead"])
        if memtable is not None:
            state._levels.memtable = opened_memtable(layout, meta, memtable, carried)
        elif meta["rows"]:
            raise CorruptStorageError(f"expected a memtable of {meta['rows']} rows, found none")
        return state

    def seal(self) -> tuple[dict[str, Any], bytes | None]:
        """What :meth:`open` needs next time: a JSON-able dict, and the memtable or None if it is empty."""
        self._raise_due_bounds()
        memtable = self._levels.memtable
        meta = {
            "layout": self.layout.fingerprint,
            "groups": groups_to_json(self.groups),
            "keys": numbers_to_json(self._keys),
            "rows": len(memtable),
            "runs": levels_to_json(self._levels.levels),
            "dead": self._dead.to_json(),
        }
        if not len(memtable):
            return meta, None
        return {**meta, "schema": self.layout.sealed_schema}, memtable.to_bytes()

    @property
    def keys(self) -> int:
        """Number of live keys."""
        return int(self._keys.sum())

    @property
    def memtable_bytes(self) -> int:
        """Size of what goes through Spark's state store with every batch until the next flush."""
        return self._levels.memtable.size_bytes

    @property
    def memtable_rows(self) -> int:
        return len(self._levels.memtable)

    @property
    def runs(self) -> tuple[RangeRun, ...]:
        """Oldest first."""
        return tuple(self._levels.runs)

    def touch(self, hashes: Hashes, keys: pa.Table) -> Lookup:
        """Look distinct keys up, ordered by hash as :func:`spark_ckpt.state.keys.grouping.group_rows` does it."""
        if not self.groups.holds(hashes):
            raise ProtocolBugError(f"expected keys of {self.groups}, found others: they were routed to the wrong task")
        table = conform(keys, self.layout.key_schema)
        return self._lookup(hashes, table, self._levels.locate(hashes, one_batch(table)))

    def scan(self, hashes: Hashes, keys: pa.RecordBatch) -> tuple[Lookup, Rows]:
        """All live rows of a family's keys, and which of the ``keys`` each belongs to.

        ``keys`` are distinct, in hash order: the first key columns of the rows, whose hashes share their upper half
        with the key's (:mod:`spark_ckpt.state.lsm.family`).
        """
        found = scan(self._levels, hashes, keys)
        return self._lookup(found.hashes, pa.Table.from_batches([found.identity]), found.hits), found.key_index

    def sizes(self, hashes: Hashes) -> Rows:
        """How many rows of a family each key has at most, all versions and tombstones counted."""
        return sizes(self._levels, hashes)

    def sample(self, hashes: Hashes, keys: pa.RecordBatch, limit: int) -> pa.RecordBatch:
        """Identities of rows of a family's keys, ``limit`` of each run at most; some may be gone."""
        return sample(self._levels, hashes, keys, limit)

    def due(self, now_ms: int) -> Lookup:
        """The live keys whose time-out is before ``now_ms``, in hash order.

        Strictly before, as ``FlatMapGroupsWithStateExec.processTimedOutState`` in Spark: ``now_ms`` is the batch's
        time or the watermark. A key stays due until it is written with another time-out or removed.
        """
        if not self.layout.with_timeout:
            return self._nothing()
        hits, searched = find_due(self._levels, now_ms)
        self._searched.update(searched)
        return self._in_order(hits, sum(len(hit.at) for hit in hits))

    def everything(self) -> Lookup:
        """All live keys, in hash order. Reads every run."""
        return self._in_order(*everything(self._levels))

    def _in_order(self, hits: Sequence[Hit], count: int) -> Lookup:
        if not hits:
            return self._nothing()
        names = self.layout.key_schema.names
        found = self._levels.gather([*names, KEY_HASH], hits, count)
        order = np.argsort(int64_view(found.column(KEY_HASH)), kind="stable")
        found = found.take(pa.array(order))
        keys = pa.Table.from_batches([found.select(names)])
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        hits = [hit._replace(at=place[hit.at]) for hit in hits]
        return self._lookup(int64_view(found.column(KEY_HASH)), keys, hits)

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
        lookup.check(self._version, state, write, remove)
        ended, created = remove & lookup.exists, write & ~lookup.exists
        if created.any() or ended.any():
            self._keys += self.groups.count(lookup.hashes[created]) - self.groups.count(lookup.hashes[ended])
        row = lookup.memtable_rows()
        self._bury(lookup, write | ended)
        tombstone, dropped = ended & (row < 0), np.flatnonzero(ended & (row >= 0))
        if len(dropped) and len(self._levels.runs):
            beneath = self._beneath_memtable(lookup, dropped)
            tombstone[dropped[beneath]] = True
            dropped = dropped[~beneath]
        changed = np.flatnonzero(write | tombstone)
        rows = stored_rows(self.layout, lookup, state, timeout_ms, changed, tombstone[changed])
        self._levels.memtable = self._levels.memtable.replaced(rows, row[changed], row[dropped])
        self._version += 1

    def flush(self, appender: RunAppender, epoch: int) -> FlushResult:
        """Turn the memtable into runs, merging older ones as the policy says. Call at a barrier or when it is full.

        The new runs' rows are handed to ``appender``; until this state is opened again they are read from memory.
        """
        self._raise_due_bounds()
        if not len(self._levels.memtable):
            return FlushResult()
        flush = Flush(self._levels, self._dead, self._policy, appender, epoch)
        flush.run(self.keys)
        self._version += 1
        return FlushResult(self._dead.take(), flush.rows_written, flush.rows_merged, flush.runs_merged)

    def before_flush(self) -> Unflushed:
        """What :meth:`take_back` needs. Costs nothing next to a flush."""
        return Unflushed(self._levels.copy_levels(), self._levels.memtable, self._dead.copy())

    def take_back(self, before: Unflushed, file: str) -> None:
        """A flush failed, or what it handed to its appender, as ``file``, could not be written: as if it had not been.
        Nothing may have been looked up or written since."""
        self._levels.levels, self._levels.memtable = list(before.levels), before.memtable
        self._levels.changed()
        self._levels.forget(file)
        self._dead = before.dead
        self._version += 1

    def adopt(self, manifests: Mapping[int, GroupManifest]) -> None:
        """Take over a checkpoint's state: its runs and keys replace everything, memtable and pending dead rows too.

        ``manifests`` are those of some or all key groups of this range; the others are empty from now on. Raises
        ``ProtocolBugError`` if a key group is not of this range.
        """
        strange = sorted(set(manifests) - set(self.groups))
        if strange:
            raise ProtocolBugError(f"expected manifests of {self.groups}, found key groups {strange[:5]}")
        runs = joined(manifests, self.layout.joined_rows)
        self._levels.levels = [Level([layer]) for layer in layered(runs, self.groups)]
        self._levels.changed()
        self._keys = np.array([manifests[g].keys if g in manifests else 0 for g in self.groups], np.int64)
        self._levels.memtable = Memtable.empty(self.layout)
        self._dead, self._searched = DeadRows(), {}
        self._version += 1

    def manifests(self, watermarks_us: Mapping[str, int]) -> dict[int, GroupManifest]:
        """The state of each key group right after a flush. Reads no run.

        Raises ``ProtocolBugError`` if something is still in the memtable.
        """
        if len(self._levels.memtable) or len(self._dead):
            raise ProtocolBugError(f"manifests of state with {len(self._levels.memtable)} unflushed rows")
        runs = sliced(self._levels.runs, self.groups)
        watermarks, keys = dict(watermarks_us), self._keys.tolist()
        return {g: GroupManifest(runs[g], keys[i], watermarks) for i, g in enumerate(self.groups)}

    def _lookup(self, hashes: Hashes, keys: pa.Table, hits: Sequence[Hit]) -> Lookup:
        exists = self._levels.live(hits, len(hashes))
        columns = self.layout.value_schema.names + ([TIMEOUT_MS] if self.layout.with_timeout else [])
        found = self._levels.gather(columns, hits, len(hashes)) if columns else no_columns(len(hashes))
        timeout_ms = np.full(len(hashes), NO_TIMEOUT, np.int64)
        if self.layout.with_timeout:
            timeout_ms = found.column(TIMEOUT_MS).fill_null(NO_TIMEOUT).to_numpy()
        state = pa.Table.from_batches([found.select(self.layout.value_schema.names)])
        return Lookup(hashes, keys, exists, state, timeout_ms, hits, self._version)

    def _nothing(self) -> Lookup:
        keys, state = self.layout.key_schema.empty_table(), self.layout.value_schema.empty_table()
        no_rows = np.empty(0, np.int64)
        return Lookup(no_rows, keys, no_rows > 0, state, no_rows, [], self._version)

    def _beneath_memtable(self, lookup: Lookup, rows: Rows) -> Mask:
        """Whether a run holds a live version of these keys too, so that their end needs a tombstone."""
        hashes, keys = lookup.hashes[rows], one_batch(lookup.keys).take(pa.array(rows))
        return self._levels.live(self._levels.locate_in_runs(hashes, keys), len(rows))

    def _bury(self, lookup: Lookup, changed: Mask) -> None:
        """Remember the run rows that these writes and removals kill. Tombstone rows are dead already."""
        for hit in lookup.hits:
            if hit.source != MEMTABLE and not self._levels.runs[hit.source].tombstones:
                killed = changed[hit.at]
                rows = hit.rows if killed.all() else hit.rows[killed]
                self._dead.bury(self._levels.runs[hit.source], rows)

    def _raise_due_bounds(self) -> None:
        """Raise the bound of searched runs whose due rows were all written anew or removed since."""
        for run, searched in self._searched.items():
            if self._dead.holds(run, searched.fired):
                run.due_ms = searched.next_due_ms
        self._searched = {}


__all__ = ["FlushResult", "KeyedState", "Lookup", "Unflushed"]
