"""``spark-ckpt gc`` cleans up behind the sinks that the job's own record names, without a secret in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import spark_ckpt
from spark_ckpt.cli import app
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError, CorruptStorageError
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.sink_records import find_sinks, record_sinks, variable
from spark_ckpt.jobs.spec import SinkSpec
from spark_ckpt.jobs.start import checked_sinks
from spark_ckpt.sinks.memory import MemorySink
from spark_ckpt.sinks.staging import count_stagers, is_of_job, staged_prefix, tag
from tests.sinks.test_sinks_of_a_job import Job

SECRET = "hunter2"


class OwnSink(MemorySink):
    """A user's class; making or importing it from a record would be wrong."""


def _gc(job: Job, *more: str, **env: str) -> Result:
    return CliRunner().invoke(app, ["gc", job.jobs, "orders", *more], env={"COLUMNS": "300", **env})


def _staged(folder: Path) -> Job:
    """Every sink holds rows that no record names, of a task whose batch never came."""
    job = Job(folder)
    job.sinks = (*job.sinks, *checked_sinks([
        ("files", {"path": f"{folder}/private", "storage.token": SECRET, "uid": "private.files"}),
        (OwnSink, {"path": f"{folder}/own", "uid": "own"}),
    ]))  # fmt: skip
    run = job.start()
    job.commit(run, [(1, "a")])
    job.stage(run, 2, [(2, "b")], 1)
    return job


@pytest.fixture
def records(tmp_path: Path) -> JobRecords:
    return JobRecords(str(tmp_path), JobConfig(dir=str(tmp_path)))


def test_gc_on_the_command_line_removes_what_each_sink_staged_and_says_what_it_left_out(tmp_path: Path) -> None:
    job = _staged(tmp_path)
    first = _gc(job)
    assert first.exit_code == 0, first.output
    assert "left out: sink 'private.files': its option(s) storage.token hold a secret" in first.output
    assert "SPARK_CKPT_SINK_PRIVATE_FILES_STORAGE_TOKEN (or --option private.files.storage.token=...)" in first.output
    assert "left out: sink 'own': it is of your own class tests.sinks.test_recorded_sinks:OwnSink" in first.output
    assert sum("removed: " in line for line in first.output.splitlines()) >= 5
    unsure = _gc(job, "--option", f"private.files.storage.token={SECRET}")
    assert f"would go to where the job's folder says it is: path={tmp_path}/private." in unsure.output
    assert "--confirm private.files, or give it: --option private.files.path=..." in unsure.output
    second = _gc(job, "--option", f"private.files.storage.token={SECRET}", "--confirm", "private.files")
    assert "private.files" not in second.output
    assert "removed: " in second.output
    given = ("--option", f"private.files.path={tmp_path}/private")
    third = _gc(job, *given, SPARK_CKPT_SINK_PRIVATE_FILES_STORAGE_TOKEN=SECRET).output
    assert "nothing to remove" in third
    assert "private.files" not in third
    assert job.rows()["files"] == [(1, "a")], "what is committed stays"
    everything = [p.read_bytes() for p in Path(job.jobs).rglob("*") if p.is_file()]
    assert not any(SECRET.encode() in data for data in everything)


@pytest.mark.parametrize(
    ("options", "secret"),
    [
        ({"url": f"postgresql://u:{SECRET}@h/db", "table": "t", "mergeKeys": "k"}, ["url"]),
        ({"url": f"postgresql://h/db?user=u&password={SECRET}", "table": "t"}, ["url"]),
        ({"url": "postgresql://h/db", "user": "u", "Password": SECRET, "table": "t"}, ["Password"]),
        ({"path": "s3://b", "storage.client_kwargs": json.dumps({"aws_secret_access_key": SECRET})},
         ["storage.client_kwargs"]),
        ({"path": f"https://h/b?sig={SECRET}"}, ["path"]),
    ],
)  # fmt: skip
def test_no_secret_is_recorded_only_the_name_of_its_option(
    records: JobRecords, tmp_path: Path, options: dict[str, str], secret: list[str]
) -> None:
    record_sinks(records, (SinkSpec("s", MemorySink, options),))
    (entry,) = json.loads((tmp_path / "sinks.json").read_text())["body"]["sinks"]
    assert entry["secret"] == secret
    assert entry["options"] == {k: v for k, v in options.items() if k not in secret}
    assert SECRET not in (tmp_path / "sinks.json").read_text()


def test_a_secret_comes_from_the_environment_and_an_option_counts_before_it(records: JobRecords) -> None:
    (spec,) = checked_sinks([("sql", {"url": f"postgresql://u:{SECRET}@h/db", "table": "t"})])
    record_sinks(records, (spec,))
    environ = {variable("sql", "url"): "sqlite:///env.db"}
    assert variable("sql", "url") == "SPARK_CKPT_SINK_SQL_URL"
    (found,) = find_sinks(records, {}, environ).specs
    assert found.options == {"url": "sqlite:///env.db", "table": "t"}
    (found,) = find_sinks(records, {"sql.URL": "sqlite:///given.db"}, environ).specs
    assert found.options == {"URL": "sqlite:///given.db", "table": "t"}
    with pytest.raises(ConfigError, match=r"SINK.NAME of one of the job's sinks \['sql'\], got 'sq1.url'"):
        find_sinks(records, {"sq1.url": "sqlite://"}, {})


@pytest.mark.parametrize(
    "where",
    [
        {"url": "postgresql://attacker/db", "user": "u", "table": "t"},
        {"URL": "postgresql://attacker/db?user=u", "table": "t", "mergeKeys": "k"},
    ],
)
def test_a_tampered_record_gets_no_secret_sent_anywhere(records: JobRecords, where: dict[str, str]) -> None:
    """What the environment holds goes only where somebody said on the command line or in the environment, too."""
    entry = {"id": "db", "format": "sql", "class": "x", "options": where, "secret": ["password"]}
    records.store.replace("sinks.json", "sinks", {"sinks": [entry]})
    environ = {variable("db", "password"): SECRET}
    found = find_sinks(records, {}, environ)
    assert (found.specs, len(found.left_out)) == ((), 1)
    assert "attacker" in found.left_out[0]
    assert SECRET not in found.left_out[0]
    (given,) = find_sinks(records, {"db.url": "postgresql://mine/db"}, environ).specs
    assert "attacker" not in str(given.options)
    assert find_sinks(records, {}, environ, ["db"]).specs


def test_where_a_secret_does_not_go_nothing_need_be_confirmed(records: JobRecords, tmp_path: Path) -> None:
    record_sinks(records, checked_sinks([("files", {"path": str(tmp_path), "storage.endpoint_url": "http://x"})]))
    assert find_sinks(records, {}, {}).specs


@pytest.mark.parametrize("kind", [None, "os:system", "../files", "no-such"])
def test_nothing_that_storage_names_is_imported(records: JobRecords, kind: str | None) -> None:
    entry: dict[str, Any] = {"id": "s", "format": kind, "class": "antigravity:x", "options": {}, "secret": []}
    records.store.replace("sinks.json", "sinks", {"sinks": [entry]})
    found = find_sinks(records, {}, {})
    assert (found.specs, len(found.left_out)) == ((), 1)


def test_a_registered_sink_is_found_where_it_is_registered(records: JobRecords, tmp_path: Path) -> None:
    spark_ckpt.register_sink("own-sink", OwnSink)
    record_sinks(records, (SinkSpec("s", OwnSink, {"path": str(tmp_path)}),))
    assert find_sinks(records, {}, {}).specs == (SinkSpec("s", OwnSink, {"path": str(tmp_path)}),)


def test_a_damaged_record_of_sinks_is_refused_with_the_way_out_and_a_job_of_before_has_none(
    records: JobRecords,
) -> None:
    assert find_sinks(records, {}, {}).specs == ()
    records.store.replace("sinks.json", "sinks", {"sinks": [{"id": 1}]})
    with pytest.raises(CorruptStorageError, match="next start writes it again"):
        find_sinks(records, {}, {})


# -- what others of the job's name staged -------------------------------------------------------------------------


def _lost(folder: Path) -> Job:
    """A job that staged rows in every sink, and whose folder was removed then; started anew under its old name."""
    job = Job(folder)
    run = job.start()
    job.commit(run, [(1, "a")])
    job.stage(run, 2, [(2, "b")], 1)
    shutil.rmtree(job.jobs)
    return job


def test_what_a_life_staged_whose_folder_is_gone_is_listed_and_removed_by_name(tmp_path: Path) -> None:
    job = _lost(tmp_path)
    run = job.start()
    job.commit(run, [(1, "c")])
    job.stage(run, 2, [(3, "d")], 1)
    assert "removed" in _gc(job).output
    listed = [line.removeprefix("staged: ") for line in _gc(job, "--others").output.splitlines()]
    assert len(listed) == 5
    assert {line.split(" in sink ")[1] for line in listed} == {
        "delta: 1", "merged: 1", "sql: 1", "upserted: 1", "files: 1"
    }  # fmt: skip
    for who in dict.fromkeys(line.split(" in sink ")[0] for line in listed):
        assert "removed: " in _gc(job, "--gone", who).output
    assert "nothing is staged by others" in _gc(job, "--others").output
    assert job.rows()["files"] == [(1, "a"), (1, "c")], "what is committed stays"
    job.commit(run, [(4, "e")], 1)
    assert job.rows()["delta"] == [(1, "a"), (1, "c"), (4, "e")], "the job itself goes on"


def test_a_folder_that_is_gone_and_not_made_anew_is_cleaned_up_behind_with_sinks_by_hand(tmp_path: Path) -> None:
    job = _lost(tmp_path)
    assert "there is no job 'orders'" in _gc(job).output
    by_hand = ("--sink", "files", "--option", f"files.path={tmp_path}/files")
    (line,) = _gc(job, "--others", *by_hand).output.splitlines()
    who = line.removeprefix("staged: ").split(" in sink ")[0]
    result = _gc(job, "--gone", who, *by_hand)
    assert (result.exit_code, result.output.count("removed: ")) == (0, 1)


def test_gone_is_refused_for_the_job_itself_and_for_jobs_of_other_names(tmp_path: Path) -> None:
    job = Job(tmp_path)
    run = job.start()
    job.commit(run, [(1, "a")])
    job.stage(run, 2, [(2, "b")], 1)
    for who in (run.identity, tag(run.identity), "orders-eu@0123456789abcdef", tag("orders-eu@0123456789abcdef")):
        result = _gc(job, "--gone", who)
        assert (result.exit_code, "expected another life of job 'orders'" in result.output) == (1, True)
    assert "nothing is staged by others" in _gc(job, "--others").output
    assert "removed: " in _gc(job).output


@pytest.mark.parametrize("job", ["orders", "o" * 60, "été 1", "--", "a-b_c"])
def test_whose_something_is_can_be_told_from_its_tag(job: str) -> None:
    me = f"{job}@0123456789abcdef"
    assert is_of_job(me, job)
    assert is_of_job(tag(me), job)
    assert is_of_job(tag(job), job), "of before lives had marks"
    assert count_stagers([f"{staged_prefix(me)}rest", f"{staged_prefix(me)}more", "part-1"]) == {tag(me): 2}
