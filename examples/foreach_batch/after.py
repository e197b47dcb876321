"""The same totals, moved over: the sums are the operator's state, and the database gets them under a checkpoint.

    python -m examples.foreach_batch.after FOLDER

reads FOLDER/input and writes FOLDER/after.db.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import spark_ckpt
from spark_ckpt import agg


def main(folder: str) -> None:
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = SparkSession.builder.master("local[2]").config(map=quiet).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.ckpt.dir", f"{folder}/after")
    spark.conf.set("spark.ckpt.initialDelay", "0s")
    spark.conf.set("spark.ckpt.interval", "100ms")  # so that this small input has several checkpoints
    payments = (
        spark_ckpt.enable(spark)
        .readStream.format("files")
        .option("fileFormat", "json")
        .schema("customer string, amount long")
        .option("maxFilesPerTrigger", 1)
        .load(f"{folder}/input")
    )
    # What `add` did by hand: counts and sums so far, by customer.
    totals = payments.groupBy("customer").aggregate(n=agg.count(), amount=agg.sum("amount")).uid("totals")
    query = (
        totals.writeStream.format("sql")
        .option("url", f"sqlite:///{folder}/after.db")
        .option("table", "totals")
        .option("mergeKeys", "customer")
        .queryName("after")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
