"""Stateless Python operations that never show control rows to the user's function. Executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from spark_ckpt.arrow_types import exact_cast
from spark_ckpt.errors import UserFunctionError
from spark_ckpt.protocol import events as ev
from spark_ckpt.runtime.lazy_batch import LazyBatch, RowOperation
from spark_ckpt.spark_versions.arrow_schemas import to_arrow_schema
from spark_ckpt.spark_versions.pandas_conversion import to_arrow, to_frame
from spark_ckpt.state.functions.pandas_input import in_timezone
from spark_ckpt.state.ipc import nullable_type
from spark_ckpt.types import CONTROL_COLUMNS, CTL, STREAM_MASK, TAG, epoch_of_tag, make_tag


def with_control(schema: StructType) -> StructType:
    """``schema``, all nullable (control rows hold no data), plus the control columns."""
    return StructType([*nullable(schema), StructField(TAG, LongType()), StructField(CTL, BinaryType())])


def nullable(schema: StructType) -> StructType:
    """As what Python hands to Spark is declared: Arrow batches do not say that a column has no nulls."""
    return StructType([StructField(f.name, f.dataType, True, f.metadata) for f in schema.fields])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The canonical Arrow form: timestamps in UTC, and whatever is inside of a value nullable.

    A field of a struct that Spark knows to be never null is null in Arrow where the struct is: behind an outer join, in
    a control row. Arrow refuses such a value in a cast to the very type that it has.
    """
    exact = to_arrow_schema(schema)
    return pa.schema([field.with_type(nullable_type(field.type)) for field in exact])


def control_row(schema: StructType) -> pa.Table:
    """One control row of a stream of ``schema``, as Spark gets it from a source."""
    row = {TAG: make_tag(1), CTL: ev.encode(ev.Barrier(1, 1, 0))}
    return pa.Table.from_pylist([row], schema=arrow_schema(schema))


def spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)


def split_control(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """(data rows, control rows); the common cases copy nothing."""
    control = batch.column(batch.schema.get_field_index(CTL))
    if control.null_count == len(control):
        return batch, batch.slice(0, 0)
    is_data = pc.is_null(control)
    return batch.filter(is_data), batch.filter(pc.invert(is_data))


def runs_of_tag(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut a batch where the tag changes; nearly always one piece."""
    if not batch.num_rows:
        return
    tags = batch.column(batch.schema.get_field_index(TAG))
    ends = pc.run_end_encode(tags, run_end_type=pa.int64())
    start = 0
    for end, tag in zip(ends.run_ends.to_pylist(), ends.values.to_pylist(), strict=True):
        yield tag, batch.slice(start, end - start)
        start = end


class Project(RowOperation):
    """Some of the columns, under other names if there are any."""

    def __init__(self, names: list[str], renamed: list[str] | None = None) -> None:
        self.names, self.renamed = names, renamed

    def lazily(self, batches: Iterator[LazyBatch]) -> Iterator[LazyBatch]:
        return (batch.select([batch.place(n) for n in self.names], self.renamed or self.names) for batch in batches)


class MarkStream(RowOperation):
    """``withWatermark``: gives the rows the number of the stream, and says its watermark behind them.

    Here, as in Spark, because a filter behind it may leave out the latest rows.
    """

    def __init__(self, number: int, stream: str, column: str, delay_us: int) -> None:
        self.number, self.stream, self.column, self.delay_us = number, stream, column, delay_us

    def lazily(self, batches: Iterator[LazyBatch]) -> Iterator[LazyBatch]:
        latest: dict[int, int] = {}
        schema = None
        for batch in batches:
            tags, schema = batch.column(TAG), batch.schema
            # What is computed, as current_timestamp is, control rows have too.
            times = pc.if_else(batch.column(CTL).is_null(), batch.column(self.column), None)
            timed = pa.RecordBatch.from_arrays([times, tags], [self.column, TAG])
            for tag, rows in runs_of_tag(timed):
                micros = latest_micros(rows.column(self.column))
                if micros is not None:
                    epoch = epoch_of_tag(tag)
                    latest[epoch] = max(latest.get(epoch, micros), micros)
            yield batch.replaced(TAG, pc.bit_wise_or(pc.bit_wise_and(tags, ~STREAM_MASK), self.number))
        if schema is not None and latest:
            yield LazyBatch.of(self._said(latest, schema))

    def _said(self, latest: dict[int, int], schema: pa.Schema) -> pa.RecordBatch:
        said = [ev.Watermark(self.stream, micros - self.delay_us, epoch) for epoch, micros in sorted(latest.items())]
        nulls = [pa.nulls(len(said), f.type) for f in list(schema)[:-1]]
        return pa.RecordBatch.from_arrays([*nulls, pa.array(map(ev.encode, said), pa.binary())], schema=schema)


def latest_micros(times: pa.Array) -> int | None:
    """In whole milliseconds, as Spark counts event time, rounded down; None without any."""
    latest = pc.max(times.cast(pa.timestamp("us", "UTC")).view(pa.int64())).as_py()
    return None if latest is None else latest // 1000 * 1000


class MapArrow:
    """``mapInArrow`` around the control rows. One instance is pickled to every task."""

    def __init__(self, func: Callable[..., Any], out: StructType) -> None:
        self.func = func
        self.schema = arrow_schema(out)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        control: list[pa.RecordBatch] = []

        def tagged() -> Iterator[tuple[int, pa.RecordBatch]]:
            for batch in batches:
                data, ctl = split_control(batch)
                if ctl.num_rows:
                    control.append(ctl)
                yield from runs_of_tag(data)

        for tag, pieces in groupby(tagged(), key=lambda piece: piece[0]):
            yield from (
                self._tag(out, tag) for out in self._call(p.drop_columns(list(CONTROL_COLUMNS)) for _, p in pieces)
            )
        for ctl in control:
            yield self._empty_data(ctl)

    def _call(self, data: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.func(data)

    def _tag(self, batch: pa.RecordBatch, tag: int) -> pa.RecordBatch:
        fields = list(self.schema)[:-2]
        if batch.num_columns != len(fields):
            raise UserFunctionError(
                f"the function of mapInArrow yielded {batch.num_columns} column(s) {batch.schema.names}; expected "
                f"{len(fields)}, as the schema says: {[f.name for f in fields]}"
            )
        # By position, whatever their names are, as in Spark.
        columns = [exact_cast(column, f.type) for column, f in zip(batch.columns, fields, strict=True)]
        n = batch.num_rows
        return pa.RecordBatch.from_arrays(
            [*columns, pa.repeat(pa.scalar(tag, pa.int64()), n), pa.nulls(n, pa.binary())], schema=self.schema
        )

    def _empty_data(self, control: pa.RecordBatch) -> pa.RecordBatch:
        empty = [pa.nulls(control.num_rows, f.type) for f in list(self.schema)[:-2]]
        tail = [control.column(control.schema.get_field_index(c)) for c in CONTROL_COLUMNS]
        return pa.RecordBatch.from_arrays([*empty, *tail], schema=self.schema)


class MapPandas(MapArrow):
    """``mapInPandas`` around the control rows, with PySpark's own conversions: times are local to the session.

    ``options``: ``safecheck``, ``prefer_int_ext_dtype`` and ``int_to_decimal_coercion_enabled``, as PySpark names them.
    """

    def __init__(self, func: Callable[..., Any], out: StructType, timezone: str, options: dict[str, bool]) -> None:
        super().__init__(func, out)
        self._struct = StructType(out.fields[:-2])
        self._timezone = timezone
        self._options = options

    def _call(self, data: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for frame in self.func(map(self._frame, data)):
            if len(frame):
                yield to_arrow(
                    frame,
                    self._struct,
                    timezone=self._timezone,
                    safecheck=self._options.get("safecheck", False),
                    int_to_decimal_coercion_enabled=self._options.get("int_to_decimal_coercion_enabled", False),
                    arrow_cast=True,
                    assign_cols_by_name=any(isinstance(c, str) for c in frame.columns),
                )

    def _frame(self, batch: pa.RecordBatch) -> Any:
        local = pa.schema([f.with_type(in_timezone(f.type, self._timezone)) for f in batch.schema])
        return to_frame(batch.cast(local), self._timezone, self._options.get("prefer_int_ext_dtype", False))
