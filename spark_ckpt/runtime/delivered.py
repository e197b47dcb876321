"""What ``foreachBatch`` and ``foreach`` get: the rows of one committed checkpoint, as a batch DataFrame. Executor.

The DataFrame is read from the files in which the rows wait, so it may be used any number of times inside the function,
and is never in one process's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks.deliveries import Deliveries, ReadyFile, read_rows
from spark_ckpt.spark_versions.arrow_schemas import to_arrow_schema
from spark_ckpt.storage.filesystem import Folder

_PARTITION_BYTES = 16 * 1024 * 1024
"""Small files share a partition. A constant: the same rows are in the same partition whenever they come again."""


class DeliveredRows(DataSource):
    """One function's rows; option ``checkpoint`` says of which. The class carries the rest along."""

    url: str
    storage: dict[str, Any]
    job: str
    sink: str

    def reader(self, schema: StructType) -> DataSourceReader:
        deliveries = Deliveries(self.url, self.storage, self.job, self.sink)
        checkpoint = int(self.options["checkpoint"])
        declared = to_arrow_schema(schema)
        return _Reader(self.url, self.storage, checkpoint, deliveries.files(checkpoint), declared)


class _Files(InputPartition):
    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(0)
        self.paths = tuple(paths)


class _Reader(DataSourceReader):
    def __init__(
        self, url: str, storage: dict[str, Any], checkpoint: int, files: Sequence[ReadyFile], declared: pa.Schema
    ) -> None:
        self._url, self._storage, self._checkpoint, self._files = url, storage, checkpoint, files
        self._declared = declared

    def partitions(self) -> Sequence[InputPartition]:
        return [_Files([f.path for f in files]) for files in together(self._files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Files)
        folder = Folder(self._url, self._storage)
        for path in partition.paths:
            try:
                yield from (_as_declared(batch, self._declared) for batch in read_rows(folder, path))
            except FileNotFoundError:
                raise InvalidInputError(
                    f"the rows of checkpoint {self._checkpoint} are gone: they were delivered. They are there only "
                    "while the function of foreachBatch runs; what is needed later, it must write somewhere"
                ) from None


def _as_declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same bytes under Spark's types, by which nested fields may be never null. In a null struct they are null, so
    Arrow does not cast to such a type."""
    return batch if batch.schema.equals(schema) else pa.ipc.read_record_batch(batch.serialize(), schema)


def together(files: Sequence[ReadyFile]) -> list[list[ReadyFile]]:
    """``files`` in their order, cut where enough bytes have come together."""
    groups: list[list[ReadyFile]] = []
    size = _PARTITION_BYTES
    for file in files:
        if size >= _PARTITION_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return groups


class EachRow:
    """``foreach`` over one partition of a checkpoint's rows, as PySpark does it; ``epoch`` is the checkpoint's id."""

    def __init__(self, f: Any, epoch: int) -> None:
        self.f, self.epoch = f, epoch

    def __call__(self, rows: Iterator[Any]) -> None:
        plain = callable(self.f)
        process: Callable[[Any], Any] = self.f if plain else self.f.process
        opened = None if plain else getattr(self.f, "open", None)
        close = None if plain else getattr(self.f, "close", None)
        task = TaskContext.get()
        wanted = opened is None or opened(task.partitionId() if task else 0, self.epoch)
        error: Exception | None = None
        try:
            for row in rows if wanted else ():
                process(row)
        except Exception as e:
            error = e
            raise
        finally:
            if close is not None:
                close(error)
