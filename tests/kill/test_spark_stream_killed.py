"""A job whose streams Spark itself reads, alone or beside others, killed around each step of its commit: each row is
counted once."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

import pytest

import spark_ckpt
from tests.kill.processes import DEADLINE_S, Session, environment

ROWS = 40
PLACES = (
    "after PrepareCommit",
    "before WriteBatch",
    "after WriteBatch",
    "after CommitState",
    "after CreateCompletion",
    "after CommitSink",
    "before CreateTrigger",
)

JOB = """
import os, sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
import spark_ckpt

folder, query = sys.argv[1:]
os.environ["SPARK_CKPT_KILL_PID"] = str(-os.getpgid(0))
conf = {"spark.ckpt.dir": f"{folder}/jobs", "spark.ckpt.interval": "1ms", "spark.ckpt.initialDelay": "0s",
        "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
ckpt = spark_ckpt.enable(spark)

def by_spark(which):
    rows = spark.readStream.schema("k int, v long").option("maxFilesPerTrigger", 1).json(f"{folder}/in/{which}")
    return ckpt.readStream.spark(rows.where("v % 5 <> 0"))

if query.endswith("beside"):
    reader = ckpt.readStream.format("files").option("fileFormat", "json").option("maxFilesPerTrigger", 1)
    own = reader.schema("k int, v long").load(f"{folder}/in/*0.json").where("v % 5 <> 0")
    ours = by_spark("*[1-4].json").union(own).union(by_spark("*[5-9].json"))
else:
    ours = by_spark("*")
if query.startswith("sums"):
    ours = ours.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("v")).uid("sums")
writer = ours.writeStream.format("sql").option("url", f"sqlite:///{folder}/out.db").option("table", "found")
writer = writer.option("mergeKeys", "k").outputMode("update") if query.startswith("sums") else writer
writer.queryName("job").trigger(availableNow=True).start().awaitTermination()
"""


def _make_input(folder: Path, files: int) -> list[dict[str, int]]:
    (folder / "in").mkdir()
    rows = [[{"k": (file + n) % 7, "v": file * ROWS + n} for n in range(ROWS)] for file in range(files)]
    for file, found in enumerate(rows):
        (folder / "in" / f"{file:03d}.json").write_text("\n".join(map(json.dumps, found)))
    return [row for found in rows for row in found if row["v"] % 5]


@pytest.mark.soak  # eight starts of Spark each
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("query", ["rows", "sums", "rows beside", "sums beside"])
def test_rows_that_spark_reads_are_counted_once_whatever_is_killed(tmp_path: Path, query: str) -> None:
    # Beside each other, several are read in a batch.
    expected = _make_input(tmp_path, 36 if query.endswith("beside") else 12)
    (tmp_path / "job.py").write_text(JOB)
    places = [place for place in PLACES if query.startswith("sums") or place != "after CommitState"]
    for life, place in enumerate([*places, ""]):
        at = f"{place}#{life % 2 + 1}={tmp_path}/died-{life}" if place else ""
        command = [sys.executable, str(tmp_path / "job.py"), str(tmp_path), query]
        with Session(command, tmp_path / "log", environment(SPARK_CKPT_KILL_AT=at)) as driver:
            code = driver.process.wait(DEADLINE_S)
        assert code == (-9 if place else 0), (place, (tmp_path / "log").read_text()[-3000:])
    with sqlite3.connect(tmp_path / "out.db") as connection:
        if query.startswith("rows"):
            found = connection.execute("SELECT k, v FROM found ORDER BY v").fetchall()
            assert found == [(row["k"], row["v"]) for row in expected]
        else:
            found = connection.execute("SELECT k, n, v FROM found ORDER BY k").fetchall()
            of = {k: [row["v"] for row in expected if row["k"] == k] for k in range(7)}
            assert found == [(k, len(v), sum(v)) for k, v in of.items()]
    assert spark_ckpt.job(str(tmp_path / "jobs"), "job").verify() == []
