"""A job that joins with static sides in Python, killed around each step of its commit, and gone on with elsewhere, with
other partitions: each row is joined and counted once."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spark_ckpt
from tests.kill.processes import DEADLINE_S, Session, environment

ROWS = 40
PLACES = ("after CommitState#2", "after CreateCompletion", "after CommitSink#2")
PRICES = {k: 3 * k + 1 for k in range(1, 7)}
"""Of all keys but 0, whose rows an inner join leaves out."""
NAMES = [(1, "odd"), (3, "odd"), (4, "even"), (4, "square"), (5, "odd")]
"""Some keys are not there, one is there twice."""

JOB = """
import os, sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
import spark_ckpt
from spark_ckpt.plan.analysed import _static_in_arrow as static_side

folder, location, partitions = sys.argv[1:]
os.environ["SPARK_CKPT_KILL_PID"] = str(-os.getpgid(0))
conf = {"spark.ckpt.dir": f"{folder}/jobs", "spark.ckpt.interval": "1ms", "spark.ckpt.initialDelay": "0s",
        "spark.ckpt.maxParallelism": "8", "spark.sql.shuffle.partitions": partitions, "spark.ui.enabled": "false"}
spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()

for made in (static_side.JoinStatic, static_side.JoinCarried):
    def noted(*arguments, made=made):
        print("PLACED", made.__name__, flush=True)
        return made(*arguments)
    setattr(static_side, made.__name__, noted)

prices = spark.read.parquet(f"{folder}/prices")
names = spark.createDataFrame(NAMES, "k int, name string")
rows = spark_ckpt.enable(spark).readStream.format("files").option("fileFormat", "json").schema("k int, v long")
rows = rows.option("maxFilesPerTrigger", 1).load(f"{folder}/in")
sums = (
    rows.join(prices, "k").join(names, "k", "left").groupBy(F.coalesce("name", F.lit("none")).alias("name"))
    .agg(F.count("*").alias("n"), F.sum(F.col("v") * F.col("price")).alias("cost")).uid("sums")
)
writer = sums.writeStream.format("sql").option("url", f"sqlite:///{folder}/out.db").option("table", "found")
writer = writer.option("mergeKeys", "name").outputMode("update").option("checkpointLocation", location)
writer.queryName("job").trigger(availableNow=True).start().awaitTermination()
""".replace("NAMES", repr(NAMES))


def _add(folder: Path, files: range) -> None:
    for file in files:
        rows = [{"k": (file + n) % 7, "v": file * ROWS + n} for n in range(ROWS)]
        (folder / "in" / f"{file:03d}.json").write_text("\n".join(map(json.dumps, rows)))


def _expected(files: int) -> list[tuple[str, int, int]]:
    sums: dict[str, list[int]] = {}
    for file in range(files):
        for n in range(ROWS):
            k, v = (file + n) % 7, file * ROWS + n
            for name in [name for key, name in NAMES if key == k] or ["none"]:
                sums.setdefault(name, []).extend([v * PRICES[k]] if k in PRICES else [])
    return sorted((name, len(costs), sum(costs)) for name, costs in sums.items())


class _Lives:
    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.lives = folder, folder / "log", 0
        (folder / "in").mkdir()
        (folder / "prices").mkdir()
        pq.write_table(
            pa.table({"k": pa.array(PRICES, pa.int32()), "price": pa.array(PRICES.values(), pa.int64())}),
            folder / "prices" / "prices.parquet",
        )
        (folder / "job.py").write_text(JOB)

    def run(self, place: str, location: str = "first", partitions: int = 2) -> None:
        """``place``: where it is killed; it comes to its end without one."""
        at = f"{place}={self.folder}/died-{self.lives}" if place else ""
        command = [
            sys.executable,
            f"{self.folder}/job.py",
            str(self.folder),
            f"{self.folder}/{location}",
            str(partitions),
        ]
        with Session(command, self.log, environment(SPARK_CKPT_KILL_AT=at)) as driver:
            code = driver.process.wait(DEADLINE_S)
        assert code == (-9 if place else 0), (place, self.log.read_text()[-3000:])
        self.lives += 1

    def check(self, files: int) -> None:
        with sqlite3.connect(self.folder / "out.db") as connection:
            found = connection.execute("SELECT name, n, cost FROM found ORDER BY name").fetchall()
        assert found == _expected(files)
        assert spark_ckpt.job(str(self.folder / "jobs"), "job").verify() == []
        placed = [line for line in self.log.read_text().splitlines() if line.startswith("PLACED")]
        assert len(placed) == 2 * self.lives, "both joins in Python, in each life"


@pytest.mark.soak  # five starts of Spark
@pytest.mark.timeout(1800)
def test_rows_are_joined_and_counted_once_whatever_is_killed_here_and_elsewhere(tmp_path: Path) -> None:
    job = _Lives(tmp_path)
    _add(tmp_path, range(12))
    for place in PLACES:
        job.run(place)
    job.run("after CreateCompletion", "elsewhere", partitions=3)
    job.run("", "elsewhere", partitions=3)
    job.check(12)
