"""The DataSource classes Spark sees. They are made for each start of a job and carry that run's facts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from spark_ckpt.jobs.spec import RunSpec, SinkSpec, SourceSpec
from spark_ckpt.jobs.state import StateFiles
from spark_ckpt.runtime._state_rows import StateRows
from spark_ckpt.runtime._worker_gc import freeze
from spark_ckpt.runtime.delivered import DeliveredRows
from spark_ckpt.runtime.operations import Operation
from spark_ckpt.runtime.sink.writer import CkptStreamWriter
from spark_ckpt.runtime.source.reader import CkptStreamReader
from spark_ckpt.runtime.source.unasked import UnaskedReader
from spark_ckpt.spark_versions import spark_version


class RunSource(DataSource):
    """One source of one run, with the operations that run in its tasks."""

    run: RunSpec
    source: SourceSpec
    operations: tuple[Operation, ...]
    produced: StructType

    def schema(self) -> StructType:
        """Nullable all the way down, as the batches are (:func:`spark_ckpt.runtime.stateless.arrow_schema`): Spark
        compares both."""
        return self.produced._as_nullable()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        freeze()  # Spark's planner asks anew for every batch, in a process that it keeps
        reader = CkptStreamReader(self.run, self.source, self.operations)
        return reader if spark_version() >= (4, 2) else UnaskedReader(reader)


class RunSink(DataSource):
    """The sinks of one run, with the operations that run in the writer's tasks. ``rows`` is the sinks' schema."""

    run: RunSpec
    sinks: tuple[SinkSpec, ...]
    operations: tuple[Operation, ...]
    rows: pa.Schema

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        freeze()
        return CkptStreamWriter(self.run, self.sinks, self.rows, self.operations)


def source_class_of(
    name: str, run: RunSpec, source: SourceSpec, operations: tuple[Operation, ...], produced: StructType
) -> type[DataSource]:
    """A class for ``spark.dataSource.register`` under ``name``, which reads the source and does the operations."""
    return _made(name, RunSource, {"run": run, "source": source, "operations": operations, "produced": produced})


def sink_class_of(
    name: str, run: RunSpec, sinks: tuple[SinkSpec, ...], rows: pa.Schema, operations: tuple[Operation, ...]
) -> type[DataSource]:
    """A class for ``spark.dataSource.register`` under ``name``, which does the operations and writes to the sinks."""
    return _made(name, RunSink, {"run": run, "sinks": sinks, "rows": rows, "operations": operations})


def delivered_class_of(name: str, url: str, storage: dict[str, Any], job: str, sink: str) -> type[DataSource]:
    """A class for ``spark.dataSource.register`` under ``name``, which reads what is delivered to one function."""
    return _made(name, DeliveredRows, {"url": url, "storage": storage, "job": job, "sink": sink})


def state_class_of(name: str, files: StateFiles) -> type[DataSource]:
    """A class for ``spark.dataSource.register`` under ``name``, which reads the state of an operator."""
    return _made(name, StateRows, {"files": files})


def _made(name: str, base: type[DataSource], facts: dict[str, Any]) -> type[DataSource]:
    def named(_cls: type[Any]) -> str:
        return name

    made: type[DataSource] = type("CkptRun", (base,), {"name": classmethod(named), **facts})
    # Not importable under any name, so that it is pickled by value and carries its attributes along.
    made.__module__ = "__main__"
    return made
