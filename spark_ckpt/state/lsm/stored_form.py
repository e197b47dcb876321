"""How the columns of a state are written in its files, where a query has other aggregates than one before it.

A file keeps the columns it was written with. One that was added since is missing in it, and its rows have what an
aggregate begins with; one that is no longer kept is passed over, until a merge writes the rows anew. A column that was
removed and comes back begins anew, too: it is written under a name that no file has yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from spark_ckpt.protocol.events import Run
from spark_ckpt.state.ipc import conform, one_batch
from spark_ckpt.state.lsm._interfaces import RunReader
from spark_ckpt.state.lsm.layout import StateLayout


@dataclass(frozen=True)
class StoredForm:
    """``names``: columns that have another name in files. ``begins``: what columns of missing aggregates begin with;
    null for the others."""

    layout: StateLayout
    names: Mapping[str, str] = field(default_factory=dict)
    begins: Callable[[], Mapping[str, pa.Scalar]] = dict

    @cached_property
    def table_schema(self) -> pa.Schema:
        """The state table's."""
        return pa.schema([f.with_name(self._name(f.name)) for f in self.layout.table_schema])

    @cached_property
    def _in_files(self) -> list[str]:
        return [self._name(name) for name in self.layout.stored_schema.names]

    def _name(self, column: str) -> str:
        return self.names.get(column, column)

    def read(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a file as the state has them; free where its columns are the same."""
        if rows.schema.names == self._in_files:
            return rows if not self.names else rows.rename_columns(self.layout.stored_schema.names)
        return self._completed(rows, {self._name(f.name): f.name for f in self.layout.stored_schema})

    def written(self, rows: pa.Table) -> pa.Table:
        """Rows of the state as a file has them."""
        return rows.rename_columns([self._name(n) for n in rows.column_names]) if self.names else rows

    def carried(self, rows: pa.RecordBatch, fresh: frozenset[str]) -> pa.RecordBatch:
        """Rows that another query may have left in Spark's state store; columns that are ``fresh`` begin anew."""
        if not fresh and rows.schema.names == self.layout.stored_schema.names:
            return rows
        return self._completed(rows, {f.name: f.name for f in self.layout.stored_schema if f.name not in fresh})

    def _completed(self, rows: pa.RecordBatch, known: Mapping[str, str]) -> pa.RecordBatch:
        """``known``: the name in ``rows`` -> the column it is."""
        there = [name for name in rows.schema.names if name in known]
        named = rows.select(there).rename_columns([known[name] for name in there])
        return completed(named, self.layout.stored_schema, self.begins())


def completed(rows: pa.RecordBatch, schema: pa.Schema, begins: Mapping[str, pa.Scalar]) -> pa.RecordBatch:
    """``rows`` with the columns of ``schema``: those that are missing have what ``begins`` says, else null."""
    columns = []
    for f in schema:
        if f.name in rows.schema.names:
            columns.append(rows.column(f.name))
        elif f.name in begins:
            columns.append(pa.repeat(begins[f.name].cast(f.type), len(rows)))
        else:
            columns.append(pa.nulls(len(rows), f.type))
    return one_batch(conform(pa.Table.from_arrays(columns, names=schema.names), schema))


@dataclass(frozen=True)
class FormReader:
    """Reads runs in the form that the state has now. Executor."""

    reader: RunReader
    form: StoredForm

    def read(self, run: Run) -> pa.RecordBatch:
        return self.form.read(self.reader.read(run))
