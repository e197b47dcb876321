"""A driver killed in, or right behind, the function of ``foreachBatch``: the same id comes with the same rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import spark_ckpt

ROOT = Path(__file__).parents[2]
FILES, ROWS = 6, 50

JOB = """
import json, os, signal, sys
from pyspark.sql import SparkSession
import spark_ckpt
from spark_ckpt.sinks.deliveries import Deliveries

folder, place = sys.argv[1:]

def die(here):
    marker = f"{folder}/died-{here}"
    if here == place and not os.path.exists(marker):
        open(marker, "x").close()
        os.killpg(0, signal.SIGKILL)

def take(rows, checkpoint):
    found = sorted(r.id for r in rows.collect())
    if checkpoint >= 2:
        die("in the function")
    with open(f"{folder}/calls", "a") as calls:
        calls.write(json.dumps([checkpoint, found]) + "\\n")
    if checkpoint >= 2:
        die("behind the function")

delivered = Deliveries.delivered
def deliver(self, checkpoint):
    self.on_step = lambda step: die(step) if checkpoint >= 2 else None
    delivered(self, checkpoint)
Deliveries.delivered = deliver

conf = {"spark.ui.enabled": "false", "spark.ckpt.dir": f"{folder}/jobs", "spark.ckpt.interval": "1ms",
        "spark.ckpt.initialDelay": "0s", "spark.sql.shuffle.partitions": "2",
        "spark.python.authenticate.socketTimeout": "120s"}
spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
stream = spark_ckpt.enable(spark).readStream.option("maxFilesPerTrigger", 1).json(f"{folder}/in", "id long")
query = stream.writeStream.foreachBatch(take).alsoTo("memory", path=f"{folder}/m").queryName("job")
query.trigger(availableNow=True).start().awaitTermination()
"""


def run(folder: Path, place: str) -> int:
    path = os.pathsep.join(map(str, (ROOT, ROOT / "python_datasource")))
    done = subprocess.run(
        [sys.executable, str(folder / "job.py"), str(folder), place],
        env={**os.environ, "PYTHONPATH": path},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert done.returncode in (0, -9), done.stdout[-3000:]
    return done.returncode


def calls(folder: Path) -> Iterator[tuple[int, list[Any]]]:
    for line in (folder / "calls").read_text().splitlines():
        checkpoint, rows = json.loads(line)
        yield checkpoint, rows


@pytest.mark.soak  # two starts of Spark each
@pytest.mark.parametrize(
    ("place", "twice"),
    [("in the function", 0), ("behind the function", 1), ("before delivered", 1), ("before rows are removed", 0)],
)
def test_each_checkpoint_comes_with_the_same_rows_until_it_is_delivered(tmp_path: Path, place: str, twice: int) -> None:
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "in").mkdir()
    for n in range(FILES):
        lines = (json.dumps({"id": n * ROWS + i}) + "\n" for i in range(ROWS))
        (tmp_path / "in" / f"{n}.json").write_text("".join(lines))
    assert run(tmp_path, place) == -9
    assert run(tmp_path, place) == 0
    found = list(calls(tmp_path))
    assert len(found) > 2
    assert [k for k, _ in found] == sorted(k for k, _ in found)
    assert len(found) - len(dict(found)) == twice
    assert all(rows == dict(found)[k] for k, rows in found)
    assert sorted(i for rows in dict(found).values() for i in rows) == list(range(FILES * ROWS))
    # What the killed driver had staged for a batch that no record names is for gc, as with any sink.
    stopped, left_out = spark_ckpt.job(str(tmp_path / "jobs"), "job").with_recorded_sinks()
    assert not left_out
    stopped.gc()
    assert not list((tmp_path / "jobs" / "job" / "deliveries" / "rows").iterdir())
