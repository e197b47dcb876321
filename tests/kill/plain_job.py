"""A plain query of ``format("ckpt")``, as a program: ``python plain_job.py FOLDER JOB [OPTION=VALUE ...]``."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

ROWS = 4000


def main(folder: str, job: str, *options: str) -> None:
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    given = dict(option.split("=", 1) for option in options)
    reader = spark.readStream.format("ckpt").option("source", "rate-micro-batch").option("rowsPerBatch", "100")
    rows = reader.option("numRows", str(ROWS)).option("job", job).options(**given).load()
    writer = rows.selectExpr("value", "value % 7 AS k", "__ckpt_tag", "__ckpt_ctl").writeStream.format("ckpt")
    several = {
        "sinks": "delta,db", "delta.path": f"{folder}/lake", "db.sink": "sql",
        "db.url": f"sqlite:///{folder}/rows.db", "db.table": "rows",
    }  # fmt: skip
    query = writer.queryName(job).options(**several, **given).trigger(processingTime="200 milliseconds").start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
