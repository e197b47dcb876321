"""Standard deviation from count, mean and the sum of squared distances from the mean (``m2``)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.state.aggregates_accumulators import Accumulator
from spark_ckpt.state.aggregates_segments import Segments, accumulate


class Stddev(Accumulator):
    """Sample standard deviation; partials merge by Chan, Golub and LeVeque's parallel formula (1979)."""

    @property
    def fields(self) -> list[pa.Field]:
        return [
            pa.field(f"{self.name}_count", pa.int64()),
            pa.field(f"{self.name}_mean", pa.float64()),
            pa.field(f"{self.name}_m2", pa.float64()),
        ]

    @property
    def output_type(self) -> pa.DataType:
        return pa.float64()

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        values = pc.fill_null(column.cast(pa.float64(), safe=False), 0.0)
        return [column.is_valid().cast(pa.int64()), values, pa.array(np.zeros(rows))]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        count, mean, m2 = (p.to_numpy() for p in parts)
        with np.errstate(invalid="ignore", over="ignore"):
            total = np.add.reduceat(count, seg.starts)
            center = np.add.reduceat(count * mean, seg.starts) / np.maximum(total, 1)
            away = np.where(count > 0, mean - np.repeat(center, seg.counts), 0.0)
            spread = np.add.reduceat(m2 + count * away * away, seg.starts)
        return [pa.array(total), pa.array(center), pa.array(spread)]

    def running(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        """Sums of distances from the first mean of each segment, which keeps them small beside their squares."""
        count, mean, m2 = (p.to_numpy() for p in parts)
        with np.errstate(invalid="ignore", over="ignore"):
            origin = np.repeat(_first_mean(count, mean, seg), seg.counts)
            away = np.where(count > 0, mean - origin, 0.0)
            total = accumulate(np.add, count, seg)
            moved = accumulate(np.add, count * away, seg)
            n = np.maximum(total, 1)
            spread = accumulate(np.add, m2 + count * away * away, seg) - moved * moved / n
            center = np.where(total > 0, origin + moved / n, 0.0)
            return [pa.array(total), pa.array(center), pa.array(np.maximum(spread, 0.0))]

    def result(self, parts: list[pa.Array]) -> pa.Array:
        count, m2 = parts[0].to_numpy(), parts[2].to_numpy()
        return pa.array(np.sqrt(m2 / np.maximum(count - 1, 1)), mask=count < 2)


def _first_mean(count: np.ndarray, mean: np.ndarray, seg: Segments) -> np.ndarray:
    here = np.where(count > 0, np.arange(seg.rows), seg.rows)
    at = np.minimum(np.minimum.reduceat(here, seg.starts), seg.ends - 1)
    return mean[at]
