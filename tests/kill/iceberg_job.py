"""Each row of an Iceberg table with running values of its key, into two others: ``iceberg_job.py FOLDER CATALOGUE``.

``CATALOGUE`` are a pyiceberg catalogue's properties, as JSON. Start the same command again until it exits with 0.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

import spark_ckpt
from spark_ckpt import agg


def main(folder: str, catalogue: str) -> None:
    os.environ["SPARK_CKPT_KILL_PID"] = str(-os.getpgrp())
    conf = {"dir": f"{folder}/jobs", "interval": "1ms", "initialDelay": "0s", "maxParallelism": "4"}
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    spark = builder.config(map={f"spark.ckpt.{k}": v for k, v in conf.items()}).getOrCreate()
    ckpt = spark_ckpt.enable(spark)
    lake = {f"catalog.{k}": v for k, v in json.loads(catalogue).items()}
    source = ckpt.readStream.format("iceberg").options(**lake).option("streaming-max-files-per-micro-batch", "1")
    rows = source.load("db.orders").groupBy("k")
    running = rows.aggregate(emit="rows", orderBy="v", n=agg.count(), s=agg.sum("v")).uid("running")
    writer = running.writeStream.format("iceberg").options(**lake).option("table", "db.running")
    writer = writer.alsoTo("iceberg", table="db.totals", mergeKeys="k", **lake)
    writer.queryName("orders").trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
