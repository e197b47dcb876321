"""A job of small batches: ``steady_job.py '{"dir": ..., "postgres": ...}'``.

It runs until that folder holds a file ``stop``, and appends what Spark says of each batch to
``progress.jsonl`` in there.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession

import spark_ckpt
from spark_ckpt import agg

JOB = "steady"
KEYS, GROUPS = 2_000, 50
ROWS_PER_BATCH = 500


def session(folder: Path) -> SparkSession:
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.local.dir": f"{folder}/tmp",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ckpt.dir": f"{folder}/jobs",
        "spark.ckpt.cache.dir": f"{folder}/cache",
        "spark.ckpt.interval": "5s",
        "spark.ckpt.initialDelay": "0s",
        "spark.ckpt.maxParallelism": "8",
        "spark.ckpt.retain": "3",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def numbered(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Number the rows of a group; state is removed and made again every 1,000 rows."""
    seq = state.get[0] if state.exists else 0
    rows = pd.concat(list(frames))
    numbers = [seq + i + 1 for i in range(len(rows))]
    if numbers[-1] < 1_000:
        state.update((numbers[-1],))
    else:
        state.remove()
    yield rows.assign(seq=numbers)


def start(spark: SparkSession, folder: Path, postgres: str) -> Any:
    ckpt = spark_ckpt.enable(spark)
    stream = ckpt.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS_PER_BATCH, numPartitions=2).load()
    rows = stream.selectExpr("value", f"value % {KEYS} as k", f"value % {GROUPS} as g")
    totals = rows.groupBy("k").aggregate(emit="rows", orderBy="value", n=agg.count(), s=agg.sum("value")).uid("totals")
    schema = "value long, k long, g long, n long, s long, seq long"
    result = (
        totals.select("value", "k", "g", "n", "s")
        .groupBy("g")
        .applyInPandasWithState(numbered, schema, "seq long", "append", "NoTimeout")
        .uid("numbered")
    )
    return (
        result.writeStream.format("delta")
        .option("path", f"{folder}/delta")
        .alsoTo("files", path=f"{folder}/files")
        .alsoTo("sql", url=postgres, table="totals", mode="upsert", mergeKeys="k")
        .queryName(JOB)
        .trigger(processingTime="3 seconds")
        .start()
    )


def main() -> None:
    plan = json.loads(sys.argv[1])
    folder = Path(plan["dir"])
    query = start(session(folder), folder, plan["postgres"])
    seen = -1
    with (folder / "progress.jsonl").open("a") as out:
        while query.isActive and not (folder / "stop").exists():
            for progress in query.recentProgress:
                if progress["batchId"] > seen:
                    seen = progress["batchId"]
                    said = {"batch": seen, "time": time.time(), "ms": progress["durationMs"]["triggerExecution"]}
                    out.write(json.dumps(said) + "\n")
            out.flush()
            time.sleep(5)
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    query.stop()


if __name__ == "__main__":
    main()
