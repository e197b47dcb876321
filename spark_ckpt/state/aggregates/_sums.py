"""Sums and averages, in Spark's types and checked for overflow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.aggregates._accumulators import Accumulator, Add
from spark_ckpt.state.aggregates._decimal import divide_half_up, sum_limbs
from spark_ckpt.state.aggregates.segments import accumulate, any_valid, array_of, values_and_valid
from spark_ckpt.state.keys.grouping import Segments

MAX_DIGITS = 38
INT64 = np.iinfo(np.int64)


class Sum(Accumulator):
    """Sum in Spark's type: long for integers, double for floats, ten more digits for decimals.

    What is checked for overflow is what goes on from here: a task's rows of a key, the key's sum behind a batch. One
    that leaves the range and comes back among them is exact, in whatever order rows came; Spark, which looks at every
    addition, raises in some orders and not in others.
    """

    suffix = ""
    _condition = "ARITHMETIC_OVERFLOW"
    """What Spark calls a sum that is out of range."""

    @property
    def sum_type(self) -> pa.DataType:
        if pa.types.is_decimal(self.type):
            return pa.decimal128(min(MAX_DIGITS, self.type.precision + 10), self.type.scale)
        return pa.int64() if pa.types.is_integer(self.type) else pa.float64()

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name + self.suffix, self.sum_type)]

    @property
    def output_type(self) -> pa.DataType:
        return self.sum_type

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        return [column.cast(self.sum_type)]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        valid = None if parts[0].null_count == 0 else parts[0].is_valid().to_numpy(zero_copy_only=False)
        return [self._sum(parts[0], seg, any_valid(valid, seg), lambda v: np.add.reduceat(v, seg.starts))]

    def join(self, stored: list[pa.Array], parts: list[pa.Array]) -> list[pa.Array]:
        if self._needs_care(stored[0], parts[0]):
            return super().join(stored, parts)
        return [self._joined(stored[0], parts[0])]

    def _needs_care(self, stored: pa.Array, part: pa.Array) -> bool:
        return bool(pa.types.is_decimal(self.sum_type) or stored.null_count or part.null_count)

    def _joined(self, stored: pa.Array, part: pa.Array) -> pa.Array:
        try:
            return pc.add_checked(stored, part)
        except pa.ArrowInvalid:
            raise self._overflow() from None

    def running(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        valid = None if parts[0].null_count == 0 else parts[0].is_valid().to_numpy(zero_copy_only=False)
        seen = None if valid is None else accumulate(np.logical_or, valid, seg)
        return [self._sum(parts[0], seg, seen, lambda v: accumulate(np.add, v, seg))]

    def _sum(self, part: pa.Array, seg: Segments, seen: np.ndarray | None, add: Add) -> pa.Array:
        if pa.types.is_decimal(part.type):
            total, over = sum_limbs(part, add, part.type)
            if over is not None:
                raise self._overflow()
            return total if seen is None else pc.if_else(pa.array(seen), total, pa.scalar(None, part.type))
        values, _ = values_and_valid(part, 0)
        if pa.types.is_integer(part.type):
            self._check_overflow(values, seg, add)
            return array_of(add(values), seen, part.type)
        with np.errstate(invalid="ignore", over="ignore"):
            return array_of(add(values) + 0.0, seen, part.type)  # Spark begins with 0.0: a sum is never -0.0

    def _check_overflow(self, values: np.ndarray, seg: Segments, add: Add) -> None:
        if len(values) == 0:
            return
        largest = max(-int(values.min()), int(values.max()))
        if largest * int(seg.counts.max()) <= INT64.max:
            return
        high = add(values >> 32) + (add(values & 0xFFFFFFFF) >> 32)
        if ((high < -(1 << 31)) | (high >= 1 << 31)).any():
            raise self._overflow()

    def _overflow(self) -> InvalidInputError:
        return InvalidInputError(
            f"[{self._condition}] aggregate {self.name!r}: the sum of column {self.column!r} left the range of "
            f"{self.sum_type}. Cast the column to double, or to a decimal with fewer digits before the point, ahead of "
            "aggregate()."
        )


class Mean(Sum):
    """Sum and count. Integers are summed as doubles, as Spark does, so their sum cannot overflow."""

    suffix = "_sum"
    _condition = "NUMERIC_VALUE_OUT_OF_RANGE"

    @property
    def sum_type(self) -> pa.DataType:
        return super().sum_type if pa.types.is_decimal(self.type) else pa.float64()

    @property
    def fields(self) -> list[pa.Field]:
        return [*super().fields, pa.field(f"{self.name}_count", pa.int64())]

    @property
    def output_type(self) -> pa.DataType:
        if not pa.types.is_decimal(self.type):
            return pa.float64()
        digits = min(MAX_DIGITS, self.type.precision + 4)
        return pa.decimal128(digits, min(MAX_DIGITS, self.type.scale + 4))

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        return [column.cast(self.sum_type, safe=False), column.is_valid().cast(pa.int64())]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        return [*super().merge(parts[:1], seg), pa.array(np.add.reduceat(parts[1].to_numpy(), seg.starts))]

    def join(self, stored: list[pa.Array], parts: list[pa.Array]) -> list[pa.Array]:
        if self._needs_care(stored[0], parts[0]):
            return Accumulator.join(self, stored, parts)
        return [self._joined(stored[0], parts[0]), pc.add(stored[1], parts[1])]

    def running(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        return [*super().running(parts[:1], seg), pa.array(accumulate(np.add, parts[1].to_numpy(), seg))]

    def result(self, parts: list[pa.Array]) -> pa.Array:
        if not pa.types.is_decimal(self.type):
            return pc.divide(parts[0], parts[1].cast(pa.float64(), safe=False))
        try:
            return divide_half_up(parts[0], parts[1], self.output_type)
        except pa.ArrowInvalid as e:
            raise self._overflow() from e
