"""Source ``files`` with plain text: a row a line, as Spark's, wherever a batch, a chunk or a file ends."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from spark_ckpt.errors import ConfigError
from spark_ckpt.sources import _text_records
from spark_ckpt.sources.base import InnerReader
from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.sources.files import FilesSource

FILES = {
    "a.txt": (b'one\n\n two \r\n,"\r\n\r\nlast', ["one", "", " two ", ',"', "", "last"]),
    "b.txt": (b"\xef\xbb\xbfwith a mark\n", ["with a mark"]),
    "c.txt": (b"\n", [""]),
    "d.txt": (b"", []),
    "d1.txt": (b"a\rb\r\nc\n\rd\r", ["a", "b", "c", "", "d"]),
    "d2.txt": (b"\r\n\r\r\n", ["", "", ""]),
    "d3.txt": (b"a\n\r\nb\r\r", ["a", "", "b", ""]),
    "d4.txt": (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\r\xef\xbb\xbf", ["a", "\ufeffb", "\ufeff"]),
    "d5.txt": (b"\xef\xbb\xbf", []),
    "e.txt.gz": (gzip.compress("packed ü\nmore".encode()), ["packed ü", "more"]),
}
EXPECTED = [line for _, lines in FILES.values() for line in lines]


def read(folder: Path, schema: str | None = None, kind: str = "text", **options: Any) -> list[str]:
    given = {"path": str(folder), "fileFormat": kind, "discoveryInterval": "0s"}
    source = FilesSource({**given, **{k: str(v) for k, v in options.items()}})
    source.metadata_url = str(folder.with_name("job"))
    return rows(source, schema)


def rows(source: FilesSource, schema: str | None) -> list[str]:
    reader = InnerReader(source, source.schema() if schema is None else parse_ddl(schema))
    at, found = reader.initial(), []
    while (end := reader.latest(at, False)) != at:
        for split in reader.splits(at, end):
            found += [row for batch in reader.read(split) for row in batch.column(0).to_pylist()]
        at = end
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for name, (content, _) in FILES.items():
        (tmp_path / "in" / name).write_bytes(content)
    return tmp_path / "in"


@pytest.mark.parametrize("options", [{}, {"maxRowsPerTrigger": 1}, {"maxRowsPerTrigger": 4}, {"maxFilesPerTrigger": 1}])
def test_each_line_is_a_row_whatever_a_batch_holds(folder: Path, options: dict[str, Any]) -> None:
    assert read(folder, **options) == EXPECTED


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_lines_are_the_same_wherever_chunks_end(folder: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(_text_records, "CHUNK_BYTES", size)
    assert read(folder) == EXPECTED
    assert read(folder, "line string") == EXPECTED


@pytest.mark.parametrize("rules", [{}, {"mode": "PERMISSIVE"}, {"mode": "PERMISSIVE", "multiLine": True}])
@pytest.mark.parametrize("limit", [{}, {"maxRowsPerTrigger": 1}])
@pytest.mark.parametrize("header", [False, True])
def test_a_byte_order_mark_is_content_but_where_the_file_begins(
    tmp_path: Path, rules: dict[str, Any], limit: dict[str, Any], header: bool
) -> None:
    """Arrow takes one off in front of whatever piece it is given."""
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n\xef\xbb\xbf\n" + b'\xef\xbb\xbf"c"')
    found = read(tmp_path / "a.csv", "a string", "csv", header=header, **rules, **limit)
    assert found == (["\ufeffb", "\ufeff", '\ufeff"c"'] if header else ["a", "\ufeffb", "\ufeff", '\ufeff"c"'])


@pytest.mark.parametrize("rules", [{}, {"mode": "PERMISSIVE"}])
@pytest.mark.parametrize("limit", [{}, {"maxRowsPerTrigger": 1}])
def test_a_byte_order_mark_in_front_of_an_object_is_passed_over_as_by_spark(
    tmp_path: Path, rules: dict[str, Any], limit: dict[str, Any]
) -> None:
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a":"b"}\n\xef\xbb\xbf{"a":"c"}\n{"a":"d"}\n')
    assert read(tmp_path / "a.json", "a string", "json", **rules, **limit) == ["b", "c", "d"]


def test_what_is_no_utf_8_is_a_bad_record_and_the_others_are_read(folder: Path) -> None:
    (folder / "f.txt").write_bytes(b"good\n\xff\xfe\nbetter\n")
    assert read(folder, badRecords="skip") == [*EXPECTED, "good", "better"]


@pytest.mark.parametrize("schema", ["value long", "a string, b string"])
def test_other_columns_are_refused_in_sparks_words(folder: Path, schema: str) -> None:
    with pytest.raises(ConfigError, match="Text data source supports only a single column"):
        read(folder, schema)
