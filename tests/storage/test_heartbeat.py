"""Nobody cleans up behind a running driver's back, and nobody waits longer than needed for one that is gone."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spark_ckpt.cli import app
from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.jobs import heartbeat
from spark_ckpt.jobs.heartbeat import FirstBeats, Heart, this_process
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.start import begin
from spark_ckpt.protocol.alive import BEAT_MS, EXPIRES_MS, Heartbeat, ProcessName, is_alive
from spark_ckpt.storage.job_paths import id_name
from tests.storage.whole_job import JOB, WholeJob

AWAY = ProcessName("elsewhere", "elsewhere boot pid:[1]", 4711, "99")
NOW_MS = 1_000_000


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WholeJob:
    monkeypatch.setattr(heartbeat, "_ENDING_S", 0.0)
    job = WholeJob(tmp_path)
    job.start()
    job.step(True)
    return job


def _say(job: WholeJob, process: ProcessName, age_ms: int = 0) -> None:
    time_ms = int(time.time() * 1000) - age_ms
    said = Heartbeat(job.run.generation, process, time_ms, time_ms + EXPIRES_MS)
    job.records.store.replace(f"alive/{id_name(job.run.generation)}", "alive", said.to_json())


@pytest.mark.parametrize("age_ms", [0, BEAT_MS, EXPIRES_MS - 1, EXPIRES_MS, 10**9, -(10**6)])
def test_who_can_be_asked_is_asked_and_who_cannot_is_believed_until_it_expires(age_ms: int) -> None:
    beat = Heartbeat(7, AWAY, NOW_MS - age_ms, NOW_MS - age_ms + EXPIRES_MS)
    assert is_alive(beat, NOW_MS, AWAY.place, running=True)
    assert not is_alive(beat, NOW_MS, AWAY.place, running=False)
    assert is_alive(beat, NOW_MS, "here", running=False) == (age_ms < EXPIRES_MS)
    unknown = replace(beat, process=ProcessName("here", "", 1, ""))
    assert is_alive(unknown, NOW_MS, "", running=False) == (age_ms < EXPIRES_MS)


def test_gc_abandon_and_deletion_are_refused_while_a_driver_lives_and_work_when_its_query_ends(job: WholeJob) -> None:
    heart = Heart(job.records, job.run.generation).start()
    who = f"generation {job.run.generation}, process {this_process().pid} on host {this_process().host}"
    for act in (job.job.gc, lambda: job.job.abandon(1, "merged"), job.job.delete_checkpoints):
        with pytest.raises(InvalidInputError, match=rf"stopped, .*{who}, heard of \d+ s ago.*force=True, --force"):
            act()
    result = CliRunner().invoke(app, ["gc", str(job.root / "jobs"), JOB])
    assert (result.exit_code, who in result.output) == (1, True)
    assert CliRunner().invoke(app, ["gc", str(job.root / "jobs"), JOB, "--force"]).exit_code == 0
    heart.stop()
    assert job.records.store.names("alive") == []
    job.job.gc()
    job.step(True)
    job.check(doubles=False)


def test_the_owner_deletes_its_checkpoints_and_not_those_of_a_newer_driver(job: WholeJob) -> None:
    """``retention=delete``: the owner's own process may take a moment to end."""
    heart = Heart(job.records, job.run.generation).start()
    with pytest.raises(InvalidInputError):
        job.job.delete_checkpoints(besides=job.run.generation - 1)
    job.job.delete_checkpoints(besides=job.run.generation)
    assert job.job.completed() == []
    heart.stop()


def test_a_killed_driver_of_this_machine_is_dead_at_once(job: WholeJob) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        driver = replace(this_process(), pid=child.pid, started=heartbeat._started(child.pid))
        _say(job, driver, age_ms=10 * EXPIRES_MS)
        with pytest.raises(InvalidInputError, match=f"process {child.pid}"):
            job.job.gc()  # halted for long, or its storage is slow: it lives
        child.kill()
        while heartbeat._started(child.pid):
            pass
        job.job.gc()  # not even waited for by its parent
    assert job.records.store.names("alive") == []


def test_another_process_with_the_number_of_a_dead_driver_is_not_that_driver(job: WholeJob) -> None:
    _say(job, replace(this_process(), started="1"))
    job.job.gc()


def test_a_driver_of_another_machine_counts_until_its_heartbeat_expires(job: WholeJob) -> None:
    _say(job, AWAY, age_ms=20_000)
    with pytest.raises(InvalidInputError, match=r"4711 on host elsewhere, heard of 2\d s ago.*expires in [34]\d s"):
        job.job.gc()
    _say(job, AWAY, age_ms=EXPIRES_MS)
    job.job.gc()


def test_a_damaged_heartbeat_is_refused_with_the_file_to_remove(job: WholeJob) -> None:
    _say(job, AWAY)
    path = job.folder / "alive" / id_name(job.run.generation)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptStorageError, match=rf"alive/{path.name}.* is damaged. If none does, remove the file"):
        job.job.gc()
    path.unlink()
    job.job.gc()


def test_a_heartbeat_that_cannot_be_written_is_told_once_and_stops_nothing(
    job: WholeJob, caplog: pytest.LogCaptureFixture
) -> None:
    (job.folder / "alive").write_bytes(b"a file where the folder should be")
    heart = Heart(job.records, job.run.generation, every_ms=1)
    with caplog.at_level(logging.WARNING):
        heart.start().beat()
    heart._stopped.set()
    heart._thread.join()
    assert sum("cannot be written" in r.message for r in caplog.records) == 1


def test_a_heart_does_not_bring_back_a_folder_that_was_removed(job: WholeJob) -> None:
    heart = Heart(JobRecords(job.run.url, job.config), job.run.generation)
    shutil.rmtree(job.folder)
    heart.beat()
    assert not job.folder.exists()


def test_a_start_is_heard_of_from_its_claim_on_and_hands_over_to_its_source(job: WholeJob) -> None:
    """gc is refused between the claim and Spark's first question to the source."""
    with FirstBeats() as beats:
        beats.on_claim(job.records, job.run.generation)
        with pytest.raises(InvalidInputError, match="a driver runs it"):
            job.job.gc()
        beats.stop()
    job.job.gc()


def test_a_start_that_fails_is_not_heard_of_any_more(job: WholeJob) -> None:
    def start() -> None:
        with FirstBeats() as beats:
            beats.on_claim(job.records, job.run.generation)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        start()
    assert job.records.store.names("alive") == []


def test_the_starts_heart_rests_once_the_source_beats_or_the_query_ended(job: WholeJob) -> None:
    heart = Heart(job.records, job.run.generation, every_ms=1).start()
    active = True
    heart.hand_over(lambda: active)
    while heart._thread.is_alive():  # as the source does: a beat of the start may come over one of its own
        _say(job, AWAY)
    assert job.records.store.names("alive"), "the source's own stays"
    heart = Heart(job.records, job.run.generation, every_ms=1).start()
    active = False
    heart.hand_over(lambda: active)
    heart._thread.join()
    assert job.records.store.names("alive") == []


def test_a_heart_that_cannot_ask_whether_the_query_runs_ends_and_leaves_its_last_beat(
    job: WholeJob, caplog: pytest.LogCaptureFixture
) -> None:
    def jvm_has_gone() -> bool:
        raise ConnectionRefusedError("Connection refused")

    heart = Heart(job.records, job.run.generation, every_ms=1).start()
    heart.hand_over(jvm_has_gone)
    heart._thread.join()
    assert job.records.store.names("alive")
    assert "expires in a minute: Connection refused" in caplog.text


def test_begin_tells_its_claim_before_it_commits_what_was_left(tmp_path: Path) -> None:
    job = WholeJob(tmp_path)
    plan = job.plan("auto", "spark")
    told: list[int] = []
    run = begin(plan, lambda records, g: told.append(g) if records.generation(g) else None)
    assert told == [run.generation]
