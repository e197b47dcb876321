"""Half a record where a whole one should be: its name still counts, and nobody is stuck for good."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_ckpt.jobs.requests import Answer, answer_request, read_answer
from spark_ckpt.protocol.checkpoint_state import Name
from spark_ckpt.protocol.records import AbortedRecord, GenerationRecord, TriggerRecord, VoidRecord
from spark_ckpt.protocol.source_steps import Look, ReadSourceStart
from spark_ckpt.runtime.source._io import SourceIO
from spark_ckpt.storage.job_paths import id_name
from spark_ckpt.storage.record_store import RecordStore
from tests.storage.whole_job import TOPOLOGY, WholeJob


@pytest.fixture
def job(tmp_path: Path) -> WholeJob:
    job = WholeJob(tmp_path)
    job.start()
    for checkpoint in (False, True, False, True):
        job.step(checkpoint)
    return job


def tear(job: WholeJob, path: str) -> None:
    file = job.folder / path
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def test_a_number_whose_record_is_torn_is_taken(job: WholeJob) -> None:
    trigger = TriggerRecord(9, "checkpoint", 1, "interval", None, False, None, 1)
    generation = GenerationRecord(9, 0, "there", None, 1, TOPOLOGY)
    assert job.records.create_trigger(trigger)
    assert job.records.create_generation(generation)
    tear(job, f"triggers/{id_name(9)}")
    tear(job, f"generations/{id_name(9)}")
    assert not job.records.create_trigger(trigger)
    assert not job.records.create_generation(generation)


def test_a_source_runs_although_a_newer_checkpoint_than_the_restored_one_is_torn(job: WholeJob) -> None:
    """What the message of the refused start says: restore another one, at an empty location."""
    torn = max(job.records.ids("checkpoints"))
    tear(job, f"checkpoints/{id_name(torn)}")
    shutil.rmtree(job.folder / "copies")
    job.start(restore=str(torn - 1), location="elsewhere")
    known = SourceIO(job.run, job.records, True, 0).execute(ReadSourceStart())
    assert known.completed == torn - 1
    assert known.last_completion_ms is not None
    job.step(True)
    assert job.records.completion(torn + 1) is not None


def test_a_void_checkpoint_is_given_up_and_not_completed_for_a_source(job: WholeJob) -> None:
    newest = max(job.records.ids("checkpoints"))
    void = VoidRecord(newest + 1, job.run.generation, 1)
    job.records.store.create(f"checkpoints/{id_name(newest + 1)}", "checkpoint", void.to_json())
    io = SourceIO(job.run, job.records, True, 0)
    assert io.execute(ReadSourceStart()).completed == newest
    found = io.execute(Look((newest, newest + 1)))
    assert (found.completed, found.aborted) == (newest, {newest + 1})


def test_a_torn_answer_is_said_again(job: WholeJob) -> None:
    answer_request(job.records.store, "r", Answer(3))
    tear(job, "answers/r.json")
    assert read_answer(job.records.store, "r") is None
    assert answer_request(job.records.store, "r", Answer(3)) == Answer(3)
    assert answer_request(job.records.store, "r", Answer(None, "too late")) == Answer(3)


@pytest.mark.parametrize("left", range(5))
@pytest.mark.parametrize("open_trigger", [False, True])
def test_a_deletion_that_is_stopped_anywhere_starts_anew_or_from_the_newest(
    job: WholeJob, monkeypatch: pytest.MonkeyPatch, left: int, open_trigger: bool
) -> None:
    job.step(False)
    if open_trigger:
        assert job.records.create_trigger(TriggerRecord(7, "checkpoint", 1, "interval", None, False, None, 1))
    newest = job.job.completed()[-1].checkpoint
    with monkeypatch.context() as patched:
        _stop_after(patched, left)
        with pytest.raises(KeyboardInterrupt):
            job.job.delete_checkpoints()
    job.start(location="elsewhere")
    assert job.run.restored_from in (None, newest)
    job.step(True)


@pytest.mark.parametrize("torn", ["the newest", "an older one"])
def test_checkpoints_are_deleted_though_the_record_of_one_is_torn(job: WholeJob, torn: str) -> None:
    ids = job.records.ids("checkpoints")
    tear(job, f"checkpoints/{id_name(ids[-1] if torn == 'the newest' else ids[0])}")
    job.job.delete_checkpoints()
    assert [job.records.name_of(k) for k in job.records.ids("checkpoints")] == [Name.VOID]
    job.start(location="elsewhere")
    assert (job.run.restored_from, job.position) == (None, 0)
    job.step(True)
    assert job.records.ids("checkpoints")[-1] > ids[-1], "an id came again"


@pytest.mark.parametrize("by", ["retention", "gc"])
def test_what_tells_of_a_checkpoint_that_was_given_up_goes_with_those_around_it(job: WholeJob, by: str) -> None:
    """One whose name was taken (its completion could not be written), and one that was just aborted."""
    for given_up in ("void", "aborted"):
        k = job._trigger()
        if given_up == "void":
            void = VoidRecord(k, job.run.generation, 1)
            job.records.store.create(f"checkpoints/{id_name(k)}", "checkpoint", void.to_json())
        job.records.abort(AbortedRecord(k, "failed", "for a test", 0, job.run.generation))
    for _ in range(4 if by == "retention" else 2):
        job.step(True)
    before = min(c.checkpoint for c in job.job.completed())
    removed = job.job.gc() if by == "gc" else []
    told = {(f, k) for f in ("triggers", "aborted") for k in job.records.ids(f) if k < before}
    assert told == set()
    assert bool(removed) == (by == "gc")


def _stop_after(patched: pytest.MonkeyPatch, left: int) -> None:
    """The process ends in place of a change of a record, or of the removal of the folders, behind ``left`` of them."""
    counted = iter(range(left))

    def stopped(change):  # type: ignore[no-untyped-def]
        def call(*args, **kwargs):  # type: ignore[no-untyped-def]
            if next(counted, None) is None:
                raise KeyboardInterrupt
            return change(*args, **kwargs)

        return call

    for name in ("create", "replace", "delete"):
        patched.setattr(RecordStore, name, stopped(getattr(RecordStore, name)))
    from fsspec.implementations.local import LocalFileSystem

    patched.setattr(LocalFileSystem, "rm", stopped(LocalFileSystem.rm))
