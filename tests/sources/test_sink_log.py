"""Of a folder that Spark's file sink writes, only what its log names is read: no leftovers of attempts that failed."""

from __future__ import annotations

import json
import logging
import os
import pickle
from pathlib import Path
from typing import Any

import fsspec
import pytest

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sources.base import InnerReader, open_source
from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.sources.files import FilesSource


class SinkFolder:
    """As Spark's file sink writes it."""

    def __init__(self, path: Path) -> None:
        self.path, self.log = path, path / "_spark_metadata"
        self.log.mkdir(parents=True)

    def file(self, name: str, n: int) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'{{"n":{n}}}\n')
        return file

    def record(self, name: str, *files: Path, deleted: tuple[Path, ...] = ()) -> None:
        lines = [line(f, "add") for f in files] + [line(f, "delete") for f in deleted]
        (self.log / name).write_text("\n".join(["v1", *lines]))
        (self.log / f".{name}.crc").write_text("x")


def line(file: Path, action: str) -> str:
    path = f"file://{file.as_posix().replace(' ', '%20').replace('ü', '%C3%BC')}"
    said = {"path": path, "size": 8, "isDir": False, "modificationTime": 1_700_000_000_123, "action": action}
    return json.dumps({**said, "blockReplication": 1, "blockSize": 33554432})


@pytest.fixture
def sink(tmp_path: Path) -> SinkFolder:
    return SinkFolder(tmp_path / "in")


class Reading:
    def __init__(self, path: Any, job: Any, **options: Any) -> None:
        given = {"path": str(path), "fileFormat": "json", "discoveryInterval": "0s"}
        source = FilesSource({**given, **{k: str(v) for k, v in options.items()}})
        source.metadata_url = str(job)
        self.reader = InnerReader(source, parse_ddl("n long"))
        self.at = self.reader.initial()

    def new(self) -> list[int]:
        end = self.reader.latest(self.at, True)
        splits = self.reader.splits(self.at, end)
        self.at = end
        return sorted(row["n"] for split in splits for batch in self.reader.read(split) for row in batch.to_pylist())


def read(path: Any, job: Any, **options: Any) -> list[int]:
    return Reading(path, job, **options).new()


def test_only_what_the_log_names_is_read_while_spark_writes_on(sink: SinkFolder, tmp_path: Path) -> None:
    reading = Reading(sink.path, tmp_path / "job")
    sink.file("part-0-failed.json", 99)
    assert reading.new() == [], "no batch is committed yet"
    first = sink.file("part-0-good.json", 1)
    sink.record("0", first)
    assert reading.new() == [1]
    second = sink.file("part-1-good.json", 2)
    assert reading.new() == [], "written, and not committed"
    sink.record("1", second)
    sink.record("2.compact", first, second, sink.file("part-2-good.json", 3))
    assert reading.new() == [2, 3]
    for name in ("0", "1"):
        (sink.log / name).unlink()
    sink.record("3", sink.file("part 3 ü.json", 4))
    assert reading.new() == [4]
    assert read(sink.path, tmp_path / "another") == [1, 2, 3, 4]


def test_what_the_log_deletes_does_not_count(sink: SinkFolder, tmp_path: Path) -> None:
    a, b = sink.file("a.json", 1), sink.file("b.json", 2)
    sink.record("0", a, b)
    sink.record("1", deleted=(a,))
    assert read(sink.path, tmp_path / "job") == [2]


@pytest.mark.parametrize("path", ["*/in", "x/in/*.json", "x/in/{a,z}*.json", "x/i?/*"])
def test_a_glob_finds_what_the_log_names_and_nothing_else(tmp_path: Path, path: str) -> None:
    sink = SinkFolder(tmp_path / "x" / "in")
    sink.record("0", sink.file("a.json", 1))
    sink.file("z.json", 99)
    assert read(f"{tmp_path}/{path}", tmp_path / "job") == [1]


def test_a_file_that_is_named_itself_is_read_as_by_spark(sink: SinkFolder, tmp_path: Path) -> None:
    sink.record("0")
    assert read(sink.file("a.json", 1), tmp_path / "job") == [1]


def test_folders_below_follow_the_outermost_log(sink: SinkFolder, tmp_path: Path) -> None:
    sink.record("0", sink.file("p=1/a.json", 1))
    sink.file("p=1/b.json", 99)
    inner = SinkFolder(sink.path / "p=2")
    inner.record("0", inner.file("c.json", 98))
    assert read(sink.path, tmp_path / "job", recursive=True) == [1]


def test_folders_below_have_logs_of_their_own(tmp_path: Path) -> None:
    a, b = SinkFolder(tmp_path / "in" / "x" / "a"), SinkFolder(tmp_path / "in" / "b")
    a.record("0", a.file("deep/a.json", 1))
    a.file("a.json", 99)
    b.record("0", b.file("b.json", 2))
    b.file("left.json", 98)
    (tmp_path / "in" / "plain.json").write_text('{"n":3}')
    assert read(tmp_path / "in", tmp_path / "job", recursive=True) == [1, 2, 3]


@pytest.mark.parametrize("recursive", [True, False])
def test_on_another_file_system_it_is_the_same(recursive: bool) -> None:
    fs, root = fsspec.filesystem("memory"), f"/sink-log-{recursive}"
    said = {"path": f"s3a://bucket{root}/a.json", "size": 8, "isDir": False, "modificationTime": 1, "action": "add"}
    texts = {"a.json": '{"n":1}', "b.json": '{"n":99}', "_spark_metadata/0": f"v1\n{json.dumps(said)}"}
    for name, text in texts.items():
        fs.pipe_file(f"{root}/{name}", text.encode())
    assert read(f"memory:/{root}", f"memory:/{root}-job", recursive=recursive) == [1]


def test_a_folder_that_was_moved_is_read_where_it_is(sink: SinkFolder, tmp_path: Path) -> None:
    sink.record("0", sink.file("p=1/a.json", 1), sink.file("p=2/a.json", 2))
    sink.file("p=2/b.json", 99)
    os.rename(sink.path, tmp_path / "moved")
    assert read(tmp_path / "moved", tmp_path / "job", recursive=True) == [1, 2]


def test_a_file_that_the_log_names_and_that_is_gone_is_missed_unless_it_may(sink: SinkFolder, tmp_path: Path) -> None:
    gone = sink.file("a.json", 1)
    sink.record("0", gone, sink.file("b.json", 2))
    gone.unlink()
    with pytest.raises(InvalidInputError, match=r"a\.json has vanished.*ignoreMissingFiles"):
        read(sink.path, tmp_path / "job")
    assert read(sink.path, tmp_path / "job", ignoreMissingFiles=True) == [2]


def test_files_that_are_read_may_be_removed(sink: SinkFolder, tmp_path: Path) -> None:
    first = sink.file("a.json", 1)
    sink.record("0", first)
    reading = Reading(sink.path, tmp_path / "job")
    assert reading.new() == [1]
    first.unlink()
    sink.record("1", sink.file("b.json", 2))
    assert reading.new() == [2]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("2", "v1\n", "expected record 1, found none, and record 2"),
        ("1", "v2\n", "version v1.*'v2'"),
        ("1", "v1\n{", "record 1.*damaged"),
        ("1", 'v1\n{"path":"x"}', "record 1.*damaged"),
        ("1", "", "version v1"),
    ],
)
def test_a_log_that_cannot_be_read_is_told_of_with_a_way_out_that_works(
    sink: SinkFolder, tmp_path: Path, name: str, content: str, message: str
) -> None:
    sink.record("0", sink.file("a.json", 1))
    sink.file("b.json", 2)
    (sink.log / name).write_text(content)
    with pytest.raises(InvalidInputError, match=rf"{message}.*sinkLog=ignore"):
        read(sink.path, tmp_path / "job")
    assert read(sink.path, tmp_path / "job", sinkLog="ignore") == [1, 2]


def test_a_name_filter_is_for_what_the_log_names_too(sink: SinkFolder, tmp_path: Path) -> None:
    gone = sink.file("b.json", 2)
    sink.record("0", sink.file("a.json", 1), gone)
    gone.unlink()
    assert read(sink.path, tmp_path / "job", pathGlobFilter="a*") == [1]


def test_what_is_not_read_is_told_once(sink: SinkFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink.record("0", sink.file("a.json", 1))
    reading = Reading(sink.path, tmp_path / "job")
    with caplog.at_level(logging.WARNING, "spark_ckpt"):
        reading.new()
        sink.file("left.json", 99)
        for _ in range(3):
            reading.new()
    (told,) = caplog.messages
    assert "1 file(s) in it are not in its log" in told


def test_what_was_read_of_a_log_does_not_go_to_executors(sink: SinkFolder) -> None:
    sink.record("0", *(sink.file(f"{n}.json", n) for n in range(100)))
    folder = FilesSource({"path": str(sink.path), "fileFormat": "json"}).folder()
    before = len(pickle.dumps(folder))
    assert len(folder.files()) == 100
    assert len(pickle.dumps(folder)) == before


@pytest.mark.parametrize(
    ("given", "setting", "kept"),
    [({}, "true", "ignore"), ({}, "false", "follow"), ({"sinkLog": "follow"}, "true", "follow")],
)
def test_the_session_may_say_that_logs_are_ignored(given: dict[str, str], setting: str, kept: str) -> None:
    options = {"path": "/x", "fileFormat": "text", **given}
    asked = {"spark.sql.streaming.fileStreamSink.ignoreMetadata": setting}
    found = open_source("files", options, None, "none").settled_options(options, asked.__getitem__)
    assert found["sinkLog"] == kept
