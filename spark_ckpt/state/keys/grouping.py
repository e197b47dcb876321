"""Which rows share a key: by the 64-bit key hash, checked against the keys themselves. No row loop.

Everything that groups by key comes here: partial aggregates before the shuffle, an operator's input, compaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.keys.keys import NULL_HASH, Hashes, equal_keys, equal_rows, injective, is_one_value

_BITS: Final = 63
"""Of an integer without its sign."""
_RADIX: Final = 1 << 16
_FEW_FALLS: Final = 3
"""At so few places where order breaks, a merge sort joins the ascending pieces in linear time."""
_MANY: Final = 1 << 18
"""So many rows are worth finding out how often keys repeat."""
_SAMPLED = 64
"""One in so many keys is looked at to estimate the number of keys."""
_REPEATED, _FEW_KEYS = 2, 1 << 14
"""From so many rows a key on, and of so few keys, a hash table that numbers the keys pays."""
_FEW = 2048
"""So many rows are sorted before anything is found out about them."""


@dataclass(frozen=True)
class Segments:
    """Rows grouped into adjacent, non-empty segments.

    ``order`` lists the rows' old positions (None: they lie right already), keeping the order of arrival inside a
    segment; ``starts`` are the segments' first positions in the new order; ``rows`` is their total. ``segment`` is each
    row's segment, rows as they came, where whoever made the order knew it.
    """

    order: Rows | None
    starts: Rows
    rows: int
    segment: np.ndarray | None = None

    @property
    def ends(self) -> Rows:
        return np.append(self.starts[1:], self.rows)

    @property
    def counts(self) -> Rows:
        return np.diff(self.starts, append=self.rows)

    def arrange(self, column: pa.Array) -> pa.Array:
        return column if self.order is None else column.take(pa.array(self.order))

    def firsts(self) -> Rows:
        """Old position of each segment's first row."""
        return self.starts if self.order is None else self.order[self.starts]

    def places(self) -> Rows:
        """Each row's segment, rows as they came."""
        if self.segment is not None:
            return self.segment.astype(np.int64)
        segment = np.repeat(np.arange(len(self.starts)), self.counts)
        if self.order is None:
            return segment
        places = np.empty(self.rows, np.int64)
        places[self.order] = segment
        return places


def group_rows(hashes: Hashes, keys: pa.Table, per_key: float | None = None, whole: bool = False) -> Segments:
    """A segment a key, in the order of (signed) hash and then of first arrival.

    ``keys`` holds the key columns, aligned with ``hashes``; ``per_key`` is :func:`rows_per_key` where it is known.
    ``whole``: the hashes are ``xxhash64`` of these columns, all 64 bits of it, and not those of a family's rows.
    """
    seg = _group_hashes(hashes, per_key)
    if whole and _one_tells(keys):
        return seg
    strangers = _strangers(hashes, keys, seg)
    return _split(hashes, keys, seg, strangers) if len(strangers) else seg


def rows_per_key(hashes: Hashes) -> float:
    """Estimated: all rows of every 64th key are counted, because a sample of rows would miss repetitions."""
    sample = hashes[(hashes & (_SAMPLED - 1)) == 0]
    if len(sample) <= _SAMPLED:
        return float("inf")
    sample.sort()  # a copy; NumPy's unique takes ten times as long
    return len(sample) / (1 + int(np.count_nonzero(sample[1:] != sample[:-1])))


def stable_order(index: Rows, limit: int) -> Rows | None:
    """Stable argsort of integers in ``[0, limit)``; None if they are sorted already."""
    falls = int(np.count_nonzero(index[1:] < index[:-1]))
    if not falls:
        return None
    if falls <= _FEW_FALLS:
        return np.argsort(index, kind="stable")
    if limit <= _RADIX:  # a radix sort, in linear time
        return np.argsort(index.astype(np.uint16), kind="stable")
    bits = (len(index) - 1).bit_length()
    if limit.bit_length() + bits >= _BITS:
        return np.argsort(index, kind="stable")
    return _sorted_places(index.astype(np.int64) << bits, bits)


@dataclass(frozen=True)
class Packed:
    """``numbers`` compare by owner first and then by value; the value is in the lower ``bits``, less ``low``."""

    numbers: Rows
    low: int
    bits: int

    def values(self, numbers: Rows) -> Rows:
        """Those of some of the numbers."""
        return (numbers & ((1 << self.bits) - 1)) + self.low


def packed(owner: Rows, values: np.ndarray) -> Packed | None:
    """An owner (0 or more) and an integer as one number each; None where these do not fit.

    One number is sorted, and its maximum found, several times faster than two.
    """
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    bits = (high - low).bit_length()
    if bits + int(owner.max(initial=0)).bit_length() >= _BITS:
        return None
    return Packed(owner << bits | (values.astype(np.int64) - low), low, bits)


def segments_by_index(index: Rows, limit: int) -> tuple[Segments, Rows]:
    """Groups rows by ``index``; also returns the distinct indices, ascending, one a segment."""
    seg = _segments(index, stable_order(index, limit))
    return seg, index[seg.firsts()]


def _segments(values: Rows, order: Rows | None) -> Segments:
    """``order`` sorts ``values`` stably; None if they are sorted."""
    ordered = values if order is None else values[order]
    starts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    return Segments(order, np.concatenate(([0], starts)) if len(values) else starts, len(values))


def _group_hashes(hashes: Hashes, per_key: float | None = None) -> Segments:
    falls = int(np.count_nonzero(hashes[1:] < hashes[:-1]))
    if not falls:
        return _segments(hashes, None)
    if falls <= _FEW_FALLS:
        return _segments(hashes, np.argsort(hashes, kind="stable"))
    if len(hashes) > _MANY:
        if per_key is None:
            per_key = rows_per_key(hashes)
        if per_key >= _REPEATED and len(hashes) / per_key < _FEW_KEYS:
            coded = pa.array(hashes).dictionary_encode()
            if len(coded.dictionary) <= _RADIX:
                return _group_codes(coded)
    return _segments(hashes, _hash_order(hashes))


def _group_codes(coded: pa.DictionaryArray) -> Segments:
    """Few distinct hashes: each row's rank among them is one 16-bit digit, and counting gives where ranks begin."""
    distinct = coded.dictionary.to_numpy()
    ranks = np.empty(len(distinct), np.uint16)
    ranks[np.argsort(distinct)] = np.arange(len(distinct))
    rank = ranks.take(coded.indices.to_numpy())
    counts = np.bincount(rank, minlength=len(distinct))
    return Segments(np.argsort(rank, kind="stable"), np.cumsum(counts) - counts, len(rank), rank)


def _hash_order(hashes: Hashes) -> Rows:
    """Stable order of hashes. Their upper bits nearly always decide, so in the lower ones stands the place of each."""
    bits = (len(hashes) - 1).bit_length()
    order = _sorted_places(hashes & ~np.int64((1 << bits) - 1), bits)
    ordered = hashes[order]
    if (ordered[1:] < ordered[:-1]).any():
        return order[np.argsort(ordered, kind="stable")]  # sorted but for few: a merge sort takes linear time
    return order


def _sorted_places(numbers: Rows, bits: int) -> Rows:
    """Stable argsort of numbers whose lower ``bits``, enough for each place, are 0. Overwrites them.

    NumPy sorts 64-bit numbers with the processor's vector instructions, and several times faster than it finds the
    order of others.
    """
    numbers |= np.arange(len(numbers))
    numbers.sort()
    numbers &= (1 << bits) - 1
    return numbers


def _strangers(hashes: Hashes, keys: pa.Table, seg: Segments) -> Rows:
    """Where, in the segments' order, a row has the hash of the row in front of it in its segment, but not its key."""
    only_null = injective(keys.schema)
    none = np.empty(0, np.int64)
    if only_null and not keys.column(0).null_count:
        return none
    behind = np.ones(seg.rows, bool)
    behind[seg.starts] = False
    order = np.arange(seg.rows) if seg.order is None else seg.order
    if only_null:
        behind &= hashes[order] == NULL_HASH
    suspects = np.flatnonzero(behind)
    if 2 * len(suspects) < seg.rows:
        return suspects[~equal_rows(keys, order[suspects], keys, order[suspects - 1])]
    arranged = keys if seg.order is None else keys.take(pa.array(order))
    same = equal_keys(arranged.slice(1), arranged.slice(0, seg.rows - 1))
    return np.flatnonzero(~(same | ~behind[1:])) + 1


def _one_tells(keys: pa.Table) -> bool:
    """Whether all columns but one have one value throughout, and that one tells keys apart by their hash: ``xxhash64``
    of several columns is a chain of bijections in each of them, whatever the others are."""
    if keys.num_columns < 2:
        return False
    varying = [name for name in keys.column_names if not is_one_value(keys.column(name))]
    if len(varying) > 1 or not keys.num_rows:
        return False
    return not varying or (injective(keys.select(varying).schema) and not keys.column(varying[0]).null_count)


def _split(hashes: Hashes, keys: pa.Table, seg: Segments, strangers: Rows) -> Segments:
    """The rare case that keys share a hash: their segments are grouped by key, the others stay as they are."""
    shared = np.zeros(len(seg.starts), bool)
    shared[np.searchsorted(seg.starts, strangers, side="right") - 1] = True
    places = np.flatnonzero(np.repeat(shared, seg.counts))
    order = np.arange(seg.rows) if seg.order is None else seg.order.copy()
    rows = np.sort(order[places])
    within = _grouped_by_key(hashes[rows], keys.take(pa.array(rows)))
    order[places] = rows if within.order is None else rows[within.order]
    starts = np.zeros(seg.rows, bool)
    starts[seg.starts] = starts[places[within.starts]] = True
    return Segments(order, np.flatnonzero(starts), seg.rows)


def _grouped_by_key(hashes: Hashes, keys: pa.Table) -> Segments:
    """Round by round, the rows that are not their group's first key leave it."""
    seg = _group_hashes(hashes)
    first, place = seg.firsts(), seg.places()
    strangers = np.flatnonzero(~equal_rows(keys, np.arange(seg.rows), keys, first[place]))
    while len(strangers):
        more = _group_hashes(hashes[strangers])
        heads, at = strangers[more.firsts()], more.places()
        place[strangers] = len(first) + at
        first = np.concatenate([first, heads])
        strangers = strangers[~equal_rows(keys, strangers, keys, heads[at])]
    rank = np.empty(len(first), np.int64)
    rank[np.lexsort((first, hashes[first]))] = np.arange(len(first))
    return segments_by_index(rank[place], len(first))[0]
