"""Totals of a Kafka topic in SQLite, as a program: ``python kafka_job.py FOLDER BOOTSTRAP TOPIC LANES``."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt


def main(folder: str, bootstrap: str, topic: str, lanes: str) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    ckpt = spark_ckpt.enable(spark)
    reader = ckpt.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    reader = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=200, minPartitions=4, lanes=lanes)
    rows = reader.option("kafka.isolation.level", "read_committed").load()
    numbers = rows.select(F.col("key").cast("string").alias("k"), F.col("value").cast("string").cast("long").alias("v"))
    totals = numbers.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"), uid="totals")
    writer = totals.writeStream.format("sql").option("url", f"sqlite:///{folder}/totals.db").option("table", "totals")
    writer = writer.option("mergeKeys", "k").queryName("totals").trigger(processingTime="100 milliseconds")
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
