"""A disk that is full, at whatever step: the message says so, and once there is room the job goes on exactly."""

from __future__ import annotations

import logging
import re
import sqlite3
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CkptError
from spark_ckpt.jobs.start import checked_sinks
from tests.storage.small_disk import ForbiddenDisk, MountedDisk, small_disk
from tests.storage.whole_job import WholeJob

Disk = MountedDisk | ForbiddenDisk
ROOM = [pytest.param(range(0, 40, 6)), pytest.param(range(40), marks=pytest.mark.soak)]
"""Pages that are left: from nothing to enough."""


OPTIONS = {
    "files": {"path": "{}/files"},
    "delta": {"path": "{}/delta"},
    "sql": {"url": "sqlite:///{}/x.db", "table": "t"},
}


def _with_sink(root: Path, sink: str) -> WholeJob:
    """``sink`` is on the disk that runs full, the other is not. What may pass is not waited for: here it does not."""
    job = WholeJob(root)
    job.config = replace(job.config, retry_timeout_ms=1)
    (job.sinks[1].options).update(path=str(root / "merged"))
    options = {k: v.format(root / "sinks") for k, v in OPTIONS[sink].items()}
    job.sinks = (*checked_sinks([(sink, {**options, "uid": "appended"})]), job.sinks[1])
    return job


def _rows(root: Path, sink: str) -> list[int]:
    there = root / "sinks"
    if sink == "sql":
        connection = sqlite3.connect(there / "x.db")
        try:
            return [row[0] for row in connection.execute('select "row" from t order by 1')]
        finally:
            connection.close()
    if sink == "delta":
        table = DeltaTable(str(there / "delta")).to_pyarrow_table()
    else:
        table = pa.concat_tables(pq.read_table(p, partitioning=None) for p in (there / "files").glob("*.parquet"))
    return sorted(table["row"].to_pylist())


def _fails_until_there_is_room(disk: Disk, but_pages: int, job: WholeJob) -> str | None:
    """Two batches with checkpoints while the disk fills up; what is said, if it is full before their end."""
    disk.fill(but_pages)
    said = None
    try:
        job.step(True)
        job.step(True)
    except CkptError as error:
        said = str(error)
    finally:
        disk.free()
    return said


@pytest.mark.parametrize("room", ROOM)
def test_a_full_disk_stops_the_job_with_a_clear_message_and_nothing_is_lost_or_doubled(
    tmp_path: Path, room: range
) -> None:
    """However much room is left in the job's folder, so that each step of a checkpoint is the first that fails."""
    with small_disk(tmp_path / "jobs") as disk:
        job = WholeJob(tmp_path)
        job.start()
        job.step(True)
        full = 0
        for but_pages in room:
            said = _fails_until_there_is_room(disk, but_pages, job)
            if said is not None:
                full += 1
                assert disk.ERROR in said
                assert "free space" in said, said
            job = WholeJob(tmp_path)
            job.start()
            job.step(True)
            job.check(doubles=False)
        assert full
        job.job.gc()
        assert job.job.verify() == []


@pytest.mark.parametrize("room", ROOM)
@pytest.mark.parametrize("sink", ["files", "delta", "sql"])
def test_a_sink_whose_disk_is_full_says_so_and_gets_every_row_once_there_is_room(
    tmp_path: Path, sink: str, room: range
) -> None:
    with small_disk(tmp_path / "sinks") as disk:
        job = _with_sink(tmp_path, sink)
        job.start()
        job.step(True)
        full = 0
        for but_pages in room:
            said = _fails_until_there_is_room(disk, but_pages, job)
            if said is not None:
                full += 1
                assert re.search(f"{disk.ERROR}|disk is full|disk I/O error|{disk.NUMBER}", said), said
            job = _with_sink(tmp_path, sink)
            job.start()
            job.step(True)
            assert _rows(tmp_path, sink) == list(range(job.position))
        assert full


def test_a_history_that_is_full_is_told_once_and_repaired_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "jobs" / "job" / "history", "256k") as disk:
        job = WholeJob(tmp_path)
        job.config = JobConfig.from_options({"dir": str(tmp_path / "jobs"), "retain": "9"})
        job.start()
        job.step(True)
        if isinstance(disk, ForbiddenDisk):
            pytest.fail("this needs a disk of its own: run it where tmpfs can be mounted")
        disk.fill()
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                job.step(True)
        told = [r.message for r in caplog.records if "repair-history" in r.message]
        assert len(told) == 1
        job.check(doubles=False)
        disk.free()
        assert len(job.job.checkpoints()) < 4
        assert job.job.repair_history() == 4
        job.step(True)
        assert [row["id"] for row in job.job.checkpoints()] == [1, 2, 3, 4, 5]
