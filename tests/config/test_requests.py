"""The life of a request, from outside: asked, taken up, answered or withdrawn. No Spark; the job's side is played."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spark_ckpt.cli import app
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CheckpointFailedError, InvalidInputError
from spark_ckpt.jobs._unheard import Unheard
from spark_ckpt.jobs.heartbeat import Heart
from spark_ckpt.jobs.job import Job
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.requests import (
    Answer,
    answer_request,
    ask,
    create_request,
    drop_old_answers,
    drop_request,
    open_requests,
    read_answer,
    withdraw_request,
)
from spark_ckpt.protocol.records import AbortedRecord, CommittedRecord, GenerationRecord, Topology, TriggerRecord
from spark_ckpt.storage.job_paths import id_name


def runs(records: JobRecords) -> None:
    """A driver is heard of."""
    records.create_generation(GenerationRecord(1, 1, "", None, 0, Topology(1, 1, (), {}, ())))
    Heart(records, 1).beat()


def test_a_drain_is_asked_for_with_or_without_a_savepoint_and_a_stop_needs_one_of_them(tmp_path: Path) -> None:
    job = Job(JobConfig(dir=str(tmp_path)), "job")
    runs(job.records)
    with pytest.raises(InvalidInputError, match="drain=True"):
        job.stop()
    for path, kind in ((None, "final"), (f"{tmp_path}/savepoint", "savepoint")):
        with pytest.raises(CheckpointFailedError, match="in time"):
            job.stop(path, timeout_s=0.0, drain=True)
        request = create_request(job.records.store, kind, path, True, drain=True)
        (asked,) = open_requests(job.records.store)
        assert (asked.kind, asked.target, asked.terminal, asked.drain) == (kind, path, True, True)
        drop_request(job.records.store, request)
    request = create_request(job.records.store, "savepoint", "there", True)
    assert not open_requests(job.records.store)[0].drain


@pytest.fixture
def records(tmp_path: Path) -> JobRecords:
    return JobRecords(str(tmp_path / "job"), JobConfig(dir=str(tmp_path)))


def played(records: JobRecords, part: Callable[[str], None]) -> threading.Thread:
    """The job: does its part as soon as somebody asks."""

    def play() -> None:
        while not open_requests(records.store):
            time.sleep(0.01)
        part(open_requests(records.store)[0].request)

    thread = threading.Thread(target=play)
    thread.start()
    return thread


def take_up(records: JobRecords, request: str, checkpoint: int = 1) -> None:
    trigger = TriggerRecord(checkpoint, "savepoint", 1, "request", "there", True, request, 1)
    records.create_trigger(trigger)
    drop_request(records.store, request)


def confirm(records: JobRecords, checkpoint: int = 1) -> None:
    body = CommittedRecord(checkpoint, 1, 1).to_json()
    records.store.replace(f"committed/{id_name(checkpoint)}", "committed", body)


def nothing() -> None:
    return None


def test_the_answer_is_the_checkpoint_once_it_is_confirmed(records: JobRecords) -> None:
    def job(request: str) -> None:
        take_up(records, request)
        answer_request(records.store, request, Answer(1))
        confirm(records)

    thread = played(records, job)
    assert ask(records, "savepoint", "there", True, 60, nothing) == 1
    thread.join()
    assert open_requests(records.store) == []


def test_an_answer_is_found_when_a_newer_checkpoint_has_retired_its_own(records: JobRecords) -> None:
    def job(request: str) -> None:
        drop_request(records.store, request)
        answer_request(records.store, request, Answer(1))
        confirm(records, 5)

    thread = played(records, job)
    assert ask(records, "savepoint", "there", False, 60, nothing) == 1
    thread.join()


def test_who_waits_hears_nothing_while_a_driver_lives_and_that_one_came(tmp_path: Path) -> None:
    job, heard = Job(JobConfig(dir=str(tmp_path)), "job"), list[str]()
    unheard = Unheard(job.records, "job", 60.0, heard.append)
    unheard()
    unheard()
    assert heard == [
        "the driver of job 'job' is not heard of any more: start its query again, or stop waiting, which withdraws "
        "what was asked for; 60 s left"
    ]
    unheard._next = 0.0
    unheard()
    assert re.fullmatch("still no driver of job 'job' heard of; [56][0-9] s left", heard.pop())
    runs(job.records)
    unheard._next = 0.0
    unheard()
    assert heard[1:] == ["a driver runs job 'job' now"]
    Unheard(job.records, "job", 60.0, heard.append)()
    assert len(heard) == 2


def test_of_a_job_that_nobody_runs_nothing_is_asked_and_the_message_says_so_at_once(tmp_path: Path) -> None:
    job = Job(JobConfig(dir=str(tmp_path)), "job")
    asked: list[Callable[[], object]] = [
        lambda: job.savepoint(f"{tmp_path}/savepoint"),
        lambda: job.stop(f"{tmp_path}/savepoint"),
        lambda: job.stop(drain=True),
    ]
    for ask_it in asked:
        with pytest.raises(
            InvalidInputError, match=r"no driver of job 'job' is heard of.*start its query and ask again$"
        ):
            ask_it()
    assert job.records.store.names("requests") == job.records.store.names("answers") == []


def test_a_request_that_is_not_answered_in_time_is_withdrawn_for_good(records: JobRecords) -> None:
    with pytest.raises(CheckpointFailedError, match="was not answered in time and is withdrawn"):
        ask(records, "savepoint", "there", True, 0.05, nothing)
    assert open_requests(records.store) == []
    (name,) = records.store.names("answers")
    answer = read_answer(records.store, name.removesuffix(".json"))
    assert answer is not None
    assert (answer.checkpoint, answer.error) == (None, "whoever asked for it stopped waiting: CheckpointFailedError")


def test_a_job_that_was_quicker_than_the_time_out_has_answered(records: JobRecords) -> None:
    request = create_request(records.store, "savepoint", "there", True)
    answer_request(records.store, request, Answer(7))
    assert withdraw_request(records.store, request, "too late") == Answer(7)
    assert read_answer(records.store, request) == Answer(7)


def test_an_aborted_checkpoint_fails_the_request_and_nobody_takes_it_up_again(records: JobRecords) -> None:
    def job(request: str) -> None:
        take_up(records, request)
        records.abort(AbortedRecord(1, "declined", "too much held back", 1, 1))

    thread = played(records, job)
    with pytest.raises(CheckpointFailedError, match="checkpoint 1 was aborted: too much held back"):
        ask(records, "savepoint", "there", True, 60, nothing)
    thread.join()
    assert len(records.store.names("answers")) == 1


def test_a_savepoint_that_cannot_be_written_is_an_error_although_its_checkpoint_is_complete(
    records: JobRecords,
) -> None:
    def job(request: str) -> None:
        take_up(records, request)
        answer_request(records.store, request, Answer(1, "there is read-only"))
        confirm(records)

    thread = played(records, job)
    with pytest.raises(InvalidInputError, match="there is read-only"):
        ask(records, "savepoint", "there", True, 60, nothing)
    thread.join()


def test_a_query_that_ends_withdraws_what_was_asked_of_it(records: JobRecords) -> None:
    def ended() -> None:
        raise CheckpointFailedError("the query ended")

    with pytest.raises(CheckpointFailedError, match="the query ended"):
        ask(records, "checkpoint", None, False, 60, ended)
    assert open_requests(records.store) == []
    assert len(records.store.names("answers")) == 1


def test_a_request_says_until_when_somebody_waits_and_one_of_an_older_release_ten_minutes(
    records: JobRecords,
) -> None:
    create_request(records.store, "checkpoint", None, False, 5)
    (request,) = open_requests(records.store)
    assert request.deadline_ms == request.time_ms + 5_000
    drop_request(records.store, request.request)
    old = {"kind": "savepoint", "time_ms": 1_000, "target": "there", "terminal": True}
    records.store.create("requests/0000000001000-x.json", "request", old)
    (request,) = open_requests(records.store)
    assert request.deadline_ms == 601_000


def test_old_answers_go_and_never_leave_their_request_open(records: JobRecords) -> None:
    old = create_request(records.store, "checkpoint")
    answer_request(records.store, old, Answer(1))
    drop_old_answers(records.store, int(old[:13]))
    assert read_answer(records.store, old) == Answer(1)
    drop_old_answers(records.store, int(old[:13]) + 1)
    assert read_answer(records.store, old) is None
    assert open_requests(records.store) == []


def test_a_savepoint_that_nobody_waits_for_is_asked_after_by_its_id(tmp_path: Path) -> None:
    job = Job(JobConfig(dir=str(tmp_path)), "job")
    target = str(tmp_path / "savepoint")
    with pytest.raises(InvalidInputError, match="no driver"):
        job.request_savepoint(target)
    runs(job.records)
    request = job.request_savepoint(target)
    assert str(job.requested(request)) == "open"
    take_up(job.records, request)
    assert (job.requested(request).state, job.requested(request).checkpoint) == ("open", 1)
    answer_request(job.records.store, request, Answer(1))
    assert job.requested(request).state == "open", "it is not confirmed yet"
    confirm(job.records)
    assert str(job.requested(request)) == "complete, checkpoint 1"
    for answer, told in (
        (Answer(1, "disk full"), "complete without it: disk full"),
        (Answer(None, "gone"), "withdrawn"),
    ):
        other = job.request_savepoint(target)
        answer_request(job.records.store, other, answer)
        assert told in str(job.requested(other))
    with pytest.raises(InvalidInputError, match="of the last day"):
        job.requested("none")


def test_the_command_prints_the_id_and_what_became_of_it(tmp_path: Path) -> None:
    runs(Job(JobConfig(dir=str(tmp_path)), "job").records)
    asked = CliRunner().invoke(app, ["savepoint", str(tmp_path), "job", str(tmp_path / "there"), "--detach"])
    request = asked.output.strip()
    found = CliRunner().invoke(app, ["requested", str(tmp_path), "job", request, "--json"])
    assert json.loads(found.output)["state"] == "open"
    withdraw_request(Job(JobConfig(dir=str(tmp_path)), "job").records.store, request, "for a test")
    found = CliRunner().invoke(app, ["requested", str(tmp_path), "job", request])
    assert (found.exit_code, "withdrawn" in found.output) == (1, True)
