"""Accumulators: how one aggregate's partial results are made from rows, merged and turned into its value.

Each is a monoid over typed columns. ``lift`` turns rows into partials, ``merge`` folds the partials of each segment
from left to right (stored state first, then arrival order), ``running`` gives every prefix of that fold, ``result``
reads the value off. The same columns are what is shuffled and what is stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_ckpt.agg import AggSpec
from spark_ckpt.state.aggregates.ordinals import ordinals, ranks
from spark_ckpt.state.aggregates.segments import accumulate, any_valid, first_of, pairs
from spark_ckpt.state.keys.grouping import Segments

Add = Callable[[np.ndarray], np.ndarray]


class Accumulator(ABC):
    """One aggregate of one column. Name, array and type of the column are None where whole rows are counted."""

    can_begin = True
    """Whether keys that are there already can have no partial of it yet: whether ``nothing`` is true."""

    def __init__(self, name: str, column: str | None, type_: pa.DataType) -> None:
        self.name, self.column, self.type = name, column, type_

    @property
    @abstractmethod
    def fields(self) -> list[pa.Field]:
        """The accumulator's columns, in the shuffle and in the state table."""

    @property
    def packer(self) -> Accumulator:
        """What makes the shuffle's columns, where they are not the state's; they have the same names."""
        return self

    @property
    @abstractmethod
    def output_type(self) -> pa.DataType: ...

    def made_of(self, spec: AggSpec) -> str:
        """Function, column and options, for :attr:`spark_ckpt.state.functions.base.StateFunction.made_of`.

        The column's type is not in it where other types give the state other types, or the same meaning.
        """
        options = [f"{name}={value!r}" for name, value in sorted(spec.options.items())]
        return f"{spec.kind}({', '.join([spec.column or '*', *options])})"

    @abstractmethod
    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        """One partial for each row."""

    def nothing(self) -> list[pa.Array]:
        """The partial of no rows: what an aggregate begins with that comes to keys which are there already."""
        return self.lift(pa.nulls(1, self.type), 1)

    def fold(self, column: pa.Array, seg: Segments) -> list[pa.Array]:
        """``lift``, then ``merge``: one partial for each segment of rows."""
        return self.merge([seg.arrange(part) for part in self.lift(column, seg.rows)], seg)

    @abstractmethod
    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        """One partial for each segment of ``parts``, which lie in the segments' order."""

    def join(self, stored: list[pa.Array], parts: list[pa.Array]) -> list[pa.Array]:
        """As ``merge`` of segments that are one stored partial and one of ``parts`` each, which are aligned."""
        seg = pairs(len(stored[0]))
        return self.merge([seg.arrange(pa.concat_arrays([s, p])) for s, p in zip(stored, parts)], seg)

    def running(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        """For each row of ``parts``, what ``merge`` gives for its segment up to and including it."""
        raise NotImplementedError(type(self).__name__)

    def result(self, parts: list[pa.Array]) -> pa.Array:
        return parts[0]


class Count(Accumulator):
    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, pa.int64())]

    @property
    def output_type(self) -> pa.DataType:
        return pa.int64()

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        if column is None or column.null_count == 0:
            return [pa.array(np.ones(rows, np.int64))]
        return [column.is_valid().cast(pa.int64())]

    def nothing(self) -> list[pa.Array]:
        return [pa.array([0], pa.int64())]

    def fold(self, column: pa.Array, seg: Segments) -> list[pa.Array]:
        if column is None or column.null_count == 0:
            return [pa.array(seg.counts)]
        return super().fold(column, seg)

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        return [pa.array(np.add.reduceat(parts[0].to_numpy(), seg.starts))]

    def join(self, stored: list[pa.Array], parts: list[pa.Array]) -> list[pa.Array]:
        return [pc.add(stored[0], parts[0])]

    def running(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        return [pa.array(accumulate(np.add, parts[0].to_numpy(), seg))]


class Chosen(Accumulator):
    """One of the column's own values. Day-time intervals are stored as microseconds: Delta tables have no such type."""

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, pa.int64() if pa.types.is_duration(self.type) else self.type)]

    def made_of(self, spec: AggSpec) -> str:
        return super().made_of(spec) + (" of intervals" if pa.types.is_duration(self.type) else "")

    @property
    def output_type(self) -> pa.DataType:
        return self.type

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        return [column.view(pa.int64()) if pa.types.is_duration(self.type) else column]

    def result(self, parts: list[pa.Array]) -> pa.Array:
        return parts[0].view(self.type) if pa.types.is_duration(self.type) else parts[0]


class Extreme(Chosen):
    """Minimum or maximum of any ordered type, by comparing ordinals."""

    def __init__(self, name: str, column: str | None, type_: pa.DataType, largest: bool) -> None:
        super().__init__(name, column, type_)
        self.largest = largest

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        if pa.types.is_nested(self.type):
            return self._rows(parts[0], lambda codes: np.maximum.reduceat(codes, seg.starts))
        ords = ordinals(parts[0], self.largest)
        picked = ords.ufunc.reduceat(ords.values, seg.starts)
        if ords.zeros is not None:
            picked = np.where(picked == 0, ords.zeros[first_of(ords.values == 0, seg)], picked)
        return [ords.decode(picked, any_valid(ords.valid, seg))]

    def running(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        if pa.types.is_nested(self.type):
            return self._rows(parts[0], lambda codes: accumulate(np.maximum, codes, seg))
        ords = ordinals(parts[0], self.largest)
        seen = None if ords.valid is None else accumulate(np.logical_or, ords.valid, seg)
        picked = accumulate(ords.ufunc, ords.values, seg)
        if ords.zeros is not None:
            first = ords.zeros[np.repeat(first_of(ords.values == 0, seg), seg.counts)]
            picked = np.where(picked == 0, first, picked)
        return [ords.decode(picked, seen)]

    def _rows(self, column: pa.Array, best: Add) -> list[pa.Array]:
        """Of structs and arrays that compare as equal, which may differ in the sign of a zero, the first row itself."""
        rank, rows = ranks(column), len(column)
        level = np.where(rank < 0, 0, rank + 1 if self.largest else rank.max(initial=0) - rank + 1)
        codes = best(level * rows + (rows - 1 - np.arange(rows)))
        return [column.take(pa.array(rows - 1 - codes % rows))]


class Edge(Chosen):
    """First or last value in order of arrival."""

    def __init__(self, name: str, column: str | None, type_: pa.DataType, last: bool, skip: bool) -> None:
        super().__init__(name, column, type_)
        self.last, self.ignore_nulls = last, skip
        self.can_begin = last or skip  # a first value that may be null looks like none

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        at = seg.ends - 1 if self.last else seg.starts
        if self.ignore_nulls and parts[0].null_count:
            valid, here = parts[0].is_valid().to_numpy(zero_copy_only=False), np.arange(seg.rows)
            if self.last:
                at = np.maximum(np.maximum.reduceat(np.where(valid, here, -1), seg.starts), seg.starts)
            else:
                at = np.minimum(np.minimum.reduceat(np.where(valid, here, seg.rows), seg.starts), seg.ends - 1)
        return [parts[0].take(pa.array(at))]


class Collect(Accumulator):
    """The first ``max_items`` non-null values in order of arrival."""

    def __init__(self, name: str, column: str | None, type_: pa.DataType, max_items: int) -> None:
        super().__init__(name, column, type_)
        self.max_items = max_items

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, self.output_type)]

    @property
    def output_type(self) -> pa.DataType:
        return pa.list_(pa.field("element", self.type))

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return [self._lists(valid.astype(np.int64), column.drop_null())]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        items = parts[0].flatten()
        found = np.add.reduceat(parts[0].value_lengths().to_numpy().astype(np.int64), seg.starts)
        kept = np.minimum(found, self.max_items)
        if (kept != found).any():
            rank = np.arange(len(items)) - np.repeat(np.cumsum(found) - found, found)
            items = items.filter(pa.array(rank < self.max_items))
        return [self._lists(kept, items)]

    def _lists(self, lengths: np.ndarray, items: pa.Array) -> pa.Array:
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), items, type=self.output_type)
