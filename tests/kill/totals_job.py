"""Totals of a growing table or topic in SQLite: ``python totals_job.py FOLDER SOURCE OPTIONS``, options as JSON."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt

OF_MESSAGES = ("cast(key as string) as k", "cast(cast(value as string) as bigint) as v")


def main(folder: str, source: str, options: str) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    ckpt = spark_ckpt.enable(spark)
    rows = ckpt.readStream.format(source).options(**json.loads(options)).load()
    numbers = rows.selectExpr(*OF_MESSAGES if source == "kafka" else ("k", "id as v"))
    totals = numbers.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total")).uid("totals")
    writer = totals.writeStream.format("sql").option("url", f"sqlite:///{folder}/totals.db").option("table", "totals")
    writer = writer.option("mergeKeys", "k").queryName("totals").trigger(processingTime="100 milliseconds")
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
