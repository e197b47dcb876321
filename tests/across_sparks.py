"""``python -m tests.across_sparks VENV...``: a job goes from each PySpark to each other, and back, with its state.

Each start is a process of its own environment. The first one leaves a checkpoint and a savepoint. The other goes on
at the same Spark location, and later from the savepoint at an empty one. An older Spark is refused at the location of a
newer one; it goes on from the checkpoint at an empty location.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMA = "id long, k string, v long, at timestamp"


def totals(stream: Any) -> Any:
    """An aggregate, windows, de-duplication, and a function with state behind each other or side by side."""
    import pandas as pd
    from pyspark.sql import functions as F

    def count(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        seen = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        state.update((seen,))
        yield pd.DataFrame({"name": [f"count {key[0]}"], "n": [seen]})

    once = stream.dropDuplicates(["id"]).uid("once")
    sums = once.groupBy("k").agg(F.sum("v").alias("n")).uid("sums")
    hours = once.groupBy(F.window("at", "1 hour")).agg(F.sum("v").alias("n")).uid("hours")
    counts = once.groupBy("k").applyInPandasWithState(count, "name string, n long", "n long", "update", "NoTimeout")
    named = (
        sums.select(F.concat(F.lit("sum "), "k").alias("name"), "n"),
        hours.select(F.concat(F.lit("hour "), F.col("window.start").cast("string")).alias("name"), "n"),
        counts.uid("counts"),
    )
    return named[0].union(named[1]).union(named[2])


def run(folder: Path, location: str, restore: str, end: int) -> None:
    """One start, in this process's PySpark: what comes up to row ``end``, and what is shown then."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession

    import spark_ckpt
    from spark_ckpt.sinks import memory
    from tests.java_options import start_java_as_tests_do

    start_java_as_tests_do()
    rows = [(i, "abc"[i % 3], i, 1_700_000_000_000_000 + 600_000_000 * i) for i in range(end - 20, end)]
    types = (pa.int64(), pa.string(), pa.int64(), pa.timestamp("us", "UTC"))
    columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)]
    (folder / "in").mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_arrays(columns, ["id", "k", "v", "at"]), folder / f"in/{end:03d}.parquet")
    conf = {"sql.shuffle.partitions": "2", "sql.session.timeZone": "UTC", "ui.enabled": "false"}
    conf |= {"ckpt.dir": str(folder / "jobs"), "ckpt.maxParallelism": "4", "ckpt.lanes": "1"}
    builder = SparkSession.builder.master("local[2]")
    for key, value in {**conf, "ckpt.interval": "1h", "ckpt.initialDelay": "1h"}.items():
        builder = builder.config(f"spark.{key}", value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    stream = spark_ckpt.enable(spark).readStream.schema(SCHEMA).parquet(str(folder / "in"))
    writer = totals(stream).writeStream.format("memory").option("path", str(folder / "sink"))
    writer = writer.option("mergeKeys", "name").outputMode("update").queryName("job").option("restore", restore)
    writer = writer.option("checkpointLocation", str(folder / location)).trigger(availableNow=True)
    assert writer.start().awaitTermination(300)
    if end == 20:
        job = spark_ckpt.job(str(folder / "jobs"), "job")
        job.savepoint(str(folder / "savepoint"), checkpoint=job.checkpoints()[-1]["id"])
    found = {row["name"]: row["n"] for row in memory.read(str(folder / "sink")).to_pylist()}
    assert found == expected(end), (found, expected(end))


def expected(end: int) -> dict[str, int]:
    from datetime import datetime, timezone

    found: dict[str, int] = {}
    for i in range(end):
        at = datetime.fromtimestamp((1_700_000_000 + 600 * i) // 3600 * 3600, timezone.utc)
        for name, n in ((f"sum {'abc'[i % 3]}", i), (f"hour {at:%Y-%m-%d %H:%M:%S}", i), (f"count {'abc'[i % 3]}", 1)):
            found[name] = found.get(name, 0) + n
    return found


def start(venv: Path, folder: Path, location: str, restore: str, end: int) -> str:
    """What the process said of its error; nothing if there was none."""
    python = str(venv.absolute() / "bin/python")
    env = {**os.environ, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "VIRTUAL_ENV": str(venv.absolute())}
    env |= {"PYTHONPATH": str(Path(__file__).parents[1]), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [python, "-m", "tests.across_sparks", "--run", str(folder), location, restore, str(end)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr[-3000:]


def crossed(one: Path, other: Path, is_older: bool) -> None:
    """From ``one`` to ``other``, which ``is_older``, and back."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assert not (said := start(one, folder, "spark", "auto", 20)), said
        said = start(other, folder, "spark", "auto", 40)
        if is_older:
            assert "found those of Spark" in said, said
            said = start(other, folder, "spark-of-older", "auto", 40)
        assert not said, said
        back = "spark-again" if not is_older else "spark-of-older"
        assert not (said := start(one, folder, back, "auto", 60)), said
        assert not (said := start(other, folder, "from-savepoint", str(folder / "savepoint"), 80)), said


def main(*venvs: str) -> None:
    """``venvs`` from the oldest Spark to the newest."""
    for one, other in itertools.permutations(range(len(venvs)), 2):
        crossed(Path(venvs[one]), Path(venvs[other]), other < one)
        sys.stdout.write(f"{venvs[one]} to {venvs[other]} and back: as it must be\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        run(Path(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        main(*sys.argv[1:])
