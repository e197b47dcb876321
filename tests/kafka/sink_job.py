"""A job of files, a keyed operator and the Kafka sink, as a program that may be killed: ``sink_job.py FOLDER OPTIONS``.

``OPTIONS`` are the sink's, as JSON. Start the same command again until it exits with 0.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt import agg

JOB = "to-kafka"


def main(folder: str, options: str) -> None:
    os.environ["SPARK_CKPT_KILL_PID"] = str(-os.getpgrp())
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    conf = {"dir": f"{folder}/jobs", "interval": "100ms", "initialDelay": "0s", "maxParallelism": "4", "retain": "2"}
    for key, value in conf.items():
        builder = builder.config(f"spark.ckpt.{key}", value)
    spark = builder.getOrCreate()
    os.environ.pop("SPARK_CKPT_KILL_AT", None)  # those that Spark starts from here on have it
    ckpt = spark_ckpt.enable(spark)
    files = ckpt.readStream.format("files").option("fileFormat", "json").option("maxFilesPerTrigger", "1")
    rows = files.schema("k long, value long").load(f"{folder}/in")
    totals = rows.groupBy("k").aggregate(emit="rows", orderBy="value", n=agg.count(), s=agg.sum("value")).uid("totals")
    messages = totals.select(
        F.col("k").cast("string").alias("key"), F.to_json(F.struct("k", "value", "n", "s")).alias("value")
    )
    writer = messages.writeStream.format("kafka").options(**json.loads(options))
    writer.queryName(JOB).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
