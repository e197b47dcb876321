"""Binary search for few keys in a long sorted array of hashes, such as a memory-mapped run.

``np.searchsorted`` looks one key up after the other, and every step of one waits for memory. Hashes are spread evenly,
so where a key must be is known within a few cache lines; the rest is searched for all keys at once, and the processor
fetches what they need side by side. Idea: interpolation search (Peterson 1957).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_ROUNDS = 2
"""Each guess misses by about the root of what the one before missed by, which began at the root of the run's rows."""
_STEPS = (16, 8, 4, 2, 1)
_WINDOW = 2 * _STEPS[0]
_LONG = 1 << 16
_FEW = 64
_DENSE = 20
"""Wanted ones closer together than so many hashes share most of what a binary search reads."""

Longs = npt.NDArray[np.int64]


def search(hashes: Longs, wanted: Longs) -> Longs:
    """``np.searchsorted(hashes, wanted)``. Right for any values, fast for evenly spread ones."""
    if len(hashes) < _LONG or len(wanted) < _FEW or len(wanted) * _DENSE > len(hashes):
        return np.searchsorted(hashes, wanted)
    below = np.clip(_guess(hashes, wanted) - _WINDOW // 2, 0, len(hashes) - _WINDOW - 1)
    for step in _STEPS:
        below += step * (hashes.take(below + step) < wanted)
    found = below + 1
    missed = np.flatnonzero((hashes.take(below) >= wanted) | (hashes.take(found) < wanted))
    if len(missed):
        found[missed] = np.searchsorted(hashes, wanted[missed])
    return found


def _guess(hashes: Longs, wanted: Longs) -> Longs:
    """From the run's ends, and then from what was found at the last guess."""
    first, last, aim = float(hashes[0]), float(hashes[-1]), wanted.astype(np.float64)
    rows_per_hash = len(hashes) / max(last - first, 1.0)
    place = (aim - first) * rows_per_hash
    for _ in range(_ROUNDS):
        np.clip(place, 0, len(hashes) - 1, out=place)
        place += (aim - hashes.take(place.astype(np.int64))) * rows_per_hash
    return np.clip(place, 0, len(hashes) - 1).astype(np.int64)
