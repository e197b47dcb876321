"""Bitmaps of 32,768 bits, as Spark's ``bitmap_*_agg`` have them: 4,096 bytes, the lowest bit of a byte first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.aggregates._accumulators import Accumulator
from spark_ckpt.state.keys.grouping import Segments

BYTES = 4096
BITS = 8 * BYTES


class _Bitmap(Accumulator):
    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, pa.binary())]

    @property
    def output_type(self) -> pa.DataType:
        return pa.binary()


class BitmapOf(_Bitmap):
    """``bitmap_construct_agg``: the bits at the positions that came.

    While they are few, the positions themselves are what is kept, of two bytes each, ascending.
    """

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        known = column.is_valid().to_numpy(zero_copy_only=False)
        places = column.drop_null().to_numpy().astype(np.int64)
        wrong = places[(places < 0) | (places >= BITS)]
        if len(wrong):
            raise InvalidInputError(
                f"[INVALID_BITMAP_POSITION] aggregate {self.name!r}: the 0-indexed bitmap position {wrong[0]} is out "
                f"of bounds; a bitmap has {BITS} bits. bitmap_bit_position(x) is one, within bitmap_bucket_number(x)."
            )
        return [_binary(2 * known.astype(np.int64), places.astype("<u2").view(np.uint8))]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        of, places = _places(parts[0])
        group = np.repeat(np.arange(len(seg.starts)), seg.counts)[of]
        found = np.unique(group * BITS + places)
        group, places = found // BITS, found % BITS
        number = np.bincount(group, minlength=len(seg.starts))
        dense = 2 * number >= BYTES
        lengths = np.where(dense, BYTES, 2 * number)
        data, of_byte = np.empty(int(lengths.sum()), np.uint8), np.repeat(dense, lengths)
        full = dense[group]
        data[~of_byte] = places[~full].astype("<u2").view(np.uint8)
        data[of_byte] = _bitmaps((np.cumsum(dense) - 1)[group[full]], places[full], int(dense.sum())).ravel()
        return [_binary(lengths, data)]

    def result(self, parts: list[pa.Array]) -> pa.Array:
        return _rows(_bitmaps(*_places(parts[0]), len(parts[0])))


class Bitmaps(_Bitmap):
    """``bitmap_or_agg`` and ``bitmap_and_agg`` of bitmaps; what a shorter one has not got are zeros."""

    def __init__(self, name: str, column: str | None, type_: pa.DataType, both: bool) -> None:
        super().__init__(name, column, type_)
        self.ufunc: np.ufunc = np.bitwise_and if both else np.bitwise_or
        self.neutral = 255 if both else 0

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        size, data = _lengths_and_bytes(column.cast(pa.binary()).fill_null(b""))
        taken = np.minimum(size, BYTES)
        row, within = np.repeat(np.arange(rows), taken), np.arange(taken.sum())
        within -= np.repeat(np.cumsum(taken) - taken, taken)
        matrix = np.zeros((rows, BYTES), np.uint8)
        matrix[column.is_null().to_numpy(zero_copy_only=False)] = self.neutral
        matrix[row, within] = data[np.repeat(np.cumsum(size) - size, taken) + within]
        return [_rows(matrix)]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        return [_rows(self.ufunc.reduceat(_matrix(parts[0]), seg.starts, axis=0))]


def _places(kept: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Whose each bit is, and its position."""
    size, data = _lengths_and_bytes(kept)
    dense = size == BYTES
    of_byte = np.repeat(dense, size)
    of = np.repeat(np.flatnonzero(~dense), size[~dense] // 2)
    places = data[~of_byte].view("<u2").astype(np.int64)
    row, bit = np.nonzero(np.unpackbits(data[of_byte].reshape(-1, BYTES), axis=1, bitorder="little"))
    return np.concatenate((of, np.flatnonzero(dense)[row])), np.concatenate((places, bit))


def _bitmaps(of: np.ndarray, places: np.ndarray, rows: int) -> np.ndarray:
    matrix = np.zeros((rows, BYTES), np.uint8)
    np.bitwise_or.at(matrix, (of, places >> 3), np.left_shift(1, places & 7).astype(np.uint8))
    return matrix


def _matrix(kept: pa.Array) -> np.ndarray:
    return _lengths_and_bytes(kept)[1].reshape(-1, BYTES)


def _lengths_and_bytes(kept: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.frombuffer(kept.buffers()[1], np.int32, len(kept) + 1 + kept.offset)[kept.offset :]
    data = np.frombuffer(kept.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    return np.diff(offsets), data


def _rows(matrix: np.ndarray) -> pa.Array:
    return _binary(np.full(len(matrix), BYTES), np.ascontiguousarray(matrix).ravel())


def _binary(lengths: np.ndarray, data: np.ndarray) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
