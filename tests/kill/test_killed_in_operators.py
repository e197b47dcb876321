"""A driver killed in a job with a join of two streams, a processor, a de-duplication, top-N, sessions and others: what
comes out is what an undisturbed run of the same job puts out."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_ckpt.sinks import memory
from tests.kill.processes import run_job

BASE = datetime(2024, 1, 1, tzinfo=timezone.utc)
BATCHES, KEYS = 16, 7

JOB = """
import os, sys
from pyspark.sql import Row, SparkSession, functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
import spark_ckpt
from spark_ckpt.faults import reach

folder = sys.argv[1]

class Totals(StatefulProcessor):
    def init(self, handle):
        self.handle, self.total = handle, handle.getValueState("total", "n long")
        self.seen = handle.getMapState("seen", "v long", "n long")

    def handleInputRows(self, key, rows, timerValues):
        reach("in the processor")
        n = (self.total.get() or (0,))[0]
        for row in rows:
            n += 1
            self.seen.updateValue((row.v % 3,), ((self.seen.getValue((row.v % 3,)) or (0,))[0] + 1,))
            self.handle.registerTimer(int(row.t.timestamp() * 1000) + 5_000)
        self.total.update((n,))
        yield Row(kind="total", a=key[0], b=n * 100 + sum(k[0] * v[0] for k, v in self.seen.iterator()))

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield Row(kind="timer", a=key[0], b=expiredTimerInfo.getExpiryTimeInMs() // 1000 % 100000)

conf = {"spark.ui.enabled": "false", "spark.ckpt.dir": f"{folder}/jobs", "spark.ckpt.interval": "1ms",
        "spark.ckpt.initialDelay": "0s", "spark.sql.shuffle.partitions": "2", "spark.ckpt.lanes": "1",
        "spark.ckpt.maxParallelism": "4", "spark.ckpt.cache.dir": f"{folder}/cache"}
os.environ["SPARK_CKPT_KILL_PID"] = str(-os.getpgid(0))
spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
ckpt = spark_ckpt.enable(spark)

def stream(name):
    reader = ckpt.readStream.option("maxFilesPerTrigger", 1).option("uid", name)
    return reader.schema("k long, v long, t timestamp").parquet(f"{folder}/{name}").withWatermark("t", "2 seconds")

a, b = stream("a").alias("a"), stream("b").withColumnRenamed("t", "u").alias("b")
soon = F.expr("b.u BETWEEN a.t - interval 1 second AND a.t + interval 2 seconds")
joined = a.join(b, (F.col("a.k") == F.col("b.k")) & soon, "full").uid("joined")
joined = joined.select(F.lit("pair").alias("kind"), F.col("a.v").alias("a"), F.col("b.v").alias("b"))
totals = stream("c").groupBy("k").transformWithState(
    Totals(), "kind string, a long, b long", "append", "eventTime").uid("totals")
once = stream("d").dropDuplicatesWithinWatermark(["k"]).uid("once").select(F.lit("once").alias("kind"), "k", "v")
e = stream("e")
best = e.groupBy("k").topN(2, F.desc("v")).uid("best").select("op", "k", "v")
gaps = e.where("v % 3 != 0")  # without them each row touches the next one's session, and none ever ends
sessions = gaps.groupBy("k", F.session_window("t", "1 second")).agg(
    F.collect_list("v").alias("list"), F.count_distinct("v").alias("n")).uid("sessions")
sessions = sessions.select(F.lit("session"), "n", F.aggregate("list", F.lit(0).cast("long"), lambda a, b: a * 7 + b))
times = e.groupBy("t").agg(F.count("*").alias("n"), F.sum("v").alias("v")).uid("times")
times = times.select(F.lit("time"), "n", "v")
rows = joined.union(totals).union(once).union(best).union(sessions).union(times)
query = rows.writeStream.format("memory").option("path", f"{folder}/sink").queryName("job")
query.trigger(availableNow=True).start().awaitTermination()
"""


def _input(folder: Path, name: str, shift: int) -> None:
    """Several rows of a key a batch, late ones, and a key that only ``b`` has not."""
    (folder / name).mkdir()
    for batch in range(BATCHES):
        rows = [(i % (KEYS - (name == "b")), 100 * batch + i, batch - (i * shift) % 6 / 2) for i in range(9)]
        times = [BASE + timedelta(seconds=second) for *_, second in rows]
        columns = [[k for k, *_ in rows], [v for _, v, _ in rows], pa.array(times, pa.timestamp("us", "UTC"))]
        file = folder / name / f"{batch:02d}.parquet"
        pq.write_table(pa.table(columns, ["k", "v", "t"]), file)
        os.utime(file, (1_600_000_000 + batch,) * 2)


def _prepared(folder: Path) -> Path:
    folder.mkdir()
    (folder / "job.py").write_text(JOB)
    for shift, name in enumerate("abcde"):
        _input(folder, name, shift + 1)
    return folder


def _rows(folder: Path) -> list[Any]:
    return sorted(memory.read(str(folder / "sink")).to_pylist(), key=json.dumps)


@pytest.mark.soak  # four starts of Spark
@pytest.mark.timeout(1200)
def test_every_kind_of_operator_survives_the_death_of_the_driver(tmp_path: Path) -> None:
    whole, killed = _prepared(tmp_path / "whole"), _prepared(tmp_path / "killed")
    assert run_job(whole, []) == 0
    expected = _rows(whole)
    assert {row["kind"] for row in expected} == {"pair", "total", "timer", "once", "+I", "-D", "session", "time"}
    assert any(row["kind"] == "pair" and row["b"] is None for row in expected)
    assert any(row["kind"] == "session" and row["a"] > 1 for row in expected), "rows of several batches"
    for place in ("in the processor#12", "before CreateCompletion#2", "before CommitSink#2"):
        assert run_job(killed, [place]) == -9, place
    assert run_job(killed, []) == 0
    assert _rows(killed) == expected
