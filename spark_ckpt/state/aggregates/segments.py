"""Grouping without a row loop: a stable order puts each group's rows side by side, then ``reduceat`` folds them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.state.keys.grouping import Segments, segments_by_index, stable_order

LONG_SEGMENT = 64
"""Segments longer than this are accumulated one by one, shorter ones all at once, rank by rank."""


def pairs(count: int) -> Segments:
    """Of so many rows and so many more: row *i* of the first and row *i* of the second are segment *i*."""
    return Segments(np.arange(2 * count).reshape(2, count).T.ravel(), np.arange(0, 2 * count, 2), 2 * count)


def places_of_keys(index: np.ndarray, keys: int) -> np.ndarray | None:
    """Where each key's row is; None unless each of the ``keys`` keys has exactly one."""
    if len(index) != keys:
        return None
    place = np.full(keys, -1)
    place[index] = np.arange(keys)
    return place if bool((place >= 0).all()) else None


def segments_behind(known: np.ndarray, index: np.ndarray, limit: int) -> tuple[Segments, np.ndarray]:
    """As :func:`segments_by_index` of ``known`` (distinct, ascending) and then ``index``, without sorting ``known``."""
    if not len(known):
        return segments_by_index(index, limit)
    order = stable_order(index, limit)
    ordered = index if order is None else index[order]
    counts = np.bincount(index, minlength=limit)
    counts[known] += 1
    ends = np.cumsum(counts)
    found = np.flatnonzero(counts)
    starts = (ends - counts)[found]
    heads = np.zeros(limit, np.int64)
    heads[known] = 1
    source = np.empty(len(known) + len(index), np.int64)
    source[(ends - counts)[known]] = np.arange(len(known))
    rows = np.arange(len(index)) if order is None else order
    source[np.arange(len(index)) + np.cumsum(heads)[ordered]] = len(known) + rows
    return Segments(source, starts, len(source)), found


def accumulate(ufunc: np.ufunc, values: np.ndarray, seg: Segments) -> np.ndarray:
    """``ufunc.accumulate`` inside each segment, strictly from left to right.

    That order makes a running float sum independent of where batches were cut, and no segment's NaN or rounding
    leaks into the next one, as it would with one cumulative sum over all rows.
    """
    out = values.copy()
    counts = seg.counts
    short = counts <= LONG_SEGMENT
    for start, count in zip(seg.starts[~short].tolist(), counts[~short].tolist()):
        ufunc.accumulate(values[start : start + count], out=out[start : start + count])
    heads, lengths = seg.starts[short], counts[short]
    for rank in range(1, LONG_SEGMENT):
        heads, lengths = heads[lengths > rank], lengths[lengths > rank]
        if len(heads) == 0:
            break
        at = heads + rank
        out[at] = ufunc(out[at - 1], out[at])
    return out


def values_and_valid(column: pa.Array, fill: object) -> tuple[np.ndarray, np.ndarray | None]:
    """NumPy values with ``fill`` for nulls, and which are not null (None: all)."""
    if column.null_count == 0:
        return column.to_numpy(zero_copy_only=False), None
    filled = pc.fill_null(column, pa.scalar(fill, column.type)).to_numpy(zero_copy_only=False)
    return filled, column.is_valid().to_numpy(zero_copy_only=False)


def any_valid(valid: np.ndarray | None, seg: Segments) -> np.ndarray | None:
    """Per segment: does it hold a value that is not null? None: all do."""
    return None if valid is None else np.logical_or.reduceat(valid, seg.starts)


def first_of(wanted: np.ndarray, seg: Segments) -> np.ndarray:
    """Per segment: the position of the first row that is ``wanted``; that of its last row if none is."""
    here = np.where(wanted, np.arange(seg.rows), seg.rows)
    return np.minimum(np.minimum.reduceat(here, seg.starts), seg.ends - 1)


def array_of(values: np.ndarray, valid: np.ndarray | None, type_: pa.DataType) -> pa.Array:
    return pa.array(values, type=type_, mask=None if valid is None else ~valid)
