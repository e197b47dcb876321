"""The events as a source of Spark's, a Python ``DataSource``: for streams, here and in plain Spark, and for batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from examples.nexmark.generator import SCHEMA, Settings, make_events
from spark_ckpt.spark_versions.read_limits import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

SPLITS, ROWS = 4, 10_000


class NexmarkSource(DataSource):
    """Options, all with a default: ``events`` in all, ``perBatch`` of them, and what the events depend on: ``seed``,
    ``eventsPerSecond`` (of event time), ``outOfOrder`` (events of a group that come in disorder), ``delayed`` (the
    share that comes late) and ``delaySeconds`` (by how much at most).
    """

    @classmethod
    def name(cls) -> str:
        return "nexmark"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return NexmarkStreamReader(self._events(), int(self.options.get("perBatch", "10000")), self._settings())

    def reader(self, schema: StructType) -> DataSourceReader:
        return NexmarkReader(self._events(), self._settings())

    def _events(self) -> int:
        return int(self.options.get("events", "100000"))

    def _settings(self) -> Settings:
        of = self.options.get
        return Settings(
            seed=int(of("seed", "1")),
            events_per_second=int(of("eventsPerSecond", "1000")),
            out_of_order=int(of("outOfOrder", "1")),
            delayed=float(of("delayed", "0")),
            delay_s=int(of("delaySeconds", "3")),
        )


class NexmarkReader(DataSourceReader):
    """All events, as a table."""

    def __init__(self, events: int, settings: Settings) -> None:
        self.events, self.settings = events, settings

    def partitions(self) -> list[InputPartition]:
        return split(0, self.events)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from batches(*partition.value, self.settings)


class NexmarkStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offset: ``{"event": n}``, the number of events before it."""

    def __init__(self, events: int, per_batch: int, settings: Settings) -> None:
        self.events, self.per_batch, self.settings = events, per_batch, settings

    def initialOffset(self) -> dict[str, Any]:
        return {"event": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.per_batch)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        most = self.events if isinstance(limit, ReadAllAvailable) else self.per_batch
        return {"event": max(start["event"], min(start["event"] + most, self.events))}

    def prepareForTriggerAvailableNow(self) -> None:
        """All events are there from the beginning."""

    def finished(self, offset: dict[str, Any]) -> bool:
        """Spark-ckpt's own: nothing comes behind the last event, and the final checkpoint may be taken."""
        return bool(offset["event"] >= self.events)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return split(start["event"], end["event"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from batches(*partition.value, self.settings)


def split(first: int, end: int) -> list[InputPartition]:
    cuts = [first + (end - first) * part // SPLITS for part in range(SPLITS + 1)]
    return [InputPartition((low, high)) for low, high in pairwise(cuts) if low < high]


def batches(first: int, end: int, settings: Settings) -> Iterator[pa.RecordBatch]:
    for low in range(first, end, ROWS):
        yield make_events(low, min(low + ROWS, end), settings)
