"""Any ordered column as NumPy numbers that compare as Spark compares the values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.state.aggregates.segments import array_of, values_and_valid
from spark_ckpt.state.keys.keys import is_list, places


@dataclass(frozen=True)
class Ordinals:
    """``values`` ordered like the column's; nulls hold a value that loses against every other under ``ufunc``.

    ``zeros``: the values once more if there is a -0.0 among them, because ``ufunc`` may pick either of two equal zeros,
    and Spark keeps the first.
    """

    values: np.ndarray
    valid: np.ndarray | None
    ufunc: np.ufunc
    decode: Callable[[np.ndarray, np.ndarray | None], pa.Array]
    zeros: np.ndarray | None = None


def ordinals(column: pa.Array, largest: bool) -> Ordinals:
    """Ordinals of ``column`` for its maximum (``largest``) or minimum."""
    if pa.types.is_floating(column.type):
        return _floats(column, largest)
    as_int = _integer_view(column)
    if as_int is None:
        return _ranks(column, largest)
    bounds = np.iinfo(as_int.type.to_pandas_dtype())
    values, valid = values_and_valid(as_int, int(bounds.min if largest else bounds.max))

    def decode(picked: np.ndarray, seen: np.ndarray | None) -> pa.Array:
        ints = array_of(picked, seen, as_int.type)
        return ints.cast(pa.bool_()) if pa.types.is_boolean(column.type) else ints.view(column.type)

    return Ordinals(values, valid, np.maximum if largest else np.minimum, decode)


def ascending_order(column: pa.Array) -> np.ndarray:
    """Stable argsort: nulls first, NaN last."""
    ords = ordinals(column, largest=True)
    if ords.valid is None:
        return np.argsort(ords.values, kind="stable")
    return np.lexsort((ords.values, ords.valid))


def ranks(column: pa.Array) -> np.ndarray:
    """Numbers from 0 that compare as Spark compares the values, -1 for null. Structs are compared field by field, and
    arrays element by element: what is null comes first, and of two that begin alike the shorter one."""
    if pa.types.is_struct(column.type):
        return _struct_ranks(column)
    if is_list(column.type):
        return _list_ranks(column)
    if pa.types.is_floating(column.type):
        values, valid = values_and_valid(column, 0.0)
    else:
        ords = ordinals(column, largest=True)
        values, valid = ords.values, ords.valid
    rank = np.unique(values, return_inverse=True)[1]  # NaN is last, and one; -0.0 is 0.0
    return rank if valid is None else np.where(valid, rank, -1)


def _struct_ranks(column: pa.Array) -> np.ndarray:
    rank = np.zeros(len(column), np.int64)
    for part in column.flatten():
        fields = ranks(part)
        rank = np.unique(rank * (int(fields.max(initial=0)) + 2) + fields + 1, return_inverse=True)[1]
    if not column.null_count:
        return rank
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), rank, -1)


def _list_ranks(column: pa.Array) -> np.ndarray:
    starts, lengths = places(column)
    elements, rank, left = ranks(column.values) + 2, np.zeros(len(column), np.int64), np.arange(len(column))
    for at in range(int(lengths.max(initial=0))):
        left = left[lengths[left] > at]
        codes = np.zeros(len(column), np.int64)  # of what has ended
        codes[left] = elements[starts[left] + at]
        rank = np.unique(rank * (int(elements.max()) + 1) + codes, return_inverse=True)[1]
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), rank, -1) if column.null_count else rank


def _integer_view(column: pa.Array) -> pa.Array | None:
    t = column.type
    if pa.types.is_boolean(t):
        return column.cast(pa.int8())
    if pa.types.is_integer(t):
        return column
    if pa.types.is_date32(t):
        return column.view(pa.int32())
    return column.view(pa.int64()) if pa.types.is_timestamp(t) or pa.types.is_duration(t) else None


def _floats(column: pa.Array, largest: bool) -> Ordinals:
    """NaN is the largest number: ``maximum`` passes it on, ``fmin`` prefers anything else."""
    values, valid = values_and_valid(column, -np.inf if largest else np.nan)
    ufunc = np.maximum if largest else np.fmin
    zeros = values if np.signbit(values[values == 0]).any() else None
    return Ordinals(values, valid, ufunc, lambda picked, seen: array_of(picked, seen, column.type), zeros)


def _ranks(column: pa.Array, largest: bool) -> Ordinals:
    """Strings, binary and decimals: the rank among the distinct values stands for the value."""
    encoded = column.dictionary_encode()
    by_rank = encoded.dictionary.take(pc.sort_indices(encoded.dictionary))
    ranks = np.empty(len(by_rank), np.int64)
    ranks[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(by_rank))
    valid = None if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)
    indices = pc.fill_null(encoded.indices, 0).to_numpy()
    values = ranks[indices] if len(ranks) else np.zeros(len(column), np.int64)
    if valid is not None:
        values = np.where(valid, values, -1 if largest else len(by_rank))

    def decode(picked: np.ndarray, seen: np.ndarray | None) -> pa.Array:
        return by_rank.take(array_of(picked, seen, pa.int64()))

    return Ordinals(values, valid, np.maximum if largest else np.minimum, decode)
