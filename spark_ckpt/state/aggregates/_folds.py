"""Aggregates that fold one number into another: bitwise and, or and exclusive or, and products."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_ckpt.state.aggregates._accumulators import Accumulator
from spark_ckpt.state.aggregates.segments import any_valid, array_of, values_and_valid
from spark_ckpt.state.keys.grouping import Segments

BITWISE = {"bit_and": (np.bitwise_and, -1), "bit_or": (np.bitwise_or, 0), "bit_xor": (np.bitwise_xor, 0)}
"""Kind -> how two values become one, and the value that changes nothing."""


class _Fold(Accumulator):
    """Null while there is no value that is not."""

    ufunc: np.ufunc
    neutral: int | float

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, self.output_type)]

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        return [column.cast(self.output_type, safe=False)]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        values, valid = values_and_valid(parts[0], self.neutral)
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            folded = self.ufunc.reduceat(values, seg.starts)
        return [array_of(folded, any_valid(valid, seg), self.output_type)]


class Bitwise(_Fold):
    """Of integers, in their own type."""

    def __init__(self, name: str, column: str | None, type_: pa.DataType, kind: str) -> None:
        super().__init__(name, column, type_)
        self.ufunc, self.neutral = BITWISE[kind]

    @property
    def output_type(self) -> pa.DataType:
        return self.type


class Product(_Fold):
    """Of doubles, as Spark has it whatever the numbers are."""

    ufunc, neutral = np.multiply, 1.0

    @property
    def output_type(self) -> pa.DataType:
        return pa.float64()
