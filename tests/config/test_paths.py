"""Odd characters in ``spark.ckpt.dir`` and sinks' paths work or are refused at start; relative ones become absolute."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from spark_ckpt.config import JobConfig
from spark_ckpt.errors import CkptError, ConfigError, InvalidInputError
from spark_ckpt.execution.session_confs import spark_path
from spark_ckpt.jobs.spark_folder import one_spelling
from spark_ckpt.jobs.spec import with_absolute_dir
from spark_ckpt.jobs.start import checked_sinks
from spark_ckpt.sinks.registry import create_sink
from tests.storage.whole_job import OUTPUT, WholeJob

FINE = "a b#c{d}e;f!g*h\"i'j<k>l&m$n:o,p=q+r@s`t~\u00f1\u65e5\U0001f600 z"
REFUSED = ("%", "%20", "[", "]", "^", "|", "\\", "\n", "\t", "\x01", "\x7f", "::")


def test_a_job_works_in_folders_with_every_character_that_is_not_refused(tmp_path: Path) -> None:
    """State tables, history and sinks, the merging one too, read back under their odd names."""
    odd = tmp_path / FINE
    odd.mkdir()
    job = WholeJob(odd)
    job.config = with_absolute_dir(JobConfig.from_options({"dir": str(odd / "jobs"), "retain": "2"}))
    for sinks in (
        [("delta", {"path": str(odd / "d"), "uid": "appended"}),
         ("delta", {"path": str(odd / "m"), "mergeKeys": "k", "uid": "merged"})],
        [("files", {"path": str(odd / "f"), "uid": "appended"}),
         ("sql", {"url": f"sqlite:///{odd / 'x.db'}".replace("#", "%23"), "table": "t", "uid": "merged"})],
    ):  # fmt: skip
        job.sinks = checked_sinks(sinks)
        job.start()
        job.step(True)
    assert job.job.verify() == []
    assert len(job.job.checkpoints()) == 2
    url, version = job.job.state_table("counts")
    assert _rows(DeltaTable(url, version=version)) == 5
    assert _rows(DeltaTable(str(odd / "d"))) == 7
    assert _rows(DeltaTable(str(odd / "m"))) == 5
    assert len(list((odd / "f").glob("*.parquet"))) == 1
    job.job.gc()


def _rows(table: DeltaTable) -> int:
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    return int(pa.table(found).num_rows)


@pytest.mark.parametrize("odd", REFUSED)
def test_what_delta_fails_at_is_refused_at_start(tmp_path: Path, odd: str) -> None:
    folder = f"{tmp_path}/a{odd}b"
    with pytest.raises(ConfigError, match=r"spark\.ckpt\.dir .* has .*choose another folder"):
        with_absolute_dir(JobConfig.from_options({"dir": folder}))
    with pytest.raises(ConfigError, match=r"option 'path' has .*choose another folder"):
        create_sink("delta", {"path": folder, "mergeKeys": "k"}).validate(OUTPUT)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["delta", "files"])
@pytest.mark.parametrize("odd", REFUSED)
def test_a_sink_that_appends_works_or_is_refused_in_our_words(tmp_path: Path, odd: str, kind: str) -> None:
    options = {"path": f"{tmp_path}/a{odd}b", **({"fileFormat": "json"} if kind == "files" else {})}
    try:
        create_sink(kind, options).validate(OUTPUT)
    except InvalidInputError as error:
        assert "choose another folder" in str(error)  # noqa: PT017
        assert not list(tmp_path.iterdir())
    else:
        assert [p.name for p in tmp_path.iterdir()] == [f"a{odd}b"]


def test_relative_paths_become_absolute_at_start_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.WARNING):
        specs = checked_sinks([
            ("delta", {"path": "d"}), ("files", {"Path": "../f"}), ("memory", {"path": "x/m"}),
            ("sql", {"url": "sqlite:///x.db", "table": "t"}), ("sql", {"url": "postgresql://h/x.db", "table": "t"}),
            ("files", {"path": "s3://b/p", "uid": "s3"}), ("files", {"path": "file:/p", "uid": "local"}),
        ])  # fmt: skip
    found = [next(v for k, v in s.options.items() if k.lower() in ("path", "url")) for s in specs]
    up = tmp_path.parent
    assert found == [
        f"{tmp_path}/d", f"{up}/f", f"{tmp_path}/x/m", f"sqlite:///{tmp_path}/x.db", "postgresql://h/x.db", "s3://b/p",
        "file:/p",
    ]  # fmt: skip
    assert sum("is relative: this start uses" in r.message for r in caplog.records) == 4


def test_a_relative_sink_is_the_same_in_a_process_that_runs_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = WholeJob(tmp_path)
    job.sinks = checked_sinks([
        ("sql", {"url": "sqlite:///x.db", "table": "t", "uid": "appended"}),
        ("memory", {"path": "m", "mergeKeys": "k", "uid": "merged"}),
    ])  # fmt: skip
    job.start()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    job.step(True)
    connection = sqlite3.connect(tmp_path / "x.db")
    assert connection.execute("select count(*) from t").fetchone() == (7,)
    connection.close()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_unusable_path_says_so_before_anything_is_claimed(tmp_path: Path) -> None:
    job = WholeJob(tmp_path)
    job.sinks = checked_sinks([("delta", {"path": f"{tmp_path}/a^b", "mergeKeys": "k", "uid": "appended"})])
    with pytest.raises(CkptError, match="has the character \\^"):
        job.start()
    assert not (job.folder / "generations").exists()


@pytest.mark.parametrize(
    ("location", "as_recorded", "for_spark"),
    [
        ("/a:/b", "/a:/b", "file:///a:/b"),
        ("file:/a/b/", "/a/b", "file:///a/b"),
        ("s3a://b/x/", "s3://b/x", "s3a://b/x/"),
        ("hdfs://n:8020/x", "hdfs://n:8020/x", "hdfs://n:8020/x"),
        ("dbfs:/x/", "dbfs:/x", "dbfs:/x/"),
    ],
)
def test_spark_gets_its_location_as_it_is_written_and_records_have_one_spelling(
    location: str, as_recorded: str, for_spark: str
) -> None:
    assert one_spelling(location) == as_recorded
    assert spark_path(location) == for_spark
