"""HyperLogLog (Flajolet et al. 2007) with Ertl's bias-free estimator (2017, arXiv:1702.01284, algorithm 6).

A sketch of ``m`` registers is stored dense (``m`` bytes, one register each) or, while fewer than ``m / 4`` of them
are set, sparse (4 little-endian bytes each: register number * 256 + value, ascending). The length tells which.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from spark_ckpt.agg import AggSpec
from spark_ckpt.state.aggregates._accumulators import Accumulator
from spark_ckpt.state.aggregates._hash import hash_column
from spark_ckpt.state.keys.grouping import Segments

ALPHA = 1 / (2 * math.log(2))


class ApproxDistinct(Accumulator):
    """Approximate number of distinct non-null values, with a relative standard deviation of at most ``rsd``."""

    def __init__(self, name: str, column: str | None, type_: pa.DataType, rsd: float) -> None:
        super().__init__(name, column, type_)
        # As Spark's HyperLogLogPlusPlusHelper derives its precision.
        self.precision = max(4, math.ceil(2 * math.log2(1.106 / rsd)))
        self.registers = 1 << self.precision

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(f"{self.name}_hll", pa.binary())]

    @property
    def output_type(self) -> pa.DataType:
        return pa.int64()

    def made_of(self, spec: AggSpec) -> str:
        """With the type: sketches of hashes look alike, whatever was hashed."""
        return f"{super().made_of(spec)} of {self.type}"

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        hashes = hash_column(column.drop_null())
        codes = ((hashes >> np.uint64(64 - self.precision)) << np.uint64(8)).astype(np.uint32)
        codes |= self._ranks(hashes).astype(np.uint32)
        return [_binary(valid * 4, codes.astype("<u4").view(np.uint8))]

    def _ranks(self, hashes: np.ndarray) -> np.ndarray:
        """Position of the first set bit behind the register number, counted from 1."""
        rest = (hashes << np.uint64(self.precision)) | np.uint64(1 << (self.precision - 1))
        # A float64 holds 32 bits exactly, so its exponent is their length; 64 would be rounded up.
        high = (rest >> np.uint64(32)).astype(np.float64)
        low = (rest & np.uint64(0xFFFFFFFF)).astype(np.float64)
        exponent = np.where(high > 0, np.frexp(high)[1] + 32, np.frexp(low)[1])
        return 65 - exponent

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        part, codes = self._codes(parts[0])
        group = np.repeat(np.arange(len(seg.starts)), seg.counts)[part]
        return [self._encode(*_largest(group, codes), len(seg.starts))]

    def result(self, parts: list[pa.Array]) -> pa.Array:
        group, codes = self._codes(parts[0])
        n, m = len(parts[0]), self.registers
        power = np.bincount(group, np.exp2(-(codes & 0xFF).astype(np.float64)), n)
        unset = (m - np.bincount(group, minlength=n)) / m
        estimate = np.zeros(n)
        some = unset < 1
        estimate[some] = ALPHA * m * m / (m * _sigma(unset[some]) + power[some])
        return pa.array(np.rint(estimate).astype(np.int64))

    def _codes(self, sketches: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """All set registers as codes, and the sketch each belongs to."""
        offsets = np.frombuffer(sketches.buffers()[1], np.int32, len(sketches) + 1 + sketches.offset)[sketches.offset :]
        size = np.diff(offsets)
        data = np.frombuffer(sketches.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
        dense = size == self.registers
        of_byte = np.repeat(dense, size)
        sparse_codes = data[~of_byte].view("<u4").astype(np.int64)
        sparse_part = np.repeat(np.flatnonzero(~dense), size[~dense] // 4)
        if not dense.any():
            return sparse_part, sparse_codes
        values = data[of_byte].reshape(-1, self.registers)
        row, register = np.nonzero(values)
        dense_codes = (register << 8) | values[row, register]
        part = np.concatenate((sparse_part, np.flatnonzero(dense)[row]))
        return part, np.concatenate((sparse_codes, dense_codes))

    def _encode(self, group: np.ndarray, codes: np.ndarray, groups: int) -> pa.Array:
        number = np.bincount(group, minlength=groups)
        dense = number * 4 >= self.registers
        lengths = np.where(dense, self.registers, number * 4)
        data = np.empty(int(lengths.sum()), np.uint8)
        in_dense = dense[group]
        dense_data = np.zeros((int(dense.sum()), self.registers), np.uint8)
        row = (np.cumsum(dense) - 1)[group[in_dense]]
        dense_data[row, codes[in_dense] >> 8] = codes[in_dense] & 0xFF
        of_byte = np.repeat(dense, lengths)
        data[of_byte] = dense_data.ravel()
        data[~of_byte] = codes[~in_dense].astype("<u4").view(np.uint8)
        return _binary(lengths, data)


def _binary(lengths: np.ndarray, data: np.ndarray) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _largest(group: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest code of each register of each group, ascending: the last among equal (group, register)."""
    packed = np.sort((group.astype(np.int64) << 32) | codes)
    register = packed >> 8
    last = np.append(register[1:] != register[:-1], True)[: len(packed)]
    return packed[last] >> 32, packed[last] & 0xFFFFFFFF


def _sigma(x: np.ndarray) -> np.ndarray:
    """Ertl's sigma, for shares of unset registers below 1."""
    x, y, z = x.copy(), 1.0, x.copy()
    while True:
        x = x * x
        before, z = z, z + x * y
        y += y
        if (z == before).all():
            return z
