"""The workloads on spark_ckpt, through its public interface."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from benchmarks.loads import Load
from benchmarks.workers import functions
from benchmarks.workers.discard import DiscardSink
from benchmarks.workers.plain import filtered
from benchmarks.workers.processors import PROCESSORS
from benchmarks.workers.queries import QUERIES
from benchmarks.workers.source import LoadSource
from spark_ckpt import agg
from spark_ckpt.sinks import memory

_JOB = "bench"
_UID = "totals"


def start(
    spark: SparkSession,
    workload: str,
    load: Load,
    folder: str,
    conf: Mapping[str, str],
    attempt: str = "1",
    kept: bool = False,
) -> Any:
    """The running query. A further ``attempt`` has a Spark location and a cache of its own. ``kept``: what comes out of
    one of ``QUERIES`` is for :func:`rows`."""
    settings = {
        "spark.ckpt.dir": f"{folder}/ckpt",
        "spark.ckpt.initialDelay": "0s",
        "spark.ckpt.cache.dir": f"{folder}/cache-{attempt}",
        **conf,
    }
    if conf.get("spark.ckpt.otel") == "true":
        from benchmarks.workers.telemetry import set_up

        set_up()
    configure(spark, settings)
    options = {"load": json.dumps(load.to_json())}
    stream = spark_ckpt.enable(spark).readStream.format(LoadSource).options(**options).load()
    if workload == "stateless":
        writer = filtered(stream).writeStream.format("delta").option("path", f"{folder}/out")
    elif workload in QUERIES:
        query = QUERIES[workload]
        writer = query.make(stream, load.keys).writeStream.outputMode(query.mode)
        writer = writer.format("memory").option("path", f"{folder}/kept") if kept else writer.format(DiscardSink)
    elif workload in PROCESSORS:
        writer = PROCESSORS[workload](stream).writeStream.format(DiscardSink).outputMode("update")
    else:
        writer = _keyed(stream, workload).writeStream.format(DiscardSink)
    writer = writer.option("checkpointLocation", f"{folder}/spark-{attempt}").queryName(_JOB)
    return writer.trigger(processingTime="0 seconds").start()


def rows(query: Any, folder: str) -> pa.Table:
    """What a query that keeps its rows has put out, of all its input."""
    query.checkpoint()
    return memory.read(f"{folder}/kept")


def configure(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """The session's settings are exactly these: a process runs one workload after the other."""
    for key in spark.conf.getAll:
        if key.startswith("spark.ckpt."):
            spark.conf.unset(key)
    for key, value in settings.items():
        spark.conf.set(key, value)


def _keyed(stream: Any, workload: str) -> Any:
    if workload == "sessions":
        return (
            stream.groupBy("k")
            .applyInPandasWithState(
                functions.sessions, functions.SESSION_OUT, functions.SESSION_STATE, "append", "NoTimeout"
            )
            .uid(_UID)
        )
    if workload == "filtered":
        stream = filtered(stream)
    keys = ["k"]
    if workload == "windowed":
        # The start of a tumbling window of 10 s, as Spark's window("ts", "10 seconds").start.
        keys.append(F.timestamp_seconds(F.floor(F.unix_timestamp("ts") / 10) * 10).alias("start"))
    return stream.groupBy(*keys).aggregate(n=agg.count(), total=agg.sum("v")).uid(_UID)


def checkpoints(query: Any) -> list[dict[str, Any]]:
    """The checkpoints of the query so far, as its history tells; ``stats`` of those that are still kept."""
    stats = {c.checkpoint: {u: dict(s) for u, s in c.stats.items()} for c in query.job.completed()}
    return [{**_plain(row), "stats": stats.get(row["id"])} for row in query.checkpoints()]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    value = {k: v.timestamp() if isinstance(v, datetime) else v for k, v in row.items()}
    return {**value, "state": {u: vars(s) for u, s in row["state"].items()}}


def restart(query: Any, again: Any) -> tuple[Any, float]:
    """Checkpoint, stop, and call ``again`` with what makes it restore; returns its query and when that began."""
    done = query.checkpoint()
    query.stop()
    began = time.time()
    return again({"spark.ckpt.restore": str(done)}), began
