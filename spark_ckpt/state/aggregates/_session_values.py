"""The values that aggregates keep, in sessions: to an aggregate each session is a key, with rows of its own.

In the family they are rows of the session's key, told apart by what the session is called by: the start that it had
when its first row came. Earlier rows move the start and not the values. Of the sessions that one row joins, the first
keeps its values where they are, and takes those of the others over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_ckpt.state.aggregates._in_families import FamilyAccumulator, Parts
from spark_ckpt.state.ipc import Rows, one_batch
from spark_ckpt.state.keys.grouping import Segments
from spark_ckpt.state.keys.keys import Mask
from spark_ckpt.state.lsm.family import Family, Found
from spark_ckpt.state.lsm.layout import FamilyLayout

OPENED = pa.field("_opened", pa.timestamp("us", "UTC"))
"""What a session is called by, in the table of sessions and in those of values."""
Micros = npt.NDArray[np.int64]


def session_layout(keys: pa.Schema, kept: FamilyAccumulator) -> FamilyLayout:
    return FamilyLayout(keys, pa.schema([OPENED, *kept.sub_schema]), kept.values, nested=True)


@dataclass(frozen=True)
class SessionValues:
    """What ``kept`` has in ``family``. Session *i* is one of the key ``owner[i]``, and called by ``opened[i]``."""

    family: Family
    kept: FamilyAccumulator
    owner: Rows
    opened: Micros

    def taken(self, sessions: Rows) -> SessionValues:
        return replace(self, owner=self.owner[sessions], opened=self.opened[sessions])

    def get(self, key_index: Rows, sub_keys: pa.Table | pa.RecordBatch) -> Found:
        opened = pa.array(self.opened[key_index]).view(OPENED.type)
        wanted = pa.table([opened, *sub_keys.columns], schema=pa.schema([OPENED, *self.kept.sub_schema]))
        found = self.family.get(self.owner[key_index], wanted)
        of = np.empty(len(found), np.int64)
        of[found.place] = key_index
        return replace(found, key_index=of, layout=self._layout)

    def scan(self, key_index: Rows | None = None) -> Found:
        """To be read only; :meth:`forget` removes."""
        found, of = self._all(key_index)
        rows, lookup = np.flatnonzero(of >= 0), found.lookup
        at = pa.array(rows)
        some = replace(
            lookup,
            hashes=lookup.hashes[rows],
            keys=lookup.keys.take(at),
            exists=lookup.exists[rows],
            state=lookup.state.take(at),
            timeout_ms=lookup.timeout_ms[rows],
            hits=(),
            version=-1,
        )
        return Found(some, of[rows], np.arange(len(rows)), self._layout)

    def write(
        self, found: Found, state: pa.Table | None = None, write: Mask | None = None, remove: Mask | None = None
    ) -> None:
        self.family.write(found, state, write, remove)

    def forget(self) -> None:
        """End all rows of the sessions."""
        found, of = self._all(None)
        self.family.remove(found, of >= 0)

    @property
    def _layout(self) -> FamilyLayout:
        return FamilyLayout(pa.schema([]), self.kept.sub_schema, self.kept.values, nested=True)

    def _all(self, key_index: Rows | None) -> tuple[Found, Rows]:
        """The rows of the sessions' keys, and the session of each; -1: one that was not asked for."""
        wanted = np.arange(len(self.owner)) if key_index is None else key_index
        found = self.family.scan(np.unique(self.owner[wanted]))
        opened = one_batch(found.lookup.keys).column(OPENED.name).view(pa.int64()).to_numpy()
        at = _places(self.owner[wanted], self.opened[wanted], found.key_index, opened)
        return found, np.append(wanted, -1)[at]


def merge_values(stored: Parts, rows: Parts, seg: Segments, before: SessionValues, after: SessionValues) -> Parts:
    """Partials of the stored sessions ``before``, and behind them of rows. ``seg`` makes ``after`` of them.

    ``rows`` are the packer's columns. The first stored one of a session stays what it was, the others and the rows are
    what their values bring to it, which are written.
    """
    kept, known, target = after.kept, len(before.owner), seg.places()
    first = first_stored(seg, known)
    moved = np.setdiff1d(np.arange(known), first)
    packed = _taken_out(before.taken(moved))
    pairs = zip(packed, rows, kept.packer.fields, strict=True)
    packs = [pa.concat_arrays([old.cast(f.type), new.cast(f.type)]) for old, new, f in pairs]
    own = pa.array(first, mask=first < 0)
    into = np.concatenate((target[moved], target[known:]))
    brought = kept.absorbed(after, into, packs, [column.take(own) for column in stored])
    order = np.arange(len(target))
    order[moved] = known + np.arange(len(moved))
    order[known:] += len(moved)
    return [pa.concat_arrays([old, new]).take(pa.array(order)) for old, new in zip(stored, brought, strict=True)]


def first_stored(seg: Segments, known: int) -> Rows:
    """Of each session, the first of its parts that is stored, ``known`` of which are in front; -1: there is none."""
    order = np.arange(seg.rows) if seg.order is None else seg.order
    at = np.where(order < known, np.arange(seg.rows), seg.rows)
    found = np.minimum.reduceat(at, seg.starts) if len(seg.starts) else at
    return np.append(order, -1)[found]


def _taken_out(sessions: SessionValues) -> Parts:
    if not len(sessions.owner):
        return [pa.array([], field.type) for field in sessions.kept.packer.fields]
    packed = sessions.kept.packed(sessions.scan(), np.arange(len(sessions.owner)))
    sessions.forget()
    return packed


def _places(owner: Rows, opened: Micros, of: Rows, called: Micros) -> Rows:
    """Where each pair of ``of`` and ``called`` is among the distinct pairs of ``owner`` and ``opened``; -1: nowhere."""
    known = len(owner)
    times = np.unique(np.concatenate((opened, called)), return_inverse=True)[1].ravel()
    pairs = np.concatenate((owner, of)) * (int(times.max(initial=0)) + 1) + times
    order = np.argsort(pairs[:known])
    at = np.minimum(np.searchsorted(pairs[:known], pairs[known:], sorter=order), known - 1)
    found: Rows = np.where(pairs[:known][order][at] == pairs[known:], order[at], -1) if known else at
    return found
