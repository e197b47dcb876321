"""Payments from Kafka into Kafka, PostgreSQL and Delta under one checkpoint; by the same command again, it goes on.

    python -m examples.payments.job PLACES

``PLACES`` is a JSON file: ``folder`` (or a URL, such as s3://bucket/payments, with credentials in the environment),
``brokers``, ``database`` (a SQLAlchemy URL), and ``now``, true to take what is there and end; ``conf``, if it is
there, has more settings of Spark's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt

PAYMENT = "payment string, merchant int, cents long, at timestamp"
IN, OUT = "payments", "sums"
COLUMNS = "start,category,payments,cents"
PATIENCE = {"max_retries": "1000", "retry_timeout": "30s"}
"""For a store that is away: delta-rs else gives up after ten tries, often within two seconds."""


def start(spark: SparkSession, places: dict[str, Any]) -> Any:
    ckpt, folder = spark_ckpt.enable(spark), places["folder"]
    received = (
        ckpt.readStream.format("kafka")
        .option("kafka.bootstrap.servers", places["brokers"])
        .option("subscribe", IN)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", places.get("maxOffsetsPerTrigger", 20_000))
        .option("valueFormat", "json")
        .option("valueSchema", PAYMENT)
        .option("badRecords", f"{folder}/bad")
        .load()
    )
    payments = (
        received.where("value IS NOT NULL")
        .select("value.*")
        .withWatermark("at", "1 minute")
        .dropDuplicatesWithinWatermark(["payment"])
    )
    merchants = merchants_table(spark, folder)
    sums = (
        payments.join(merchants, "merchant")
        .groupBy(F.window("at", "1 minute"), "category")
        .agg(F.count("*").alias("payments"), F.sum("cents").alias("cents"))
        .uid("sums")
        .select(F.col("window.start").alias("start"), "category", "payments", "cents")
        .withColumn("key", F.col("category"))
        .withColumn("value", F.to_json(F.struct("start", "category", "payments", "cents")))
    )
    kafka = {"kafka.bootstrap.servers": places["brokers"], "topic": OUT, "columns": "key,value"}
    return (
        sums.writeStream.format("delta")
        .option("path", f"{folder}/sums")
        .option("columns", COLUMNS)
        .alsoTo("sql", url=places["database"], table="sums", columns=COLUMNS)
        .alsoTo("kafka", **kafka)
        .queryName("payments")
        .trigger(**({"availableNow": True} if places["now"] else {"processingTime": "0 seconds"}))
        .start()
    )


def merchants_table(spark: SparkSession, folder: str) -> Any:
    """Each batch reads the newest version of this Delta table: one task does, in Python, without the JVM's Delta."""

    def newest(asked: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from deltalake import DeltaTable

        for _ in asked:
            table = DeltaTable(f"{folder}/merchants", storage_options=PATIENCE)
            yield from table.to_pyarrow_table(columns=["merchant", "category"]).to_batches()

    return F.broadcast(spark.range(0, 1, 1, 1).mapInArrow(newest, "merchant int, category string"))


def main() -> None:
    places = json.loads(Path(sys.argv[1]).read_text())
    conf = {
        "spark.master": "local[2]",
        "spark.app.name": "payments",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ckpt.dir": f"{places['folder']}/checkpoints",
        "spark.ckpt.interval": places.get("interval", "2s"),
        "spark.ckpt.initialDelay": "0s",
        "spark.ckpt.maxParallelism": "8",
        "spark.ckpt.endOfInput.closeWindows": "true",
        **places.get("conf", {}),
    }
    start(SparkSession.builder.config(map=conf).getOrCreate(), places).awaitTermination()


if __name__ == "__main__":
    main()
