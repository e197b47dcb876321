"""Spark's ``xxhash64`` (seed 42) over Arrow columns, vectorised: the hash of keys that never reach the JVM.

A key must hash alike wherever it is hashed: state that was written with the JVM's hash is found again with this one.
Algorithm: XXH64 by Yann Collet, in the form of Spark's ``XXH64.java`` and ``HashExpression`` (what each type is hashed
as, and that a null leaves the hash as it is).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.errors import ProtocolBugError
from spark_ckpt.state.ipc import Rows, plain_array
from spark_ckpt.state.keys.keys import LONG_DECIMAL_DIGITS, Hashes, is_fixed_width, is_list, is_one_value, places

_SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)

Words = npt.NDArray[np.uint64]


def xxhash64(columns: list[pa.Array]) -> Hashes:
    """The hash of each row of ``columns`` (key types only, floats :func:`normalised`).

    A column with one value throughout, such as a window's start, is hashed once.
    """
    rows, hashes = len(columns[0]), np.full(1, _SEED, np.uint64)
    for column in columns:
        if is_one_value(column):
            column = column.slice(0, 1)
        elif not is_fixed_width(column.type) or column.null_count:
            hashes = _of_each(hashes, rows)
        hashes = _chained(column, hashes)
    return _of_each(hashes, rows).view(np.int64)


def _chained(column: pa.Array, seeds: Words) -> Words:
    """``seeds`` with each value, if it is not null, hashed into its own."""
    known = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    hashed = _hash(column, seeds)
    return hashed if known is None else np.where(known, hashed, seeds)


def hashes_of(keys: Iterable[pa.Array]) -> Hashes:
    """Of key columns as they come: those of their values as Spark compares them."""
    return xxhash64([normalised(column) for column in keys])


def _of_each(hashes: Words, rows: int) -> Words:
    return hashes if len(hashes) == rows else np.repeat(hashes, rows)


def normalised(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """-0.0 becomes 0.0 and every NaN the same one, within structs and arrays, too, as Spark's groupBy has it."""
    kind = column.type
    if pa.types.is_floating(kind):
        zeros = pc.add(column, pa.scalar(0.0, kind))
        return pc.if_else(pc.fill_null(pc.is_nan(zeros), False), pa.scalar(float("nan"), kind), zeros)
    if not _has_floats(kind):
        return column
    values = plain_array(column)
    if pa.types.is_struct(kind):
        parts = [normalised(values.field(at)) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
    offsets = pa.array(values.offsets.to_numpy())  # Arrow takes none of a slice together with nulls
    return type(values).from_arrays(offsets, normalised(values.values), type=kind, mask=values.is_null())


def _has_floats(kind: pa.DataType) -> bool:
    inner = list(kind) if pa.types.is_struct(kind) else [kind.value_field] if is_list(kind) else []
    return bool(pa.types.is_floating(kind)) or any(_has_floats(field.type) for field in inner)


def _hash(column: pa.Array, seeds: Words) -> Words:
    kind = column.type
    if pa.types.is_boolean(kind):
        return _hash_int(column.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64), seeds)
    if pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        return _hash_long(_fixed(column, np.dtype(np.uint64)), seeds)
    if pa.types.is_integer(kind) or pa.types.is_date32(kind):
        signed = _fixed(column, np.dtype(f"i{kind.bit_width // 8}"))
        return _hash_int(signed.astype(np.int32).view(np.uint32).astype(np.uint64), seeds)
    if pa.types.is_float32(kind):
        return _hash_int(_fixed(column, np.dtype(np.uint32)).astype(np.uint64), seeds)
    if pa.types.is_float64(kind):
        return _hash_long(_fixed(column, np.dtype(np.uint64)), seeds)
    if pa.types.is_decimal128(kind):
        return _hash_decimal(column, seeds)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_bytes(column, np.dtype(np.int32), seeds)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _hash_bytes(column, np.dtype(np.int64), seeds)
    if pa.types.is_struct(kind):
        return reduce(lambda hashes, at: _chained(column.field(at), hashes), range(kind.num_fields), seeds)
    if is_list(kind):
        return _hash_elements(column, seeds)
    raise ProtocolBugError(f"a key column of type {kind} has no Spark hash here")


def _hash_elements(column: pa.ListArray, seeds: Words) -> Words:
    """One element of each list after the other, each step over all lists that are long enough."""
    hashes, (starts, lengths) = seeds.copy(), places(column)
    for at in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > at)
        hashes[rows] = _chained(column.values.take(pa.array(starts[rows] + at)), hashes[rows])
    return hashes


def _fixed(column: pa.Array, dtype: np.dtype) -> npt.NDArray[Any]:
    """The bits of a fixed-width column; what stands for null is not defined."""
    values = np.frombuffer(column.buffers()[1], dtype)
    return values[column.offset : column.offset + len(column)]


def _hash_decimal(column: pa.Array, seeds: Words) -> Words:
    if column.type.precision <= LONG_DECIMAL_DIGITS:
        low = _fixed(column, np.dtype([("low", np.uint64), ("high", np.uint64)]))["low"]
        return _hash_long(low, seeds)
    # Longer ones are hashed as the fewest bytes of the unscaled value, big end first.
    size = 16
    raw = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * size : (column.offset + len(column)) * size]
    data = pa.array([_shortest(raw[i : i + size].tobytes()) for i in range(0, len(raw), size)], pa.binary())
    return _hash_bytes(data, np.dtype(np.int32), seeds)


def _shortest(little: bytes) -> bytes:
    value = int.from_bytes(little, "little", signed=True)
    bits = (value if value >= 0 else ~value).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)


def _rotated(x: Words, by: int) -> Words:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


def _mixed(h: Words) -> Words:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


def _hash_int(values: Words, seeds: Words) -> Words:
    h = seeds + (_P5 + np.uint64(4))
    return _mixed(_rotated(h ^ (values * _P1), 23) * _P2 + _P3)


def _hash_long(values: Words, seeds: Words) -> Words:
    return _mixed(_with_word(seeds + (_P5 + np.uint64(8)), values))


def _with_word(h: Words, word: Words) -> Words:
    return _rotated(h ^ (_rotated(word * _P2, 31) * _P1), 27) * _P1 + _P4


def _hash_bytes(column: pa.Array, offset_type: np.dtype, seeds: Words) -> Words:
    """Step by step over the positions in the strings, each step over all strings that are long enough."""
    buffers = column.buffers()
    offsets = np.frombuffer(buffers[1], offset_type)[column.offset : column.offset + len(column) + 1]
    start, length = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    text = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else np.empty(0, np.uint8)
    data = np.concatenate([text, np.zeros(8, np.uint8)])  # so that a word may be read at every byte
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    h = _stripes(words, start, length, seeds) + length.astype(np.uint64)
    at, end = start + length // 32 * 32, start + length
    for rows in _while_left(at, end, 8):
        h[rows] = _with_word(h[rows], words[at[rows]])
        at[rows] += 8
    rows = np.flatnonzero(end - at >= 4)
    half = words[at[rows]] & np.uint64(0xFFFFFFFF)
    h[rows] = _rotated(h[rows] ^ (half * _P1), 23) * _P2 + _P3
    at[rows] += 4
    for rows in _while_left(at, end, 1):
        h[rows] = _rotated(h[rows] ^ (data[at[rows]].astype(np.uint64) * _P5), 11) * _P1
        at[rows] += 1
    return _mixed(h)


def _while_left(at: Rows, end: Rows, size: int) -> Iterator[Rows]:
    """The rows with ``size`` bytes left, again and again; the caller moves ``at`` on."""
    rows = np.flatnonzero(end - at >= size)
    while len(rows):
        yield rows
        rows = rows[end[rows] - at[rows] >= size]


def _stripes(words: Words, start: Rows, length: Rows, seeds: Words) -> Words:
    """What comes before the remainder of less than 32 bytes: four lanes for strings that are longer."""
    h = seeds + _P5
    long = np.flatnonzero(length >= 32)
    if not len(long):
        return h
    seed = seeds[long]
    lanes = [seed + _P1 + _P2, seed + _P2, seed + np.uint64(0), seed - _P1]
    at, end = start[long].copy(), start[long] + length[long]
    for rows in _while_left(at, end, 32):
        for i, lane in enumerate(lanes):
            lane[rows] = _rotated(lane[rows] + words[at[rows] + 8 * i] * _P2, 31) * _P1
        at[rows] += 32
    joined = sum((_rotated(lane, by) for lane, by in zip(lanes[1:], (7, 12, 18), strict=True)), _rotated(lanes[0], 1))
    for lane in lanes:
        joined = (joined ^ (_rotated(lane * _P2, 31) * _P1)) * _P1 + _P4
    h[long] = joined
    return h
