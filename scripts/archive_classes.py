"""``archive_classes.py FILE``: the classes that Java loads for a few queries, as an archive that it starts faster from.

Tests start Spark's Java a dozen times (``tests/java_options.py``). With the archive, a start takes 6 s of CPU in
place of 9, and its first queries 4 s less. Java ignores an archive that another Java or other jars made.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from tests.java_options import start_java_as_tests_do


def main(file: Path) -> None:
    made = file.with_suffix(f".{os.getpid()}")  # others may do the same
    start_java_as_tests_do()
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={made} -Xlog:disable"
    with tempfile.TemporaryDirectory() as folder:
        conf = {"spark.sql.shuffle.partitions": "1", "spark.ckpt.dir": f"{folder}/jobs", "spark.ckpt.lanes": "1"}
        builder = SparkSession.builder.master("local[2]")
        for key, value in {**conf, "spark.ckpt.cache.dir": f"{folder}/cache"}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        run_queries(spark, Path(folder))
        spark.stop()
    end_java()
    os.replace(made, file)


def run_queries(spark: SparkSession, folder: Path) -> None:
    spark.range(10).selectExpr("id", "id % 3 AS k", "timestamp_seconds(id) AS t").write.parquet(f"{folder}/in")
    table = spark.read.parquet(f"{folder}/in")
    table.join(table.groupBy("k").agg(F.max("id"), F.collect_list("t")), "k").distinct().orderBy("id").toPandas()
    ckpt = spark_ckpt.enable(spark)
    for number, reader in enumerate((spark.readStream, ckpt.readStream)):
        stream = reader.schema(table.schema).parquet(f"{folder}/in")
        for name, (query, mode) in queries(stream).items():
            writer = query.writeStream.format("memory").queryName(f"{name}_{number}").outputMode(mode)
            writer = writer.option("checkpointLocation", f"{folder}/{name}_{number}")
            writer.trigger(availableNow=True).start().awaitTermination()


def queries(stream: Any) -> dict[str, tuple[Any, str]]:
    timed = stream.withWatermark("t", "2 seconds")
    windows = timed.groupBy(F.window("t", "3 seconds"), "k").agg(F.count("*"), F.sum("id"))
    near = F.expr("k = kk AND u BETWEEN t AND t + interval 2 seconds")
    joined = timed.join(stream.selectExpr("k AS kk", "t AS u").withWatermark("u", "2 seconds"), near)
    doubled = stream.select(F.udf(lambda x: 2 * x, "long")("id").alias("x")).groupBy("x").count()
    return {"windows": (windows, "append"), "joined": (joined, "append"), "doubled": (doubled, "update")}


def end_java() -> None:
    """It writes the archive when it ends by itself: where its input ends."""
    java = SparkContext._gateway.proc
    java.stdin.close()
    if java.wait() != 0:
        raise SystemExit(f"Java ended with exit code {java.returncode}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
