"""The files source finds every file once, in order, and replays a batch from its offsets."""

from __future__ import annotations

import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from spark_ckpt.errors import BadRecordError, ConfigError, CorruptStorageError, InvalidInputError
from spark_ckpt.sources import file_log
from spark_ckpt.sources.base import InnerReader, open_source
from spark_ckpt.sources.files import FilesReader, FilesSource

SCHEMA = StructType().add("n", "long").add("name", "string")
FORMATS = ("parquet", "json", "csv")
Offset = dict[str, Any]


class Input:
    """A folder of input files whose times the test sets, and the job that reads it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "in"
        self.metadata = folder / "job"
        self.path.mkdir()

    def write(self, name: str, numbers: Any, mtime: int = 1000, kind: str = "parquet", group: int = 4) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"n": n, "name": f"number {n}"} for n in numbers]
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=group)
        elif kind == "json":
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            file.write_text("n,name\n" + "".join(f"{row['n']},{row['name']}\n" for row in rows))
        os.utime(file, (mtime, mtime))
        return file

    def source(self, kind: str = "parquet", **options: Any) -> FilesSource:
        given = {"path": str(self.path), "fileFormat": kind, "discoveryInterval": "0s"}
        given |= {"header": "true"} if kind == "csv" else {}
        source = FilesSource({**given, **{key: str(value) for key, value in options.items()}})
        source.metadata_url = str(self.metadata)
        return source

    def open(self, kind: str = "parquet", **options: Any) -> InnerReader:
        return InnerReader(self.source(kind, **options), SCHEMA)


@pytest.fixture
def inputs(tmp_path: Path) -> Input:
    return Input(tmp_path)


def read(reader: InnerReader, start: Offset, end: Offset) -> list[int]:
    executor = pickle.loads(cloudpickle.dumps(reader))
    splits = pickle.loads(cloudpickle.dumps(reader.splits(start, end)))
    return [row["n"] for split in splits for batch in executor.read(split) for row in batch.to_pylist()]


def batches(reader: InnerReader, start: Offset | None = None) -> list[list[int]]:
    at, found = reader.initial() if start is None else start, []
    while (end := reader.latest(at, False)) != at:
        found.append(read(reader, at, end))
        at = end
    return found


# -- discovery -----------------------------------------------------------------------------------------------------


def test_files_are_read_by_time_and_then_by_path(inputs: Input) -> None:
    inputs.write("a.parquet", [3], mtime=2000)
    inputs.write("c.parquet", [2], mtime=1000)
    inputs.write("b.parquet", [1], mtime=1000)
    assert batches(inputs.open(maxFilesPerTrigger=1)) == [[1], [2], [3]]


def test_an_age_passes_over_what_is_new_and_old_and_nothing_at_first(inputs: Input) -> None:
    inputs.write("a.parquet", [1], mtime=1000)
    inputs.write("b.parquet", [2], mtime=9000)
    reader = inputs.open(maxFileAge="100s", discoveryInterval="0s")
    assert batches(reader) == [[1, 2]]
    inputs.write("c.parquet", [3], mtime=8899)
    inputs.write("d.parquet", [4], mtime=8900)
    inputs.write("e.parquet", [5], mtime=9900)
    assert batches(inputs.open(maxFileAge="100s"))[-1][-2:] == [4, 5]
    inputs.write("f.parquet", [6], mtime=9799)
    assert batches(inputs.open(maxFileAge="100s")) == [[1, 2, 4, 5]]


def test_a_late_file_with_an_older_time_is_not_missed(inputs: Input) -> None:
    inputs.write("a.parquet", [1], mtime=5000)
    reader = inputs.open()
    end = reader.latest(reader.initial(), False)
    inputs.write("b.parquet", [2], mtime=100)
    assert batches(reader, end) == [[2]]


def test_no_file_is_read_twice_after_a_restart(inputs: Input) -> None:
    inputs.write("a.parquet", [1])
    inputs.write("b.parquet", [2], mtime=2000)
    reader = inputs.open(maxFilesPerTrigger=1)
    end = reader.latest(reader.initial(), False)
    inputs.write("c.parquet", [3], mtime=500)
    assert batches(inputs.open(), end) == [[2, 3]]


def test_after_going_back_files_come_in_the_order_in_which_they_were_discovered(inputs: Input) -> None:
    reader, order = inputs.open(), []
    start = at = reader.initial()
    for name, time in (("c", 3000), ("a", 2000), ("b", 1000)):
        inputs.write(f"{name}.parquet", [time], mtime=time)
        order.append(time)
        at = reader.latest(at, False)
    assert batches(inputs.open(), start) == [order]


def test_a_source_that_begins_anew_under_a_uid_that_was_dropped_reads_all_of_its_folder_again(inputs: Input) -> None:
    inputs.write("a.parquet", [1])
    assert batches(inputs.open()) == [[1]]
    inputs.write("b.parquet", [2])
    assert batches(inputs.open()) == [[1, 2]]
    inputs.path = inputs.path.with_name("other")
    inputs.write("c.parquet", [3])
    with pytest.raises(InvalidInputError, match=r'other begins anew.*found .*/in/a.parquet.*option\("uid"'):
        batches(inputs.open())
    inputs.metadata = inputs.metadata.with_name("new uid")
    assert batches(inputs.open()) == [[3]]


@pytest.mark.parametrize("place", ["*", "{i,o}n/*.parquet", "in/a.parquet"])
def test_the_files_that_a_glob_or_a_path_has_found_are_its_own_after_a_restart(inputs: Input, place: str) -> None:
    inputs.write("a.parquet", [1])
    path = str(inputs.path.parent / place) if place != "*" else f"{inputs.path}/*"
    assert batches(inputs.open(path=path)) == batches(inputs.open(path=path)) == [[1]]


def test_two_drivers_that_discover_at_the_same_time_agree_on_the_order(inputs: Input) -> None:
    inputs.write("b.parquet", [2])
    old, new = inputs.open(), inputs.open()
    start = old.initial()
    old.splits(start, {**start, "row": 0})
    old_log, new_log = old._reader._known(), new._reader._known()
    inputs.write("a.parquet", [1], mtime=500)
    assert len(old_log) == len(new_log) == 0
    new_log.append(new._reader._folder.files()[1:])
    assert batches(old) == batches(new) == [[2, 1]]


def test_hidden_and_empty_files_and_folders_are_left_out(inputs: Input) -> None:
    inputs.write("a.parquet", [1])
    for hidden in ("_b.parquet", ".c.parquet", "_SUCCESS", "_temporary/d.parquet", "sub/e.parquet"):
        inputs.write(hidden, [99])
    (inputs.path / "begun.parquet").touch()
    assert batches(inputs.open()) == [[1]]


def test_folders_of_a_partitioned_table_are_not_passed_over(inputs: Input) -> None:
    """Spark reads what is in them, and makes a column of the name."""
    inputs.write("1.parquet", [1])
    inputs.write("_temporary=0/0.parquet", [0])
    inputs.write("plain/0.parquet", [0])
    assert batches(inputs.open()) == [[1]]
    inputs.write("day=2026-01-01/2.parquet", [2])
    for path in (str(inputs.path), f"local://{inputs.path}"):  # the second goes through fsspec
        with pytest.raises(InvalidInputError, match=r"found the folder 'day=2026-01-01'.*readStream.*recursive=true"):
            batches(inputs.open(path=path))
    assert batches(inputs.open(recursive="true", pathGlobFilter="[12].parquet")) == [[1, 2]]


def test_a_recursive_source_reads_folders_below_but_no_hidden_ones(inputs: Input) -> None:
    inputs.write("a.parquet", [1])
    inputs.write("x/y/b.parquet", [2], mtime=2000)
    inputs.write("_x/c.parquet", [99])
    inputs.write("x/.y/d.parquet", [99])
    assert batches(inputs.open(recursive="true")) == [[1, 2]]


def test_an_empty_file_is_read_once_it_has_content(inputs: Input) -> None:
    (inputs.path / "a.parquet").touch()
    reader = inputs.open()
    assert batches(reader) == []
    inputs.write("a.parquet", [1])
    assert batches(reader) == [[1]]


def test_a_glob_a_single_file_and_a_name_filter_choose_files(inputs: Input) -> None:
    inputs.write("day1/a.parquet", [1])
    inputs.write("day2/b.parquet", [2], mtime=2000)
    inputs.write("day2/c.txt", [3], mtime=3000)
    assert batches(inputs.open(path=inputs.path / "day*" / "*.parquet")) == [[1, 2]]
    inputs.metadata = inputs.metadata.with_name("job2")
    assert batches(inputs.open(path=inputs.path / "day2" / "b.parquet")) == [[2]]
    inputs.metadata = inputs.metadata.with_name("job3")
    assert batches(inputs.open(path=inputs.path / "day*", pathGlobFilter="*.txt")) == [[3]]
    inputs.metadata = inputs.metadata.with_name("job4")
    assert batches(inputs.open(path=inputs.path / "{day1,day2}" / "{b,a}.{parquet,no}")) == [[1, 2]]


def test_a_recursive_glob_leaves_hidden_folders_out(inputs: Input) -> None:
    inputs.write("day1/x/a.parquet", [1])
    inputs.write("day1/_temporary/b.parquet", [99])
    inputs.write("_day2/c.parquet", [2], mtime=2000)
    assert batches(inputs.open(path=inputs.path / "*day*", recursive="true")) == [[1, 2]]


def test_a_link_to_the_folder_is_followed(inputs: Input, tmp_path: Path) -> None:
    inputs.write("a.parquet", [1])
    (tmp_path / "link").symlink_to(inputs.path)
    assert batches(inputs.open(path=tmp_path / "link")) == [[1]]


def test_a_file_that_is_renamed_while_the_folder_is_listed_does_no_harm(inputs: Input) -> None:
    (inputs.path / "gone.parquet").symlink_to(inputs.path / "nowhere")
    inputs.write("a.parquet", [1])
    assert batches(inputs.open()) == [[1]]


def test_a_symbolic_link_is_read_like_the_file_it_leads_to(inputs: Input, tmp_path: Path) -> None:
    inputs.write("../elsewhere.parquet", [1])
    (inputs.path / "link.parquet").symlink_to(tmp_path / "elsewhere.parquet")
    assert batches(inputs.open()) == [[1]]


@pytest.mark.parametrize("path", ["", "/*"])
def test_an_entry_that_cannot_be_looked_at_hides_no_other(inputs: Input, path: str) -> None:
    inputs.write("a.parquet", [1])
    (inputs.path / "loop").symlink_to("loop")
    (inputs.path / "nothing").symlink_to("nowhere")
    os.mkfifo(inputs.path / "pipe.parquet")
    assert batches(inputs.open(path=f"{inputs.path}{path}")) == [[1]]


def test_links_in_a_circle_end_and_each_file_is_read_once(inputs: Input) -> None:
    inputs.write("a.parquet", [1])
    inputs.write("sub/deep/b.parquet", [2])
    (inputs.path / "sub" / "up").symlink_to("..")
    (inputs.path / "sub" / "deep" / "self").symlink_to(".")
    assert batches(inputs.open(recursive=True)) == [[1, 2]]


NOT_UTF_8 = os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize("kind", [*FORMATS, "orc"])
def test_a_file_whose_name_is_no_utf_8_is_read_and_logged_as_any_other(inputs: Input, kind: str) -> None:
    rows = [{"n": 1, "name": "number 1"}]
    if kind == "orc":
        orc.write_table(pa.Table.from_pylist(rows), str(inputs.path / "a.orc"))
    else:
        inputs.write(f"a.{kind}", [1], kind=kind)
    os.rename(next(inputs.path.iterdir()), inputs.path / NOT_UTF_8)
    reader = inputs.open(kind, maxRowsPerTrigger=1)
    assert batches(reader) == [[1]]
    assert batches(inputs.open(kind), reader.latest(reader.initial(), False)) == []


def test_every_message_about_such_a_name_can_be_written(inputs: Input) -> None:
    """Spark would wait for one that cannot for ever."""
    (inputs.path / NOT_UTF_8).write_text("bad")
    with pytest.raises(BadRecordError, match=r"caf\\udce9") as bad:
        batches(inputs.open("json"))
    gone = inputs.open("json")
    end = gone.latest(gone.initial(), False)
    (inputs.path / NOT_UTF_8).unlink()
    with pytest.raises(InvalidInputError, match="vanished") as vanished:
        read(gone, gone.initial(), end)
    (inputs.path / f"{NOT_UTF_8}=1").mkdir()
    with pytest.raises(InvalidInputError, match="partitioned") as folder:
        gone.latest(end, False)
    for error in (bad, vanished, folder):
        str(error.value).encode()


@pytest.mark.parametrize("name", [NOT_UTF_8, "é" * 120])
def test_a_bad_record_of_a_file_of_any_name_is_kept(inputs: Input, tmp_path: Path, name: str) -> None:
    (inputs.path / name).write_text("bad")
    assert batches(inputs.open("json", badRecords=str(tmp_path / "bad"))) == [[]]
    (kept,) = (tmp_path / "bad").glob("*.json")
    assert json.loads(kept.read_text())["record"] == "bad"
    kept.name.encode()


def test_the_folder_is_listed_at_most_once_an_interval_but_always_at_first(inputs: Input) -> None:
    now = [100.0]
    source = inputs.source(discoveryInterval="2s")
    reader = FilesReader(source, SCHEMA, clock=lambda: now[0])
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    inputs.write("a.parquet", [1])
    first = reader.latestOffset(start, limit)
    assert first["file"] == 1
    inputs.write("b.parquet", [2])
    now[0] += 1.9
    assert reader.latestOffset(first, limit) == first
    now[0] += 0.2
    assert reader.latestOffset(first, limit)["file"] == 2


def test_a_local_folder_that_does_not_exist_is_an_error(inputs: Input) -> None:
    reader = inputs.open(path=inputs.path / "nothing")
    with pytest.raises(InvalidInputError, match="found nothing at"):
        reader.latest(reader.initial(), False)


@pytest.mark.parametrize(
    ("path", "there"),
    [("", True), ("a.parquet", True), ("nothing", False), ("nothing/*", True), ("{nothing,a}", True), ("[n]o", True)],
)
def test_what_is_there_or_may_come_is_told_before_anything_is_read(inputs: Input, path: str, there: bool) -> None:
    inputs.write("a.parquet", [1])
    missing = inputs.source(path=inputs.path / path).missing_path(True)
    assert missing == (None if there else str(inputs.path / path))
    elsewhere = inputs.source(path=f"memory://nowhere/{path}").missing_path(False)
    assert (elsewhere is None) == bool(set("*[{") & set(path)), elsewhere


def test_another_file_system_is_read_through_fsspec(inputs: Input) -> None:
    import fsspec

    fs = fsspec.filesystem("memory")
    for name in ("a", "b"):
        fs.pipe_file(f"/input/{name}.json", json.dumps({"n": ord(name), "name": name}).encode())
    source = inputs.source("json", path="memory://input", maxRowsPerTrigger=1)
    source.metadata_url = "memory://job-files"
    assert batches(InnerReader(source, SCHEMA)) == [[97], [98]]
    fs.rm("/input", recursive=True)
    fs.rm("/job-files", recursive=True)


# -- admission and replay ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_is_split_by_rows_and_no_row_is_lost_or_repeated(inputs: Input, kind: str) -> None:
    inputs.write("a", range(10), 1000, kind)
    inputs.write("b", range(10, 13), 2000, kind)
    inputs.write("c", range(13, 20), 3000, kind)
    found = batches(inputs.open(kind, maxRowsPerTrigger=6))
    assert found == [list(range(6)), list(range(6, 12)), list(range(12, 18)), [18, 19]]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_batch_that_ends_with_a_file_leaves_nothing_of_it(inputs: Input, kind: str) -> None:
    inputs.write("a", range(6), 1000, kind)
    reader = inputs.open(kind, maxRowsPerTrigger=3)
    assert batches(reader) == [[0, 1, 2], [3, 4, 5]]
    assert reader.latest({"file": 0, "row": 3, "byte": 0}, False)["file"] in (0, 1)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_replay_of_any_range_yields_the_same_rows(inputs: Input, kind: str) -> None:
    for i in range(4):
        inputs.write(f"{i}", range(i * 10, i * 10 + 10), 1000 + i, kind)
    reader, offsets = inputs.open(kind, maxRowsPerTrigger=7), []
    offsets.append(reader.initial())
    while (end := reader.latest(offsets[-1], False)) != offsets[-1]:
        offsets.append(end)
    inputs.write("late", [99], 1, kind)
    restarted = inputs.open(kind)
    for low in range(len(offsets)):
        for high in range(low, len(offsets)):
            expected = list(range(low * 7, min(40, high * 7)))
            assert read(restarted, offsets[low], offsets[high]) == expected


def test_the_limits_combine_and_the_tightest_one_holds(inputs: Input) -> None:
    files = [inputs.write(f"{i}.parquet", range(i * 4, i * 4 + 4), 1000 + i) for i in range(6)]
    size = files[0].stat().st_size
    assert [len(b) for b in batches(inputs.open(maxFilesPerTrigger=2, maxBytesPerTrigger=10 * size))] == [8, 8, 8]
    assert [len(b) for b in batches(inputs.open(maxFilesPerTrigger=5, maxBytesPerTrigger=3 * size + 200))] == [12, 12]
    assert [len(b) for b in batches(inputs.open(maxFilesPerTrigger=2, maxRowsPerTrigger=5))] == [5, 5, 5, 5, 4]
    assert [len(b) for b in batches(inputs.open(maxRowsPerTrigger=9, maxFilesPerTrigger=2))] == [8, 8, 8]


def test_a_file_larger_than_the_byte_limit_is_read_alone(inputs: Input) -> None:
    for i in range(3):
        inputs.write(f"{i}.parquet", [i], 1000 + i)
    assert batches(inputs.open(maxBytesPerTrigger=1)) == [[0], [1], [2]]


def test_read_all_available_ignores_the_limits(inputs: Input) -> None:
    for i in range(3):
        inputs.write(f"{i}.parquet", [i], 1000 + i)
    reader = inputs.open(maxFilesPerTrigger=1, maxRowsPerTrigger=1)
    assert read(reader, reader.initial(), reader.latest(reader.initial(), limit_all=True)) == [0, 1, 2]


def test_available_now_pins_the_end_and_still_keeps_the_limits(inputs: Input) -> None:
    for i in range(3):
        inputs.write(f"{i}.parquet", [i], 1000 + i)
    reader = inputs.open(maxFilesPerTrigger=2)
    reader.prepare_available_now()
    inputs.write("late.parquet", [99])
    assert batches(reader) == [[0, 1], [2]]
    assert batches(inputs.open(), {"file": 3, "row": 0, "byte": 0}) == [[99]]


def test_a_row_limit_can_be_added_or_dropped_between_restarts(inputs: Input) -> None:
    inputs.write("a", range(10), kind="csv")
    limited = inputs.open("csv", maxRowsPerTrigger=3)
    end = limited.latest(limited.initial(), False)
    assert batches(inputs.open("csv"), end) == [list(range(3, 10))]


def test_a_large_parquet_file_is_divided_by_row_groups(inputs: Input) -> None:
    file = inputs.write("a.parquet", range(20), group=4)
    reader = inputs.open(maxSplitBytes=file.stat().st_size // 3)
    start = reader.initial()
    end = reader.latest(start, False)
    splits = reader.splits(start, end)
    assert len(splits) == 4
    assert [len([r for b in reader.read(s) for r in b.to_pylist()]) for s in splits] == [4, 4, 4, 8]
    assert read(reader, start, end) == list(range(20))


# -- files that do not stay as they were ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_changed_between_planning_and_reading_is_an_error(inputs: Input, kind: str) -> None:
    inputs.write("a", [1], 1000, kind)
    reader = inputs.open(kind)
    start = reader.initial()
    end = reader.latest(start, False)
    inputs.write("a", [1, 2], 1001, kind)
    with pytest.raises(InvalidInputError, match=r"a changed after it was discovered: expected \d+ bytes of 1970"):
        read(reader, start, end)


def test_a_file_that_grows_after_it_was_read_is_an_error(inputs: Input) -> None:
    inputs.write("a", [1], kind="json")
    reader = inputs.open("json")
    end = reader.latest(reader.initial(), False)
    inputs.write("a", [1, 2], kind="json")
    with pytest.raises(InvalidInputError, match="changed after it was discovered"):
        reader.latest(end, False)
    accepting = inputs.open("json", changedFiles="accept")
    assert accepting.latest(end, False) == end


def test_a_changed_file_can_be_accepted(inputs: Input) -> None:
    inputs.write("a", [1], kind="json")
    reader = inputs.open("json", changedFiles="accept")
    start = reader.initial()
    end = reader.latest(start, False)
    inputs.write("a", [1, 2], kind="json")
    assert read(reader, start, end) == [1, 2]


def test_a_file_that_changes_while_it_is_read_is_an_error(inputs: Input) -> None:
    inputs.write("a.parquet", [1])
    reader = inputs.open()
    start = reader.initial()
    (split,) = reader.splits(start, reader.latest(start, False))
    rows = reader.read(split)
    next(rows)
    inputs.write("a.parquet", [1], mtime=1001)
    with pytest.raises(InvalidInputError, match="changed after it was discovered"):
        next(rows)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_vanished_is_an_error_unless_it_may(inputs: Input, kind: str) -> None:
    inputs.write("a", [1], 1000, kind)
    inputs.write("b", [2], 2000, kind)
    reader = inputs.open(kind)
    start = reader.initial()
    end = reader.latest(start, False)
    (inputs.path / "a").unlink()
    with pytest.raises(InvalidInputError, match="a has vanished: expected"):
        read(reader, start, end)
    with pytest.raises(InvalidInputError, match="a has vanished: expected"):
        inputs.open(kind, maxRowsPerTrigger=1).latest(start, False)
    assert read(inputs.open(kind, ignoreMissingFiles="true"), start, end) == [2]
    assert batches(inputs.open(kind, ignoreMissingFiles="true", maxRowsPerTrigger=1)) == [[2]]


def test_files_may_be_removed_once_they_are_read(inputs: Input) -> None:
    inputs.write("a.parquet", [1])
    reader = inputs.open()
    end = reader.latest(reader.initial(), False)
    (inputs.path / "a.parquet").unlink()
    inputs.write("b.parquet", [2])
    assert batches(inputs.open(), end) == [[2]]


# -- the log -------------------------------------------------------------------------------------------------------


def discover(inputs: Input, count: int) -> Offset:
    reader = inputs.open()
    at = reader.initial()
    for i in range(count):
        if not (inputs.path / f"{i}.parquet").exists():
            inputs.write(f"{i}.parquet", [i], 1000 + i)
        at = reader.latest(at, False)
    return at


def test_an_offset_behind_the_log_is_refused_instead_of_reading_something_else(inputs: Input) -> None:
    inputs.write("a.parquet", [1])
    reader = inputs.open()
    with pytest.raises(CorruptStorageError, match="expected at least 3 files, which a source offset counts, found 0"):
        reader.splits(reader.initial(), {"file": 3, "row": 0, "byte": 0})
    with pytest.raises(CorruptStorageError, match="ends too early"):
        reader.latest({"file": 3, "row": 0, "byte": 0}, False)


def _damage(inputs: Input, *names: str) -> None:
    """One is cut, the next one gone, and so on."""
    for i, name in enumerate(names):
        path = inputs.metadata / name
        if i % 2:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("compact_after", [4, 100])
def test_any_one_damaged_or_missing_record_of_the_log_costs_nothing(
    inputs: Input, monkeypatch: pytest.MonkeyPatch, compact_after: int
) -> None:
    monkeypatch.setattr(file_log, "COMPACT_AFTER", compact_after)
    end = discover(inputs, 11)
    for path in sorted(p for f in ("files", "copies") for p in (inputs.metadata / f).iterdir() if p.is_file()):
        if not path.exists():
            continue  # a compaction since removed it
        sound = path.read_bytes()
        for keep in (None, -9):
            path.unlink() if keep is None else path.write_bytes(sound[:keep])
            assert batches(inputs.open()) == [list(range(11))], path
            assert inputs.open().latest(end, False) == end
            path.write_bytes(sound)
    _damage(inputs, "files/0000000010.json")
    assert discover(inputs, 20) == {"file": 20, "row": 0, "byte": 0}
    assert batches(inputs.open()) == [list(range(20))]


def test_a_record_whose_writer_was_killed_before_its_copy_gets_one_with_the_next_discovery(inputs: Input) -> None:
    discover(inputs, 2)
    (inputs.metadata / "copies" / "0000000001.json").unlink()
    discover(inputs, 3)
    _damage(inputs, "files/0000000001.json")
    assert batches(inputs.open()) == [[0, 1, 2]]


def test_a_record_lost_with_its_copy_is_an_error_whose_advice_works(inputs: Input) -> None:
    """To the letter: remove what it says; an offset that counts these files is refused, older ones read on."""
    end = discover(inputs, 4)
    _damage(inputs, "files/0000000002.json", "copies/0000000002.json")
    with pytest.raises(CorruptStorageError, match="found neither whole") as told:
        inputs.open().latest(end, False)
    advice = re.search(
        r"in (\S+) remove from files and copies every file whose number is (\d+) or more", str(told.value)
    )
    assert advice, told.value
    for path in (p for f in ("files", "copies") for p in (Path(advice[1]) / f).iterdir() if p.is_file()):
        if int(path.stem.removeprefix("upto-")) >= int(advice[2]):
            path.unlink()
    with pytest.raises(CorruptStorageError, match="ends too early"):
        inputs.open().latest(end, False)
    assert batches(inputs.open(), {"file": 1, "row": 0, "byte": 0}) == [[1, 2, 3]]
    assert batches(inputs.open()) == [[0, 1, 2, 3]]


def test_a_missing_record_of_the_log_is_an_error(inputs: Input) -> None:
    end = discover(inputs, 3)
    for folder in ("files", "copies"):
        (inputs.metadata / folder / "0000000001.json").unlink()
    with pytest.raises(CorruptStorageError, match=r"has a gap: expected a record that begins with file 1, found 2"):
        inputs.open().latest(end, False)


def test_a_savepoint_takes_the_records_that_its_offset_counts(inputs: Input) -> None:
    discover(inputs, 3)
    reader = inputs.open()
    names = [f"files/{n:010d}.json" for n in range(3)]
    assert reader.savepoint_files({"file": 0, "row": 0, "byte": 0}) == []
    assert reader.savepoint_files({"file": 1, "row": 0, "byte": 0}) == names[:1]
    assert reader.savepoint_files({"file": 1, "row": 5, "byte": 9}) == names[:2]
    assert reader.savepoint_files({"file": 3, "row": 0, "byte": 0}) == names


def test_a_copy_of_the_savepoint_files_gives_the_offset_its_meaning_elsewhere(inputs: Input) -> None:
    discover(inputs, 3)
    at = {"file": 2, "row": 0, "byte": 0}
    copied = {name: (inputs.metadata / name).read_bytes() for name in inputs.open().savepoint_files(at)}
    inputs.metadata = inputs.metadata.with_name("other-job")
    for name, data in copied.items():
        (inputs.metadata / name).parent.mkdir(parents=True, exist_ok=True)
        (inputs.metadata / name).write_bytes(data)
    assert batches(inputs.open(), at) == [[2]]


def records(inputs: Input) -> list[str]:
    return sorted(file.name for file in (inputs.metadata / "files").iterdir() if not file.name.startswith("."))


def test_compaction_keeps_every_file_at_its_place(inputs: Input, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_log, "COMPACT_AFTER", 4)
    discover(inputs, 11)
    assert "upto-0000000008.json" in records(inputs)
    assert "0000000000.json" not in records(inputs)
    reader = inputs.open()
    assert batches(reader) == [list(range(11))]
    newest = ["files/upto-0000000008.json", "files/0000000008.json", "files/0000000009.json"]
    assert reader.savepoint_files({"file": 2, "row": 0, "byte": 0}) == newest[:1]
    assert reader.savepoint_files({"file": 10, "row": 0, "byte": 0}) == newest


def test_compaction_leaves_what_a_savepoint_may_be_copying(inputs: Input, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_log, "COMPACT_AFTER", 4)
    discover(inputs, 7)
    copying = inputs.open().savepoint_files({"file": 7, "row": 0, "byte": 0})
    discover(inputs, 8)  # one more file: the second compaction
    assert "upto-0000000008.json" in records(inputs)
    assert {name.removeprefix("files/") for name in copying} <= set(records(inputs))


def test_a_compaction_that_was_cut_short_is_harmless(inputs: Input, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_log, "COMPACT_AFTER", 4)
    discover(inputs, 7)
    before = {file: file.read_bytes() for file in (inputs.metadata / "files").iterdir() if file.is_file()}
    discover(inputs, 8)
    for file, data in before.items():  # as if the process had died before it removed them
        file.write_bytes(data)
    assert batches(inputs.open()) == [list(range(8))]
    discover(inputs, 12)
    assert batches(inputs.open()) == [list(range(12))]
    assert records(inputs)[0] == "0000000008.json"


# -- schemas and options -------------------------------------------------------------------------------------------


def test_the_schema_of_parquet_files_is_taken_from_the_first_one_across_restarts(inputs: Input) -> None:
    inputs.write("a.parquet", [1], mtime=2000)
    reader = inputs.open()
    reader.latest(reader.initial(), False)
    pq.write_table(pa.table({"other": [1]}), inputs.path / "older.parquet")
    os.utime(inputs.path / "older.parquet", (1, 1))
    source = inputs.source()
    assert source.schema() == SCHEMA
    source.metadata_url = ""
    assert source.schema().names == ["other"]


def test_inferred_types_are_those_spark_would_choose(inputs: Input) -> None:
    table = pa.table(
        {
            "utc": pa.array([0], pa.timestamp("ns", "UTC")),
            "local": pa.array([0], pa.timestamp("ms")),
            "unsigned": pa.array([1], pa.uint32()),
            "word": pa.array(["x"]).dictionary_encode(),
            "list": pa.array([["x"]], pa.large_list(pa.large_string())),
        }
    )
    pq.write_table(table, inputs.path / "a.parquet")
    schema = inputs.source().schema()
    assert schema.simpleString() == (
        "struct<utc:timestamp,local:timestamp_ntz,unsigned:bigint,word:string,list:array<string>>"
    )
    opened = InnerReader(inputs.source(), schema)
    (split,) = opened.splits(opened.initial(), opened.latest(opened.initial(), False))
    (batch,) = opened.read(split)
    assert batch.schema == opened.arrow_schema


@pytest.mark.parametrize("store_schema", [True, False])
def test_times_that_are_int96_are_instants_wherever_they_stand(inputs: Input, store_schema: bool) -> None:
    clock = pa.timestamp("us")
    columns: dict[str, Any] = {
        "at": pa.array([1], clock),
        "list": pa.array([[2]], pa.list_(clock)),
        "map": pa.array([[("k", 3)]], pa.map_(pa.string(), clock)),
        "both": pa.array([{"n": 1, "at": 4}], pa.struct([("n", pa.int64()), ("at", clock)])),
    }
    pq.write_table(
        pa.table(columns), inputs.path / "a.parquet", use_deprecated_int96_timestamps=True, store_schema=store_schema
    )
    schema = inputs.source().schema()
    assert schema.simpleString() == (
        "struct<at:timestamp,list:array<timestamp>,map:map<string,timestamp>,both:struct<n:bigint,at:timestamp>>"
    )
    opened = InnerReader(inputs.source(), schema)
    (split,) = opened.splits(opened.initial(), opened.latest(opened.initial(), False))
    (batch,) = opened.read(split)
    assert batch.column("at").cast(pa.int64()).to_pylist() == [1]
    assert batch.column("both").field("at").cast(pa.int64()).to_pylist() == [4]


def test_what_spark_notes_of_its_types_is_followed_unless_it_names_a_class(inputs: Input) -> None:
    for name, kind in (("a", "interval day"), ("b", {"type": "udt", "pyClass": "nowhere.Here", "sqlType": "long"})):
        field = {"name": "c", "type": kind, "nullable": False, "metadata": {}}
        note = json.dumps({"type": "struct", "fields": [field]})
        table = pa.table({"c": [5]}).replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": note})
        (inputs.path / name).mkdir()
        pq.write_table(table, inputs.path / name / "a.parquet")
    found = [
        open_source("files", {"path": str(inputs.path / name), "fileFormat": "parquet"}, None, "").schema()
        for name in "ab"
    ]
    assert [schema.simpleString() for schema in found] == ["struct<c:interval day>", "struct<c:bigint>"]
    assert found[0]["c"].nullable


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_text_needs_a_schema(inputs: Input, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"fileFormat {kind} needs a schema"):
        open_source("files", {"path": str(inputs.path), "fileFormat": kind}, None, "").schema()


def test_a_schema_cannot_be_inferred_from_nothing(inputs: Input) -> None:
    with pytest.raises(ConfigError, match="no readable parquet file to infer the schema from"):
        inputs.source().schema()


@pytest.mark.parametrize(
    ("kind", "column"), [("csv", "array<int>"), ("csv", "struct<a:int>"), ("json", "map<string,int>")]
)
def test_a_column_that_the_format_cannot_hold_is_refused_at_start(inputs: Input, kind: str, column: str) -> None:
    from spark_ckpt.sources.ddl import parse_ddl

    with pytest.raises(ConfigError, match=f"fileFormat {kind} cannot hold column 'c'"):
        InnerReader(inputs.source(kind), parse_ddl(f"c {column}"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fileFormat": "json"}, "expected option 'path'"),
        ({"path": "/in"}, r"expected option 'fileFormat' \(one of parquet, orc, json, csv, text\)"),
        ({"path": "/in", "fileFormat": "xml"}, "expected one of parquet, orc, json, csv, text, found 'xml'"),
        ({"path": "/in", "fileFormat": "csv", "maxFilesPerTrigger": "0"}, "a whole number of at least 1, found '0'"),
        ({"path": "/in", "fileFormat": "csv", "maxBytesPerTrigger": "1 parsec"}, "expected a size such as 64m"),
        ({"path": "/in", "fileFormat": "csv", "discoveryInterval": "soon"}, "expected a duration with its unit"),
        ({"path": "/in", "fileFormat": "csv", "sep": "||"}, "expected one ASCII character"),
        ({"path": "/in", "fileFormat": "csv", "header": "maybe"}, "expected true or false"),
        ({"path": "/in", "fileFormat": "csv", "maxFiles": "1"}, "has no option 'maxFiles'; valid options: badRecords"),
        ({"path": "/in", "fileFormat": "json", "HEADER": "true"}, "header apply to fileFormat csv only"),
        ({"path": "/in", "fileFormat": "json", "badRecords": "/in/bad"}, "expected a folder outside the input"),
    ],
)
def test_bad_options_are_refused_with_what_is_valid(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FilesSource(options)


def test_storage_options_go_to_the_inputs_file_system_only(inputs: Input) -> None:
    source = FilesSource({"path": "s3://b/in", "fileFormat": "json", "storage.client_kwargs.endpoint_url": "http://x"})
    assert source._storage_for("s3://b/in") == {"client_kwargs": {"endpoint_url": "http://x"}}
    source = FilesSource({"path": "s3://b/in", "fileFormat": "json"})
    source.metadata_url, source.storage_options = "s3a://jobs/j", {"key": "k"}
    assert source._storage_for("s3://b/in") == {"key": "k"}
    assert source._storage_for("/local") == {}
