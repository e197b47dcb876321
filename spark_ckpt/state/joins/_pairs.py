"""Which rows of two sides share a key, piece by piece: a hot key's pairs are never all in memory at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.keys.grouping import stable_order

PIECE = 1 << 18
"""Candidate pairs looked at together."""


def candidates(one: Rows, other: Rows, keys: int, piece: int | None = None) -> Iterator[tuple[Rows, Rows]]:
    """All pairs (place in ``one``, place in ``other``) with the same key, at most ``piece`` at a time.

    ``one`` and ``other`` are the rows' keys, by their number below ``keys``.
    """
    order = stable_order(other, keys)
    per_key = np.bincount(other, minlength=keys)
    starts = np.cumsum(per_key) - per_key
    for row, place in spread(starts[one], per_key[one], piece):
        yield row, place if order is None else order[place]


def spread(first: Rows, found: Rows, piece: int | None = None) -> Iterator[tuple[Rows, Rows]]:
    """Of rows that meet ``found[i]`` neighbours from place ``first[i]`` on: all pairs (row, place), by row, at most
    ``piece`` at a time."""
    ends = np.cumsum(found)
    begins = first - (ends - found)
    total, piece = int(ends[-1]) if len(ends) else 0, piece or PIECE
    for begin in range(0, total, piece):
        pair = np.arange(begin, min(begin + piece, total))
        row = _rows_of(pair, ends)
        yield row, begins[row] + pair


def _rows_of(pair: Rows, ends: Rows) -> Rows:
    """Which row of the first side each pair belongs to: the one whose pairs end first behind it."""
    first = int(np.searchsorted(ends, pair[0], side="right"))
    last = int(np.searchsorted(ends, pair[-1], side="right"))
    bounds = np.minimum(ends[first : last + 1], pair[-1] + 1)
    return np.repeat(np.arange(first, last + 1), np.diff(bounds, prepend=pair[0]))
