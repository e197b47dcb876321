"""A process with a Spark session that runs one job of the section after the other.

    python -m benchmarks.latency.ours '{"master": "local[2]", "cores": 2}'

``{"start": {"folder": ..., "interval": ..., "sinks": [...], "places": {...}}}`` on standard input starts the job, and
is answered when its first batch is done; ``{"stop": true}`` stops it, and tells of its checkpoints.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from benchmarks.answers import say, say_error
from benchmarks.latency.events import TABLE
from benchmarks.workers.ours import configure
from benchmarks.workers.spark_session import HDFS, make_session

_COLUMNS = "k,n,total"


def start(spark: SparkSession, asked: Mapping[str, Any]) -> Any:
    """The running query."""
    folder, places = asked["folder"], asked["places"]
    configure(
        spark,
        {
            "spark.ckpt.dir": f"{folder}/ckpt",
            "spark.ckpt.cache.dir": f"{folder}/cache",
            "spark.ckpt.initialDelay": "0s",
            "spark.ckpt.interval": asked["interval"],
            **asked.get("conf", {}),
        },
    )
    events = (
        spark_ckpt.enable(spark)
        .readStream.format("kafka")
        .option("kafka.bootstrap.servers", places["brokers"])
        .option("subscribe", places["events"])
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .option("valueSchema", "k long, v long")
        .load()
        .select("value.*")
    )
    totals = events.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total")).uid("totals")
    rows = totals.withColumn("key", F.col("k").cast("string")).withColumn("value", F.struct("k", "n", "total"))
    first, *more = [(kind, _options(kind, folder, places)) for kind in asked["sinks"]]
    writer = rows.writeStream.outputMode("update").format(first[0]).options(**first[1])
    for kind, options in more:
        writer = writer.alsoTo(kind, **options)
    return writer.queryName("latency").trigger(processingTime="0 seconds").start()


def _options(kind: str, folder: str, places: Mapping[str, str]) -> dict[str, str]:
    return {
        "kafka": {
            "kafka.bootstrap.servers": places["brokers"],
            "topic": places["totals"],
            "columns": "key,value",
            "valueFormat": "json",
        },
        "sql": {"url": places["database"], "table": TABLE, "columns": _COLUMNS, "mergeKeys": "k"},
        "delta": {"path": f"{folder}/{TABLE}", "columns": _COLUMNS},
    }[kind]


def _await_first_batch(query: Any) -> None:
    while not query.recentProgress:
        if not query.isActive:
            raise RuntimeError(f"the query stopped early: {query.exception()}")
        time.sleep(0.05)


def _told(query: Any) -> dict[str, Any]:
    """How often checkpoints were completed, and the median times of batches and their parts, of the newest batches."""
    if not query.isActive:
        raise RuntimeError(f"the query stopped early: {query.exception()}")
    done = [c for c in query.checkpoints() if c["outcome"] == "completed"]
    apart_ms = done[-1]["completed_ms"] - done[0]["completed_ms"] if done else 0
    batches = [p["durationMs"] for p in query.recentProgress if p["numInputRows"]][-100:]
    names = sorted({name for b in batches for name in b})
    phases = query.statistics()["checkpoints"]
    return {
        "checkpoints": len(done),
        "checkpoints_per_s": 1000 * (len(done) - 1) / apart_ms if apart_ms else None,
        "checkpoint_ms": {name: p["p50"] for name, p in phases.items() if name.endswith("_ms")},
        "batch_ms": {name: statistics.median(b.get(name, 0) for b in batches) for name in names},
    }


def main() -> None:
    setup = json.loads(sys.argv[1])
    state_store = {"spark.sql.streaming.stateStore.providerClass": HDFS}
    spark = make_session(setup["master"], setup["cores"], state_store)
    say({"ready": True})
    query: Any = None
    for line in sys.stdin:
        try:
            asked = json.loads(line)
            if "start" in asked:
                query = start(spark, asked["start"])
                _await_first_batch(query)
                say({"started": True})
            else:
                told = _told(query)
                query.stop()
                say(told)
        except Exception as e:  # noqa: BLE001 - the answer of a process boundary
            say_error(e)
    spark.stop()


if __name__ == "__main__":
    # As a module of its own name, so that executors find the classes by import and not in __main__.
    from benchmarks.latency.ours import main as imported_main

    imported_main()
