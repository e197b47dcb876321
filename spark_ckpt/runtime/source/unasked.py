"""The stream reader for Spark before 4.2, which asks ``latestOffset()`` without saying where a batch would begin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_ckpt.runtime.source.reader import CkptStreamReader, Offset


class UnaskedReader(DataSourceStreamReader):
    """Keeps the position itself: the end of what Spark last planned.

    Spark plans each batch once ``latestOffset`` has given its end, replays a batch by planning it, and plans an empty
    one at the newest offset of its log when a query starts (``PythonMicroBatchStream.setLatestSeenOffset``). It has no
    ``prepareForTriggerAvailableNow`` either: the run's ``bounded`` takes its place.
    """

    def __init__(self, reader: CkptStreamReader) -> None:
        self._reader = reader
        self._position: Offset | None = None
        self._prepared = False
        self._limit = reader.getDefaultReadLimit()

    def initialOffset(self) -> Offset:
        self._position = self._reader.initialOffset()
        return self._position

    def latestOffset(self) -> Offset:  # type: ignore[override]  # as Spark 4.2 has it
        if self._reader.run.bounded and not self._prepared:
            self._reader.prepareForTriggerAvailableNow()
            self._prepared = True
        start = self.initialOffset() if self._position is None else self._position
        return self._reader.latestOffset(start, self._limit)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._position = end
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)

    def commit(self, end: Offset) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()
