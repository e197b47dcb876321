"""The plain counterpart of an exactly-once sink: a Python sink that writes a Parquet file a task and batch."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage


@dataclass
class Written(WriterCommitMessage):
    file: str
    rows: int


class ParquetWriter(DataSourceStreamArrowWriter):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        rows, writer, path = 0, None, Path(self.folder) / f"{uuid.uuid4().hex}.parquet"
        for batch in iterator:
            if writer is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                writer = pq.ParquetWriter(path, batch.schema)
            writer.write_batch(batch)
            rows += batch.num_rows
        if writer is not None:
            writer.close()
        return Written(str(path), rows)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass


class ParquetSink(DataSource):
    """Option ``path``: the folder."""

    @classmethod
    def name(cls) -> str:
        return "benchmark_parquet"

    def streamWriter(self, schema: Any, overwrite: bool) -> ParquetWriter:
        return ParquetWriter(self.options["path"])
