"""64-bit hashes of any column, the same in every process and on every machine, computed without a row loop."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from spark_ckpt.state.keys.spark_hash import normalised, xxhash64

LONGEST = 256
"""Bytes; longer strings are few and hashed one by one."""

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014): a bijection in which every bit depends on all."""
    x = x + _GAMMA
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))


def hash_column(column: pa.Array) -> np.ndarray:
    """uint64 hashes of a column without nulls. Equal numbers of one column hash alike: 0.0 and -0.0, all NaNs. So do,
    as in Spark, structs and arrays that differ in nulls alone: ``[null]`` and ``[]``."""
    t = column.type
    if pa.types.is_nested(t):
        return mix(xxhash64([normalised(column)]).view(np.uint64))
    if pa.types.is_floating(t):
        return mix(_float_bits(column.cast(pa.float64()).to_numpy()))
    if pa.types.is_decimal(t):
        words = np.frombuffer(column.buffers()[1], np.uint64, 2 * (len(column) + column.offset)) if len(column) else ()
        words = np.asarray(words, np.uint64).reshape(-1, 2)[column.offset :]
        return mix(words[:, 0] ^ mix(words[:, 1]))
    if pa.types.is_boolean(t):
        return mix(column.cast(pa.int8()).to_numpy().astype(np.uint64))
    if pa.types.is_date32(t):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(t) or pa.types.is_duration(t):
        column = column.view(pa.int64())
    elif not pa.types.is_integer(t):
        return _hash_bytes(column.cast(pa.large_binary()))
    return mix(column.to_numpy().astype(np.int64).view(np.uint64))


def _float_bits(values: np.ndarray) -> np.ndarray:
    values = np.where(np.isnan(values), np.nan, values) + 0.0
    return values.view(np.uint64)


def _hash_bytes(column: pa.Array) -> np.ndarray:
    """Eight bytes of every string a step, as long as strings last."""
    if len(column) == 0:
        return np.empty(0, np.uint64)
    offsets = np.frombuffer(column.buffers()[1], np.int64, len(column) + 1 + column.offset)[column.offset :]
    raw = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    begin, size = offsets[:-1] - offsets[0], np.diff(offsets)
    padded = np.concatenate((raw, np.zeros(8, np.uint8)))
    words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    out = mix(size.astype(np.uint64))
    active = np.flatnonzero((size > 0) & (size <= LONGEST))
    for at in range(0, LONGEST, 8):
        active = active[size[active] > at]
        if len(active) == 0:
            break
        left = np.minimum(size[active] - at, 8).astype(np.uint64)
        word = words[begin[active] + at] & (~np.uint64(0) >> (np.uint64(64) - left * np.uint64(8)))
        out[active] = mix(out[active] ^ word)
    for i in np.flatnonzero(size > LONGEST).tolist():
        digest = hashlib.blake2b(raw[begin[i] : begin[i] + size[i]].tobytes(), digest_size=8).digest()
        out[i] = int.from_bytes(digest, "little")
    return out
