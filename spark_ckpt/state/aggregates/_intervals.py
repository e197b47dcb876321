"""Sums and means of intervals, which are kept as months or microseconds, in Spark's types.

As Spark adds them, row by row: a sum that has left the range of its type is an error, or, tried, null for good.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.aggregates._trying import TrySum
from spark_ckpt.state.aggregates.segments import accumulate, array_of
from spark_ckpt.state.keys.grouping import Segments


class IntervalSum(TrySum):
    """Of integers, in their own type."""

    def __init__(self, name: str, column: str | None, type_: pa.DataType, tried: bool) -> None:
        super().__init__(name, column, type_)
        self.tried = tried

    @property
    def sum_type(self) -> pa.DataType:
        return self.type

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        return self._checked(super().merge(parts, seg))

    def running(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        return self._checked(super().running(parts, seg))

    def _checked(self, parts: list[pa.Array]) -> list[pa.Array]:
        if not self.tried and parts[1].true_count:
            raise InvalidInputError(
                f"[INTERVAL_ARITHMETIC_OVERFLOW] aggregate {self.name!r}: the sum of intervals left the range of "
                f"{self.type}. try_sum and try_avg give null instead."
            )
        return parts


class IntervalMean(IntervalSum):
    """Sum and count; what is divided is rounded half up, away from zero, as Spark divides intervals."""

    suffix = "_sum"

    @property
    def fields(self) -> list[pa.Field]:
        return [*super().fields, pa.field(f"{self.name}_count", pa.int64())]

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        return [*super().lift(column, rows), column.is_valid().cast(pa.int64())]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        return [*super().merge(parts[:2], seg), pa.array(np.add.reduceat(parts[2].to_numpy(), seg.starts))]

    def running(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        return [*super().running(parts[:2], seg), pa.array(accumulate(np.add, parts[2].to_numpy(), seg))]

    def result(self, parts: list[pa.Array]) -> pa.Array:
        known = parts[0].is_valid().to_numpy(zero_copy_only=False)
        total, count = parts[0].fill_null(0).to_numpy().astype(np.int64), np.maximum(parts[2].to_numpy(), 1)
        floor = total // count
        rest = total - floor * count
        up = np.where(total >= 0, rest >= count - rest, rest > count - rest)
        return array_of(floor + up, known, self.type)
