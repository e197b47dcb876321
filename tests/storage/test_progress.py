"""Spark's progress gets the rows that the tasks counted, whatever was dropped behind a checkpoint or restarted."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryListener, StreamingQueryProgress

from spark_ckpt.api._progress import CkptStreams, with_rows
from spark_ckpt.jobs.committer import Committer
from spark_ckpt.jobs.rows_read import remember_run, rows_read
from tests.storage.whole_job import ROWS, WholeJob

RUN_ID = str(uuid.uuid4())


def spark_says(batch: int, rows: int, sources: int = 1, written: int = -1) -> StreamingQueryProgress:
    """Record batches as rows, in half a second."""
    source = {
        "description": "PythonMicroBatchStream@1", "startOffset": "{}", "endOffset": "{}", "latestOffset": "{}",
        "numInputRows": rows, "inputRowsPerSecond": rows / 4, "processedRowsPerSecond": rows * 2,
    }  # fmt: skip
    body = {
        "id": str(uuid.uuid4()), "runId": RUN_ID, "name": "job", "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": batch, "batchDuration": 500, "durationMs": {"addBatch": 400}, "stateOperators": [],
        "sources": [dict(source) for _ in range(sources)], "sink": {"description": "s", "numOutputRows": written},
        "numInputRows": rows * sources, "inputRowsPerSecond": rows / 4, "processedRowsPerSecond": rows * 2,
        "observedMetrics": {"mine": {"n": 5}},
    }  # fmt: skip
    return StreamingQueryProgress.fromJson(body)


def test_rows_of_every_batch_are_known_behind_checkpoints_and_in_another_process(tmp_path: Path) -> None:
    job = WholeJob(tmp_path)
    job.start()
    for checkpoint in (False, True, False, True):
        job.step(checkpoint)
        assert rows_read(job.run) == {b: {"rows": ROWS} for b in range(job.batch + 1)}
    job.committer = Committer(job.run, job.sinks)
    job.step(True)
    assert sorted(rows_read(job.run)) == [0, 1, 2, 3, 4]
    assert len(list((job.folder / "batches").iterdir())) == 1, "the newest stays"
    assert [name for name in job.job.gc(force=True) if name.startswith("batches/")] == []
    assert sorted(rows_read(job.run)) == [0, 1, 2, 3, 4]


def test_another_start_does_not_tell_of_the_batches_before_it(tmp_path: Path) -> None:
    job = WholeJob(tmp_path)
    job.start()
    job.step(True)
    job.start()
    assert rows_read(job.run) == {}
    job.step(False)
    assert rows_read(job.run) == {1: {"rows": ROWS}}


def test_numbers_and_rates_are_those_of_rows_by_attribute_item_and_json(tmp_path: Path) -> None:
    job = WholeJob(tmp_path)
    job.start()
    job.step(True)
    found = with_rows(spark_says(0, 14), job.run, rows_read(job.run))
    for told in (found, found.sources[0], json.loads(found.json), found["sources"][0]):
        get = told.__getitem__ if isinstance(told, dict) else told.__getattribute__
        assert (get("numInputRows"), get("inputRowsPerSecond"), get("processedRowsPerSecond")) == (7, 1.75, 14.0)
    assert (found.numInputRows, found.sources[0].numInputRows, found.observedMetrics["mine"].n) == (7, 7, 5)
    # Without a batch of its own, of another number of sources, or not known: Spark's.
    for spark in (spark_says(0, 0), spark_says(0, 3, sources=2), spark_says(9, 3)):
        found = with_rows(spark, job.run, rows_read(job.run))
        assert found.numInputRows == spark.numInputRows
        assert found.sources[0].numInputRows == spark.sources[0].numInputRows


def test_control_rows_are_no_rows_that_were_written(tmp_path: Path) -> None:
    """Spark counts what reaches its sink; -1 is what it says where the number is not known."""
    job = WholeJob(tmp_path)
    job.start()
    job.step(True)
    for batch, rows, read in ((0, 14, 7), (0, 0, 0), (9, 3, 3)):
        found = with_rows(spark_says(batch, rows, written=9), job.run, rows_read(job.run))
        assert (found.sink.numOutputRows, found.numInputRows) == (-1, read)


def test_a_listener_is_told_rows_of_our_queries_and_of_no_others(tmp_path: Path) -> None:
    heard: list[int] = []

    class Mine(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...

        def onQueryProgress(self, event: Any) -> None:
            heard.append(event.progress.numInputRows)

        def onQueryIdle(self, event: Any) -> None: ...

        def onQueryTerminated(self, event: Any) -> None: ...

    class Spark:
        listeners: list[Any] = []  # noqa: RUF012
        active = ("a query",)

        def addListener(self, listener: Any) -> None:
            self.listeners.append(listener)

        def removeListener(self, listener: Any) -> None:
            self.listeners.remove(listener)

    job = WholeJob(tmp_path)
    job.start()
    job.step(True)
    streams, mine = CkptStreams(Spark()), Mine()
    streams.addListener(mine)
    event = QueryProgressEvent(spark_says(0, 3))
    remember_run("another", job.run)
    Spark.listeners[0].onQueryProgress(event)
    remember_run("job", job.run)
    Spark.listeners[0].onQueryProgress(event)
    remember_run("job", job.run, str(uuid.uuid4()))  # of the same name, later or before
    Spark.listeners[0].onQueryProgress(event)
    assert heard == [3, 7, 3]
    streams.removeListener(mine)
    assert (Spark.listeners, streams.active) == ([], ("a query",))
