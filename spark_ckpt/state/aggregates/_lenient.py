"""Sums and means without ANSI mode (``spark.sql.ansi.enabled=false``): overflow wraps or gives null, nothing raises.

A sum of decimals that has left its type is null for good, whatever comes behind it. Null alone would say that there
was no value yet, so the state has one more column that remembers it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.state.aggregates._accumulators import Accumulator, Add
from spark_ckpt.state.aggregates._decimal import divide_half_up, sum_limbs
from spark_ckpt.state.aggregates._sums import Mean, Sum
from spark_ckpt.state.aggregates.segments import accumulate
from spark_ckpt.state.keys.grouping import Segments

Merge = Callable[[list[pa.Array], Segments], list[pa.Array]]


class WrappingSum(Sum):
    """Of integers or floats."""

    def _joined(self, stored: pa.Array, part: pa.Array) -> pa.Array:
        return pc.add(stored, part)

    def _check_overflow(self, values: np.ndarray, seg: Segments, add: Add) -> None:
        return


class _Overflowing(Sum):
    """Of decimals: one more column, last, which says whether the sum has overflowed."""

    @property
    def fields(self) -> list[pa.Field]:
        return [*super().fields, pa.field(f"{self.name}_overflowed", pa.bool_())]

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        return [*super().lift(column, rows), pa.array(np.zeros(rows, bool))]

    def join(self, stored: list[pa.Array], parts: list[pa.Array]) -> list[pa.Array]:
        return Accumulator.join(self, stored, parts)


def _flags(parts: list[pa.Array], any_of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return any_of(parts[-1].to_numpy(zero_copy_only=False))


def _sum(part: pa.Array, add: Add, any_of: Callable[[np.ndarray], np.ndarray], before: np.ndarray) -> list[pa.Array]:
    """The sum, null where it or a part of it overflowed or where there is no value; and whether it overflowed."""
    total, over = sum_limbs(part, add, part.type)
    overflowed = before if over is None else before | over
    missing = overflowed
    if part.null_count:
        missing = overflowed | ~any_of(part.is_valid().to_numpy(zero_copy_only=False))
    if missing.any():
        total = pc.if_else(pa.array(missing), pa.scalar(None, part.type), total)
    return [total, pa.array(overflowed)]


def _at_ends(seg: Segments) -> tuple[Add, Callable[[np.ndarray], np.ndarray]]:
    return lambda v: np.add.reduceat(v, seg.starts), lambda v: np.logical_or.reduceat(v, seg.starts)


def _at_rows(seg: Segments) -> tuple[Add, Callable[[np.ndarray], np.ndarray]]:
    return lambda v: accumulate(np.add, v, seg), lambda v: accumulate(np.logical_or, v, seg)


class NullableSum(_Overflowing):
    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        add, any_of = _at_ends(seg)
        return _sum(parts[0], add, any_of, _flags(parts, any_of))

    def running(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        add, any_of = _at_rows(seg)
        return _sum(parts[0], add, any_of, _flags(parts, any_of))


class NullableMean(_Overflowing, Mean):
    """Its result is null, too, where a mean with its four more digits does not fit."""

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        add, any_of = _at_ends(seg)
        total, over = _sum(parts[0], add, any_of, _flags(parts, any_of))
        return [total, pa.array(add(parts[1].to_numpy())), over]

    def running(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        add, any_of = _at_rows(seg)
        total, over = _sum(parts[0], add, any_of, _flags(parts, any_of))
        return [total, pa.array(add(parts[1].to_numpy())), over]

    def result(self, parts: list[pa.Array]) -> pa.Array:
        return divide_half_up(parts[0], parts[1], self.output_type, null_if_too_large=True)
