"""A job that goes back to a checkpoint with its sinks, and what it was like there. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import spark_ckpt
from spark_ckpt.cli import app
from spark_ckpt.errors import CkptError, ConfigError, CorruptStorageError, InvalidInputError, RetryableError
from spark_ckpt.faults import heard_by
from spark_ckpt.jobs.job import Job
from spark_ckpt.jobs.spec import SinkSpec
from spark_ckpt.protocol.permit import permit_for
from spark_ckpt.sinks import memory
from spark_ckpt.sinks.memory import MemorySink
from spark_ckpt.types import CheckpointId
from tests.storage.whole_job import JOB, WholeJob


class Killed(BaseException):
    """As SIGKILL, but the test goes on."""


class KeepsAll(MemorySink):
    """A target that cannot be set back."""

    def to_undo(self, job: str, sink: str, checkpoint: CheckpointId) -> str:
        raise InvalidInputError(f"{self!r} keeps all")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A job that has stopped behind checkpoint 3 and an open batch, and retains all checkpoints."""
    job = WholeJob(tmp_path, retain="5")
    job.start()
    for _ in range(3):
        job.step(True)
    job.step(False)
    return tmp_path


def rows(root: Path, sink: str = "appended") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = memory.read(str(root / "sinks" / sink)).to_pylist()
    return found


def goes_on(root: Path, location: str = "elsewhere") -> WholeJob:
    """The job, started again, behind a batch with a checkpoint."""
    job = WholeJob(root, retain="5")
    job.start(location=location)
    job.step(True)
    return job


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@contextmanager
def killed_at(place: str) -> Iterator[None]:
    def heard(reached: str) -> None:
        if reached == place:
            raise Killed

    with heard_by(heard), pytest.raises(Killed):
        yield


def test_state_offsets_and_sinks_go_back_and_the_job_goes_on_from_there(root: Path) -> None:
    done = WholeJob(root).job.rollback(1)
    assert done.is_whole
    assert [r["row"] for r in rows(root)] == list(range(7))
    job = goes_on(root)
    assert job.position == 14
    job.check(doubles=False)
    assert [c.checkpoint for c in job.job.completed()] == [1, 4], "ids are never used twice"


def test_a_dry_run_tells_what_goes_and_changes_nothing(root: Path) -> None:
    before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    told = str(WholeJob(root).job.rollback(2, dry_run=True))
    assert {p: p.read_bytes() for p in root.rglob("*") if p.is_file()} == before
    for said in ("goes back to checkpoint 2. Its newest one is 3", "source rows", "sink appended: loses rows of 1"):
        assert said in told


def test_the_old_location_is_refused_where_the_query_cannot_have_another(root: Path) -> None:
    WholeJob(root).job.rollback(1)
    with pytest.raises(CkptError, match=r"rolled back to checkpoint 1.*empty checkpointLocation"):
        WholeJob(root).start()
    goes_on(root).check(doubles=False)


def test_what_is_behind_it_cannot_be_restored_any_more(root: Path) -> None:
    WholeJob(root).job.rollback(1)
    with pytest.raises(ConfigError, match=r"one of the job's checkpoints \[1\]"):
        WholeJob(root).start(restore="2", location="elsewhere")


def test_a_second_rollback_may_go_further_back(root: Path) -> None:
    WholeJob(root).job.rollback(2)
    WholeJob(root).job.rollback(1)
    assert len(rows(root)) == 7
    goes_on(root).check(doubles=False)


def test_going_back_to_where_the_job_stands_only_leaves_its_open_rows(root: Path) -> None:
    done = WholeJob(root).job.rollback(3)
    assert [s.undone for s in done.sinks] == ["", ""]
    goes_on(root).check(doubles=False)


def test_half_a_rollback_is_refused_unless_somebody_says_so(root: Path) -> None:
    spec = SinkSpec("merged", KeepsAll, {"path": str(root / "sinks" / "merged"), "mergeKeys": "k"})
    whole = WholeJob(root)
    job = Job(whole.config, JOB, (whole.sinks[0], spec))
    before = rows(root), rows(root, "merged")
    with pytest.raises(InvalidInputError, match=r"(?s)sink merged: stays as it is.*half a rollback"):
        job.rollback(1)
    assert (rows(root), rows(root, "merged")) == before
    job.rollback(1, partial=True)
    assert len(rows(root)) == 7
    assert rows(root, "merged") == before[1], "it keeps what it has"
    goes_on(root).check(doubles=False)  # and ends with the right rows, as it merges


PLACES = (
    "after CreateGeneration", "after WriteGeneration", "before SetBackSink", "after SetBackSink",
    "before WriteGeneration",
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_one_that_is_killed_is_finished_by_the_same_call_and_no_start_goes_on_before(root: Path, place: str) -> None:
    with killed_at(place):
        WholeJob(root).job.rollback(1)
    begun = place in ("after WriteGeneration", "before SetBackSink", "after SetBackSink")
    if begun:
        with pytest.raises(CkptError, match=r"rollback to checkpoint 1 was begun.*spark-ckpt rollback DIR JOB 1"):
            WholeJob(root).start(location="elsewhere")
        with pytest.raises(ConfigError, match="Expected that checkpoint or an older one"):
            WholeJob(root).job.rollback(2)
    WholeJob(root).job.rollback(1)
    assert len(rows(root)) == 7
    goes_on(root).check(doubles=False)


def test_what_is_complete_behind_it_and_not_committed_never_comes(root: Path) -> None:
    with killed_at("before CommitSinks"):
        job = WholeJob(root, retain="5")
        job.start()
        job.step(True)
    assert len(rows(root)) == 21
    pending = job.records.completion(4)
    assert pending is not None
    WholeJob(root).job.rollback(2)
    assert len(rows(root)) == 14
    with pytest.raises(CkptError, match="missing"):  # as by a driver that was halted in its commit
        job.sinks[0].make().commit(
            permit_for(pending, job.run.identity, None), [c for c in pending.committables if c.sink == "appended"]
        )
    job = goes_on(root)
    job.check(doubles=False)
    assert job.job.gc() is not None


def test_what_is_complete_ahead_of_it_and_not_committed_comes(root: Path) -> None:
    with killed_at("before CommitSinks"):
        job = WholeJob(root, retain="5")
        job.start()
        job.step(True)
    WholeJob(root).job.rollback(4)
    job = WholeJob(root, retain="5")
    job.start(location="elsewhere")
    assert len(rows(root)) == 35


def test_only_to_a_retained_checkpoint_and_only_while_the_job_is_stopped(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"one of \[1, 2, 3\], found 9"):
        WholeJob(root).job.rollback(9)
    job = WholeJob(root)
    job.start()
    WholeJob(root).job.rollback(3)
    with pytest.raises(CkptError, match=r"another query|newest"):
        job.step(True)


def test_a_job_is_looked_at_as_it_was(root: Path) -> None:
    then = WholeJob(root).job.as_of(2)
    assert then.sources["rows"]["inner"] == 14
    counts = then.state("counts").arrow().to_pylist()
    assert {r["k"]: r["n"] for r in counts} == {0: 3, 1: 3, 2: 3, 3: 3, 4: 2}
    assert sorted(then.sink("appended").read().read_all()["row"].to_pylist()) == list(range(14))
    merged = then.sink("merged").read().read_all().to_pylist()
    assert {r["k"]: r["n"] for r in merged} == {0: 3, 1: 3, 2: 3, 3: 3, 4: 2}
    with pytest.raises(InvalidInputError, match="known here"):
        then.sink("none")


def writes_to(root: Path, folder: str) -> WholeJob:
    """The job, whose appending sink has another target."""
    job = WholeJob(root, retain="5")
    job.sinks = (SinkSpec("appended", MemorySink, {"path": str(root / "sinks" / folder)}), job.sinks[1])
    return job


def test_rows_in_a_target_that_the_sink_had_meanwhile_are_told(root: Path) -> None:
    moved = writes_to(root, "moved")
    moved.start(location="another")
    moved.step(True)
    with pytest.raises(
        InvalidInputError, match=r"(?s)checkpoint\(s\) 2, 3 are in MemorySink\(.*appended\).*half a rollback"
    ):
        moved.job.rollback(1)
    with pytest.raises(InvalidInputError, match=r"wrote to MemorySink\(.*appended\) at checkpoint 2"):
        moved.job.as_of(2).sink("appended")
    assert len(moved.job.as_of(4).sink("appended").read().read_all()) == 7
    moved.job.rollback(1, partial=True)
    assert (len(rows(root)), len(rows(root, "moved"))) == (21, 0), "the one that is open goes back"


def test_a_target_that_somebody_set_back_further_does_not_stand_there(root: Path) -> None:
    for record in (root / "sinks" / "appended").rglob("*.json"):
        if record.name[:10] > f"{1:010d}":
            record.unlink()
    with pytest.raises(InvalidInputError, match="shows checkpoint 1 as its newest, and showed 2 then"):
        WholeJob(root).job.rollback(2)
    with pytest.raises(InvalidInputError, match="shows checkpoint 1 as its newest, and showed 2 then"):
        WholeJob(root).job.as_of(2).sink("appended")
    WholeJob(root).job.rollback(1)
    goes_on(root).check(doubles=False)


def test_the_command_shows_what_it_does_and_needs_no_python(root: Path) -> None:
    shown = command("rollback", root / "jobs", JOB, 1, "--dry-run")
    assert (shown.exit_code, len(rows(root))) == (0, 21)
    assert "nothing was changed" in shown.output
    done = command("rollback", root / "jobs", JOB, 1)
    assert done.exit_code == 0, done.output
    assert len(rows(root)) == 7
    assert command("rollback", root / "jobs", JOB, 9).exit_code == 1


def test_one_who_opens_the_job_by_its_folder_has_its_sinks(root: Path) -> None:
    job = spark_ckpt.job(str(root / "jobs"), JOB)
    assert job.rollback(1).is_whole
    assert len(rows(root)) == 7


def test_what_waits_in_a_sink_that_is_not_known_is_left_for_gc(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with killed_at("before CommitSinks"):
        job = WholeJob(root, retain="5")
        job.start()
        job.step(True)
    whole = WholeJob(root)
    Job(whole.config, JOB, whole.sinks[:1]).rollback(2, partial=True)
    assert caplog.text == ""
    goes_on(root).check(doubles=False)


@pytest.mark.parametrize("left", [None, 100], ids=["gone", "torn"])
def test_no_rollback_to_a_checkpoint_whose_state_is_not_whole(root: Path, left: int | None) -> None:
    before = rows(root)
    (lost,) = (root / "jobs" / JOB / "state" / "counts").glob("e0000000001-*.parquet")
    kept = lost.read_bytes()
    lost.unlink()
    if left is not None:
        lost.write_bytes(kept[:left])
    with pytest.raises(CorruptStorageError, match=rf"checkpoint 1 cannot be gone back to.*{lost.name}"):
        WholeJob(root).job.rollback(1)
    assert (rows(root), len(WholeJob(root).job.completed())) == (before, 3)
    lost.write_bytes(kept)
    WholeJob(root).job.rollback(1)
    goes_on(root).check(doubles=False)


class AwayAtFirst(MemorySink):
    """A target that does not answer when it is first set back."""

    away = True

    def roll_back(self, job: str, sink: str, checkpoint: CheckpointId) -> None:
        if AwayAtFirst.away:
            AwayAtFirst.away = False
            raise RetryableError("away")
        super().roll_back(job, sink, checkpoint)


def test_a_sink_that_is_away_for_a_moment_is_set_back_all_the_same(root: Path) -> None:
    whole = WholeJob(root)
    first, *others = whole.sinks
    sinks = (SinkSpec(first.id, AwayAtFirst, first.options), *others)
    AwayAtFirst.away = True
    assert Job(whole.config, JOB, sinks).rollback(1).is_whole
    assert not AwayAtFirst.away
    goes_on(root).check(doubles=False)


def test_no_rollback_over_a_record_that_a_start_would_put_back(root: Path) -> None:
    """Restored later, its rows would be missing in the sinks."""
    (root / "jobs" / JOB / "checkpoints" / "0000000002.json").write_text("{torn")
    with pytest.raises(CkptError, match=r"checkpoints/2, which is behind checkpoint 1.*start the job once"):
        WholeJob(root).job.rollback(1)
    WholeJob(root).start()
    assert [c.checkpoint for c in WholeJob(root).job.completed()] == [1, 2, 3]
    WholeJob(root).job.rollback(1)
    goes_on(root).check(doubles=False)
    assert [c.checkpoint for c in WholeJob(root).job.completed()] == [1, 4]


def test_a_rollback_that_nothing_can_finish_any_more_is_in_no_starts_way(root: Path) -> None:
    with killed_at("before SetBackSink"):
        WholeJob(root).job.rollback(1)
    WholeJob(root).job.delete_checkpoints()
    with pytest.raises(InvalidInputError, match="found none"):
        WholeJob(root).job.rollback(1)
    job = goes_on(root)
    assert job.position == 7, "it begins from nothing, as behind every deletion"


def test_an_id_that_is_no_number_is_refused(root: Path) -> None:
    with pytest.raises(ConfigError, match="found '1'"):
        WholeJob(root).job.rollback("1")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="found '1'"):
        WholeJob(root).job.as_of("1")  # type: ignore[arg-type]
