from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_ckpt.errors import CorruptStorageError, InvalidInputError
from spark_ckpt.sinks.files import FilesSink
from spark_ckpt.testing.sink_harness import (
    JOB,
    SCHEMA,
    SimulatedCrash,
    context,
    permit,
    stage,
    stage_table,
    typed_rows,
)


def make(path: object, schema: pa.Schema = SCHEMA, **options: str) -> FilesSink:
    sink = FilesSink({"path": str(path), **options})
    sink.validate(schema)
    return sink


def crash_at(name: str) -> Callable[[str], None]:
    def stop(step: str) -> None:
        if step == name:
            raise SimulatedCrash

    return stop


def visible(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir() if p.name[0] not in "._")


def manifests(path: Path) -> list[dict[str, Any]]:
    return [json.loads(p.read_text()) for p in sorted((path / "_manifests").glob("*.json"))]


def test_names_are_final_and_depend_on_checkpoint_and_place_only(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        sink = make(tmp_path / folder)
        sink.commit(permit(4), stage(sink, [(1, "a")]) + stage(sink, [(2, "b")], partition=7))
    names = visible(tmp_path / "one")
    assert [n.rsplit("-", 4)[0][:22] for n in names] == ["part-0000000004-00000-", "part-0000000004-00001-"]
    assert visible(tmp_path / "two") == names


def test_a_manifest_lists_its_checkpoints_files_once_all_are_in_place(tmp_path: Path) -> None:
    sink = make(tmp_path)
    sink.commit(permit(4), stage(sink, [(1, "a")], 3) + stage(sink, [(2, "b"), (3, "c")], 4))
    (manifest,) = manifests(tmp_path)
    assert (manifest["job"], manifest["sink"], manifest["checkpoint"]) == (JOB, "totals", 4)
    assert [(f["rows"], f["epoch"]) for f in manifest["files"]] == [(1, 3), (2, 4)]
    assert [f["file"] for f in manifest["files"]] == visible(tmp_path)


def test_a_crash_in_the_middle_shows_a_prefix_and_no_manifest(tmp_path: Path) -> None:
    sink = make(tmp_path)
    staged = [c for i in range(3) for c in stage(sink, [(i, "x")], partition=i)]
    sink.on_step = crash_at("before move 2")
    with pytest.raises(SimulatedCrash):
        sink.commit(permit(1), staged)
    assert [n[16:21] for n in visible(tmp_path)] == ["00000", "00001"]
    assert manifests(tmp_path) == []
    make(tmp_path).commit(permit(1), staged)
    assert [n[16:21] for n in visible(tmp_path)] == ["00000", "00001", "00002"]


def test_a_move_that_copied_and_did_not_delete_is_finished(tmp_path: Path) -> None:
    sink = make(tmp_path)
    staged = stage(sink, [(1, "a")])
    sink.commit(permit(1), staged)
    (final,) = visible(tmp_path)
    source = tmp_path / ".staging" / json.loads(staged[0].data)["file"]
    source.write_bytes((tmp_path / final).read_bytes())
    next((tmp_path / "_manifests").glob("*.json")).unlink()
    make(tmp_path).commit(permit(1), staged)
    assert visible(tmp_path) == [final]
    assert not source.exists()


def test_a_missing_staged_file_publishes_nothing(tmp_path: Path) -> None:
    sink = make(tmp_path)
    staged = stage(sink, [(1, "a")]) + stage(sink, [(2, "b")], partition=1)
    (tmp_path / ".staging" / json.loads(staged[1].data)["file"]).unlink()
    with pytest.raises(CorruptStorageError, match=r"missing from \.staging"):
        sink.commit(permit(1), staged)
    assert visible(tmp_path) == []


def test_gc_removes_a_manifest_that_was_never_published(tmp_path: Path) -> None:
    sink = make(tmp_path)
    staged = stage(sink, [(1, "a")])
    sink.on_step = crash_at("before manifest move")
    with pytest.raises(SimulatedCrash):
        sink.commit(permit(1), staged)
    (removed,) = sink.gc(JOB, staged)
    assert removed.endswith(".json")
    make(tmp_path).commit(permit(1), staged)
    assert [m["checkpoint"] for m in manifests(tmp_path)] == [1]


def test_any_fsspec_file_system_will_do() -> None:
    root = "memory://sink/out"
    sink = make(root)
    staged = stage(sink, [(1, "a")])
    lost = stage(sink, [(2, "b")], partition=1)
    sink.commit(permit(1), staged)
    assert len(sink.gc(JOB, [])) == len(lost)
    files = fsspec.filesystem("memory")
    (name,) = [n for n in files.ls("/sink/out", detail=False) if n.rsplit("/", 1)[-1].startswith("part-")]
    assert pq.read_table(pa.BufferReader(files.cat_file(name))).to_pylist() == [{"k": 1, "v": "a"}]
    files.rm("/sink", recursive=True)


@pytest.mark.parametrize(("header", "lines"), [("true", ['"k","v"', '1,"a"', "2,"]), ("false", ['1,"a"', "2,"])])
def test_csv_files_have_a_header_if_asked(tmp_path: Path, header: str, lines: list[str]) -> None:
    sink = make(tmp_path, fileFormat="CSV", header=header)
    sink.commit(permit(1), stage(sink, [(1, "a"), (2, None)]))
    assert (tmp_path / visible(tmp_path)[0]).read_text().splitlines() == lines


def test_csv_has_whole_doubles_with_their_point_and_no_row_without_anything(tmp_path: Path) -> None:
    """As Spark writes them: who goes by the text takes 1 for an integer, and an empty line for no row."""
    whole = pa.table({"v": [1.0, None, -2.0], "d": pa.array([1, 2, None], pa.float32()), 'a"b': ['x,"y"', "", None]})
    for name, rows, lines in (
        ("all", whole, ['"v","d","a""b"', '1.0,1.0,"x,""y"""', ',2.0,""', "-2.0,,"]),
        ("one", whole.select(["v"]), ['"v"', "1.0", '""', "-2.0"]),
    ):
        sink = make(tmp_path / name, rows.schema, fileFormat="csv")
        sink.commit(permit(1), stage_table(sink, context(1, 1, schema=rows.schema), rows))
        assert (tmp_path / name / visible(tmp_path / name)[0]).read_text().splitlines() == lines


def test_csv_has_quotes_behind_the_escape_that_is_asked_for(tmp_path: Path) -> None:
    rows = pa.table({'a"b': ['say "x"', "\\", 'x\\"']})
    for name, escape, lines in (
        ("doubled", '"', ['"a""b"', '"say ""x"""', '"\\"', '"x\\"""']),
        ("escaped", "\\", ['"a\\"b"', '"say \\"x\\""', '"\\\\"', '"x\\\\\\""']),
    ):
        sink = make(tmp_path / name, rows.schema, fileFormat="csv", escape=escape)
        sink.commit(permit(1), stage_table(sink, context(1, 1, schema=rows.schema), rows))
        assert (tmp_path / name / visible(tmp_path / name)[0]).read_text().splitlines() == lines


def test_json_files_are_one_object_a_line_that_any_parser_reads(tmp_path: Path) -> None:
    table = typed_rows()
    floats = pa.table({"f": pa.array([float("nan"), float("inf"), float("-inf")])})
    wide = table.append_column("f", floats["f"]).append_column("l", pa.array([[float("nan")], None, []]))
    sink = make(tmp_path, wide.schema, fileFormat="json")
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=wide.schema), wide))

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    text = (tmp_path / visible(tmp_path)[0]).read_text()
    rows = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    assert [r["f"] for r in rows] == ["NaN", "Infinity", "-Infinity"]
    assert rows[0]["l"] == ["NaN"]
    assert rows[0]["instant"] == "1969-12-31T23:59:59.999999Z"
    assert rows[1]["local time"] == "2024-02-29T12:00:00.000000"
    assert set(rows[2]) == set(wide.column_names)


@pytest.mark.parametrize(
    ("file_format", "kind"),
    [
        ("csv", pa.list_(pa.int32())),
        ("csv", pa.binary()),
        ("text", pa.int32()),
        ("json", pa.duration("us")),
        ("parquet", pa.null()),
    ],
)
def test_a_column_the_format_cannot_hold_is_refused_at_start_by_name(
    tmp_path: Path, file_format: str, kind: pa.DataType
) -> None:
    with pytest.raises(InvalidInputError, match=r"column 'odd' has type|found odd: int32; make"):
        make(tmp_path, pa.schema([pa.field("odd", kind)]), fileFormat=file_format)


def test_a_folder_that_cannot_be_written_is_refused_at_start_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="cannot be written"):
        make(tmp_path / "file" / "out")
    with pytest.raises(InvalidInputError, match="Cannot open") as refused:
        make("nosuch://bucket/out", **{"storage.secret": "hunter2"})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(("kind", "values"), [("csv", ["NaN", "Inf", "-Inf", "-0.0", ""]), ("json", None)])
def test_odd_floats_are_spelt_as_spark_reads_them(tmp_path: Path, kind: str, values: list[str] | None) -> None:
    """Spark takes ``nan`` in a CSV file for null; JSON's ``-0`` is an integer, which has no sign."""
    odd = [float("nan"), float("inf"), float("-inf"), -0.0, None]
    rows = pa.table({"v": odd, "w": [1.5] * 5})
    target = FilesSink({"path": str(tmp_path / "out"), "fileFormat": kind})
    target.validate(rows.schema)
    target.commit(permit(1), stage_table(target, context(1, 1, schema=rows.schema), rows.slice(3), rows))
    (path,) = (p for p in (tmp_path / "out").iterdir() if p.suffix == f".{kind}")
    lines = path.read_text().splitlines()
    if kind == "json":
        texts = ['"NaN"', '"Infinity"', '"-Infinity"', "-0.0", "null"]
        assert lines[2:] == [f'{{"v":{text},"w":1.5}}' for text in texts]
        return
    assert values is not None
    assert [line.split(",")[0].strip('"') for line in lines] == ["v", "-0.0", "", *values]
