"""What is kept of a row, and the rows of one call: those found in a family, and those that arrived."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_ckpt.state.ipc import Rows, concat, one_batch
from spark_ckpt.state.lsm.family import Found

ARRIVAL, SLOT = "_arrival", "_slot"
"""Columns of a family: a number that tells which of a key's rows came first, and the row's place in the family."""


@dataclass(frozen=True)
class RowForm:
    """``columns`` of a row. Those in ``identity`` are key or sub-key columns of the family, which have the names there;
    the others are stored under ``names``."""

    columns: pa.Schema
    identity: Mapping[str, str]
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, columns: pa.Schema, identity: Mapping[str, str], taken: Iterable[str], stored_as: Mapping[str, str]
    ) -> RowForm:
        """``identity``: columns that are keys or sub-keys. ``taken``: names that mean something else in the family;
        ``stored_as``: those of columns whose own names no state table can have.

        What is hashed and stored of a floating key has no sign of a zero, so its column is stored, too.
        """
        floats = {f.name for f in columns if pa.types.is_floating(f.type)}
        kept = {column: name for column, name in identity.items() if column not in floats}
        used, names = {name.lower() for name in taken}, []
        for f in columns:
            name = stored_as.get(f.name, f.name)
            while f.name not in kept and name.lower() in used:
                name += "_value"
            if f.name not in kept:
                used.add(name.lower())
                names.append(name)
        return cls(columns, kept, tuple(names))

    @property
    def stored(self) -> pa.Schema:
        """Intervals are stored as microseconds: Delta tables have no such type."""
        fields = [f for f in self.columns if f.name not in self.identity]
        kinds = [pa.int64() if pa.types.is_duration(f.type) else f.type for f in fields]
        return pa.schema([*map(pa.field, self.names, kinds), pa.field(ARRIVAL, pa.int64())])

    def arrived(self, rows: pa.Table) -> pa.RecordBatch:
        return one_batch(rows.select(self.columns.names).cast(self.columns))

    def found(self, found: Found) -> TopRows:
        """The rows of a family, as they came; null where there is none."""
        state, keys = one_batch(found.state), one_batch(found.lookup.keys)
        columns, names = [], iter(self.names)
        for f in self.columns:
            if f.name in self.identity:
                columns.append(keys.column(self.identity[f.name]))
            else:
                column = state.column(next(names))
                columns.append(column.view(f.type) if pa.types.is_duration(f.type) else column)
        table = pa.RecordBatch.from_arrays(columns, schema=self.columns)
        return TopRows(table, found.key_index, state.column(ARRIVAL).fill_null(0).to_numpy())

    def to_state(self, rows: TopRows, which: Rows) -> pa.Table:
        """The family's value columns of rows ``which``."""
        at = pa.array(which)
        columns = [rows.table.column(f.name).take(at) for f in self.columns if f.name not in self.identity]
        stored = [c.view(pa.int64()) if pa.types.is_duration(c.type) else c for c in columns]
        return pa.Table.from_arrays([*stored, pa.array(rows.arrival[which])], schema=self.stored)


@dataclass(frozen=True)
class TopRows:
    """Rows of the keys ``owner``, numbered among those of the call; of equal rows the one with the least ``arrival``
    comes first."""

    table: pa.RecordBatch
    owner: Rows
    arrival: Rows

    def __len__(self) -> int:
        return len(self.owner)

    def followed_by(self, more: TopRows) -> TopRows:
        if not len(self) or not len(more):
            return more if len(more) else self
        owner, arrival = np.concatenate([self.owner, more.owner]), np.concatenate([self.arrival, more.arrival])
        return TopRows(concat([self.table, more.table]), owner, arrival)
