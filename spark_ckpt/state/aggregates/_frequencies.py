"""Aggregates of how often values came: ``mode`` and percentiles. A row of a family for each distinct value of a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.spark_versions import spark_version
from spark_ckpt.state.aggregates._accumulators import Accumulator
from spark_ckpt.state.aggregates._in_families import (
    DistinctLists,
    FamilyAccumulator,
    ValueRows,
    in_order,
    lengths_of,
    owners,
    sub_fields,
    sub_keys_of,
    values_of,
)
from spark_ckpt.state.ipc import Rows
from spark_ckpt.state.keys.grouping import Segments


class _Frequencies(FamilyAccumulator):
    """The key's own row has the number of its rows that count."""

    gathers = True

    def __init__(self, name: str, column: str | None, type_: pa.DataType, options: Mapping[str, Any]) -> None:
        super().__init__(name, column, type_)
        self.options = options

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, pa.int64())]

    @property
    def packer(self) -> Accumulator:
        return DistinctLists(self.name, self.column, self.type, counted=True)

    @property
    def sub_schema(self) -> pa.Schema:
        return sub_fields(self.name, self.type)

    @property
    def values(self) -> pa.Schema:
        return pa.schema([pa.field(f"{self.name}_times", pa.int64())])

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        return [column.is_valid().cast(pa.int64())]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        return [pa.array(np.add.reduceat(parts[0].to_numpy(), seg.starts))]

    def absorbed(
        self, family: ValueRows, key_index: Rows, packed: list[pa.Array], stored: list[pa.Array]
    ) -> list[pa.Array]:
        row, times = owners(packed[0]), packed[1].flatten().to_numpy()
        found = family.get(key_index[row], sub_keys_of(packed[0].flatten(), self.sub_schema))
        counts = pc.fill_null(found.state.column(0), 0).to_numpy().copy()
        np.add.at(counts, found.place, times)
        family.write(found, pa.table([pa.array(counts)], schema=self.values))
        total = np.zeros(len(key_index), np.int64)
        np.add.at(total, row, times)
        return [pa.array(total)]

    def gathered(self, family: ValueRows, keys: Rows) -> pa.Array:
        found = family.scan(keys)
        order = in_order(found)
        values = values_of(found.sub_keys.take(pa.array(order)), self.type)
        values, times = self._weighed(values, found.state.column(0).to_numpy()[order])
        lengths = lengths_of(found, keys)
        starts = np.cumsum(lengths) - lengths
        if self.options.get("descending"):
            back = np.repeat(2 * starts + lengths - 1, lengths) - np.arange(len(times))
            values, times = values.take(pa.array(back)), times[back]
        return self._of(values, times, lengths, starts)

    def _weighed(self, values: pa.Array, times: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """What is counted, and how often it is there."""
        return values, times

    def _of(self, values: pa.Array, times: np.ndarray, lengths: np.ndarray, starts: np.ndarray) -> pa.Array:
        """A result for each key, whose values, in their order, begin at ``starts`` and are ``lengths`` many."""
        raise NotImplementedError(type(self).__name__)


class Mode(_Frequencies):
    """The most frequent value that is not null; of several the first in their order. Without one, which Spark leaves
    open, that is the least."""

    @property
    def output_type(self) -> pa.DataType:
        return self.type

    def _of(self, values: pa.Array, times: np.ndarray, lengths: np.ndarray, starts: np.ndarray) -> pa.Array:
        some = lengths > 0
        at = np.full(len(lengths), -1)
        if some.any():
            begins, counts = starts[some], lengths[some]
            most = np.repeat(np.maximum.reduceat(times, begins), counts)
            at[some] = np.minimum.reduceat(np.where(times == most, np.arange(len(times)), len(times)), begins)
        return values.take(pa.array(at, mask=at < 0))


class Percentile(_Frequencies):
    """``percentile`` and ``median``, exact: between two values in proportion, as Spark computes it."""

    @property
    def output_type(self) -> pa.DataType:
        return _one_or_list(pa.float64(), self.options)

    def _of(self, values: pa.Array, times: np.ndarray, lengths: np.ndarray, starts: np.ndarray) -> pa.Array:
        numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        total, upto = _totals(times, lengths, starts)
        some = total > 0

        def one(share: float) -> pa.Array:
            position = np.maximum(total - 1, 0) * share
            low, high = np.floor(position), np.ceil(position)
            out = np.zeros(len(total))
            below = numbers[_at(upto, starts, lengths, low + 1, total)[some]]
            above = numbers[_at(upto, starts, lengths, high + 1, total)[some]]
            position, low, high = position[some], low[some], high[some]
            with np.errstate(invalid="ignore", over="ignore"):
                if spark_version() >= (4, 3):  # which has no number between an infinite value and another
                    between = below + (position - low) * (above - below)
                else:
                    between = (high - position) * below + (position - low) * above
            out[some] = np.where((low == high) | (below == above), below, between)
            return pa.array(out, mask=~some)

        return _each(one, self.options, self.output_type, some)


class WeighedPercentile(Percentile):
    """``percentile`` of numbers that come with how often they count. Structs of both are what is kept."""

    def absorbed(
        self, family: ValueRows, key_index: Rows, packed: list[pa.Array], stored: list[pa.Array]
    ) -> list[pa.Array]:
        least = pc.min(packed[0].flatten().field(1)).as_py()
        if least is not None and least < 0:
            raise InvalidInputError(
                f"[NEGATIVE_VALUES_IN_FREQUENCY_EXPRESSION] aggregate {self.name!r}: found the frequency {least}, but "
                "expected a positive integral value. Leave such rows out in front."
            )
        return super().absorbed(family, key_index, packed, stored)

    def _weighed(self, values: pa.Array, times: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        number, often = values.flatten()
        return number, times * often.cast(pa.int64()).to_numpy()


class DiscretePercentile(_Frequencies):
    """``percentile_disc``: the first number that, with those in front of it, is the share that was asked for."""

    @property
    def output_type(self) -> pa.DataType:
        return _one_or_list(pa.float64(), self.options)

    def _of(self, values: pa.Array, times: np.ndarray, lengths: np.ndarray, starts: np.ndarray) -> pa.Array:
        numbers = values.cast(pa.float64(), safe=False)
        total, upto = _totals(times, lengths, starts)

        def one(share: float) -> pa.Array:
            at = _at(upto, starts, lengths, np.maximum(np.ceil(share * total), 1), total)
            return numbers.take(pa.array(at, mask=total == 0))

        return _each(one, self.options, self.output_type, total > 0)


class ApproxPercentile(_Frequencies):
    """``percentile_approx``: the value of that rank, exactly, which is within any accuracy that was asked for."""

    @property
    def output_type(self) -> pa.DataType:
        return _one_or_list(self.type, self.options)

    def _of(self, values: pa.Array, times: np.ndarray, lengths: np.ndarray, starts: np.ndarray) -> pa.Array:
        total, upto = _totals(times, lengths, starts)
        error = 1.0 / self.options["accuracy"]

        def one(share: float) -> pa.Array:
            rank = np.ceil(share * total) if error < share < 1 - error else total * (share > error)
            at = _at(upto, starts, lengths, np.maximum(rank, 1), total)
            return values.take(pa.array(at, mask=total == 0))

        return _each(one, self.options, self.output_type, total > 0)


def _one_or_list(type_: pa.DataType, options: Mapping[str, Any]) -> pa.DataType:
    return pa.list_(pa.field("element", type_, nullable=False)) if isinstance(options["percentage"], list) else type_


def _each(one: Any, options: Mapping[str, Any], type_: pa.DataType, some: np.ndarray) -> pa.Array:
    """``one`` share, or a list of all of them for each key."""
    if not isinstance(options["percentage"], list):
        return one(options["percentage"])
    columns = [one(share) for share in options["percentage"]]
    keys = np.flatnonzero(some)
    index = (np.arange(len(columns))[None, :] * len(some) + keys[:, None]).ravel()
    items = pa.concat_arrays(columns).take(pa.array(index))
    offsets = np.concatenate(([0], np.cumsum(np.where(some, len(columns), 0)))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=type_, mask=pa.array(~some))


def _totals(times: np.ndarray, lengths: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of each key, and of all keys' values up to and with each value."""
    upto = np.cumsum(times)
    ends = np.concatenate(([0], upto))
    return ends[starts + lengths] - ends[starts], upto


def _at(upto: np.ndarray, starts: np.ndarray, lengths: np.ndarray, rank: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Where each key's value of that rank, from 1, is."""
    before = np.concatenate(([0], upto))[starts]
    at = np.searchsorted(upto, before + np.minimum(rank, total))
    return np.minimum(at, np.maximum(starts + lengths - 1, 0))
