"""Where the keys of a static side lie: made once of all its rows, asked by every batch. No row loop.

Rows lie in buckets, in the order of the buckets, so that what may match a key is one stretch of rows. Whole numbers
that lie close together are their own buckets. Other keys go by the first bits of their hash, with about two buckets a
row, and are compared. Equality is that of Spark's joins: null equals nothing, NaN equals NaN, -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.joins._pairs import spread
from spark_ckpt.state.keys.keys import Hashes, Mask, equal_keys, injective
from spark_ckpt.state.keys.spark_hash import normalised, xxhash64

_SPARSE = 8
"""Up to so many places a row, numbers are places in an array; beyond, they are hashed."""

Pairs = Iterator[tuple[Rows, Rows]]


class StaticIndex:
    """``keys`` are the key columns of the static side, of flat types. Safe to ask from several threads."""

    def __init__(self, keys: Sequence[pa.Array]) -> None:
        found = _known(keys)
        rows = np.arange(len(keys[0])) if found is None else np.flatnonzero(found)
        kept = _taken(keys, rows if found is not None else None)
        self._numbers = _numbers(kept)
        self._low, places = _span(self._numbers)
        self._dense = self._numbers is not None and places <= _SPARSE * len(rows) + 1024
        self._hashes = None if self._dense else xxhash64(kept)
        self._shift = np.uint64(64 - max(1, (2 * len(rows)).bit_length()))
        self._injective = injective(pa.schema([pa.field(str(i), k.type) for i, k in enumerate(keys)]))
        self._buckets = places if self._dense else 1 << int(np.uint64(64) - self._shift)
        self._arrange(kept, rows)

    def _arrange(self, keys: list[pa.Array], rows: Rows) -> None:
        bucket = self._bucket(self._numbers, self._hashes)
        per_bucket = np.bincount(bucket, minlength=self._buckets)
        self.unique = self._dense and int(per_bucket.max()) <= 1
        self._numbers = None
        if self.unique:
            self._only = np.full(self._buckets, -1, np.int32)
            self._only[bucket] = rows
            return
        order = np.argsort(bucket, kind="stable")
        self._starts = np.zeros(self._buckets + 1, np.int32)
        np.cumsum(per_bucket, out=self._starts[1:])
        self._rows = rows[order]
        self._hashes = None if self._hashes is None else self._hashes[order]
        self._keys = [] if self._dense or self._injective else _taken(keys, order)

    def _bucket(self, numbers: Rows | None, hashes: Hashes | None) -> Rows:
        if hashes is None:
            assert numbers is not None
            return numbers - self._low
        return (hashes.view(np.uint64) >> self._shift).astype(np.int64)

    def pairs(self, keys: Sequence[pa.Array], wanted: Mask | None = None) -> Pairs:
        """All pairs (row of ``keys``, row of the static side) that are equal, by row, piece by piece.

        ``keys`` have the types of the static side's; of rows that are not ``wanted`` nothing is found.
        """
        known = _known(keys)
        if wanted is not None:
            known = wanted if known is None else known & wanted
        rows = None if known is None or known.all() else np.flatnonzero(known)
        kept = _taken(keys, rows)
        for at, found in self._dense_pairs(kept) if self._dense else self._hashed_pairs(kept):
            if len(at):
                yield (at if rows is None else rows[at]), found

    def _dense_pairs(self, keys: list[pa.Array]) -> Pairs:
        numbers = _numbers(keys)
        assert numbers is not None
        place = numbers - self._low
        # What lies below wraps around or is negative: as a number without sign it is beyond the end.
        inside = place.view(np.uint64) < np.uint64(self._buckets)
        rows = None if inside.all() else np.flatnonzero(inside)
        place = place if rows is None else place[rows]
        for at, found in self._only_pairs(place) if self.unique else self._bucket_pairs(place):
            yield (at if rows is None else rows[at]), found

    def _only_pairs(self, bucket: Rows) -> Pairs:
        found = self._only.take(bucket)
        at = np.flatnonzero(found >= 0)
        yield at, found.take(at).astype(np.int64)

    def _bucket_pairs(self, bucket: Rows) -> Pairs:
        for at, place in self._spread(bucket):
            yield at, self._rows[place]

    def _spread(self, bucket: Rows) -> Pairs:
        first = self._starts.take(bucket).astype(np.int64)
        return spread(first, self._starts.take(bucket + 1) - first)

    def _hashed_pairs(self, keys: list[pa.Array]) -> Pairs:
        assert self._hashes is not None
        hashes = xxhash64(keys)
        for at, place in self._spread(self._bucket(None, hashes)):
            same = self._hashes[place] == hashes[at]
            at, place = at[same], place[same]
            if not self._injective and len(at):
                equal = equal_keys(_table(_taken(keys, at)), _table(_taken(self._keys, place)))
                at, place = at[equal], place[equal]
            yield at, self._rows[place]


def _known(keys: Sequence[pa.Array]) -> Mask | None:
    """The rows without a null among their keys; None: all."""
    masks = [k.is_valid().to_numpy(zero_copy_only=False) for k in keys if k.null_count]
    return np.logical_and.reduce(masks) if masks else None


def _taken(keys: Sequence[pa.Array], rows: Rows | None) -> list[pa.Array]:
    return [normalised(k if rows is None else k.take(pa.array(rows))) for k in keys]


def _table(keys: list[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(keys, [str(i) for i in range(len(keys))])


def _numbers(keys: Sequence[pa.Array]) -> Rows | None:
    """The only key as whole numbers, if it is one without nulls that they tell apart."""
    if len(keys) != 1:
        return None
    kind = keys[0].type
    if pa.types.is_timestamp(kind) or pa.types.is_int64(kind):
        return keys[0].view(pa.int64()).to_numpy()
    if pa.types.is_date32(kind):
        return keys[0].view(pa.int32()).to_numpy().astype(np.int64)
    if pa.types.is_integer(kind):
        return keys[0].to_numpy().astype(np.int64)
    return None


def _span(numbers: Rows | None) -> tuple[int, int]:
    """The least of ``numbers``, and how many there are from there to the greatest."""
    if numbers is None or not len(numbers):
        return 0, 1
    low, high = int(numbers.min()), int(numbers.max())
    return low, high - low + 1
