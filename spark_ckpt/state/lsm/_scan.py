"""All rows of some keys of a family: a slice of the memtable and of each run, the newest version of each row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark_ckpt.state.ipc import Rows, concat, int64_view, picked
from spark_ckpt.state.keys.grouping import group_rows
from spark_ckpt.state.keys.keys import Hashes, Mask, equal_keys
from spark_ckpt.state.lsm._levels import MEMTABLE, Hit, Levels
from spark_ckpt.state.lsm.search import search
from spark_ckpt.types import KEY_HASH

UPPER = np.int64(-1 << 32)
"""What a key and all its rows have in common of their hashes."""
_SPAN = np.int64(1 << 32)


class Scanned(NamedTuple):
    """Rows in hash order, where they are, and which of the keys that were asked for each belongs to."""

    hashes: Hashes
    identity: pa.RecordBatch
    hits: list[Hit]
    key_index: Rows


class _Piece(NamedTuple):
    """Rows ``rows`` of ``source``, each of the key ``key``; ``removed``: they are tombstones."""

    source: int
    key: Rows
    rows: Rows
    table: pa.RecordBatch
    removed: Mask


def scan(levels: Levels, hashes: Hashes, keys: pa.RecordBatch) -> Scanned:
    """The live rows of distinct ``keys``, which are the first identity columns; ``hashes`` ascend."""
    pieces = [piece for piece in _pieces(levels, hashes, keys) if len(piece.rows)]
    names = levels.layout.key_schema.names
    if not pieces:
        none = np.empty(0, np.int64)
        return Scanned(none, levels.memtable.rows.slice(0, 0).select(names), [], none)
    identity = concat([picked(piece.table.select(names), piece.rows) for piece in pieces])
    found = np.concatenate([int64_view(p.table.column(KEY_HASH))[p.rows] for p in pieces])
    first = _newest(found, identity, len(pieces))
    first = first[~np.concatenate([piece.removed for piece in pieces])[first]]
    key = np.concatenate([piece.key for piece in pieces])[first]
    return Scanned(found[first], picked(identity, first), list(_hits(pieces, first)), key)


def everything(levels: Levels) -> tuple[list[Hit], int]:
    """Every live row, in no order, and how many there are."""
    rows = np.flatnonzero(~levels.memtable.removed)
    hits, count = [Hit(MEMTABLE, np.arange(len(rows)), rows)], len(rows)
    for i, run in enumerate(levels.runs):
        if run.tombstones:
            continue
        rows = np.arange(len(levels.rows_of(run)))
        rows = rows[current(levels, i, rows)]
        hits.append(Hit(i, np.arange(count, count + len(rows)), rows))
        count += len(rows)
    return [hit for hit in hits if len(hit.at)], count


def current(levels: Levels, index: int, rows: Rows) -> Mask:
    """Which rows (ascending) of a run are their keys' newest version."""
    if not len(rows):
        return np.empty(0, bool)
    table = levels.rows_of(levels.runs[index]).select([*levels.layout.key_schema.names, KEY_HASH]).take(pa.array(rows))
    hashes, keys = int64_view(table.column(KEY_HASH)), table.select(levels.layout.key_schema.names)
    newest = np.ones(len(rows), bool)
    for hit in levels.locate(hashes, keys, newer_than=index):
        newest[hit.at] = False
    return newest


def sizes(levels: Levels, hashes: Hashes) -> Rows:
    """How many rows the keys have at most: all versions, tombstones, and rows of keys with a similar hash."""
    counts, cuts, begin = np.zeros(len(hashes), np.int64), levels.groups.cuts(hashes), hashes & UPPER
    if len(levels.memtable):
        starts, ends = _bounds(levels.memtable.rows, begin)
        counts += ends - starts
    for run in levels.runs:
        low, high = int(cuts[run.first - levels.groups.first]), int(cuts[run.end - levels.groups.first])
        if low < high:
            starts, ends = _bounds(levels.rows_of(run), begin[low:high])
            counts[low:high] += ends - starts
    return counts


def sample(levels: Levels, hashes: Hashes, keys: pa.RecordBatch, limit: int) -> pa.RecordBatch:
    """Identities of at most ``limit`` rows of each run, of any version, for a key with many."""
    names = levels.layout.key_schema.names
    found = [picked(p.table.select(names), p.rows[:limit]) for p in _pieces(levels, hashes, keys) if len(p.rows)]
    return concat(found) if found else levels.memtable.rows.slice(0, 0).select(names)


def _newest(hashes: Hashes, identity: pa.RecordBatch, pieces: int) -> Rows:
    """The first of equal rows, in hash order: newer pieces come first, and the rows of one are distinct."""
    if pieces == 1 and not (hashes[1:] < hashes[:-1]).any():
        return np.arange(len(hashes))
    return group_rows(hashes, identity).firsts()


def _hits(pieces: list[_Piece], chosen: Rows) -> Iterator[Hit]:
    """``chosen`` counts through the rows of all pieces."""
    start = 0
    for piece in pieces:
        end = start + len(piece.rows)
        at = np.flatnonzero((chosen >= start) & (chosen < end))
        if len(at):
            yield Hit(piece.source, at, piece.rows[chosen[at] - start])
        start = end


def _pieces(levels: Levels, hashes: Hashes, keys: pa.RecordBatch) -> Iterator[_Piece]:
    """Newest first."""
    memtable, groups = levels.memtable, levels.groups
    if len(memtable):
        key, rows = _slices(memtable.rows, hashes, keys)
        yield _Piece(MEMTABLE, key, rows, memtable.rows, memtable.removed[rows])
    cuts = groups.cuts(hashes)
    for i in reversed(range(len(levels.runs))):
        run = levels.runs[i]
        low, high = int(cuts[run.first - groups.first]), int(cuts[run.end - groups.first])
        if low < high:
            table = levels.rows_of(run)
            key, rows = _slices(table, hashes[low:high], keys.slice(low, high - low))
            yield _Piece(i, key + low, rows, table, np.full(len(rows), run.tombstones))


def _slices(table: pa.RecordBatch, hashes: Hashes, keys: pa.RecordBatch) -> tuple[Rows, Rows]:
    """The rows of ``keys`` in a sorted table, and the key of each."""
    starts, ends = _bounds(table, hashes & UPPER)
    counts = ends - starts
    key = np.repeat(np.arange(len(hashes)), counts)
    rows = np.arange(len(key)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
    if not len(rows):
        return key, rows
    # Two keys in four billion share the upper half.
    same = equal_keys(picked(keys, key), picked(table.select(keys.schema.names), rows))
    return (key, rows) if same.all() else (key[same], rows[same])


def _bounds(table: pa.RecordBatch, begin: Hashes) -> tuple[Rows, Rows]:
    """Where the rows of each upper half lie in a sorted table."""
    stored = int64_view(table.column(KEY_HASH))
    starts, ends = search(stored, begin), search(stored, begin + _SPAN)
    ends[begin + _SPAN < begin] = len(stored)  # behind the last upper half there is no hash
    return starts, ends
