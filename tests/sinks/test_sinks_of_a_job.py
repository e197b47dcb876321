"""Starts and commits of a whole job, without Spark: real records, Delta, SQLite and files; lives, and giving up."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

import spark_ckpt
from spark_ckpt.cli import app
from spark_ckpt.errors import FencedError, InvalidInputError
from spark_ckpt.jobs import committer
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.sinks.files import FilesSink
from spark_ckpt.sinks.sql.sink import SqlSink
from tests.sinks.sinks_job import Job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


# --- processes -------------------------------------------------------------------------------------------------


def test_batches_that_processes_commit_in_turn_belong_to_one_checkpoint(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries of one session share the processes that Spark commits in: the next batch may come to any of them."""
    run, processes = job.start(), ({}, {})
    for batch, process in enumerate((0, 1, 0, 0, 1, 1, 0)):
        monkeypatch.setattr(committer, "_committers", processes[process])
        rows = [(batch, f"process {process}")]
        if batch in (2, 6):
            job.commit(run, rows, batch)
        else:
            k = JobRecords(run.url, run.config).newest_id() + 1
            committer.committer_for(run, job.sinks).commit(batch, job.stage(run, k, rows, batch), [])
    rows = [(batch, f"process {process}") for batch, process in enumerate((0, 1, 0, 0, 1, 1, 0))]
    job.check(rows, rows)
    assert job.handle.verify() == []


# --- lives -----------------------------------------------------------------------------------------------------


def test_a_second_life_commits_its_own_checkpoint_1(job: Job) -> None:
    for life in ("first", "second", "third"):
        run = job.start()
        assert [job.commit(run, [(1, life)], 0), job.commit(run, [(2, life)], 1)] == [1, 2]
        shutil.rmtree(job.jobs)
    job.check([(k, life) for k in (1, 2) for life in ("first", "second", "third")], [(1, "third"), (2, "third")])


def test_a_second_life_does_so_when_the_delta_table_has_no_notes_any_more(job: Job) -> None:
    """Delta keeps a transaction's number for good, and its notes only as long as its log."""
    run = job.start()
    for batch in range(3):
        job.commit(run, [(batch, "first")], batch)
    for name in ("delta", "merged"):
        table = DeltaTable(f"{job.folder}/{name}")
        table.create_checkpoint()
        for entry in sorted((job.folder / name / "_delta_log").glob("*.json"))[:-1]:
            entry.unlink()
    shutil.rmtree(job.jobs)
    job.commit(job.start(), [(0, "second")])
    first = [(k, "first") for k in range(3)]
    job.check([*first, (0, "second")], [(0, "second"), *first[1:]])


def test_deleted_checkpoints_keep_their_ids(job: Job) -> None:
    for n in (1, 2, 3):
        run = job.start()
        assert job.commit(run, [(n, "kept")]) == n
        job.handle.delete_checkpoints()
        assert job.handle.completed() == []
    job.check([(n, "kept") for n in (1, 2, 3)], [(n, "kept") for n in (1, 2, 3)])


def test_a_driver_of_the_first_life_is_fenced_by_the_second(job: Job) -> None:
    zombie = job.start()
    job.commit(zombie, [(1, "first")], 0)
    shutil.rmtree(job.jobs)
    with pytest.raises(FencedError, match="found none; the job's folder was removed"):
        job.commit(zombie, [(2, "zombie")], 1)
    run = job.start()
    assert run.generation != zombie.generation
    job.commit(run, [(1, "second")], 0)
    with pytest.raises(FencedError, match="another query runs this job now"):
        job.commit(zombie, [(3, "zombie")], 2)
    job.commit(run, [(2, "second")], 1)
    job.check([(1, "first"), (1, "second"), (2, "second")], [(1, "second"), (2, "second")])


def test_two_jobs_of_one_name_write_to_one_target_and_gc_of_one_leaves_the_other_alone(tmp_path: Path) -> None:
    one, two = Job(tmp_path, "one"), Job(tmp_path, "two")
    first, second = one.start(), two.start()
    staged = one.stage(first, 1, [(9, "staged by one")])
    one.commit(first, [(1, "one")])
    two.commit(second, [(2, "two")])
    two.handle.gc()
    assert len(one.query("select * from spark_ckpt_stages")) == 2
    one.check([(1, "one"), (2, "two")], [(1, "one"), (2, "two")])
    assert one.handle.gc()
    assert one.query("select * from spark_ckpt_stages") == []
    assert len(staged) == 5


# --- giving up -------------------------------------------------------------------------------------------------


def test_a_commit_that_can_never_succeed_is_given_up_by_hand(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as by a rule that a table gets between the trial of a checkpoint and its commit."""
    run = job.start()
    job.query("create unique index once on appended (k)")
    job.commit(run, [(1, "a")], 0)
    with monkeypatch.context() as patched:
        patched.setattr(SqlSink, "try_commit", lambda *_: None)
        with pytest.raises(
            InvalidInputError, match="checkpoint 2 of job 'orders' is complete, but its sink 'sql' could not"
        ):
            job.commit(run, [(1, "again"), (2, "b")], 1)
    for restore in ("auto", "none", "1"):
        with pytest.raises(InvalidInputError, match=r"UNIQUE(?s:.)*`spark-ckpt abandon DIR orders 2 --sink sql`"):
            job.start(restore=restore)
    # The other table of the same database shows it together with this one, or not at all.
    waiting = {"sql": [(1, "a")], "upserted": [(1, "a")]}
    job.check([(1, "a"), (1, "again"), (2, "b")], [(1, "again"), (2, "b")], waiting)

    def command(*words: str) -> Any:
        return CliRunner().invoke(app, [words[0], job.jobs, "orders", *words[1:]], env={"COLUMNS": "200"})

    refused = command("abandon", "1", "--sink", "sql")
    assert refused.exit_code == 1
    assert "checkpoint 1 is committed in all its sinks; complete and not committed: 2 in" in refused.output
    assert command("abandon", "2", "--sink", "sqlite").exit_code == 1
    assert command("abandon", "2", "--sink", "sql").exit_code == 0
    run = job.start()
    job.commit(run, [(3, "c")])
    job.check(
        [(1, "a"), (1, "again"), (2, "b"), (3, "c")], [(1, "again"), (2, "b"), (3, "c")], {"sql": [(1, "a"), (3, "c")]}
    )
    reasons = {c["id"]: c["reason"] for c in job.handle.checkpoints()}
    assert reasons == {1: None, 2: "given up in sink 'sql'", 3: None}
    assert "given up in sink 'sql'" in command("list").output
    assert '"abandoned": [\n    "sql"\n  ]' in command("show", "2").output
    assert len(job.query("select * from spark_ckpt_stages")) == 1
    assert any("stage" in name for name in job.handle.gc())
    assert job.query("select * from spark_ckpt_stages") == []
    with pytest.raises(InvalidInputError, match="checkpoint 2 is committed in all its sinks"):
        job.handle.abandon(2, sink="sql")


def test_a_staged_file_that_is_gone_is_given_up_by_hand(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise InvalidInputError("not today")

    run = job.start()
    job.commit(run, [(1, "a")], 0)
    with monkeypatch.context() as patched:
        patched.setattr(FilesSink, "commit", refuse)
        with pytest.raises(InvalidInputError, match="'files' could not commit it: not today"):
            job.commit(run, [(1, "again")], 1)
    for path in (job.folder / "files/.staging").glob("ckpt-*.parquet"):
        path.unlink()
    with pytest.raises(spark_ckpt.errors.CorruptStorageError, match=r"'files' could not commit it(?s:.)*are missing"):
        job.start()
    job.handle.abandon(2, sink="files")
    job.start()
    job.check([(1, "a"), (1, "again")], [(1, "again")], {"files": [(1, "a")]})
