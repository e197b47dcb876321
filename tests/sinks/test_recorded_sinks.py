"""``spark-ckpt gc`` cleans up behind the sinks that the job's own record names, without a secret in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import spark_ckpt
from spark_ckpt.cli import app
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import ConfigError, CorruptStorageError
from spark_ckpt.sinks.memory import MemorySink
from spark_ckpt.spark.job_records import JobRecords
from spark_ckpt.spark.sink_records import find_sinks, record_sinks, variable
from spark_ckpt.spark.spec import SinkSpec
from spark_ckpt.spark.start import checked_sinks
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
    second = _gc(job, "--option", f"private.files.storage.token={SECRET}")
    assert "private.files" not in second.output
    assert "removed: " in second.output
    assert "nothing to remove" in _gc(job, SPARK_CKPT_SINK_PRIVATE_FILES_STORAGE_TOKEN=SECRET).output
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
