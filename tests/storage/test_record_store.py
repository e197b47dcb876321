"""Record stores: the conformance suite, and what only local folders can do."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import uuid
from pathlib import Path

import fsspec
import pytest

from spark_ckpt.errors import CorruptStorageError, StorageNotWritableError
from spark_ckpt.storage.record_store import Created, RecordStore
from spark_ckpt.storage.state_table import StateTable
from spark_ckpt.testing.record_store_conformance import RecordStoreConformance
from tests.storage.state_job import new_job


class TestLocalFolder(RecordStoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> RecordStore:
        return RecordStore(str(tmp_path / "job"))


class TestFileUrl(RecordStoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> RecordStore:
        return RecordStore(f"file://{tmp_path}/job/")


class TestMemoryUrl(RecordStoreConformance):
    @pytest.fixture
    def store(self) -> RecordStore:
        return RecordStore(f"memory://{uuid.uuid4().hex}/job")


def _create_all(job: tuple[str, int]) -> list[int]:
    url, writer = job
    store = RecordStore(url)
    return [n for n in range(50) if isinstance(store.create(f"f/{n}.json", "thing", {"by": writer}), Created)]


def test_exactly_one_of_many_processes_creates_a_record(tmp_path: Path) -> None:
    jobs = [(str(tmp_path), writer) for writer in range(4)]
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        won = pool.map(_create_all, jobs)
    assert sorted(n for numbers in won for n in numbers) == list(range(50))
    store = RecordStore(str(tmp_path))
    for writer, numbers in enumerate(won):
        assert all(store.read(f"f/{n}.json", "thing") == {"by": writer} for n in numbers)


def test_nothing_temporary_stays_behind(tmp_path: Path) -> None:
    store = RecordStore(str(tmp_path))
    store.create("a.json", "thing", {})
    store.create("a.json", "thing", {})
    store.replace("b.json", "thing", {})
    (tmp_path / ".tmp" / "of-a-killed-writer").write_text("{")
    assert store.names("") == ["a.json", "b.json"]
    store.remove_temporaries()
    assert sorted(os.listdir(tmp_path)) == ["a.json", "b.json"]


def test_a_place_that_cannot_be_written_is_refused_with_what_to_check(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    store = RecordStore(str(tmp_path / "file" / "job"))
    with pytest.raises(StorageNotWritableError, match=r"file/job/job\.json.*expected.*found.*Check spark\.ckpt\.dir"):
        store.check_writable("orders")


def test_an_owner_record_that_is_damaged_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(CorruptStorageError, match=r"job\.json"):
        RecordStore(str(tmp_path)).check_writable("orders")


class LostAnswers(fsspec.get_filesystem_class("memory")):
    """Like an object store's client that repeats every put after the connection broke."""

    protocol = "lostanswers"

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: object) -> None:
        super().pipe_file(path, value, mode, **kwargs)
        super().pipe_file(path, value, mode, **kwargs)


@pytest.fixture
def lost_answers() -> str:
    fsspec.register_implementation("lostanswers", LostAnswers, clobber=True)
    return f"lostanswers://{uuid.uuid4().hex}/job"


def test_a_record_whose_first_put_was_answered_too_late_counts_as_created(lost_answers: str) -> None:
    store = RecordStore(lost_answers)
    assert isinstance(store.create("a.json", "thing", {}), Created)
    assert not isinstance(store.create("a.json", "thing", {}), Created)


def test_a_state_table_takes_its_own_repeated_puts_for_what_they_are(lost_answers: str) -> None:
    job = new_job(lost_answers, seed=1)
    for _ in range(10):
        job.step()
    done = job.checkpoint()
    assert StateTable(lost_answers, "u").head().content == done.content


def test_errors_survive_pickling(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("?")
    with pytest.raises(CorruptStorageError) as caught:
        RecordStore(str(tmp_path)).read("a.json", "thing")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
