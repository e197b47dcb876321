"""Totals in a database by `foreachBatch`, as many jobs have them: right until something dies.

    python -m examples.foreach_batch.before FOLDER

reads FOLDER/input and writes FOLDER/before.db.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_ckpt import faults

TABLE = "CREATE TABLE IF NOT EXISTS totals (customer TEXT PRIMARY KEY, n INT, amount INT)"
ADD = """INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT (customer) DO UPDATE
    SET n = n + excluded.n, amount = amount + excluded.amount"""


def main(folder: str) -> None:
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = SparkSession.builder.master("local[2]").config(map=quiet).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    payments = (
        spark.readStream.schema("customer string, amount long").option("maxFilesPerTrigger", 1).json(f"{folder}/input")
    )

    def add(batch: DataFrame, batch_id: int) -> None:
        totals = batch.groupBy("customer").agg(F.count("*"), F.sum("amount")).collect()
        with closing(sqlite3.connect(f"{folder}/before.db")) as db, db:
            db.execute(TABLE)
            db.executemany(ADD, totals)
        faults.reach("the database has the batch")  # and Spark does not know it yet

    query = (
        payments.writeStream.foreachBatch(add)
        .option("checkpointLocation", f"{folder}/before")
        .queryName("before")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
