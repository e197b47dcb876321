"""Aggregates of two columns, which come as one column of structs: both fields are null where a row does not count."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.spark_versions import spark_version
from spark_ckpt.state.aggregates._accumulators import Accumulator
from spark_ckpt.state.aggregates._moments import distances
from spark_ckpt.state.aggregates.ordinals import ranks
from spark_ckpt.state.ipc import plain_array
from spark_ckpt.state.keys.grouping import Segments

COMOMENTS = (
    "covar_pop", "covar_samp", "corr", "regr_sxx", "regr_syy", "regr_sxy", "regr_slope", "regr_intercept", "regr_r2",
)  # fmt: skip
_SUFFIXES = ("mean_x", "mean_y", "sxx", "syy", "sxy")


class ExtremeBy(Accumulator):
    """``min_by`` and ``max_by``: the first field of the row with the least or largest second one.

    Rows whose second field is null do not count. Of several with the same, the last to arrive, as in Spark where rows
    have an order.
    """

    def __init__(self, name: str, column: str | None, type_: pa.DataType, largest: bool) -> None:
        super().__init__(name, column, type_)
        self.largest = largest

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, _stored(self.type.field(0).type)), pa.field(f"{self.name}_by", self._by)]

    @property
    def _by(self) -> pa.DataType:
        return _stored(self.type.field(1).type)

    @property
    def output_type(self) -> pa.DataType:
        return self.type.field(0).type

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        return [part.view(pa.int64()) if pa.types.is_duration(part.type) else part for part in column.flatten()]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        rank = ranks(parts[1])
        rank = rank if self.largest else np.where(rank < 0, rank, np.iinfo(np.int64).max - rank)
        best = np.repeat(np.maximum.reduceat(rank, seg.starts), seg.counts)
        at = np.maximum.reduceat(np.where(rank == best, np.arange(seg.rows), -1), seg.starts)
        none = pa.array(rank[at] < 0)
        value, by = (part.take(pa.array(at)) for part in parts)
        return [pc.if_else(none, pa.scalar(None, value.type), value), by]

    def result(self, parts: list[pa.Array]) -> pa.Array:
        return parts[0].view(self.output_type) if pa.types.is_duration(self.output_type) else parts[0]


class Comoments(Accumulator):
    """Covariance, correlation and regression from numbers, means, and sums of products of distances from the means.

    Spark's arguments are (y, x) for ``regr_*`` functions; here the first field is always *x*.
    """

    def __init__(self, name: str, column: str | None, type_: pa.DataType, kind: str, nan_for_one: bool = False) -> None:
        super().__init__(name, column, type_)
        self.kind, self.nan_for_one = kind, nan_for_one

    @property
    def fields(self) -> list[pa.Field]:
        doubles = [pa.field(f"{self.name}_{suffix}", pa.float64()) for suffix in _SUFFIXES]
        return [pa.field(f"{self.name}_count", pa.int64()), *doubles]

    @property
    def output_type(self) -> pa.DataType:
        return pa.float64()

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        x, y = (plain_array(part).cast(pa.float64(), safe=False) for part in column.flatten())
        known, nothing = pc.and_(x.is_valid(), y.is_valid()), pa.array(np.zeros(rows))
        x, y = (pc.if_else(known, part, 0.0) for part in (x, y))
        return [known.cast(pa.int64()), x, y, nothing, nothing, nothing]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        count, mean_x, mean_y, sxx, syy, sxy = (p.to_numpy() for p in parts)
        with np.errstate(invalid="ignore", over="ignore"):
            center_x, dx = distances(count, mean_x, seg)
            center_y, dy = distances(count, mean_y, seg)
            sums = [sxx + count * dx * dx, syy + count * dy * dy, sxy + count * dx * dy]
            merged = [np.add.reduceat(s, seg.starts) for s in sums]
        return [pa.array(v) for v in (np.add.reduceat(count, seg.starts), center_x, center_y, *merged)]

    def result(self, parts: list[pa.Array]) -> pa.Array:
        sums = _Sums(*(p.to_numpy() for p in parts))
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            values = _OF_SUMS[self.kind](sums)
        return pa.array(values, mask=_is_null(self.kind, sums, self.nan_for_one))


class _Sums(NamedTuple):
    n: np.ndarray
    x: np.ndarray
    y: np.ndarray
    xx: np.ndarray
    yy: np.ndarray
    xy: np.ndarray


_OF_SUMS: dict[str, Callable[[_Sums], np.ndarray]] = {
    "covar_pop": lambda s: s.xy / s.n,
    "covar_samp": lambda s: s.xy / (s.n - 1),
    "corr": lambda s: s.xy / np.sqrt(s.xx * s.yy),
    "regr_sxx": lambda s: s.xx,
    "regr_syy": lambda s: s.yy,
    "regr_sxy": lambda s: s.xy,
    "regr_slope": lambda s: s.xy / s.xx,
    "regr_intercept": lambda s: s.y - s.xy / s.xx * s.x,
    "regr_r2": lambda s: np.where(s.yy == 0, 1.0, s.xy * s.xy / (s.xx * s.yy)),
}


def _is_null(kind: str, sums: _Sums, nan_for_one: bool) -> np.ndarray:
    """Where Spark says that there is nothing to tell."""
    if kind == "corr":
        # A column of one value: null as in Spark without ANSI mode, which would end the query with DIVIDE_BY_ZERO.
        flat = (sums.xx == 0) | (sums.yy == 0) if spark_version() >= (4, 3) else sums.xx * sums.yy == 0
        flat &= sums.n > 1
        return np.asarray(flat | (sums.n < (1 if nan_for_one else 2)))
    if kind == "covar_samp":
        return np.asarray(sums.n < (1 if nan_for_one else 2))
    if kind in ("regr_slope", "regr_intercept", "regr_r2"):
        return np.asarray((sums.n < 1) | (sums.xx == 0))
    return np.asarray(sums.n < 1)


def _stored(kind: pa.DataType) -> pa.DataType:
    """Delta tables have no day-time intervals: they are stored as microseconds."""
    return pa.int64() if pa.types.is_duration(kind) else kind
