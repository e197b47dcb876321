"""One start of a job under test in real Spark, in a process of its own, until its sources' rows are committed."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

import spark_ckpt
from spark_ckpt.testing.jobs._rows import Feed, Rows, source_of

JOB = "job"


@dataclass(frozen=True)
class Start:
    """``sink``: a format or a class, and its options. ``location``: of Spark's own checkpoints."""

    query: Callable[..., Any]
    sources: Mapping[str, Rows]
    sink: tuple[Any, Mapping[str, str]]
    conf: Mapping[str, str]
    location: str
    output_mode: str


def most(rows: int) -> int:
    """Each batch reads as much as it may, so that batches are the same in all runs."""
    return rows


def run(start: Start) -> None:
    builder = SparkSession.builder
    for name, value in start.conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    ckpt = spark_ckpt.enable(spark)
    frames = {}
    for name, rows in start.sources.items():
        reader = ckpt.readStream.format(source_of(name, Feed.of(rows), most)).schema(rows.struct)
        frames[name] = reader.option("uid", name).load()
    kind, options = start.sink
    writer = start.query(**frames).writeStream.format(kind).options(**options).outputMode(start.output_mode)
    writer = writer.queryName(JOB).option("checkpointLocation", start.location).trigger(availableNow=True)
    writer.start().awaitTermination()
    spark.stop()


def main() -> None:
    """Of the process, whose standard input has a :class:`Start`."""
    # What dies with a task or a commit is the driver and its JVM; this process leads their group.
    os.environ["SPARK_CKPT_KILL_PID"] = str(-os.getpgrp())
    run(pickle.load(sys.stdin.buffer))  # noqa: S301 - what the process of the test made
