"""A load as a Python streaming source for Spark, the same for ours and for plain Spark. Any Spark environment."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from benchmarks.loads import START_S, Load, keys_of

_CHUNK = 65536
_WINDOW_MICROS = 10_000_000


class Rows(InputPartition):
    """The rows ``[start, end)``."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(None)
        self.start, self.end, self.rows = start, end, end - start


class LoadReader(DataSourceStreamReader):
    def __init__(self, load: Load) -> None:
        self.load = load

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"row": self.load.end(start["row"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        edges = np.linspace(start["row"], end["row"], self.load.splits + 1).astype(int).tolist()
        return [Rows(a, b) for a, b in itertools.pairwise(edges) if b > a]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows)
        for start in range(partition.start, partition.end, _CHUNK):
            yield self._batch(np.arange(start, min(start + _CHUNK, partition.end)))

    def _batch(self, rows: np.ndarray) -> pa.RecordBatch:
        columns, names = [pa.array(keys_of(self.load, rows)), pa.array(rows)], ["k", "v"]
        if self.load.window_rows:
            micros = START_S * 1_000_000 + rows // self.load.window_rows * _WINDOW_MICROS
            columns.append(pa.array(micros).cast(pa.timestamp("us", tz="UTC")))
            names.append("ts")
        return pa.RecordBatch.from_arrays(columns, names)

    def commit(self, end: dict[str, int]) -> None:
        pass


class LoadSource(DataSource):
    """Option ``load``: a ``Load`` as JSON."""

    @classmethod
    def name(cls) -> str:
        return "benchmark"

    @property
    def load(self) -> Load:
        return Load.from_json(json.loads(self.options["load"]))

    def schema(self) -> str:
        return "k long, v long" + (", ts timestamp" if self.load.window_rows else "")

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return LoadReader(self.load)
