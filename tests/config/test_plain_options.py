"""Options of ``format("ckpt")``: what they make of job, source and sinks. What only Spark can prove is elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ckpt.errors import ConfigError
from spark_ckpt.plain import _options as options
from spark_ckpt.plain.plugin import PlainDataSource
from spark_ckpt.sinks.files import FilesSink
from spark_ckpt.sinks.memory import MemorySink

JOB = {"dir": "/data/jobs", "job": "orders"}


def test_several_sinks_have_the_options_behind_their_names() -> None:
    given = {"sinks": "memory, Rows", "memory.path": "/m", "rows.sink": "json", "rows.PATH": "/r", "queryname": "q"}
    first, second = options.sinks_of({**JOB, **given})
    assert (first.id, first.cls, first.options) == ("memory", MemorySink, {"path": "/m"})
    assert (second.id, second.cls) == ("Rows", FilesSink)
    assert {k.lower(): v for k, v in second.options.items()} == {"fileformat": "json", "path": "/r"}


def test_one_sink_has_all_options_that_are_not_the_jobs_and_may_be_a_class() -> None:
    path = "tests.config.test_plain_options:MemorySink"
    (sink,) = options.sinks_of({**JOB, "sink": path, "path": "/m", "interval": "5s", "uid": "mine", "mode": "append"})
    assert (sink.id, sink.cls, sink.options) == ("mine", MemorySink, {"path": "/m", "mode": "append"})


@pytest.mark.parametrize(
    ("message", "given"),
    [
        ("unknown sink 'kaffka'; known sinks are delta, files, iceberg, kafka, memory, noop, sql", {"sink": "kaffka"}),
        ("runs in the process that started the query", {"sink": "console"}),
        ("foreachBatch is a method and no format", {"sink": "foreachBatch"}),
        ("needs option sink, such as delta", {}),
        ("option 'path' belongs to none of the sinks delta, memory", {"sinks": "delta,memory", "path": "x"}),
        ("option 'c.path' belongs to none of the sinks a, b", {"sinks": "a,b", "c.path": "x"}),
        ("expected names that differ", {"sinks": "delta,Delta"}),
        ("found 'storage'", {"sinks": "delta,storage"}),
        ("is empty", {"sinks": "delta,"}),
        ("are both given", {"sinks": "delta,sql", "sink": "sql"}),
        ("cannot load the sink 'nowhere:Sink'", {"sink": "nowhere:Sink"}),
        ("expected a class derived from TwoPhaseSink", {"sink": "pathlib:Path"}),
    ],
)
def test_what_is_no_sink_is_refused(message: str, given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=message):
        options.sinks_of({**JOB, **given})


@pytest.mark.parametrize("position", ["startingFrom", "spark.ckpt.endingAt"])
def test_positions_of_sources_are_refused_by_name(position: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot follow spark.ckpt.{position.removeprefix('spark.ckpt.')}.*enable"):
        options.job_of({**JOB, position: '{"files-0": {"t": 1}}'})


def test_the_conf_of_the_start_says_what_options_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = {"spark.ckpt.dir": "/conf", "spark.ckpt.retain": "3", "spark.sql.streaming.checkpointLocation": "/locations"}
    monkeypatch.setattr(options, "launch_conf", lambda: conf)
    config, location = options.job_of({"queryname": "orders", "retain": "5"})
    assert (config.dir, config.job, config.retain, location) == ("/conf", "orders", 5, "/locations/orders")
    config, location = options.job_of({"job": "orders", "queryname": "named", "spark.ckpt.dir": "/mine"})
    assert (config.dir, config.job, config.retain, location) == ("/mine", "orders", 3, "/locations/named")
    config, location = options.job_of({"job": "orders", "checkpointlocation": "/here"})
    assert location == "/here"
    with pytest.raises(ConfigError, match="needs option job"):
        options.job_of({})


def test_a_relative_path_is_refused_where_the_folder_is_a_sessions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "userFiles-1").mkdir()
    (tmp_path / "userFiles-1" / "session").mkdir()
    monkeypatch.chdir(tmp_path / "userFiles-1" / "session")
    for what, call in (
        ("spark.ckpt.dir", lambda: options.job_of({"dir": "jobs", "job": "orders"})),
        ("option path of the source", lambda: options.source_of({"source": "json", "path": "in"}, None)),
        ("option path of sink 'delta'", lambda: options.sinks_of({"sink": "delta", "path": "out"})),
        (
            "option url of sink 'db'",
            lambda: options.sinks_of({"sinks": "db", "db.sink": "sql", "db.url": "sqlite:///x"}),
        ),
    ):
        with pytest.raises(ConfigError, match=f"{what} is relative, and Spark Connect"):
            call()
    options.sinks_of({"sink": "delta", "path": "s3://lake/out"})


def test_a_reader_and_a_writer_may_share_their_options(tmp_path: Path) -> None:
    shared = {**JOB, "source": "json", "sink": "memory"}
    PlainDataSource({**shared, "path": str(tmp_path)})
    PlainDataSource(shared)
    with pytest.raises(ConfigError, match="expected option 'path'"):
        PlainDataSource({**JOB, "source": "json"})
