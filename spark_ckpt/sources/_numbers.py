"""Numbers with timestamps: what ``rate`` and ``rate-micro-batch`` share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from spark_ckpt.errors import ConfigError
from spark_ckpt.sources._convert import MAX_BATCH_ROWS, arrow_schema
from spark_ckpt.sources._options import Option, parse_options
from spark_ckpt.spark_versions.read_limits import SupportsTriggerAvailableNow

SCHEMA = StructType([StructField("timestamp", TimestampType()), StructField("value", LongType())])


class NumbersSource(DataSource):
    """Has a fixed schema, ``NAME``, ``OPTIONS`` and a reader that is made of these."""

    NAME: ClassVar[str]
    OPTIONS: ClassVar[Mapping[str, Option]]
    READER: ClassVar[type[NumbersReader]]

    def __init__(self, options: Mapping[str, str]) -> None:
        self.parsed = parse_options(self.NAME, self.OPTIONS, options)

    @classmethod
    def name(cls) -> str:
        return cls.NAME

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> NumbersReader:
        expected, found = [(f.name, f.dataType) for f in SCHEMA], [(f.name, f.dataType) for f in schema]
        if expected != found:
            raise ConfigError(
                f"source '{self.NAME}' has the fixed schema {SCHEMA.simpleString()}, found {schema.simpleString()}; "
                "leave .schema(...) out"
            )
        return self.READER(self.parsed)


class NumbersSplit(InputPartition):
    """The rows ``[start, end)`` of the batch between the offsets ``batch``."""

    def __init__(self, start: int, end: int, batch: tuple[Mapping[str, Any], Mapping[str, Any]]) -> None:
        self.start = start
        self.end = end
        self.rows = end - start
        self.batch = batch


class NumbersReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Row *n* has the value *n* and a timestamp that follows from it, whenever it is read."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        first, rows = self.value_at(start), self.value_at(end) - self.value_at(start)
        parts = min(self._options["numPartitions"], rows)
        edges = [first + rows * part // parts for part in range(parts + 1)] if rows else []
        return [NumbersSplit(low, high, (start, end)) for low, high in pairwise(edges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, NumbersSplit)
        target = arrow_schema(SCHEMA)
        for low in range(partition.start, partition.end, MAX_BATCH_ROWS):
            values = np.arange(low, min(low + MAX_BATCH_ROWS, partition.end), dtype=np.int64)
            times = pa.array(self.times_ms(values, *partition.batch) * 1000)
            yield pa.RecordBatch.from_arrays([times.cast(target.field(0).type), pa.array(values)], schema=target)

    @abstractmethod
    def value_at(self, offset: Mapping[str, Any]) -> int:
        """The number of the first row behind ``offset``."""

    @abstractmethod
    def times_ms(self, values: np.ndarray, start: Mapping[str, Any], end: Mapping[str, Any]) -> np.ndarray:
        """The timestamps of the rows ``values`` between two offsets, in milliseconds since 1970. Executor."""
