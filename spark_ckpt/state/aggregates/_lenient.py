"""Sums and means without ANSI mode (``spark.sql.ansi.enabled=false``), and decimal ones of ``try_sum`` and ``try_avg``:
overflow wraps or gives null, nothing raises.

A sum of decimals that has left its type, at any of its rows, is null for good, whatever comes behind it. Null alone
would say that there was no value yet, so the state has one more column that remembers it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.state.aggregates._accumulators import Accumulator, Add
from spark_ckpt.state.aggregates._decimal import divide_half_up, sum_limbs
from spark_ckpt.state.aggregates._sums import MAX_DIGITS, Mean, Sum
from spark_ckpt.state.aggregates.segments import accumulate
from spark_ckpt.state.keys.grouping import Segments


class WrappingSum(Sum):
    """Of integers or floats."""

    def _joined(self, stored: pa.Array, part: pa.Array) -> pa.Array:
        return pc.add(stored, part)

    def _check_overflow(self, values: np.ndarray, seg: Segments, add: Add) -> None:
        return


class Overflowing(Sum):
    """One more column, last, which says whether the sum has overflowed."""

    @property
    def fields(self) -> list[pa.Field]:
        return [*super().fields, pa.field(f"{self.name}_overflowed", pa.bool_())]

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        return [*super().lift(column, rows), pa.array(np.zeros(rows, bool))]

    def join(self, stored: list[pa.Array], parts: list[pa.Array]) -> list[pa.Array]:
        return Accumulator.join(self, stored, parts)


class NullableSum(Overflowing):
    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        return last_of(self.running(parts, seg), seg) if _may_overflow(parts[0], seg) else _added(parts, seg)

    def running(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        return _added_up(parts, seg)


class NullableMean(Overflowing, Mean):
    """Its result is null, too, where a mean with its four more digits does not fit."""

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        if _may_overflow(parts[0], seg):
            return last_of(self.running(parts, seg), seg)
        total, over = _added(parts, seg)
        return [total, pa.array(np.add.reduceat(parts[1].to_numpy(), seg.starts)), over]

    def running(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        total, over = _added_up(parts, seg)
        return [total, pa.array(accumulate(np.add, parts[1].to_numpy(), seg)), over]

    def result(self, parts: list[pa.Array]) -> pa.Array:
        return divide_half_up(parts[0], parts[1], self.output_type, null_if_too_large=True)


def last_of(parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
    """What a segment's last row has."""
    return [part.take(pa.array(seg.ends - 1)) for part in parts]


def _may_overflow(part: pa.Array, seg: Segments) -> bool:
    """Not where the type has ten more digits than the column: so many rows there are not."""
    if part.type.precision < MAX_DIGITS or not len(part):
        return False
    sizes = pc.max(pc.abs(part.cast(pa.float64()))).as_py() or 0.0
    return bool(sizes * int(seg.counts.max()) * 1.01 >= 10.0 ** (part.type.precision - part.type.scale))


def _added(parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
    """The sum of each segment, and whether it overflowed."""

    def any_of(flags: np.ndarray) -> np.ndarray:
        return np.logical_or.reduceat(flags, seg.starts)

    total, over = sum_limbs(parts[0], lambda v: np.add.reduceat(v, seg.starts), parts[0].type)
    return _known(total, over, parts, any_of)


def _added_up(parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
    """As :func:`_added` up to each row: one that overflowed stays so."""

    def any_of(flags: np.ndarray) -> np.ndarray:
        return accumulate(np.logical_or, flags, seg)

    total, over = sum_limbs(parts[0], lambda v: accumulate(np.add, v, seg), parts[0].type)
    return _known(total, None if over is None else any_of(over), parts, any_of)


def _known(total: pa.Array, over: np.ndarray | None, parts: list[pa.Array], any_of: Add) -> list[pa.Array]:
    """The sum, null where it or a part of it overflowed or where there is no value; and whether it overflowed."""
    before = any_of(parts[-1].to_numpy(zero_copy_only=False))
    overflowed = before if over is None else before | over
    missing = overflowed
    if parts[0].null_count:
        missing = overflowed | ~any_of(parts[0].is_valid().to_numpy(zero_copy_only=False))
    if missing.any():
        total = pc.if_else(pa.array(missing), pa.scalar(None, total.type), total)
    return [total, pa.array(overflowed)]
