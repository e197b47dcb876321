"""One rule for names, at every entrance: nothing that becomes a folder's name leads out of its folder."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import spark_ckpt
from spark_ckpt.cli import app
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CkptError, ConfigError, CorruptStorageError, TopologyError
from spark_ckpt.jobs._savepoints import import_savepoint
from spark_ckpt.jobs.records import JobRecords
from spark_ckpt.jobs.requests import create_request, open_requests
from spark_ckpt.jobs.spec import job_url, with_absolute_dir
from spark_ckpt.jobs.start import checked_sinks
from spark_ckpt.names import MAX_BYTES, checked_name, name_problem, similar_name
from spark_ckpt.plain._options import job_of
from spark_ckpt.plain.plugin import PlainDataSource
from spark_ckpt.protocol.records import CompletionRecord, TableRef, Topology
from spark_ckpt.storage.content import FileEntry
from spark_ckpt.storage.filesystem import Folder, open_filesystem
from spark_ckpt.storage.manifest import StateManifest, read_manifest, write_manifest
from spark_ckpt.storage.record_store import RecordStore

ESCAPES = ["../x", "..", ".", "a/b", "/etc", "a\\b", "a\nb", "a\0b", "", " a", "a ", ".hidden", "*", "a?b", "[a]",
           "a^b", "a%2Fb", "x" * 201, "ä" * 101, "a\u202eb", "a\u2028b", "file::memory:", "\ud800"]  # fmt: skip
FINE = [
    "a -_.,:;+=@()'!&~$`b",
    "a",
    "orders",
    "Zähler 1",
    "名前",
    "v1.2",
    "a..b",
    "-a",
    "_a",
    "a:b",
    "o'neil & co (neu)",
    "x" * 200,
    "🦆",
    "a=1,b=2",
]


@pytest.mark.parametrize("name", FINE)
def test_ordinary_names_are_taken_as_they_are(name: str) -> None:
    assert checked_name("job name", name) == name


@pytest.mark.parametrize("name", ESCAPES)
def test_a_refusal_says_what_is_wrong_and_gives_a_name_that_works(name: str) -> None:
    with pytest.raises(ConfigError, match="would work") as refused:
        checked_name("job name", name)
    offered = str(refused.value).rsplit("; ", 1)[1].removesuffix(" would work").strip("'\"")
    assert name_problem(offered) is None


@given(st.text() | st.text("/.\\: -%a", max_size=8) | st.text(min_size=150, max_size=300))
def test_every_name_is_fine_or_has_a_similar_one_that_is(name: str) -> None:
    assert name_problem(similar_name(name)) is None


@given(st.text(max_size=12) | st.text("/.\\:~$ a", max_size=8))
def test_a_name_that_is_taken_is_one_folder_directly_below_its_parent(name: str) -> None:
    if name_problem(name) is None:
        assert len(name.encode()) <= MAX_BYTES
        for parent in ("/jobs", "memory://jobs"):
            folder = Folder(f"{parent}/{name}")
            _, root = open_filesystem(parent)
            assert folder.root == f"{root}/{name}"
            assert Folder(parent).child(name).root == f"{root}/{name}"


@pytest.mark.parametrize("name", ["../x", "a\nb", ".."])
def test_every_entrance_refuses_the_name_of_a_job(name: str, tmp_path: Path) -> None:
    config = JobConfig(dir=str(tmp_path / "jobs"))
    with pytest.raises(ConfigError):
        job_url(config, name)  # queryName, and whatever else leads to a job's folder
    with pytest.raises(ConfigError, match=r"spark\.ckpt\.job: expected a name"):
        JobConfig.from_options({"dir": config.dir, "spark.ckpt.job": name})
    with pytest.raises(ConfigError):
        spark_ckpt.job(config.dir, name)
    with pytest.raises(ConfigError):
        PlainDataSource({"dir": config.dir, "job": name, "source": "rate"})._job()
    for command in ("list", "verify", "gc"):
        result = CliRunner().invoke(app, [command, config.dir, name])
        assert result.exit_code == 1
        assert "would work" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("uid", ["../x", "a/b", ".."])
def test_every_entrance_refuses_a_uid(uid: str) -> None:
    with pytest.raises(TopologyError):
        checked_name("operator uid", uid, TopologyError)
    with pytest.raises(ConfigError):
        checked_sinks([("memory", {"uid": uid})])
    with pytest.raises(ConfigError):
        PlainDataSource({"dir": "/jobs", "job": "a", "source": "rate", "uid": uid})


# --- what is read from storage ---------------------------------------------------------------------------------

RECORD = CompletionRecord(
    checkpoint=3, kind="savepoint", generation=1, origin=1, batch=7, batches_from=8, sources={}, tables={},
    committables=(), topology=Topology(4, 4, ("in",), {}, ("out",)), triggered_ms=1, completed_ms=2,
)  # fmt: skip


def crafted(tmp_path: Path, **changes: Any) -> None:
    """Import a savepoint whose record was changed by somebody."""
    path, job = str(tmp_path / "savepoint"), str(tmp_path / "jobs/job")
    outside = tmp_path / "savepoint/outside"
    outside.mkdir(parents=True)
    (outside / "stolen").write_text("x")
    RecordStore(path).replace(
        "savepoint.json", "savepoint", {"job": "job", "record": replace(RECORD, **changes).to_json()}
    )
    import_savepoint(JobRecords(job, JobConfig(dir=str(tmp_path / "jobs"))), path, {}, 5)


@pytest.mark.parametrize("name", ["../outside", "../../escaped", "/etc", "a/../../b", ".."])
def test_a_crafted_source_in_a_savepoint_writes_nothing(name: str, tmp_path: Path) -> None:
    with pytest.raises(CorruptStorageError, match="source uid"):
        crafted(tmp_path, sources={name: {}})
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    ("uid", "manifest"),
    [
        ("../x", "manifests/../x/1.json"),
        ("u", "../../etc/passwd"),
        ("u", "manifests/u/../../x"),
        ("u", "savepoint.json"),
    ],
)
def test_a_crafted_operator_or_manifest_in_a_savepoint_writes_nothing(uid: str, manifest: str, tmp_path: Path) -> None:
    with pytest.raises(CorruptStorageError, match=r"operator uid|expected one in manifests/u/"):
        crafted(tmp_path, tables={uid: TableRef(1, manifest)})
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize("file", ["../../stolen", "/etc/passwd", "..", "a/b"])
def test_a_manifest_names_files_of_its_own_folder_only(file: str, tmp_path: Path) -> None:
    store = RecordStore(str(tmp_path))
    path = write_manifest(store, StateManifest("u", 1, 1, "{}", {file: FileEntry(1, 1)}, {}), "t")
    with pytest.raises(CorruptStorageError, match="expected files of its own folder"):
        read_manifest(store, path)


# --- where relative paths are relative to ----------------------------------------------------------------------


def test_a_relative_dir_is_made_absolute_at_start_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.WARNING, "spark_ckpt"):
        assert with_absolute_dir(JobConfig(dir="jobs/a")).dir == f"{tmp_path}/jobs/a"
    assert f"spark.ckpt.dir 'jobs/a' is relative: this start uses {tmp_path}/jobs/a" in caplog.text
    caplog.clear()
    for path in ("/jobs", "s3://bucket/jobs", "file:/jobs"):
        assert with_absolute_dir(JobConfig(dir=path)).dir == path
    assert caplog.text == ""


def test_the_plain_plugin_runs_with_an_absolute_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config, location = job_of({"dir": "jobs", "job": "a", "source": "rate"})
    assert (config.dir, location) == (f"{tmp_path}/jobs", f"{tmp_path}/jobs/a/spark")


def test_a_savepoints_path_is_relative_to_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = RecordStore(str(tmp_path / "job"))
    create_request(store, "savepoint", "here", False)
    assert [r.target for r in open_requests(store)] == [f"{tmp_path}/here"]


def test_errors_about_names_survive_pickling_and_json() -> None:
    with pytest.raises(CkptError) as refused:
        checked_name("job name", "a\nb\ud800")
    assert "U+000A" in str(refused.value)
    json.dumps(str(refused.value)).encode()
