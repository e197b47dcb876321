"""Binary search for few keys in a long sorted array of hashes, such as a memory-mapped run.

``np.searchsorted`` looks one key up after the other, and every step of one waits for memory. Hashes are spread evenly,
so where a key must be is known within a few cache lines; the rest is searched for all keys at once, and the processor
fetches what they need side by side. Idea: interpolation search (Peterson 1957).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_BLOCK = 256
_STEPS = (32, 16, 8, 4, 2, 1)
_WINDOW = 2 * _STEPS[0]
"""Four standard deviations to both sides of a position guessed inside a block of evenly spread hashes."""
_LONG = 1 << 16
_FEW = 512
_DENSE = 20
"""Wanted ones closer together than so many hashes share most of what a binary search reads."""

_SPARSE = 1 << 13
"""Wanted ones further apart are fewer than the blocks, all of which have to be looked at."""

Longs = npt.NDArray[np.int64]


def search(hashes: Longs, wanted: Longs) -> Longs:
    """``np.searchsorted(hashes, wanted)``. Right for any values, fast for evenly spread ones."""
    few = len(wanted) < max(_FEW, len(hashes) // _SPARSE)
    if few or len(hashes) < _LONG or len(wanted) * _DENSE > len(hashes):
        return np.searchsorted(hashes, wanted)
    below = np.clip(_guess(hashes, wanted) - _WINDOW // 2, 0, len(hashes) - _WINDOW - 1)
    for step in _STEPS:
        below += step * (hashes.take(below + step, mode="clip") < wanted)
    found = below + 1
    missed = np.flatnonzero((hashes.take(below) >= wanted) | (hashes.take(found) < wanted))
    if len(missed):
        found[missed] = np.searchsorted(hashes, wanted[missed])
    return found


def _guess(hashes: Longs, wanted: Longs) -> Longs:
    """From the place of each one between the first hashes of two blocks."""
    fences = hashes[::_BLOCK].astype(np.float64)
    scale = _BLOCK / np.maximum(np.diff(fences, append=float(hashes[-1])), 1.0)
    aim = wanted.astype(np.float64)
    block = np.maximum(np.searchsorted(fences, aim) - 1, 0)
    within = np.clip((aim - fences[block]) * scale[block], 0, _BLOCK).astype(np.int64)
    return block * _BLOCK + within
