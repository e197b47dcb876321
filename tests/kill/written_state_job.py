"""State that Spark writes, in a process that is killed: ``python -m tests.kill.written_state_job FOLDER ACT NTH``

It dies, its JVM with it, ahead of its ``NTH`` change of a file below ``FOLDER``; 0: it comes to its end. Without a
kill, it prints the state that the act made, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt.jobs.savepoint import Savepoint
from tests.kill.dying import die_ahead_of

KEYS, ROWS = 40, 400
RESCALED = {"spark.ckpt.maxParallelism": "7"}


def session(folder: str) -> SparkSession:
    conf = {"spark.ckpt.dir": f"{folder}/jobs", "spark.ckpt.maxParallelism": "4", "spark.sql.shuffle.partitions": "2"}
    conf |= {"spark.ckpt.interval": "1h", "spark.ckpt.initialDelay": "1h", "spark.ui.enabled": "false"}
    conf |= {"spark.ckpt.retain": "9", "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def totals(reader: Any, folder: str, key: str = "k") -> Any:
    rows = reader.schema("k string, v long").json(f"{folder}/in").withColumn("k", F.expr(key))
    return rows.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("total"))


def run(ckpt: Any, folder: str, df: Any, **options: str) -> None:
    writer = df.writeStream.format("memory").option("path", f"{folder}/sink").option("mergeKeys", "k")
    query = writer.outputMode("update").options(**options).queryName("job").trigger(availableNow=True).start()
    query.awaitTermination()


def prepare(spark: SparkSession, folder: str) -> dict[str, Any]:
    """A job and its savepoint, and a plain query of Spark's."""
    Path(folder, "in").mkdir()
    rows = [json.dumps({"k": f"k{i % KEYS}", "v": i}) for i in range(ROWS)]
    Path(folder, "in", "0.json").write_text("\n".join(rows))
    ckpt = spark_ckpt.enable(spark)
    run(ckpt, folder, totals(ckpt.readStream, folder).uid("totals"))
    spark_ckpt.job(f"{folder}/jobs", "job").savepoint(f"{folder}/taken", checkpoint=1)
    plain = totals(spark.readStream, folder).writeStream.format("noop").outputMode("update")
    plain = plain.option("checkpointLocation", f"{folder}/plain").trigger(availableNow=True)
    plain.start().awaitTermination()
    return of_job(folder)


def of_job(folder: str) -> dict[str, Any]:
    return shown(spark_ckpt.job(f"{folder}/jobs", "job").state("totals"))


def shown(state: Any) -> dict[str, Any]:
    return {row["k"]: sorted(v for v in row.values() if isinstance(v, int)) for row in state.arrow().to_pylist()}


def written(spark: SparkSession, folder: str) -> dict[str, Any]:
    ckpt = spark_ckpt.enable(spark)
    path = f"{folder}/made"
    if not Path(path, "savepoint.json").exists():
        writer = ckpt.savepoint_writer(totals(ckpt.readStream, folder).uid("totals"), f"{folder}/taken")
        writer.delete("totals", pa.table({"k": ["k1"]})).write(path)
    return of_savepoint(ckpt, path)


def imported(spark: SparkSession, folder: str) -> dict[str, Any]:
    ckpt = spark_ckpt.enable(spark)
    path = f"{folder}/imported"
    if not Path(path, "savepoint.json").exists():
        ckpt.import_spark(f"{folder}/plain", totals(ckpt.readStream, folder).uid("totals"), path, outputMode="update")
    return of_savepoint(ckpt, path)


def of_savepoint(ckpt: Any, path: str) -> dict[str, Any]:
    savepoint = Savepoint(path, ckpt.config())
    assert savepoint.verify() == []
    return shown(savepoint.state("totals"))


def rescaled(spark: SparkSession, folder: str) -> dict[str, Any]:
    ckpt = spark_ckpt.enable(spark)
    ckpt.rescale()
    run(ckpt, folder, totals(ckpt.readStream, folder).uid("totals"), **RESCALED)
    assert spark_ckpt.job(f"{folder}/jobs", "job").verify() == []
    return of_job(folder)


def merged(spark: SparkSession, folder: str) -> dict[str, Any]:
    """Keys that end with the same digit become one, once. Behind :func:`rescaled`."""
    ckpt = spark_ckpt.enable(spark)

    def by_digit(old: Any) -> Any:
        values = [F.sum(c).alias(c) for c in old.columns if c != "k"]
        return old.groupBy(F.expr("right(k, 1)").alias("k")).agg(*values)

    ckpt.migrate("totals").by(by_digit)
    run(ckpt, folder, totals(ckpt.readStream, folder, "right(k, 1)").uid("totals"), **RESCALED)
    assert spark_ckpt.job(f"{folder}/jobs", "job").verify() == []
    return of_job(folder)


ACTS: dict[str, Callable[[SparkSession, str], dict[str, Any]]] = {
    "prepare": prepare, "write": written, "import": imported, "rescale": rescaled, "migrate": merged
}  # fmt: skip


def main(folder: str, act: str, nth: str) -> None:
    spark = session(folder)
    if int(nth):
        die_ahead_of(int(nth), folder, -os.getpgid(0))
    print(json.dumps(ACTS[act](spark, folder)))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
