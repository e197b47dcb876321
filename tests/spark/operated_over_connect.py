"""What is seen of a job and done to it, through Spark Connect: a case of :mod:`tests.spark.over_connect`."""

from __future__ import annotations

import json
import logging
import urllib.request
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt.api import _watching
from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.jobs.log_lines import JsonLines
from spark_ckpt.monitoring.folder import look_at
from spark_ckpt.monitoring.overview import State
from tests.spark.conftest import Input, Job, wait_until

LOG = logging.getLogger("spark_ckpt")


def operated(spark: SparkSession) -> None:
    """The metrics' port and the lines are of the client's process; sources, tasks and commits obey all the same."""
    before = LOG.handlers[:], LOG.propagate, LOG.level
    directory = spark.conf.get("spark.ckpt.dir")
    try:
        with TemporaryDirectory() as folder:
            spark.conf.set("spark.ckpt.dir", f"{folder}/jobs")
            _operate(spark, Path(folder))
    finally:
        LOG.handlers, LOG.propagate, LOG.level = before
        spark.conf.set("spark.ckpt.dir", str(directory))


def _operate(spark: SparkSession, folder: Path) -> None:
    rows, job = Input(folder / "in", "k string, v long"), Job(folder)
    sums = rows.stream(spark_ckpt.enable(spark)).groupBy("k").agg(F.sum("v").alias("v")).uid("sums")
    with pytest.raises(ConfigError, match=r"metrics\.port: expected a token for the address 0\.0\.0\.0"):
        job.start(sums, "k", now=False, mode="update", metrics__port="0.0.0.0:0")
    rows.add(("a", 1), ("b", 2))
    seen = {"metrics__port": "0", "log__format": "json", "history": "true"}
    scheduled = {"savepoint__every": "1h", "savepoint__dir": f"{folder}/savepoints", "interval": "1s"}
    query = job.start(sums, "k", False, "update", initialDelay="0s", **seen, **scheduled)
    lines = _lines()
    query.await_visible()
    assert job.rows() == [("a", 1), ("b", 2)]
    port = next(iter(_watching._endpoints.values())).port
    assert "spark_ckpt_source_rows_total" in wait_until(lambda: _metrics(port, "spark_ckpt_batch_time_seconds"), query)
    wait_until(lambda: "savepoint" in [row["kind"] for row in query.checkpoints()], query)
    assert len(list((folder / "savepoints").iterdir())) == 1
    _pause(query, rows, job)
    told = wait_until(lambda: [line for line in _parsed(lines) if line.get("outcome") == "completed"], query)
    assert {(line["job"], line["generation"]) for line in told} == {("job", query.generation)}
    query.stop()
    wait_until(lambda: not _watching._endpoints)


def _pause(query: Any, rows: Input, job: Job) -> None:
    query.pause("noon")
    rows.add(("a", 10))
    query.processAllAvailable()
    assert (job.rows(), look_at(query.job).state) == ([("a", 1), ("b", 2)], State.PAUSED)
    with pytest.raises(InvalidInputError, match="paused, and reads no further: noon"):
        query.await_visible()
    query.resume()
    query.await_visible()
    assert job.rows() == [("a", 11), ("b", 2)]


def _lines() -> StringIO:
    """Where the handler of the JSON lines writes from now on."""
    found = StringIO()
    (handler,) = (h for h in LOG.handlers if isinstance(h.formatter, JsonLines))
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(found)
    return found


def _parsed(lines: StringIO) -> list[dict[str, Any]]:
    whole = lines.getvalue().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def _metrics(port: int, name: str) -> str:
    """All that is told, once it has ``name``."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return text if name in text else ""
