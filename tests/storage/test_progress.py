"""Spark's progress gets the rows that the tasks counted, whatever was dropped behind a checkpoint or restarted."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryListener, StreamingQueryProgress

from spark_ckpt.api._streams import CkptStreams
from spark_ckpt.execution.progress import with_reports
from spark_ckpt.jobs.batch_reports import Reported, remember_run, reported, with_reports_before
from spark_ckpt.jobs.committer import Committer
from spark_ckpt.jobs.report import left_by, sizes_of
from spark_ckpt.protocol.events import RowsRead, TimeSeen
from spark_ckpt.protocol.records import Figures
from spark_ckpt.protocol.weights import batch_record
from tests.storage.whole_job import KEYS, ROWS, UID, WholeJob

RUN_ID = str(uuid.uuid4())
STATE_OPERATOR = {
    "operatorName": "s", "numRowsTotal": 1, "numRowsUpdated": 1, "numRowsRemoved": 0, "allUpdatesTimeMs": 1,
    "allRemovalsTimeMs": 1, "commitTimeMs": 1, "memoryUsedBytes": 1, "numRowsDroppedByWatermark": 0,
    "numShufflePartitions": 1, "numStateStoreInstances": 1, "customMetrics": {},
}  # fmt: skip


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
        assert reported(job.run).rows == {b: {"rows": ROWS} for b in range(job.batch + 1)}
    job.committer = Committer(job.run, job.sinks)
    job.step(True)
    assert sorted(reported(job.run).rows) == [0, 1, 2, 3, 4]
    at = list(job.records.batches(job.run.origin)[-1].at.items())
    assert [b for b, _ in at] == [0, 1, 2, 3, 4]
    assert at == sorted(at, key=lambda pair: pair[1])
    assert len(list((job.folder / "batches").iterdir())) == 1, "the newest stays"
    assert [name for name in job.job.gc(force=True) if name.startswith("batches/")] == []
    assert sorted(reported(job.run).rows) == [0, 1, 2, 3, 4]


def test_another_start_does_not_tell_of_the_batches_before_it(tmp_path: Path) -> None:
    job = WholeJob(tmp_path)
    job.start()
    job.step(True)
    job.start()
    assert reported(job.run).rows == {}
    job.step(False)
    assert reported(job.run).rows == {1: {"rows": ROWS}}


def test_numbers_and_rates_are_those_of_rows_by_attribute_item_and_json(tmp_path: Path) -> None:
    job = WholeJob(tmp_path)
    job.start()
    job.step(True)
    found = with_reports(spark_says(0, 14), job.run, reported(job.run))
    for told in (found, found.sources[0], json.loads(found.json), found["sources"][0]):
        get = told.__getitem__ if isinstance(told, dict) else told.__getattribute__
        assert (get("numInputRows"), get("inputRowsPerSecond"), get("processedRowsPerSecond")) == (7, 1.75, 14.0)
    assert (found.numInputRows, found.sources[0].numInputRows, found.observedMetrics["mine"].n) == (7, 7, 5)
    # Without a batch of its own, of another number of sources, or not known: Spark's.
    for spark in (spark_says(0, 0), spark_says(0, 3, sources=2), spark_says(9, 3)):
        found = with_reports(spark, job.run, reported(job.run))
        assert found.numInputRows == spark.numInputRows
        assert found.sources[0].numInputRows == spark.sources[0].numInputRows


def test_rows_that_were_written_are_those_that_sinks_were_given_and_no_control_rows(tmp_path: Path) -> None:
    """Spark counts what reaches its sink; -1 is what it says where the number is not known."""
    job = WholeJob(tmp_path)
    job.start()
    job.step(True)
    for batch, rows, read, written in ((0, 14, 7, ROWS), (0, 0, 0, ROWS), (9, 3, 3, -1)):
        found = with_reports(spark_says(batch, rows, written=9), job.run, reported(job.run))
        assert (found.sink.numOutputRows, found.numInputRows) == (written, read)


def test_state_of_an_operator_is_its_live_keys_and_files_at_the_newest_checkpoint(tmp_path: Path) -> None:
    job = WholeJob(tmp_path)
    job.start()
    run = replace(job.run, topology=replace(job.run.topology, in_plan=(UID,)))
    body = json.loads(spark_says(1, 0).json) | {"stateOperators": [STATE_OPERATOR]}

    def state() -> tuple[int, int]:
        told = with_reports(StreamingQueryProgress.fromJson(json.loads(json.dumps(body))), run, reported(run))
        return told.stateOperators[0].numRowsTotal, told.stateOperators[0].memoryUsedBytes

    job.step(True)
    assert state() == (1, 1), "of Spark, while no record is younger than a checkpoint"
    job.step(False)
    row = job.records.completion(1)
    assert row is not None
    sizes = sizes_of(left_by(job.records, row))
    assert state() == (KEYS, sizes[UID].size_bytes)
    assert sizes[UID].size_bytes > 0


def test_durations_have_the_phases_of_the_checkpoint_that_completed_in_the_batch(tmp_path: Path) -> None:
    job = WholeJob(tmp_path, history="true")
    job.start()
    for checkpoint in (False, True):
        job.step(checkpoint)
    for _ in range(2):  # while its record is the newest, and behind it
        told = reported(job.run)
        assert [_phases(with_reports(spark_says(batch, 0), job.run, told)) for batch in (0, 2)] == [set(), set()]
        assert _phases(with_reports(spark_says(1, 0), job.run, told)) >= {
            "checkpoint.duration", "checkpoint.acknowledge", "checkpoint.commitState", "checkpoint.commitSinks",
        }  # fmt: skip
        job.step(False)


def _phases(progress: StreamingQueryProgress) -> set[str]:
    assert progress.durationMs["addBatch"] == 400
    return {name for name in progress.durationMs if name.startswith("checkpoint.")}


def test_figures_are_sums_since_the_start_also_where_a_batch_is_recorded_again(tmp_path: Path) -> None:
    job = WholeJob(tmp_path)
    job.start()
    for checkpoint in (False, True, False):
        job.step(checkpoint)
    figures = reported(job.run).figures
    assert (figures.read, figures.written) == ({"rows": 3 * ROWS}, 3 * ROWS)
    record = job.records.batches(job.run.origin)[-1]
    fresh = batch_record(record.origin, record.batch, record.generation, (), [RowsRead("rows", ROWS, 4)], ROWS)
    again = with_reports_before(fresh, record, Figures())
    assert (again.figures.read, again.figures.written, again.figures.behind) == (
        figures.read, figures.written, {"rows": 4}
    )  # fmt: skip
    job.start()
    job.step(True)
    assert reported(job.run).figures.read == {"rows": ROWS}


def test_the_watermark_is_that_of_the_operators_that_see_it_first_and_stays_until_they_tell_another() -> None:
    def seen(*watermarks_us: int | None) -> tuple[TimeSeen, ...]:
        return tuple(TimeSeen(f"op-{n}", us, n) for n, us in enumerate(watermarks_us))

    told = Reported({}, {0: seen(0, None), 1: (), 2: seen(7_000_999, None), 3: seen(9_000_000, 8_000_000)})
    assert [told.watermark_us(batch) for batch in range(-1, 5)] == [None, 0, 0, 7_000_999, 8_000_000, 8_000_000]
    assert (told.late(2), told.late(1), told.late(4)) == ({"op-0": 0, "op-1": 1}, {}, {})


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_767_225_600_123_456, "2026-01-01T00:00:00.123Z"),
        (253_402_300_800_000_000, "+10000-01-01T00:00:00.000Z"),
        (8_210_266_876_799_999_999, "+262142-12-31T23:59:59.999Z"),
    ],
)
def test_a_watermark_is_as_spark_writes_it_and_late_rows_stand_with_their_operator(
    tmp_path: Path, us: int, text: str
) -> None:
    job = WholeJob(tmp_path)
    job.start()
    body = json.loads(spark_says(4, 0).json) | {"stateOperators": [STATE_OPERATOR, STATE_OPERATOR]}
    told = Reported({}, {4: (TimeSeen("first", us, 3), TimeSeen("second", None, 5))})
    for in_plan, late in ((("second", "first"), [5, 3]), (("second",), [0, 0])):  # where not all are ours: Spark's
        run = replace(job.run, topology=replace(job.run.topology, in_plan=in_plan))
        found = with_reports(StreamingQueryProgress.fromJson(json.loads(json.dumps(body))), run, told)
        assert found.eventTime == {"watermark": text}
        assert [s.numRowsDroppedByWatermark for s in found.stateOperators] == late


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
