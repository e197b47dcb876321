"""The workloads on plain Spark: per key in Python (``pandas``) and on the JVM (``jvm``). Needs pyspark only."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.loads import Load
from benchmarks.workers import functions
from benchmarks.workers.parquet_sink import ParquetSink
from benchmarks.workers.processors import PROCESSORS
from benchmarks.workers.queries import QUERIES
from benchmarks.workers.source import LoadSource

_KEPT = "kept"


def start(spark: SparkSession, role: str, workload: str, load: Load, folder: str, kept: bool = False) -> Any:
    """The running query; its results are thrown away, but those of ``stateless`` are written to Parquet files, and if
    they are ``kept`` those of ``QUERIES`` are for :func:`rows`."""
    spark.dataSource.register(LoadSource)
    spark.dataSource.register(ParquetSink)
    stream = spark.readStream.format("benchmark").option("load", json.dumps(load.to_json())).load()
    if workload == "filtered":
        stream = filtered(stream)
    if workload == "stateless":
        writer = filtered(stream).writeStream.format("benchmark_parquet").option("path", f"{folder}/out")
    elif workload in QUERIES:
        query = QUERIES[workload]
        writer = query.make(stream, load.keys).writeStream.outputMode(query.mode)
        writer = writer.format("memory").queryName(_KEPT) if kept else writer.format("noop")
    elif workload in PROCESSORS:
        writer = PROCESSORS[workload](stream).writeStream.format("noop").outputMode("update")
    else:
        out = _pandas(stream, workload) if role == "pandas" else _jvm(stream, workload)
        writer = out.writeStream.format("noop").outputMode("append" if role == "pandas" else "update")
    return writer.option("checkpointLocation", f"{folder}/spark").trigger(processingTime="0 seconds").start()


def rows(spark: SparkSession, query: Any) -> Any:
    """What a query that keeps its rows has put out, of all its input, as an Arrow table."""
    query.processAllAvailable()
    return spark.table(_KEPT).toArrow()


def filtered(stream: Any) -> Any:
    """A filter that keeps 15 of 16 rows and a computed column; plain Spark's DataFrame or ours."""
    return stream.where("v % 16 <> 3").withColumn("v", F.col("v") + 1)


def _pandas(stream: Any, workload: str) -> Any:
    function, out, state = functions.count_and_sum, functions.COUNT_OUT, functions.COUNT_STATE
    if workload == "sessions":
        function, out, state = functions.sessions, functions.SESSION_OUT, functions.SESSION_STATE
    return stream.groupBy("k").applyInPandasWithState(function, out, state, "append", "NoTimeout")


def _jvm(stream: Any, workload: str) -> Any:
    keys = [F.col("k")]
    if workload == "windowed":
        keys.append(F.window("ts", "10 seconds"))
    return stream.groupBy(*keys).agg(F.count("*").alias("n"), F.sum("v").alias("total"))
