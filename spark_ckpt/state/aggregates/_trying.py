"""``try_sum``: null where Spark's addition, row by row, leaves the range, and null for good.

A sum that comes back into the range behind that stays null, as in Spark, which a column beside the sum remembers.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_ckpt.state.aggregates._lenient import Overflowing, last_of
from spark_ckpt.state.aggregates._sums import INT64
from spark_ckpt.state.aggregates.segments import accumulate, array_of, values_and_valid
from spark_ckpt.state.keys.grouping import Segments


class TrySum(Overflowing):
    """Of integers."""

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        values, valid = self._values(parts)
        before = parts[1].to_numpy(zero_copy_only=False)
        if not self._surely_fits(values, seg):
            return last_of(TrySum.running(self, parts, seg), seg)
        seen = None if valid is None else np.logical_or.reduceat(valid, seg.starts)
        return self._known(np.add.reduceat(values, seg.starts), seen, np.logical_or.reduceat(before, seg.starts))

    def running(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        values, valid = self._values(parts)
        total = accumulate(np.add, values, seg)
        left = self._left(total, values, seg)
        over = accumulate(np.logical_or, parts[1].to_numpy(zero_copy_only=False) | left, seg)
        return self._known(total, None if valid is None else accumulate(np.logical_or, valid, seg), over)

    def _values(self, parts: list[pa.Array]) -> tuple[np.ndarray, np.ndarray | None]:
        values, valid = values_and_valid(parts[0], 0)
        return values.astype(np.int64, copy=False), valid

    @property
    def _range(self) -> np.iinfo:
        return np.iinfo(self.sum_type.to_pandas_dtype())

    def _left(self, total: np.ndarray, values: np.ndarray, seg: Segments) -> np.ndarray:
        """At which rows the sum so far is out of the range of its type."""
        if self._range.bits < INT64.bits:
            return (total < self._range.min) | (total > self._range.max)
        return _wrapped(values, seg)

    def _known(self, total: np.ndarray, seen: np.ndarray | None, over: np.ndarray) -> list[pa.Array]:
        known = ~over if seen is None else seen & ~over
        return [array_of(np.where(known, total, 0), known, self.sum_type), pa.array(over)]

    def _surely_fits(self, values: np.ndarray, seg: Segments) -> bool:
        if not len(values):
            return True
        largest = max(-int(values.min()), int(values.max()))
        return largest * int(seg.counts.max()) <= int(self._range.max)


def _wrapped(values: np.ndarray, seg: Segments) -> np.ndarray:
    """At which rows the sum so far is out of the range of a long."""
    high = accumulate(np.add, values >> 32, seg) + (accumulate(np.add, values & 0xFFFFFFFF, seg) >> 32)
    return (high < -(1 << 31)) | (high >= 1 << 31)
