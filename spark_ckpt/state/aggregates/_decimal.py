"""Exact sums of decimals with NumPy: a 128-bit number is four 32-bit limbs, each summed as a 64-bit integer."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LOW = np.int64(0xFFFFFFFF)
EXTRA_DIGITS = 5
"""Digits kept behind those of a mean's result before it is rounded."""


def sum_limbs(
    column: pa.Array, add: Callable[[np.ndarray], np.ndarray], type_: pa.DataType
) -> tuple[pa.Array, np.ndarray | None]:
    """Sums of a decimal128 column, nulls as zero, by ``add`` (a segmented sum), and which do not fit ``type_``.

    Those are 0 in the result; None: all fit.
    """
    sums = [add(limb) for limb in _limbs(column)]
    for i in range(3):
        sums[i + 1] = sums[i + 1] + (sums[i] >> 32)
        sums[i] &= LOW
    over = (sums[3] < -(1 << 31)) | (sums[3] >= 1 << 31)
    words = np.empty((len(sums[0]), 2), np.int64)
    words[:, 0] = sums[0] | (sums[1] << 32)
    words[:, 1] = sums[2] | (sums[3] << 32)
    words[over] = 0
    result = pa.Array.from_buffers(type_, len(words), [None, pa.py_buffer(words)])
    try:
        result.validate(full=True)
    except pa.ArrowInvalid:  # more digits than the type has, in no more bits
        wide = result.view(pa.decimal128(38, type_.scale)).cast(pa.decimal256(76, type_.scale))
        over |= ~_fits(wide, type_).to_numpy(zero_copy_only=False)
        words[over] = 0
    return result, over if over.any() else None


def _fits(wide: pa.Array, type_: pa.DataType) -> pa.Array:
    """Whether decimal256 numbers have no more digits before the point than ``type_``; null where they are null."""
    limit = pa.scalar(Decimal(1).scaleb(type_.precision - type_.scale), pa.decimal256(76, wide.type.scale))
    return pc.and_(pc.less(wide, limit), pc.greater(wide, pc.negate(limit)))


def _limbs(column: pa.Array) -> list[np.ndarray]:
    words = np.frombuffer(column.buffers()[1], np.int64, 2 * (len(column) + column.offset))
    words = words.reshape(-1, 2)[column.offset :]
    if column.null_count:
        words = np.where(column.is_valid().to_numpy(zero_copy_only=False)[:, None], words, 0)
    low, high = words[:, 0], words[:, 1]
    return [low & LOW, (low >> 32) & LOW, high & LOW, high >> 32]


def divide_half_up(total: pa.Array, count: pa.Array, type_: pa.DataType, null_if_too_large: bool = False) -> pa.Array:
    """``total / count`` rounded half up to ``type_``'s scale, as Spark divides; null where there is nothing to divide.

    Arrow truncates far behind the last digit wanted, which cannot change how that digit is rounded. Raises
    ``pa.ArrowInvalid`` for a quotient that does not fit.
    """
    divisor = pc.if_else(pc.equal(count, 0), pa.scalar(None, pa.int64()), count).cast(pa.decimal128(19, 0))
    scale = type_.scale + EXTRA_DIGITS
    wide = total.cast(pa.decimal256(38 + scale - total.type.scale, scale))
    exact = pc.divide(wide, divisor.cast(pa.decimal256(19, 0)))
    rounded = pc.round(exact, ndigits=type_.scale, round_mode="half_towards_infinity")
    if null_if_too_large:
        rounded = pc.if_else(_fits(rounded, type_), rounded, pa.scalar(None, rounded.type))
    return rounded.cast(type_)
