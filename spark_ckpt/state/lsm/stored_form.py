"""How the columns of a state are written in its files, where a query has other columns than one before it.

A file keeps the columns it was written with. One that was added since is missing in it, and its rows have what it
begins with; one that is no longer kept is passed over, until a merge writes the rows anew. A column that was removed
and comes back begins anew, too: it is written under a name that no file has yet. One that became wider has its name in
all files, and what older ones have is cast; one that a migration casts has a new name in files, and older ones the old.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.protocol.events import Run
from spark_ckpt.state.ipc import conform, one_batch
from spark_ckpt.state.lsm._evolved import Older, as_type, if_it_fits
from spark_ckpt.state.lsm._interfaces import RunReader
from spark_ckpt.state.lsm.layout import StateLayout


@dataclass(frozen=True)
class StoredForm:
    """``names``: columns that have another name in files. ``begins``: what columns that are missing begin with; null
    for the others. ``older``: names that columns, and fields of structs by their paths, have in files of before a
    migration. ``retyped``: columns that have another type in some. ``starts``: constants that a migration's columns
    begin with. ``lenient``: columns in which a value that its new type does not hold is null."""

    layout: StateLayout
    names: Mapping[str, str] = field(default_factory=dict)
    begins: Callable[[], Mapping[str, pa.Scalar]] = dict
    older: Mapping[str, Sequence[str]] = field(default_factory=dict)
    retyped: Sequence[str] = ()
    starts: Mapping[str, Any] = field(default_factory=dict)
    lenient: Sequence[str] = ()

    @classmethod
    def told(
        cls, layout: StateLayout, facts: Mapping[str, Any], begins: Callable[[], Mapping[str, pa.Scalar]]
    ) -> StoredForm:
        """As a topology's ``facts`` of a state table say."""
        names, older = facts.get("stored", {}), facts.get("older", {})
        retyped, starts = facts.get("retyped", ()), facts.get("starts", {})
        return cls(layout, names, begins, older, retyped, starts, facts.get("lenient", ()))

    @cached_property
    def table_schema(self) -> pa.Schema:
        """The state table's."""
        return pa.schema([f.with_name(self._name(f.name)) for f in self.layout.table_schema])

    @cached_property
    def _in_files(self) -> list[str]:
        return [self._name(name) for name in self.layout.stored_schema.names]

    def _typed(self, rows: pa.RecordBatch) -> bool:
        """Types are looked at only where they are known to have changed: runs are read often."""
        schema = self.layout.stored_schema
        return all(rows.schema.field(self._name(c)).type.equals(schema.field(c).type) for c in self.retyped)

    def _name(self, column: str) -> str:
        return self.names.get(column, column)

    def read(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a file as the state has them; free where its columns are the same. Raises ``InvalidInputError`` for a
        value that a column's new type does not hold."""
        if rows.schema.names == self._in_files and self._typed(rows):
            return rows if not self.names else rows.rename_columns(self.layout.stored_schema.names)
        there, known = set(rows.schema.names), dict[str, str]()
        for f in self.layout.stored_schema:
            names = [self._name(f.name), *self.older.get(f.name, ())]
            known.update(dict.fromkeys([n for n in names if n in there][:1], f.name))
        return self._completed(rows, known)

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
        kinds = self.layout.stored_schema
        starts = {name: constant(value, kinds.field(name).type) for name, value in self.starts.items()}
        return completed(named, self.layout.stored_schema, {**self.begins(), **starts}, self.older, self.lenient)


def constant(value: Any, kind: pa.DataType) -> pa.Scalar:
    """What a migration adds, as a column of this type has it. Raises Arrow's errors for one that it cannot have."""
    whole = isinstance(value, int) and not isinstance(value, bool) and pa.types.is_decimal(kind)
    return pa.scalar(str(value) if whole else value).cast(kind)


def completed(
    rows: pa.RecordBatch,
    schema: pa.Schema,
    begins: Mapping[str, pa.Scalar],
    older: Older | None = None,
    lenient: Sequence[str] = (),
) -> pa.RecordBatch:
    """``rows`` with the columns of ``schema``: those that are missing have what ``begins`` says, else null."""
    columns = []
    for f in schema:
        if f.name in rows.schema.names:
            columns.append((if_it_fits if f.name in lenient else as_type)(rows.column(f.name), f.type, f.name, older))
        elif f.name in begins:
            columns.append(pa.repeat(begins[f.name].cast(f.type), len(rows)))
        else:
            columns.append(pa.nulls(len(rows), f.type))
    return one_batch(conform(pa.Table.from_arrays(columns, names=schema.names), schema))


@dataclass(frozen=True)
class FormReader:
    """Reads runs of ``table`` in the form that the state has now. Executor."""

    reader: RunReader
    form: StoredForm
    table: str = ""

    def read(self, run: Run) -> pa.RecordBatch:
        try:
            return self.form.read(self.reader.read(run))
        except InvalidInputError as error:
            raise InvalidInputError(
                f"state table {self.table!r}, {error}; `ckpt.migrate({self.table!r}).try_cast(...)` in place of cast "
                "has null for such values: start with it at an empty Spark location"
            ) from None
