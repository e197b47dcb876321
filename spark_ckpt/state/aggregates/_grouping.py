"""Which rows share a key: by the 64-bit key hash, checked against the keys themselves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.state.aggregates.segments import RADIX, Segments, plain_array, segment_starts
from spark_ckpt.state.keys.keys import radix_order
from spark_ckpt.state.keys.spark_hash import normalised

SAMPLED = 64
"""One in so many keys is looked at to estimate the number of keys."""


def rows_per_key(hashes: np.ndarray) -> float:
    """Estimated: all rows of every 64th key are counted, because a sample of rows would miss repetitions."""
    sample = hashes[(hashes & (SAMPLED - 1)) == 0]
    return len(sample) / max(1, len(np.unique(sample))) if len(sample) > SAMPLED else float("inf")


def group_by_key(keys: list[pa.Array], hashes: np.ndarray, expected_keys: float) -> Segments:
    """Segments of equal keys, in the order of their (signed) hashes."""
    seg = _group_by_hash(hashes, expected_keys)
    return seg if _same_keys(keys, seg) else _group_by_values(keys, hashes)


def _group_by_hash(hashes: np.ndarray, expected_keys: float) -> Segments:
    if len(hashes) < 2 or bool((hashes[1:] >= hashes[:-1]).all()):
        return Segments(None, segment_starts(hashes), len(hashes))
    if expected_keys < RADIX:
        encoded = pa.array(hashes).dictionary_encode()
        if len(encoded.dictionary) <= RADIX:
            return _group_by_rank(encoded)
    order = radix_order(hashes)
    return Segments(order, segment_starts(hashes[order]), len(hashes))


def _group_by_rank(encoded: pa.DictionaryArray) -> Segments:
    """Few distinct hashes: each row's rank among them is one 16-bit digit, and counting gives where ranks begin."""
    distinct = encoded.dictionary.to_numpy()
    ranks = np.empty(len(distinct), np.uint16)
    ranks[np.argsort(distinct)] = np.arange(len(distinct))
    rank = ranks.take(encoded.indices.to_numpy())
    counts = np.bincount(rank, minlength=len(distinct))
    return Segments(np.argsort(rank, kind="stable"), np.cumsum(counts) - counts, len(rank))


def _same_keys(keys: list[pa.Array], seg: Segments) -> bool:
    """No two keys share a hash, unless xxhash64 met its like: then every row must be compared by value."""
    suspects = [key for key in keys if _may_collide(key, len(keys))]
    if seg.rows == len(seg.starts) or not suspects:
        return True
    same_hash = np.ones(seg.rows - 1, bool)
    same_hash[seg.starts[1:] - 1] = False
    mask = pa.array(same_hash)
    return not any(pc.any(pc.and_(mask, _differs(key, seg))).as_py() for key in suspects)


def _may_collide(key: pa.Array, columns: int) -> bool:
    """xxhash64 maps different values of one column of at most 8 bytes to different hashes; null has some value's."""
    t = key.type
    narrow = pa.types.is_primitive(t) and t.bit_width <= 64
    return columns > 1 or not narrow or key.null_count > 0


def _differs(key: pa.Array, seg: Segments) -> pa.Array:
    key = seg.arrange(key)
    a, b = key[1:], key[:-1]
    equal = pc.equal(a, b)
    if pa.types.is_floating(key.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(a), pc.is_nan(b)))
    either_null = pc.xor(a.is_null(), b.is_null())
    return pc.or_(pc.fill_null(pc.invert(equal), False), either_null)


def _group_by_values(keys: list[pa.Array], hashes: np.ndarray) -> Segments:
    names = [f"k{i}" for i in range(len(keys))]
    columns = [pa.array(hashes), *map(normalised, keys), pa.array(np.arange(len(hashes)))]
    table = pa.table(columns, names=["h", *names, "row"])
    groups = table.group_by(["h", *names], use_threads=False).aggregate([("row", "list")]).sort_by("h")
    rows = plain_array(groups["row_list"])
    order = rows.flatten().to_numpy()
    ends = np.cumsum(rows.value_lengths().to_numpy().astype(np.int64))
    return Segments(order, np.concatenate(([0], ends[:-1])), len(order))
