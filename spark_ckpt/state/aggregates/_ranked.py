"""``min_by`` and ``max_by`` of the first so many rows: a list each key, bounded, in its own row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_ckpt.state.aggregates._accumulators import Accumulator
from spark_ckpt.state.aggregates._in_families import list_of
from spark_ckpt.state.aggregates.ordinals import ranks
from spark_ckpt.state.ipc import plain_array
from spark_ckpt.state.keys.grouping import Segments


class ExtremesBy(Accumulator):
    """The first fields of the ``k`` rows with the least or largest second ones, which come first.

    Rows whose second field is null do not count. Of several with the same, the first to arrive are in front.
    """

    def __init__(self, name: str, column: str | None, type_: pa.DataType, largest: bool, k: int) -> None:
        super().__init__(name, column, type_)
        self.largest, self.k = largest, k

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, self.output_type), pa.field(f"{self.name}_by", pa.list_(self.type.field(1).type))]

    @property
    def output_type(self) -> pa.DataType:
        return pa.list_(self.type.field(0).type)

    def lift(self, column: pa.Array, rows: int) -> list[pa.Array]:
        by = column.flatten()[1]
        counts = by.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        kept = [plain_array(part).filter(by.is_valid()) for part in column.flatten()]
        return [list_of(counts, part, part.type) for part in kept]

    def merge(self, parts: list[pa.Array], seg: Segments) -> list[pa.Array]:
        values, by = (plain_array(part.flatten()) for part in parts)
        lengths = parts[0].value_lengths().to_numpy().astype(np.int64)
        owner = np.repeat(np.repeat(np.arange(len(seg.starts)), seg.counts), lengths)
        rank = ranks(by)
        order = np.lexsort((-rank if self.largest else rank, owner))
        found = np.bincount(owner, minlength=len(seg.starts))
        place = np.arange(len(owner)) - np.repeat(np.cumsum(found) - found, found)
        at = pa.array(order[place < self.k])
        return [list_of(np.minimum(found, self.k), part.take(at), part.type) for part in (values, by)]

    def result(self, parts: list[pa.Array]) -> pa.Array:
        lists = parts[0]
        none = lists.value_lengths().to_numpy() == 0
        offsets = np.concatenate(([0], np.cumsum(lists.value_lengths().to_numpy()))).astype(np.int32)
        return pa.ListArray.from_arrays(
            pa.array(offsets), plain_array(lists.flatten()), type=self.output_type, mask=pa.array(none)
        )
