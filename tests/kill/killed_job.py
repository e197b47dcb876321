"""The job that is killed: ``killed_job.py '{"dir": ..., ...}'``. Start the same command again until it exits with 0.

``victim``: what dies when a kill point is reached: the ``driver`` (its Python and its JVM), the Python ``worker``
that reached it, or the ``executor`` that this worker belongs to. With ``half``, whoever comes to ``IN_FUNCTION`` for
the third time first waits until another task of its stage, the last one, has ended well: Spark cannot take that back.
With ``slow``, the first attempts at ``IN_SOURCE``, ``BETWEEN`` or ``IN_FUNCTION`` wait until Spark has started another.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark import TaskContext
from pyspark.sql import SparkSession

import spark_ckpt
from spark_ckpt import agg
from spark_ckpt.faults import reach
from tests.kill.expected import GROUPS, KEYS, N_ROWS, NUMBERED, RESET, ROWS_PER_BATCH, SHIFT, TOTALS

JOB = "killed"
IN_FUNCTION = "in the user's function"
IN_SOURCE, BETWEEN = "in the sources' stage", "between the operators"
# Short-lived JVMs, as in tests/spark_conf: what costs more there than it saves.
JAVA_OPTIONS = (
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    "-XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=4 -XX:+UseSerialGC -XX:-UsePerfData -XX:MetaspaceSize=256m"
)


def session(plan: dict[str, Any]) -> SparkSession:
    builder = SparkSession.builder
    builder = builder.remote(plan["remote"]) if "remote" in plan else builder.master(plan["master"])
    scratch = plan.get("tmp", plan["dir"] + "/tmp")
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": plan["dir"] + "/warehouse",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "true",  # as by default: what is read back after a kill
        # The dead do not tidy up; the test does.
        "spark.local.dir": scratch,
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Djava.io.tmpdir={scratch}",
        "spark.executor.extraJavaOptions": f"{JAVA_OPTIONS} -Djava.io.tmpdir={scratch}",
        "spark.ckpt.dir": plan["dir"] + "/jobs",
        "spark.ckpt.cache.dir": plan["dir"] + "/cache",
        "spark.ckpt.interval": "100ms",  # with every batch
        "spark.ckpt.initialDelay": "0s",
        "spark.ckpt.maxParallelism": "8",
        "spark.ckpt.retain": "2",
        # Several runs a key group, so that deletion vectors and files shared by checkpoints are in play.
        "spark.ckpt.compaction.fanout": "4",
        **plan.get("conf", {}),
    }
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def numbered(plan: dict[str, Any]) -> Any:
    """The user's function. It leaves a file named after each executor that it ran in."""

    calls: list[int] = []

    def number_rows(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        calls.append(1)
        if plan.get("half") and len(calls) == 3 and claimed(Path(plan["dir"], "waits for half")):
            half = Path(plan["dir"], f"half {TaskContext.get().stageId()}")
            while not half.exists():
                time.sleep(0.01)
        passing(plan, IN_FUNCTION)
        seq, total = state.get if state.exists else (0, 0)
        rows = pd.concat(list(frames)).sort_values("value")
        seqs, totals = [], []
        for s in rows["s"]:
            seq, total = seq + 1, total + int(s)
            seqs.append(seq)
            totals.append(total)
            seq, total = (seq, total) if seq < RESET else (0, 0)
        if seq:
            state.update((seq, total))
        else:
            state.remove()
        yield rows[["value", "k", "n", "s", "g"]].assign(seq=seqs, total=totals)

    return number_rows


def step(plan: dict[str, Any], place: str) -> Any:
    """A step of the user's in front of the operators, which changes nothing."""

    def pass_on(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            passing(plan, place)
            yield frame

    return pass_on


def passing(plan: dict[str, Any], place: str) -> None:
    """What happens where the user's code runs."""
    executor = _parent_of(os.getppid())
    Path(plan["dir"], f"executor {executor}").touch()
    if plan["victim"] == "executor":
        os.environ["SPARK_CKPT_KILL_PID"] = str(executor)
    if place in plan.get("slow", ()):
        _dawdle(plan, place)
    reach(place)


def _dawdle(plan: dict[str, Any], place: str) -> None:
    """The first attempt of a task waits for the second one, ``slow`` times in all; then both go on, side by side."""
    task = TaskContext.get()
    if task.partitionId():
        return  # Spark copies tasks only when others of their stage have ended
    copied = Path(plan["dir"], f"copied {place} {task.stageId()} {task.partitionId()}")
    if task.attemptNumber():
        copied.touch()
    elif any(claimed(Path(plan["dir"], f"slow {place} {n}")) for n in range(plan["slow"][place])):
        while not copied.exists():
            time.sleep(0.01)


def claimed(marker: Path) -> bool:
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def watch_stages(spark: SparkSession, plan: dict[str, Any]) -> None:
    """Leave a file named after each stage of two tasks of which one has ended."""
    tracker = spark.sparkContext.statusTracker()
    while True:
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None and info.numTasks == 2 and info.numCompletedTasks == 1:
                Path(plan["dir"], f"half {stage}").touch()
        time.sleep(0.01)


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def numbers(ckpt: Any, plan: dict[str, Any], source: int) -> Any:
    """The rows of one source: value, k, g. Sources have no key in common, so each key's order is that of its source."""
    reader = ckpt.readStream.format("rate-micro-batch")
    stream = reader.options(rowsPerBatch=ROWS_PER_BATCH, numRows=N_ROWS, numPartitions=2).load()
    if plan.get("steps"):
        stream = stream.mapInPandas(step(plan, IN_SOURCE), "timestamp timestamp, value long")
    shifted = f"value + {source * SHIFT} as value"
    keys = [f"value % {KEYS} + {source * SHIFT} as k", f"value % {GROUPS} + {source * SHIFT} as g"]
    return stream.where("value % 3 != 0").selectExpr(shifted, *keys)


def start(spark: SparkSession, plan: dict[str, Any]) -> Any:
    ckpt = spark_ckpt.enable(spark)
    rows, *others = (numbers(ckpt, plan, source) for source in range(plan["sources"]))
    for other in others:
        rows = rows.union(other)
    totals = rows.groupBy("k").aggregate(emit="rows", orderBy="value", n=agg.count(), s=agg.sum("value")).uid(TOTALS)
    totals = totals.select("value", "k", "n", "s", "g")
    if plan.get("steps"):
        totals = totals.mapInPandas(step(plan, BETWEEN), "value long, k long, n long, s long, g long")
    result = (
        totals.groupBy("g")
        .applyInPandasWithState(
            numbered(plan),
            "value long, k long, n long, s long, g long, seq long, total long",
            "seq long, total long",
            "append",
            "NoTimeout",
        )
        .uid(NUMBERED)
    )
    first, *others = plan["sinks"]
    writer = result.writeStream.format(first[0]).options(**first[1])
    for kind, options in others:
        writer = writer.alsoTo(kind, **options)
    return writer.queryName(JOB).trigger(availableNow=True).start()


def live_runs(spark: SparkSession, location: str) -> dict[str, list[str]]:
    """The state files that the run lists in Spark's own state store name, by operator number."""
    named = {}
    for number in range(2):
        store = spark.read.format("statestore").option("operatorId", number).load(location)
        metas = [json.loads(row.value["groupState"]["meta"]) for row in store.collect()]
        named[str(number)] = sorted({r[0] for meta in metas for r in meta["keyed"]["runs"]})
    return named


def main() -> None:
    plan = json.loads(sys.argv[1])
    if plan["victim"] == "driver":
        os.environ["SPARK_CKPT_KILL_PID"] = str(-os.getpgrp())
    spark = session(plan)
    if not plan["in_recovery"]:
        # Whoever starts from here on has the variable; this process, which recovers, has not.
        del os.environ["SPARK_CKPT_KILL_AT"]
    if "remote" not in plan:
        spark.sparkContext.setLogLevel("ERROR")
    if plan.get("half"):
        threading.Thread(target=watch_stages, args=(spark, plan), daemon=True).start()
    query = start(spark, plan)
    query.awaitTermination()
    if "live" in plan:
        Path(plan["live"]).write_text(json.dumps(live_runs(spark, f"{plan['dir']}/jobs/{JOB}/spark")))
    spark.stop()


if __name__ == "__main__":
    main()
