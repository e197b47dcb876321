"""Deviation, variance, skewness and kurtosis. The first two: count, mean, and squared distances from it (``m2``).

Means are taken of distances from each segment's first mean, and squares of distances from the mean so found, corrected
by what is left of their sum. So values far from zero keep their digits, and equal values have no deviation at all.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.state.aggregates._accumulators import Accumulator
from spark_ckpt.state.aggregates.segments import accumulate, first_of
from spark_ckpt.state.keys.grouping import Segments


class Stddev(Accumulator):
    """Sample standard deviation; partials merge by Chan, Golub and LeVeque's parallel formula (1979).

    ``nan_for_one``: of a single value NaN instead of null, as ``spark.sql.legacy.statisticalAggregate`` asks for.
    """

    def __init__(self, name: str, column: str | None, type_: pa.DataType, nan_for_one: bool = False) -> None:
        super().__init__(name, column, type_)
        self.nan_for_one = nan_for_one

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

    def fold(self, column: pa.Array, seg: Segments) -> list[pa.Array]:
        """As inherited; without nulls every value counts as one and there is no ``m2`` yet."""
        if column.null_count:
            return super().fold(column, seg)
        values = seg.arrange(column.cast(pa.float64(), safe=False)).to_numpy()
        return _merged(values, None, None, values[seg.starts], seg)

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        count, mean, m2 = (p.to_numpy() for p in parts)
        return _merged(mean, count, m2, _first_mean(count, mean, seg), seg)

    def join(self, stored: list[pa.Array], parts: list[pa.Array]) -> list[pa.Array]:
        (na, center_a, a), (nb, center_b, b) = ([p.to_numpy() for p in side] for side in (stored, parts))
        with np.errstate(invalid="ignore", over="ignore"):
            total = na + nb
            share = nb / np.maximum(total, 1)
            away = np.where(nb > 0, center_b - center_a, 0.0)
            center = center_a + away * share
            spread = a + b + np.where((na > 0) & (nb > 0), away * (away * na * share), 0.0)
            spread[~np.isfinite(center)] = np.nan
        return [pa.array(total), pa.array(center), pa.array(spread)]

    def running(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        """Sums of distances from the first mean of each segment, which keeps them small beside their squares."""
        count, mean, m2 = (p.to_numpy() for p in parts)
        with np.errstate(invalid="ignore", over="ignore"):
            origin = np.repeat(_first_mean(count, mean, seg), seg.counts)
            away = mean - origin
            total = accumulate(np.add, count, seg)
            weighted = _weighted(count, away)
            moved = accumulate(np.add, weighted, seg)
            n = np.maximum(total, 1)
            squares = accumulate(np.add, m2 + np.where(count > 0, weighted * away, 0.0), seg)
            spread = np.where(np.isfinite(squares), np.maximum(squares - moved * (moved / n), 0.0), squares)
            center = np.where(total > 0, origin + moved / n, 0.0)
            spread[~np.isfinite(center)] = np.nan
            return [pa.array(total), pa.array(center), pa.array(spread)]

    def result(self, parts: list[pa.Array]) -> pa.Array:
        count, m2 = parts[0].to_numpy(), parts[2].to_numpy()
        with np.errstate(invalid="ignore"):
            if self.nan_for_one:
                return pa.array(np.where(count == 1, np.nan, np.sqrt(m2 / np.maximum(count - 1, 1))), mask=count < 1)
            return pa.array(np.sqrt(m2 / np.maximum(count - 1, 1)), mask=count < 2)


def _merged(
    mean: np.ndarray, count: np.ndarray | None, m2: np.ndarray | None, origin: np.ndarray, seg: Segments
) -> list[pa.Array]:
    """One partial for each segment. ``count`` and ``m2`` are None where every mean is of one value."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = seg.counts if count is None else np.add.reduceat(count, seg.starts)
        n = np.maximum(total, 1)
        away = mean - np.repeat(origin, seg.counts)
        center = origin + np.add.reduceat(away if count is None else _weighted(count, away), seg.starts) / n
        away = mean - np.repeat(center, seg.counts)
        moved = away if count is None else _weighted(count, away)
        squares = moved * away if m2 is None else m2 + moved * away
        spread, rest = np.add.reduceat(squares, seg.starts), np.add.reduceat(moved, seg.starts)
        corrected = np.maximum(spread - rest * (rest / n), 0.0)
        spread = np.where(np.isfinite(spread), corrected, spread)
        spread[~np.isfinite(center)] = np.nan
    return [pa.array(total), pa.array(np.where(total > 0, center, 0.0)), pa.array(np.where(total > 0, spread, 0.0))]


class Deviation(Stddev):
    """Variances, and the standard deviation of a whole population, which need what :class:`Stddev` keeps."""

    def __init__(self, name: str, column: str | None, type_: pa.DataType, kind: str, nan_for_one: bool = False) -> None:
        super().__init__(name, column, type_, nan_for_one)
        self.kind = kind

    def result(self, parts: list[pa.Array]) -> pa.Array:
        count, m2 = parts[0].to_numpy(), parts[2].to_numpy()
        with np.errstate(invalid="ignore"):
            if self.kind == "variance":
                values = np.where(count == 1, np.nan, m2 / np.maximum(count - 1, 1))
                return pa.array(values, mask=count < (1 if self.nan_for_one else 2))
            variance = m2 / np.maximum(count, 1)
            return pa.array(variance if self.kind == "var_pop" else np.sqrt(variance), mask=count < 1)


class Shape(Accumulator):
    """Skewness and kurtosis: the sums of the second, third and fourth powers of distances from the mean."""

    def __init__(self, name: str, column: str | None, type_: pa.DataType, kind: str, nan_for_one: bool = False) -> None:
        super().__init__(name, column, type_)
        self.kind, self.nan_for_one = kind, nan_for_one

    @property
    def fields(self) -> list[pa.Field]:
        powers = [pa.field(f"{self.name}_{suffix}", pa.float64()) for suffix in ("mean", "m2", "m3", "m4")]
        return [pa.field(f"{self.name}_count", pa.int64()), *powers]

    @property
    def output_type(self) -> pa.DataType:
        return pa.float64()

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        values, nothing = pc.fill_null(column.cast(pa.float64(), safe=False), 0.0), pa.array(np.zeros(rows))
        return [column.is_valid().cast(pa.int64()), values, nothing, nothing, nothing]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        count, mean, m2, m3, m4 = (p.to_numpy() for p in parts)
        with np.errstate(invalid="ignore", over="ignore"):
            center, away = distances(count, mean, seg)
            square = away * away
            sums = (
                m2 + count * square,
                m3 + 3 * away * m2 + count * square * away,
                m4 + 4 * away * m3 + 6 * square * m2 + count * square * square,
            )
            merged = [np.add.reduceat(s, seg.starts) for s in sums]
        return [pa.array(v) for v in (np.add.reduceat(count, seg.starts), center, *merged)]

    def result(self, parts: list[pa.Array]) -> pa.Array:
        n, _, m2, m3, m4 = (p.to_numpy() for p in parts)
        flat = m2 == 0  # one value, however often
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            values = np.sqrt(n) * m3 / np.sqrt(m2 * m2 * m2) if self.kind == "skewness" else n * m4 / (m2 * m2) - 3.0
        return pa.array(np.where(flat, np.nan, values), mask=(n < 1) | (flat & (not self.nan_for_one)))


def distances(count: np.ndarray, mean: np.ndarray, seg: Segments) -> tuple[np.ndarray, np.ndarray]:
    """The mean of each segment, 0 without values, and the distance of each partial's mean from it.

    Of distances from the first mean, and corrected once: equal values have no distance at all.
    """
    total = np.maximum(np.add.reduceat(count, seg.starts), 1)
    center = _first_mean(count, mean, seg)
    for _ in range(2):
        away = np.where(count > 0, mean - np.repeat(center, seg.counts), 0.0)
        center = center + np.add.reduceat(count * away, seg.starts) / total
    center = np.where(np.add.reduceat(count, seg.starts) > 0, center, 0.0)
    return center, np.where(count > 0, mean - np.repeat(center, seg.counts), 0.0)


def _weighted(count: np.ndarray, away: np.ndarray) -> np.ndarray:
    """Distances times counts; nothing where there is no value, however strange the number in its place."""
    return np.where(count > 0, count * away, 0.0)


def _first_mean(count: np.ndarray, mean: np.ndarray, seg: Segments) -> np.ndarray:
    return mean[first_of(count > 0, seg)]
