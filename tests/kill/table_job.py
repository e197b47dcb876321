"""Totals of a growing table in SQLite, as a program: ``python table_job.py FOLDER SOURCE OPTIONS``, options as JSON."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt


def main(folder: str, source: str, options: str) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    ckpt = spark_ckpt.enable(spark)
    numbers = ckpt.readStream.format(source).options(**json.loads(options)).load().select("k", F.col("id").alias("v"))
    totals = numbers.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"), uid="totals")
    writer = totals.writeStream.format("sql").option("url", f"sqlite:///{folder}/totals.db").option("table", "totals")
    writer = writer.option("mergeKeys", "k").queryName("totals").trigger(processingTime="100 milliseconds")
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
