"""``SimpleDataSourceStreamReader`` as an ordinary stream reader.

The driver learns the end of a batch by reading it, so the rows are at hand when the batch is planned: they travel
inside the split as Arrow IPC. A batch replayed after a restart is read again with ``readBetweenOffsets``. The idea is
Spark's ``_SimpleStreamReaderWrapper``; what differs is that a batch is Arrow from the start, and is forgotten as soon
as the next one is planned, because here ``commit`` comes as late as the next completed checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sources._convert import arrow_schema, records_to_batches
from spark_ckpt.spark_versions.read_limits import ReadLimit


class SimpleSplit(InputPartition):
    """The rows between two offsets: as Arrow IPC bytes, or (``data`` None) to be read again on the executor."""

    def __init__(self, start: dict[str, Any], end: dict[str, Any], data: bytes | None) -> None:
        self.start = start
        self.end = end
        self.data = data
        self.size_bytes = len(data) if data is not None else 1


class SimpleAdapter(DataSourceStreamReader):
    """Driver: reads ahead in ``latestOffset`` and plans one split a batch. Executor: ``read`` only."""

    def __init__(self, reader: SimpleDataSourceStreamReader, schema: StructType, source: DataSource) -> None:
        self.simple = reader
        self._schema = schema
        self._source = source
        self._ahead: dict[str, tuple[dict[str, Any], list[pa.RecordBatch]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ahead": {}}

    def initialOffset(self) -> dict[str, Any]:
        return dict(self.simple.initialOffset())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Read everything behind ``start``. The limit is the reader's own business, as in Spark."""
        records, end = self.simple.read(start)
        batches = list(records_to_batches(iter(records), self._schema, self._source))
        if _key(end) != _key(start):
            self._ahead[_key(start)] = (end, batches)
        elif batches:
            raise InvalidInputError(
                f"{type(self.simple).__name__}.read returned rows but did not move on: expected an end offset behind "
                f"{json.dumps(start)}, found the same one; the rows would be read again and again. Return the offset "
                "behind the last row"
            )
        return dict(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        batches = self._take(start, end)
        return [SimpleSplit(start, end, None if batches is None else self._ipc(batches))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, SimpleSplit)
        if partition.data is None:
            return iter(self.simple.readBetweenOffsets(partition.start, partition.end))
        return iter(pa.ipc.open_stream(partition.data))

    def commit(self, end: dict[str, Any]) -> None:
        self.simple.commit(end)

    def stop(self) -> None:
        stop = getattr(self.simple, "stop", None)
        if stop is not None:
            stop()

    def _take(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[pa.RecordBatch] | None:
        """What was read ahead from ``start`` up to ``end``; all that was read before it is forgotten."""
        found: list[pa.RecordBatch] = []
        chain, at = [], _key(start)
        while at in self._ahead and at not in chain:
            chain.append(at)
            reached, batches = self._ahead[at]
            found += batches
            at = _key(reached)
            if at == _key(end):
                older = list(self._ahead)[: list(self._ahead).index(chain[0])]
                for key in older:
                    del self._ahead[key]
                return found
        return None

    def _ipc(self, batches: list[pa.RecordBatch]) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, arrow_schema(self._schema)) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return bytes(sink.getvalue())


def _key(offset: Mapping[str, Any]) -> str:
    return json.dumps(offset, sort_keys=True)
