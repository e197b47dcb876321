"""A driver killed in a job with the first rows of sums that rise and fall: what comes out is what a batch computes."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_ckpt.sinks import memory
from tests.kill.processes import run_job

JOB = """
import os, sys
from pyspark.sql import SparkSession, functions as F
import spark_ckpt

folder, location, partitions = sys.argv[1:]
conf = {"spark.ui.enabled": "false", "spark.ckpt.dir": f"{folder}/jobs", "spark.ckpt.interval": "1ms",
        "spark.ckpt.initialDelay": "0s", "spark.sql.shuffle.partitions": partitions, "spark.ckpt.lanes": "1",
        "spark.ckpt.maxParallelism": "4", "spark.ckpt.cache.dir": f"{folder}/cache"}
os.environ["SPARK_CKPT_KILL_PID"] = str(-os.getpgid(0))
spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
reader = spark_ckpt.enable(spark).readStream.option("maxFilesPerTrigger", 1)
sales = reader.schema("shop string, product string, n long").parquet(f"{folder}/sales")
sums = sales.groupBy("shop", "product").agg(F.sum("n").alias("sold")).uid("sums")
order = (F.desc("sold"), "product")
best = sums.groupBy("shop").topN(2, *order, rank="place", mergeKeys="product").uid("best")
top = best.groupBy().topN(3, *order, F.asc("shop"), rank="of_all", mergeKeys=["shop", "product"]).uid("top")
writer = top.writeStream.format("memory").option("path", f"{folder}/sink").queryName("job").outputMode("update")
writer = writer.option("mergeKeys", "of_all").option("changeColumn", "op")
writer = writer.option("checkpointLocation", f"{folder}/{location}")
writer.trigger(availableNow=True).start().awaitTermination()
"""

Sold = tuple[str, str, int]


def _sold(folder: Path) -> list[Sold]:
    """Products leave the first ones and come back."""
    chance, all_ = random.Random(8), list[Sold]()
    folder.mkdir()
    for batch in range(10):
        rows = [(chance.choice("xyz"), chance.choice("abcde"), chance.randrange(-9, 12)) for _ in range(12)]
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        file = folder / f"{batch:02d}.parquet"
        pq.write_table(pa.table(columns, ["shop", "product", "n"]), file)
        os.utime(file, (1_600_000_000 + batch,) * 2)
        all_ += rows
    return all_


def _first(sold: list[Sold]) -> list[tuple[str, str, int, int, int]]:
    sums = Counter[tuple[str, str]]()
    for shop, product, n in sold:
        sums[shop, product] += n
    shops = {shop for shop, _ in sums}
    best = [
        (-n, product, shop, place)
        for shop in shops
        for place, (n, product) in enumerate(
            sorted(((n, p) for (s, p), n in sums.items() if s == shop), key=lambda one: (-one[0], one[1]))[:2], 1
        )
    ]
    return [(shop, product, -n, place, at) for at, (n, product, shop, place) in enumerate(sorted(best)[:3], 1)]


@pytest.mark.soak  # four starts of Spark
@pytest.mark.timeout(1200)
def test_the_first_rows_of_updates_survive_the_death_of_the_driver(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    expected = _first(_sold(tmp_path / "sales"))
    for place in ("before CreateCompletion#2", "before CommitSink#3", "after CommitState#2"):
        assert run_job(tmp_path, [place], "here", "2") == -9, place
    assert run_job(tmp_path, [], "elsewhere", "3") == 0
    assert sorted(tuple(row.values()) for row in memory.read(str(tmp_path / "sink")).to_pylist()) == sorted(expected)
