"""Rows that were there before a stream began, as a source that has them all at once and then nothing any more.

They travel in the source itself, as Arrow IPC, so a start needs nothing but the query. That they were read is in the
source's offset, as with any source: a restart does not read them again, whatever they are then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

_ROWS = 1 << 16
"""So many are in one split, so that tasks share them."""


class _Portion(InputPartition):
    def __init__(self, number: int, size_bytes: int) -> None:
        super().__init__(number)
        self.size_bytes = size_bytes


class InitialRows(DataSource):
    """Base of the sources that :func:`initial_rows` makes."""

    portions: tuple[bytes, ...] = ()

    @classmethod
    def name(cls) -> str:
        return "initial-rows"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Reader(self.portions)


class _Reader(DataSourceStreamReader):
    def __init__(self, portions: tuple[bytes, ...]) -> None:
        self._portions = portions

    def initialOffset(self) -> dict[str, Any]:
        return {"read": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        return {"read": 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start["read"] == end["read"]:
            return []
        return [_Portion(number, len(data)) for number, data in enumerate(self._portions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_stream(self._portions[partition.value]) as batches:
            yield from batches


def initial_rows(rows: pa.Table) -> type[DataSource]:
    """A source of these rows."""
    return type("InitialRows", (InitialRows,), {"portions": tuple(_portions(rows))})


def _portions(rows: pa.Table) -> Iterator[bytes]:
    for start in range(0, rows.num_rows, _ROWS):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(rows.slice(start, _ROWS))
        yield sink.getvalue().to_pybytes()
