"""From what a source yields to Arrow record batches of exactly the expected schema."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

from spark_ckpt.arrow_types import exact_cast, plain_type
from spark_ckpt.errors import BadRecordError, ConfigError
from spark_ckpt.spark_versions.arrow_schemas import to_arrow_schema

MAX_BATCH_ROWS = 65_536
"""Rows of the largest batch a source yields."""

_TUPLE_BATCH_ROWS = 10_000


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema Spark's JVM expects for ``schema``: timestamps as UTC microseconds."""
    return to_arrow_schema(schema)


def spark_schema(found: pa.Schema) -> StructType:
    """The schema Spark would infer, every column nullable; a timestamp without a zone is ``timestamp_ntz``.

    Raises ``ConfigError`` naming a column whose type Spark does not have.
    """
    fields = []
    for field in found:
        try:
            kind = from_arrow_type(plain_type(field.type), prefer_timestamp_ntz=True)
        except PySparkTypeError:
            raise ConfigError(
                f"column '{field.name}' has type {field.type}, which Spark does not have; give .schema(...) without "
                "the column, or with a type it can be cast to"
            ) from None
        fields.append(StructField(field.name, kind))
    return StructType(fields)


def records_to_batches(records: Iterator[Any], schema: StructType, source: DataSource) -> Iterator[pa.RecordBatch]:
    """Convert what ``DataSourceStreamReader.read`` yields: tuples, lists, Rows, or record batches.

    Tuples go through Spark's own conversion, so that a source gives the same values here as in plain Spark. Record
    batches are matched by column name and cast; they need not have Spark's exact types.
    """
    first = next(records, None)
    if first is None:
        return
    everything = chain([first], records)
    if not isinstance(first, pa.RecordBatch):
        yield from records_to_arrow_batches(everything, _TUPLE_BATCH_ROWS, schema, source)
        return
    target = arrow_schema(schema)
    for batch in everything:
        yield from pieces(conform(batch, target))


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """``batch`` in zero-copy slices of at most ``MAX_BATCH_ROWS`` rows; nothing for an empty batch."""
    for start in range(0, batch.num_rows, MAX_BATCH_ROWS):
        yield batch.slice(start, MAX_BATCH_ROWS)


def conform(batch: pa.RecordBatch, target: pa.Schema, *, fill_missing: bool = False) -> pa.RecordBatch:
    """``batch`` with exactly the columns of ``target``: matched by name, cast safely, extra columns dropped.

    Timestamps may lose what is finer than the target's unit; a timestamp without a zone counts as UTC. A missing
    column is null with ``fill_missing`` and an error otherwise. Names match exactly, or else ignoring case.

    Raises ``BadRecordError`` if a column is missing or cannot have the type, ``pyarrow.ArrowInvalid`` if a value
    cannot be cast.
    """
    if batch.schema.equals(target):
        return batch
    found = {name.lower(): index for index, name in reversed(list(enumerate(batch.schema.names)))}
    exact = {name: index for index, name in reversed(list(enumerate(batch.schema.names)))}
    columns = []
    for field in target:
        index = exact.get(field.name, found.get(field.name.lower()))
        if index is not None:
            columns.append(cast(batch.column(index), field))
        elif fill_missing:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            raise BadRecordError(f"expected a column '{field.name}', found only {batch.schema.names}")
    return pa.RecordBatch.from_arrays(columns, schema=target)


def cast(column: pa.Array, field: pa.Field) -> pa.Array:
    """``column`` as ``field.type``. Raises as :func:`conform` does."""
    try:
        return exact_cast(column, field.type, truncates_times=True)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        expected, found = field.type, column.type
        raise BadRecordError(f"column '{field.name}': expected {expected}, found {found}, which has no cast") from None
