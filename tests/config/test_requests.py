"""The life of a request, from outside: asked, taken up, answered or withdrawn. No Spark; the job's side is played."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spark_ckpt.cli import app
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CheckpointFailedError, ConfigError, InvalidInputError
from spark_ckpt.execution.build import reads_of
from spark_ckpt.execution.lineage import SPARK_STREAMS
from spark_ckpt.jobs._unheard import Unheard
from spark_ckpt.jobs.heartbeat import Heart
from spark_ckpt.jobs.job import Job
from spark_ckpt.jobs.pausing import is_paused, say_paused
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.requests import (
    Answer,
    RequestWatch,
    answer_request,
    ask,
    create_request,
    drop_old_answers,
    drop_request,
    open_requests,
    read_answer,
    withdraw_request,
)
from spark_ckpt.protocol.records import (
    AbortedRecord,
    CommittedRecord,
    CompletionRecord,
    GenerationRecord,
    Topology,
    TriggerRecord,
)
from spark_ckpt.storage.job_paths import PAUSED_RECORD, id_name


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
        answer_request(records.store, request, Answer(1))
        drop_request(records.store, request)
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


# --- pause and resume --------------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job(JobConfig(dir=str(tmp_path)), "job")
    runs(made.records)
    return made


def complete(job: Job) -> Callable[[str], None]:
    def part(request: str) -> None:
        assert job.paused() is not None, "the record is there before anybody is asked for a checkpoint"
        answer_request(job.records.store, request, Answer(1))
        drop_request(job.records.store, request)
        confirm(job.records)

    return part


def test_a_pause_is_recorded_first_and_returns_the_checkpoint_behind_which_sources_stand_still(job: Job) -> None:
    thread = played(job.records, complete(job))
    assert job.pause("the warehouse moves", timeout_s=60) == 1
    thread.join()
    first = job.paused()
    assert first is not None
    assert first.reason == "the warehouse moves"
    assert job.request_pause("another reason") is not None
    assert job.paused() == first, "the first reason stays"
    assert job.resume() == first
    assert (job.paused(), job.resume()) == (None, None)


def test_a_job_that_nobody_runs_is_paused_for_its_next_start(tmp_path: Path) -> None:
    job = Job(JobConfig(dir=str(tmp_path)), "job")
    assert job.pause("until noon") is None
    assert job.request_pause("until noon") is None
    assert open_requests(job.records.store) == []


def test_a_pause_stands_whatever_becomes_of_its_checkpoint_and_the_error_says_so(job: Job) -> None:
    with pytest.raises(CheckpointFailedError, match=r"is paused: .* `spark-ckpt resume` lets them go on.* in time"):
        job.pause("until noon", timeout_s=0.0)
    assert job.paused() is not None


def test_a_pause_needs_a_reason(job: Job) -> None:
    with pytest.raises(InvalidInputError, match="expected a reason"):
        job.pause("  ")
    assert job.paused() is None


def test_a_job_with_streams_that_spark_reads_cannot_be_paused_nor_started_while_it_is(tmp_path: Path) -> None:
    job = Job(JobConfig(dir=str(tmp_path)), "job")
    topology = Topology(1, 1, ("spark-streams",), {}, (), reads={"spark-streams": reads_of(SPARK_STREAMS)})
    job.pause("before its first start")
    for bounded, why in ((False, "Spark reads a stream of it"), (True, "would not come to its end")):
        with pytest.raises(InvalidInputError, match=rf"before its first start.*{why}.*spark-ckpt resume"):
            say_paused("job", topology, job.records.store, bounded)
    job.resume()
    job.records.create_generation(GenerationRecord(1, 1, "", None, 0, topology))
    with pytest.raises(InvalidInputError, match="Spark itself reads a stream"):
        job.pause("until noon")
    assert job.paused() is None


def test_a_damaged_record_pauses_the_job_and_resume_removes_it(job: Job, tmp_path: Path) -> None:
    job.request_pause("until noon")
    path = tmp_path / "job" / PAUSED_RECORD
    path.write_bytes(path.read_bytes()[:-9])
    assert is_paused(job.records.store)
    found = job.paused()
    assert found is not None
    assert "damaged" in found.reason
    job.request_pause("until noon")
    job.resume()
    assert not is_paused(job.records.store)


def called(job: Job, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [words[0], job.config.dir, "job", *words[1:]])
    return done.exit_code, done.stdout.strip()


def test_acts_are_commands_that_tell_programs_what_came_of_them(job: Job) -> None:
    thread = played(job.records, complete(job))
    code, text = called(job, "pause", "--reason", "until noon", "--json")
    thread.join()
    assert (code, json.loads(text)["checkpoint"], json.loads(text)["reason"]) == (0, 1, "until noon")
    assert called(job, "resume") == (0, "job is resumed; it was paused: until noon")
    assert json.loads(called(job, "resume", "--json")[1]) == {"resumed": False, "reason": None}
    job.request_pause("until one")  # which leaves a request that the job does not get to
    drop_request(job.records.store, open_requests(job.records.store)[0].request)
    thread = played(job.records, complete(job))
    assert called(job, "checkpoint") == (0, "checkpoint 1 is complete")
    thread.join()


@pytest.mark.parametrize(
    ("words", "kind", "terminal", "drain"),
    [
        (("checkpoint",), "checkpoint", False, False),
        (("savepoint", "{}/s"), "savepoint", False, False),
        (("stop", "{}/s"), "savepoint", True, False),
        (("stop", "--drain"), "final", True, True),
        (("pause", "--reason", "until noon"), "checkpoint", False, False),
    ],
)
def test_what_is_asked_for_with_detach_has_an_id_to_ask_for(
    job: Job, words: tuple[str, ...], kind: str, terminal: bool, drain: bool
) -> None:
    code, text = called(job, *(w.format(job.config.dir) for w in words), "--detach", "--json")
    assert code == 0, text
    (asked,) = open_requests(job.records.store)
    assert (asked.request, asked.kind, asked.terminal, asked.drain) == (
        json.loads(text)["request"], kind, terminal, drain,
    )  # fmt: skip
    assert called(job, "requested", asked.request) == (0, "open")


def test_a_request_that_is_taken_up_while_somebody_looks_is_known(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trigger is written, and then the request is removed: here right behind the look at the triggers."""
    request, ids = job.request_checkpoint(), job.records.ids
    monkeypatch.setattr(job.records, "ids", lambda folder: (ids(folder), take_up(job.records, request))[0])
    assert str(RequestWatch(job.records, request).look()) == "open"
    monkeypatch.undo()
    assert str(RequestWatch(job.records, request).look()) == "open, checkpoint 1"


# --- what is visible ---------------------------------------------------------------------------------------------


@pytest.fixture
def reader(tmp_path: Path) -> Job:
    """A job that reads files, and whose checkpoint 1 is behind the third."""
    made = Job(JobConfig(dir=str(tmp_path)), "job")
    topology = Topology(1, 1, ("in", "mine"), {}, (), reads={"in": "files path=/d", "mine": "Mine"})
    made.records.create_generation(GenerationRecord(1, 1, "", None, 0, topology))
    Heart(made.records, 1).beat()
    shown(made, 1, 3)
    return made


def shown(job: Job, k: int, files: int, is_committed: bool = True) -> None:
    at = {"in": {"inner": {"file": files}}}
    record = CompletionRecord(k, "checkpoint", 1, 1, k, k + 1, at, {}, (), Topology(1, 1, ("in",), {}, ()), 0, 1)
    job.records.store.create(f"checkpoints/{id_name(k)}", "checkpoint", record.to_json())
    if is_committed:
        confirm(job.records, k)


def test_what_sinks_show_already_is_not_waited_for_and_the_oldest_checkpoint_is_told(reader: Job) -> None:
    shown(reader, 2, 4)
    assert reader.await_visible({"in": {"file": 3}}, timeout_s=0.0) == 1
    assert reader.await_visible({"in": {"file": 3, "row": 1}}, timeout_s=0.0) == 2
    said = called(reader, "await", "--offsets", '{"in": {"file": 4}}')
    assert said == (0, "every sink shows it, with checkpoint 2")


def test_a_checkpoint_that_is_complete_and_not_committed_is_not_visible(reader: Job) -> None:
    shown(reader, 2, 9, is_committed=False)
    with pytest.raises(CheckpointFailedError, match="do not show all that was asked for"):
        reader.await_visible({"in": {"file": 9}}, timeout_s=0.0)


def test_the_job_is_asked_for_checkpoints_until_one_is_far_enough(reader: Job) -> None:
    def take(files: int) -> Callable[[str], None]:
        def part(request: str) -> None:
            shown(reader, files, files)
            answer_request(reader.records.store, request, Answer(files))
            drop_request(reader.records.store, request)
            if files < 6:
                played(reader.records, take(files + 1)).join()

        return part

    thread = played(reader.records, take(5))
    assert reader.await_visible({"in": {"file": 6}}, timeout_s=60) == 6
    thread.join()


@pytest.mark.parametrize(
    ("offsets", "why"),
    [
        ({}, r"expected offsets of sources \['in', 'mine'\], found none"),
        ({"out": {}}, r"found \['out'\]"),
        ({"mine": {"x": 1}}, r"source 'mine' \(mine\) has offsets that cannot be compared"),
        ({"in": {"version": 1}}, "expected an offset of source 'in'"),
    ],
)
def test_what_is_no_offset_of_a_source_is_refused_at_once(reader: Job, offsets: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        reader.await_visible(offsets)


def test_waiting_for_what_does_not_come_is_refused(reader: Job) -> None:
    reader.request_pause("until noon")
    with pytest.raises(InvalidInputError, match="is paused, and reads no further: until noon"):
        reader.await_visible({"in": {"file": 9}})
    assert called(reader, "await", "--offsets", "no json")[0] == 2
    with pytest.raises(InvalidInputError, match="never started"):
        Job(reader.config, "other").await_visible({"in": {}})
