"""A start says in the log when it does not restore what it was told to, and when it goes back. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.whole_job import JOB, WholeJob


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [r.getMessage() for r in caplog.records if r.name == "spark_ckpt"]
    caplog.clear()
    return said


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Checkpoints 1 and 3, a savepoint of 2."""
    job = WholeJob(tmp_path)
    job.start()
    job.step(True)
    job.step(True, savepoint=str(tmp_path / "savepoint"))
    job.step(True)
    return tmp_path


@pytest.mark.parametrize("restore", ["1", "none", "savepoint"])
def test_restore_at_a_location_that_has_batches_is_passed_over_with_a_line_in_the_log(
    root: Path, restore: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = str(root / restore) if restore == "savepoint" else restore
    WholeJob(root).start(restore=given)
    (line,) = told(caplog)
    assert line.startswith(
        f"Job {JOB}: spark.ckpt.restore={given} is not used, because the Spark location {root}/spark"
    )
    assert "set checkpointLocation to a new, empty folder" in line
    WholeJob(root).start()
    assert told(caplog) == []


@pytest.mark.parametrize(
    ("restore", "where"),
    [
        ("1", "to checkpoint 1,"),
        ("none", "to its beginning,"),
        ("savepoint", "to checkpoint 4, which is the savepoint "),
    ],
)
def test_a_start_that_goes_back_says_so_and_which_sinks_are_written_again(
    root: Path, restore: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = str(root / restore) if restore == "savepoint" else restore
    WholeJob(root).start(restore=given, location="back")
    (line,) = told(caplog)
    assert line.startswith(f"Job {JOB} goes back {where}")
    assert "behind checkpoint 3: what sinks ['appended', 'merged'] were given since is written again. A sink" in line


def test_a_start_that_restores_the_newest_checkpoint_says_nothing(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    for restore, location in (("auto", "one"), ("3", "two")):
        WholeJob(root).start(restore=restore, location=location)
    other = WholeJob(root / "other")
    other.start(restore=str(root / "savepoint"))
    assert told(caplog) == []
