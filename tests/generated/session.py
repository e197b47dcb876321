"""A Spark session for many short queries: one task, a checkpoint with every batch, a time zone that is not UTC."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession


def made_session(folder: Path, remote: str | None = None) -> Any:
    confs = {
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # Of an exchange that a plan has twice, and so once, Spark's second reader gets no watermark (docs/methods.md).
        "spark.sql.exchange.reuse": "false",
        "spark.ckpt.dir": str(folder / "jobs"),
        "spark.ckpt.interval": "1ms",
        "spark.ckpt.initialDelay": "0s",
        "spark.ckpt.maxParallelism": "2",
        "spark.ckpt.lanes": "1",
        "spark.ckpt.history": "false",
        "spark.ckpt.cache.dir": str(folder / "cache"),
    }
    if remote is None:
        # What a JVM is started with holds for all sessions that this process makes in it later.
        SparkContext._ensure_initialized()
    builder = SparkSession.builder.master("local[2]") if remote is None else SparkSession.builder.remote(remote)
    for key, value in confs.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if remote is None:
        session.sparkContext.setLogLevel("OFF")
    return session
