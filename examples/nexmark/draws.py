"""Random numbers by position: what event n draws depends on n and the seed alone, so any range can be made again."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa

Numbers = Any  # numpy arrays of 64-bit integers
_LETTERS = 1 << 16


class Draws:
    """Draws for the events ``numbers``. ``what`` names a draw: another name, another number."""

    def __init__(self, numbers: Numbers, seed: int) -> None:
        self._numbers, self._seed = numbers.astype(np.uint64), seed

    def below(self, what: str, high: Any) -> Numbers:
        """From 0 to ``high`` - 1; ``high`` may be an array."""
        return (self._bits(what) % np.asarray(high).astype(np.uint64)).astype(np.int64)

    def unit(self, what: str) -> Any:
        """Floats from 0 to 1, without 1."""
        return (self._bits(what) >> np.uint64(11)) * 2.0**-53

    def one_of(self, what: str, values: list[str]) -> pa.Array:
        return pa.array(values).take(pa.array(self.below(what, len(values))))

    def text(self, what: str, least: int, most: int) -> pa.Array:
        """Letters, from ``least`` to ``most`` of them: pieces of one long text, as drawing each letter takes long."""
        lengths = least + self.below(f"{what} length", most - least + 1)
        starts = self.below(f"{what} start", _LETTERS - most)
        ends = np.cumsum(lengths)
        places = np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(_LONG_TEXT[places])]
        return pa.Array.from_buffers(pa.string(), len(lengths), buffers)

    def _bits(self, what: str) -> Any:
        own = (self._seed << 32) + zlib.crc32(what.encode())
        return _mixed(_mixed(self._numbers) ^ np.uint64(own % 2**64))


def _mixed(bits: Any) -> Any:
    """The finisher of the generator SplitMix64: each bit of the result depends on all of ``bits``."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


_LONG_TEXT = (ord("a") + Draws(np.arange(_LETTERS), 0).below("letters", 26)).astype(np.uint8)
