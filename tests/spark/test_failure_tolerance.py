"""Storage that fails under a running query: checkpoints fail with their cause, the query goes on, rows are right."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import pytest

from spark_ckpt import agg
from tests.spark.conftest import DEADLINE_S, Input, Job, wait_until

# Workers find it by its entry point; this process may have imported fsspec before that could be seen.
fsspec.register_implementation("flaky", "flaky_storage.FlakyFileSystem", clobber=True)

ROWS = [(k % 3, 1) for k in range(9)]
EXPECTED = [(0, 6), (1, 6), (2, 6)]
OFTEN = {"interval": "50ms", "initialDelay": "0s", "retry__timeout": "0s"}


@pytest.fixture
def sums(ckpt: Any, new_input: Callable[[str, str], Input]) -> Any:
    """Two batches, and a query over them."""
    source = new_input("in", "k bigint, v bigint")
    source.add(*ROWS)
    source.add(*ROWS)
    return source.stream(ckpt).groupBy("k").aggregate(n=agg.sum("v")).uid("totals")


def block(job: Any) -> Path:
    """From now on nothing can be written into the state table's folder, not even by root."""
    found = Path(job.url) / "state" / "totals" / ".tmp"
    while not found.is_file():
        with suppress(OSError):
            shutil.rmtree(found)
            found.touch()
    return found


def test_checkpoints_fail_with_their_cause_until_storage_works_again(sums: Any, job: Job) -> None:
    query = job.start(sums, "k", now=False, tolerableFailures="1000", **OFTEN)
    blocked = block(query.job)

    def failed() -> list[Any]:
        return [row for row in query.checkpoints() if row["outcome"] == "failed"]

    wait_until(lambda: len(failed()) >= 2, query)
    assert "NotADirectoryError" in failed()[0]["reason"]
    assert query.statistics()["counts"]["failed"] >= 2
    gone = query.job.aborted(failed()[0]["id"])
    assert gone.reason == failed()[0]["reason"]
    blocked.unlink()
    last = failed()[-1]["id"]
    wait_until(
        lambda: query.checkpoints()[-1]["outcome"] == "completed" and query.checkpoints()[-1]["id"] > last, query
    )
    query.stop()
    job.run(sums, "k")
    assert job.rows() == EXPECTED


def test_the_query_ends_with_the_cause_after_more_failures_than_are_tolerated(sums: Any, job: Job) -> None:
    query = job.start(sums, "k", now=False, tolerableFailures="1", **OFTEN)
    blocked = block(query.job)
    with pytest.raises(Exception, match=r"CheckpointFailedError.*at most 1 failed.*found 2.*NotADirectoryError"):
        query.awaitTermination(DEADLINE_S)
    assert [row["outcome"] for row in query.checkpoints()[-2:]] == ["failed", "failed"]
    blocked.unlink()
    job.run(sums, "k")
    assert job.rows() == EXPECTED


@pytest.mark.parametrize(
    ("error", "row", "only"),
    # A create is tried four times by itself: object stores call conflicts by many names.
    [("EIO", "1", "/jobs/"), ("ENOSPC", "4", "/state/|/manifests/|/checkpoints/")],
    ids=["what may pass costs time", "what does not costs checkpoints"],
)
def test_every_third_write_fails(sums: Any, job: Job, tmp_path: Path, error: str, row: str, only: str) -> None:
    faults = {"row": row, "error": error, "only": only, "count": str(tmp_path / "count")}
    query = job.run(
        sums,
        "k",
        dir=f"flaky://{tmp_path}/jobs",
        checkpointLocation=str(tmp_path / "spark"),
        tolerableFailures="1000",
        retry__firstPause="1ms",
        interval="50ms",
        initialDelay="0s",
        **{f"spark.ckpt.storage.{name}": value for name, value in faults.items()},
    )
    assert job.rows() == EXPECTED
    assert (tmp_path / "count").stat().st_size >= 12, "it did fail"
    records = query.job.records
    causes = [records.aborted(k).cause for k in records.ids("aborted")]
    assert set(causes) == (set() if error == "EIO" else {"failed"})
