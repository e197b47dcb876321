"""The Spark session of a benchmark process, and how a query's batches are measured. Any Spark environment."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.loads import Load

HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDERS = {"hdfs": HDFS, "rocksdb": ROCKSDB}


def make_session(master: str, cores: int, more: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.master(master)
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "6g",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.streaming.numRecentProgressUpdates": "2000",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        **more,
    }
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    return spark


def follow(query: Any, load: Load, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """The query's batches with data, oldest first, until ``enough`` of them or the load's end. Leaves it running."""
    shown = 0
    while True:
        batches = [b for b in (_batch(p, load) for p in query.recentProgress) if b is not None]
        for batch in batches[shown:]:
            print(f"    {batch['rows']:>11,} rows: {batch['ms'] / 1000:.2f} s", file=sys.stderr, flush=True)
        shown = len(batches)
        if batches and (enough(batches) or batches[-1]["end"] == load.total):
            return batches
        if not query.isActive:
            raise RuntimeError(f"the query stopped early: {query.exception()}")
        time.sleep(1)  # the answer is made of all batches so far, by the processes that are measured


def _batch(progress: Mapping[str, Any], load: Load) -> dict[str, Any] | None:
    """From the offsets, because a source may hand out its rows packed. None for a batch without data."""
    source = progress["sources"][0]
    start, end = _row(source["startOffset"]) or 0, _row(source["endOffset"])
    if end is None or end <= start:
        return None
    began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    return {
        "batch": progress["batchId"],
        "phase": load.phase_of(start),
        "rows": end - start,
        "end": end,
        "ms": progress["durationMs"]["triggerExecution"],
        "began": began,
    }


def _row(offset: Any) -> int | None:
    """The row number in an offset, however it is wrapped."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if isinstance(offset, dict):
        if isinstance(offset.get("row"), int):
            return int(offset["row"])
        found = [_row(v) for v in offset.values()]
        return next((f for f in found if f is not None), None)
    return None
