"""A savepoint that cannot be written fails alone: the job goes on, now and at every start. No Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import fsspec
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import spark_ckpt
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.faults import heard_by
from spark_ckpt.jobs.requests import ask, read_answer
from tests.storage.small_disk import small_disk
from tests.storage.whole_job import JOB, ROWS, WholeJob


class Killed(BaseException):
    """As SIGKILL, but the test goes on."""


def started(root: Path) -> WholeJob:
    job = WholeJob(root, **{"retry.timeout": "0s"})
    job.start()
    job.step(True)
    return job


def a_file(root: Path) -> str:
    (root / "file").write_text("x")
    return str(root / "file")


def below_a_file(root: Path) -> str:
    return f"{a_file(root)}/deep/savepoint"


def foreign_files(root: Path) -> str:
    (root / "mine").mkdir()
    (root / "mine/notes.txt").write_text("x")
    return str(root / "mine")


def a_state_folder(root: Path) -> str:
    return str(root / "jobs" / JOB / "state/counts")


def a_new_folder_of_the_job(root: Path) -> str:
    return str(root / "jobs" / JOB / "state/savepoint")


def spark_s_location(root: Path) -> str:
    return str(root / "spark")


def unknown_scheme(root: Path) -> str:
    return "nowhere://bucket/savepoint"


class Away(MemoryFileSystem):
    """A store that does not answer."""

    protocol = "away"
    store: ClassVar[dict[str, object]] = {}

    def _away(self, *_: object, **__: object) -> None:
        raise ConnectionError("no route to host")

    cat_file = pipe_file = info = ls = _open = _away


def a_store_that_is_away(root: Path) -> str:
    fsspec.register_implementation("away", Away, clobber=True)
    return "away://bucket/savepoint"


def a_read_only_folder(root: Path) -> str:
    if os.access("/proc/self", os.W_OK) or os.getuid() == 0:
        return "/proc/savepoint"  # root may write everywhere else
    (root / "closed").mkdir(mode=0o500)
    return str(root / "closed/savepoint")


TARGETS: dict[Callable[[Path], str], str] = {
    a_file: "is a file, or below one; choose an empty folder",
    below_a_file: "is a file, or below one; choose an empty folder",
    foreign_files: "holds notes.txt; choose an empty folder",
    a_state_folder: "inside the job's own folder",
    a_new_folder_of_the_job: "inside the job's own folder",
    spark_s_location: "holds commits/, offsets/, store/; choose an empty folder",
    unknown_scheme: "a URL that fsspec knows",
    a_store_that_is_away: "no route to host|could not be read|ConnectionError",
    a_read_only_folder: "Cannot write",
}


def error_of(job: WholeJob, checkpoint: int) -> str:
    committed = job.records.committed(checkpoint)
    answer = read_answer(job.records.store, f"r{checkpoint}")
    assert committed is not None
    assert answer is not None
    assert (answer.checkpoint, answer.error) == (checkpoint, committed.savepoint_error)
    return answer.error or ""


def goes_on(job: WholeJob) -> None:
    job.step(True)
    job.check(doubles=False)
    again = WholeJob(job.root, **{"retry.timeout": "0s"})
    again.start()
    again.step(True)
    again.check(doubles=False)


@pytest.mark.parametrize(("target", "message"), [pytest.param(t, m, id=t.__name__) for t, m in TARGETS.items()])
def test_a_savepoint_that_cannot_be_written_is_an_error_for_whoever_asked_and_the_job_goes_on(
    tmp_path: Path, target: Callable[[Path], str], message: str
) -> None:
    job = started(tmp_path)
    path = target(tmp_path)
    job.step(True, savepoint=path)
    assert re.search(message, error_of(job, 2))
    assert not Path(path, "claim.json").exists(), "nothing is written into a folder that is not a savepoint's"
    goes_on(job)


@pytest.mark.parametrize("target", [a_file, foreign_files, a_store_that_is_away], ids=lambda t: t.__name__)
def test_a_start_that_finishes_a_savepoint_which_cannot_be_written_goes_on(
    tmp_path: Path, target: Callable[[Path], str]
) -> None:
    job = started(tmp_path)
    path = target(tmp_path)

    def kill(place: str) -> None:
        if place == "before WriteSavepoint":
            raise Killed

    with heard_by(kill), pytest.raises(Killed):
        job.step(True, savepoint=path)
    again = WholeJob(tmp_path, **{"retry.timeout": "0s"})
    again.start()
    assert re.search(TARGETS[target], error_of(again, 2))
    goes_on(again)


@pytest.mark.parametrize("target", [t for t in TARGETS if t not in (a_read_only_folder,)], ids=lambda t: t.__name__)
def test_a_target_that_is_not_free_is_refused_before_the_job_is_asked(
    tmp_path: Path, target: Callable[[Path], str]
) -> None:
    job = started(tmp_path)

    def alive() -> None:
        raise AssertionError("the job was asked")

    with pytest.raises(Exception, match=TARGETS[target]):
        ask(job.records, "savepoint", target(tmp_path), True, 5, alive)
    assert job.records.store.names("requests") == []


@pytest.mark.parametrize("pages", [0, 3])
def test_a_savepoint_onto_a_full_disk_fails_alone_and_may_be_asked_for_again(tmp_path: Path, pages: int) -> None:
    job = started(tmp_path)
    with small_disk(tmp_path / "disk", "200k") as disk:
        if disk.ERROR != "No space left on device":
            pytest.skip("every folder is full then, the job's own, too")
        disk.fill(but_pages=pages)
        job.step(True, savepoint=str(tmp_path / "disk/savepoint"))
        assert "No space left on device" in error_of(job, 2)
        goes_on(job)
        disk.free()


@pytest.mark.parametrize("place", ["target is free", "savepoint claimed"])
def test_two_jobs_that_write_into_one_folder_at_once_leave_one_whole_savepoint(tmp_path: Path, place: str) -> None:
    one, other = started(tmp_path / "one"), started(tmp_path / "other")
    other.step(True)
    path = str(tmp_path / "savepoint")

    def cut_in(reached: str) -> None:
        if reached == place:
            with heard_by(lambda _: None):
                other.step(True, savepoint=path)

    with heard_by(cut_in):
        one.step(True, savepoint=path)
    errors = error_of(one, 2), error_of(other, 3)
    if place == "target is free":
        winner, told = other, ("was taken by another savepoint at the same time", "")
    else:
        winner, told = one, ("", "unfinished savepoint, checkpoint 2 of job 'job'")
    assert [t in e for t, e in zip(told, errors, strict=True)] == [True, True]
    assert [bool(e) for e in errors] == [bool(t) for t in told]
    assert spark_ckpt.savepoint(path).verify() == [], "the other one wrote nothing into it"
    assert restored(tmp_path / "restored", path).counts == winner.counts


@pytest.mark.parametrize("place", ["before the claim", "savepoint claimed", "state copied", "savepoint recorded"])
def test_a_savepoint_that_is_killed_on_the_way_is_finished_by_the_next_start(tmp_path: Path, place: str) -> None:
    job = started(tmp_path)
    path = str(tmp_path / "savepoint")

    def kill(reached: str) -> None:
        if reached == place:
            raise Killed

    with heard_by(kill), pytest.raises(Killed):
        job.step(True, savepoint=path)
    again = WholeJob(tmp_path)
    again.start()
    assert error_of(again, 2) == ""
    goes_on(again)
    assert restored(tmp_path / "restored", path).position == 2 * ROWS


def restored(root: Path, savepoint: str) -> WholeJob:
    job = WholeJob(root)
    job.start(restore=savepoint)
    return job


@pytest.mark.parametrize("what", ["emptied", "flipped"])
def test_a_savepoint_whose_state_is_damaged_fails_alone_and_names_the_file(tmp_path: Path, what: str) -> None:
    job = started(tmp_path)

    def damage(place: str) -> None:
        if place == "before WriteSavepoint":
            for file in (job.folder / "state/counts").glob("*.parquet"):
                data = bytearray(file.read_bytes())
                keys = pq.read_metadata(file).row_group(0).column(0)
                last = keys.data_page_offset + keys.total_compressed_size - 1
                data[last] ^= 0x10  # of a page's values: files without dead rows are copied as they are
                file.write_bytes(b"" if what == "emptied" else data)

    with heard_by(damage):
        job.step(True, savepoint=str(tmp_path / "savepoint"))
    assert "State file" in error_of(job, 2)
    assert not (tmp_path / "savepoint/savepoint.json").exists()


def test_a_savepoint_of_another_checkpoint_is_not_written_over(tmp_path: Path) -> None:
    job = started(tmp_path)
    path = str(tmp_path / "savepoint")
    job.step(True, savepoint=path)
    before = (tmp_path / "savepoint/savepoint.json").read_bytes()
    job.step(True, savepoint=path)
    assert "already holds another savepoint" in error_of(job, 3)
    with pytest.raises(InvalidInputError, match="already holds another savepoint"):
        ask(job.records, "savepoint", path, False, 5, lambda: None)
    assert (tmp_path / "savepoint/savepoint.json").read_bytes() == before
