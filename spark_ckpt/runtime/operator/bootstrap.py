"""The state of a keyed operator, computed of all rows at once by the operator's own function, and what it puts out.

Executor, in batch. Rows come sorted by key. What the function leaves of the keys goes to state files, and what it puts
out nowhere; or the other way round, for an operator behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_ckpt.runtime.operator._bootstrap_task import BootstrapTask, History
from spark_ckpt.runtime.operator.pack import PackStage
from spark_ckpt.runtime.operator.spec import OperatorSpec
from spark_ckpt.runtime.state_writing import ROUTE, RunFiles, WrittenTable
from spark_ckpt.runtime.stateless import arrow_schema, spark_schema, split_control, with_control
from spark_ckpt.state.ipc import conform, int64_view, one_batch
from spark_ckpt.types import KEY_HASH, make_tag

__all__ = ["BootstrapOutput", "BootstrapState", "History", "RowsByKey"]


@dataclass(frozen=True)
class RowsByKey:
    """The rows for the function, by place, with the route of their subtask. ``combined``: aggregated in each task
    first, as ahead of a shuffle in a stream; not where the order of rows counts."""

    spec: OperatorSpec
    hashes: bool
    combined: bool

    @property
    def schema(self) -> pa.Schema:
        return self.spec.packed_schema if self.combined else self.spec.rows_schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stage, subtasks = PackStage(self.spec, self.hashes), self.spec.run.subtasks
        for batch in batches:
            rows = pa.Table.from_batches([stage.needed(split_control(batch)[0])])
            made = one_batch(conform(self.spec.function.combine(rows) if self.combined else rows, self.schema))
            found = subtasks.subtask_of(int64_view(made.column(KEY_HASH)))
            routes = np.array(subtasks.routes, np.int32)[found]
            names = [*(f"c{at}" for at in range(len(self.schema))), ROUTE]
            yield pa.RecordBatch.from_arrays([*made.columns, pa.array(routes)], names=names)

    def tasks(
        self, batches: Iterator[pa.RecordBatch], make: Callable[[int], BootstrapTask]
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        """What the task that ``make`` makes for the route of ``batches`` does with each of them, and at their end."""
        task: BootstrapTask | None = None
        for batch in batches:
            if len(batch):
                task = task or make(int(batch.column(len(batch.columns) - 1)[0].as_py()))
                rows = pa.RecordBatch.from_arrays(batch.columns[:-1], names=self.schema.names)
                yield task.take(one_batch(conform(rows, self.schema)))
        if task is not None:
            yield task.end()


@dataclass(frozen=True)
class BootstrapState:
    """Computes the state of a task's keys, and writes it; reports each file."""

    rows: RowsByKey
    tables: Mapping[str, WrittenTable]
    history: History

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = {family: RunFiles(table) for family, table in self.tables.items()}
        layouts = {family: table.form.layout for family, table in self.tables.items()}

        def away(family: str, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            named = rows.rename_columns([*self.tables[family].form.given.names, KEY_HASH])
            return files[family].add(named)

        def make(route: int) -> BootstrapTask:
            return BootstrapTask(self.rows.spec, route, layouts, self.history, self.rows.combined, away)

        for reports in self.rows.tasks(batches, make):
            yield from reports
        for family in files.values():
            yield from family.end()


@dataclass(frozen=True)
class BootstrapOutput:
    """What the function puts out of a task's rows, up to the watermark behind the last of all rows."""

    rows: RowsByKey
    history: History

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spec, out = self.rows.spec, list[pa.Table]()
        layouts = {family: spec.layout_of(family) for family in spec.family_tables}

        def make(route: int) -> BootstrapTask:
            return BootstrapTask(
                spec, route, layouts, self.history, self.rows.combined, lambda *_: iter(()), out.append
            )

        for done in self.rows.tasks(batches, make):
            for _ in done:
                pass
            yield from (self._with_control(rows) for rows in out if rows.num_rows)
            out.clear()

    def _with_control(self, rows: pa.Table) -> pa.RecordBatch:
        schema = arrow_schema(with_control(spark_schema(self.rows.spec.function.output_schema)))
        made = one_batch(rows.cast(self.rows.spec.function.output_schema))
        control = [pa.repeat(pa.scalar(make_tag(1), pa.int64()), len(made)), pa.nulls(len(made), pa.binary())]
        columns = [c.cast(f.type) for c, f in zip([*made.columns, *control], schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
