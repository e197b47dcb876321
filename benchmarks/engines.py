"""Keyed count and sum on three engines over the same source. One process runs one engine once.

    python -m benchmarks.engines ENGINE '{"keys": 10000, "rows": 1000000, "batches": 6, ...}'

prints one JSON line: the rows and milliseconds of every measured batch.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CORES = 2


@dataclass(frozen=True)
class Load:
    """What is streamed: ``fill`` batches of ``fill_rows`` first, then ``warm_up`` and ``batches`` of ``rows``.

    Row *i* has the key ``i * 2654435761 % keys``: any ``keys`` rows in a row touch every key once. Only the last
    ``batches`` are measured.
    """

    keys: int
    rows: int
    batches: int
    warm_up: int = 2
    fill: int = 0
    fill_rows: int = 1_000_000

    @property
    def total_batches(self) -> int:
        return self.fill + self.warm_up + self.batches

    def rows_of(self, batch: int) -> int:
        return self.fill_rows if batch < self.fill else self.rows

    def end(self, start: int) -> int:
        """Where the batch that begins at row ``start`` ends."""
        filled = self.fill * self.fill_rows
        if start < filled:
            return start + self.fill_rows
        return min(start + self.rows, filled + (self.warm_up + self.batches) * self.rows)


class _Rows(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        super().__init__(None)
        self.start, self.end, self.rows = start, end, end - start


class _Reader(DataSourceStreamReader):
    def __init__(self, load: Load) -> None:
        self.load = load

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"row": self.load.end(start["row"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        edges = np.linspace(start["row"], end["row"], CORES + 1).astype(int).tolist()
        return [_Rows(a, b) for a, b in itertools.pairwise(edges) if b > a]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Rows)
        for start in range(partition.start, partition.end, 65536):
            row = np.arange(start, min(start + 65536, partition.end))
            yield pa.RecordBatch.from_arrays([pa.array(row * 2654435761 % self.load.keys), pa.array(row)], ["k", "v"])

    def commit(self, end: dict[str, int]) -> None:
        pass


class Source(DataSource):
    """The load as a Python streaming source; option ``load`` is a ``Load`` as JSON."""

    @classmethod
    def name(cls) -> str:
        return "benchmark"

    def schema(self) -> str:
        return "k long, v long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _Reader(Load(**json.loads(self.options["load"])))


def count_and_sum(key: tuple[int], batches: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """What one writes for Spark's ``applyInPandasWithState``."""
    n, total = state.get if state.exists else (0, 0)
    for rows in batches:
        n += len(rows)
        total += int(rows["v"].sum())
    state.update((n, total))
    yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total]})


def session(engine: str, folder: str) -> SparkSession:
    # Each engine with the state store that suits it: values of ours are small, Spark's own state is large.
    provider = HDFS if engine == "ours" else ROCKSDB
    return (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "6g")
        .config("spark.sql.shuffle.partitions", str(CORES))
        .config("spark.sql.streaming.stateStore.providerClass", provider)
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.ckpt.dir", f"{folder}/ckpt")
        .config("spark.ckpt.interval", "5s")
        .config("spark.ckpt.initialDelay", "0s")
        # 16 key groups a core: every key group is a call into Python, which costs whatever is in it.
        .config("spark.ckpt.maxParallelism", "32")
        .config("spark.ckpt.cache.dir", f"{folder}/cache")
        .getOrCreate()
    )


def start(engine: str, spark: SparkSession, load: Load, folder: str) -> Any:
    """The running query. All three write to a sink that throws rows away."""
    options = {"load": json.dumps(asdict(load))}
    if engine == "ours":
        import spark_ckpt
        from benchmarks.discard import DiscardSink
        from spark_ckpt import agg

        stream = spark_ckpt.enable(spark).readStream.format(Source).options(**options).load()
        totals = stream.groupBy("k").aggregate(uid="totals", n=agg.count(), total=agg.sum("v"))
        writer = totals.writeStream.format(DiscardSink).queryName("bench")
        return writer.trigger(processingTime="0 seconds").start()
    spark.dataSource.register(Source)
    stream = spark.readStream.format("benchmark").options(**options).load()
    if engine == "pandas":
        out = stream.groupBy("k").applyInPandasWithState(
            count_and_sum, "k long, n long, total long", "n long, total long", "append", "NoTimeout"
        )
        writer = out.writeStream.outputMode("append")
    else:
        out = stream.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))
        writer = out.writeStream.outputMode("update")
    location = f"{folder}/spark"
    return writer.format("noop").option("checkpointLocation", location).trigger(processingTime="0 seconds").start()


def run(engine: str, load: Load) -> list[dict[str, int]]:
    """Run until every batch is through; rows and milliseconds of the measured ones."""
    with tempfile.TemporaryDirectory(prefix="spark-ckpt-bench-", ignore_cleanup_errors=True) as folder:
        spark = session(engine, folder)
        spark.sparkContext.setLogLevel("ERROR")
        query = start(engine, spark, load, folder)
        try:
            done = _wait(query, load)
        finally:
            query.stop()
            spark.stop()
    return done[load.fill + load.warm_up : load.total_batches]


def _wait(query: Any, load: Load) -> list[dict[str, int]]:
    shown = 0
    while True:
        progress = [p for p in query.recentProgress if p["numInputRows"] > 1000]
        # Ours counts its few control rows as input too, so the rows are those of the load.
        done = [{"rows": load.rows_of(i), "ms": p["durationMs"]["triggerExecution"]} for i, p in enumerate(progress)]
        for batch in done[shown:]:
            print(f"    batch of {batch['rows']:,} rows: {batch['ms'] / 1000:.2f} s", file=sys.stderr, flush=True)
        shown = len(done)
        if shown >= load.total_batches:
            return done
        if not query.isActive:
            raise SystemExit(f"the query stopped early: {query.exception()}")
        time.sleep(0.2)


def main() -> None:
    engine, load = sys.argv[1], Load(**json.loads(sys.argv[2]))
    print(json.dumps(run(engine, load)))


if __name__ == "__main__":
    # As a module of its own name, so that executors find the classes by import and not in __main__.
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from benchmarks.engines import main as imported_main

    imported_main()
