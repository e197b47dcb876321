"""The state of an operator as a batch DataFrame: a partition a file. Executor.

Nothing is copied and no file is in one process's memory; Delta Lake's jars are not needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_ckpt.jobs.state import StateFiles
from spark_ckpt.spark_versions.arrow_schemas import to_arrow_schema
from spark_ckpt.state.ipc import conform


class StateRows(DataSource):
    """The rows of one operator at one checkpoint. The class carries along which."""

    files: StateFiles

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.files, to_arrow_schema(schema))


class _Reader(DataSourceReader):
    def __init__(self, files: StateFiles, declared: pa.Schema) -> None:
        self._files, self._declared = files, declared

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(file) for file in self._files.content]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for rows in self._files.rows(partition.value):
            yield from conform(rows.select(self._declared.names), self._declared).to_batches()
