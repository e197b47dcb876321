"""Malformed files and records stop the batch, are skipped, or are kept once; good ones around them are never lost."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType

from spark_ckpt.errors import BadRecordError, ConfigError
from spark_ckpt.sources._file_rows import converted
from spark_ckpt.sources.base import InnerReader
from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.sources.files import FilesSource
from tests.how_many import some

SCHEMA = parse_ddl("n int, name string")


class Job:
    def __init__(self, folder: Path) -> None:
        self.input, self.metadata, self.bad = folder / "in", folder / "job", folder / "bad"
        self.input.mkdir()

    def open(self, kind: str, schema: StructType = SCHEMA, **options: Any) -> InnerReader:
        given = {"path": str(self.input), "fileFormat": kind, "discoveryInterval": "0s"}
        source = FilesSource({**given, **{key: str(value) for key, value in options.items()}})
        source.metadata_url = str(self.metadata)
        return InnerReader(source, schema)

    def rows(self, kind: str, schema: StructType = SCHEMA, **options: Any) -> list[dict[str, Any]]:
        reader = self.open(kind, schema, **options)
        at, found = reader.initial(), []
        while (end := reader.latest(at, False)) != at:
            batches = [batch for split in reader.splits(at, end) for batch in reader.read(split)]
            found += [row for batch in batches for row in batch.to_pylist()]
            at = end
        return found

    def numbers(self, kind: str, **options: Any) -> list[int]:
        return [row["n"] for row in self.rows(kind, **options)]

    def kept(self) -> list[dict[str, Any]]:
        return [json.loads(file.read_text()) for file in sorted(self.bad.glob("*.json"))]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


BAD_JSON = {
    "not JSON": "garbage",
    "not an object": "[1, 2]",
    "cut short": '{"n": 7, "na',
    "text for a number": '{"n": "seven"}',
    "a fraction for a whole number": '{"n": 7.5}',
    "too large": '{"n": 70000000000}',
    "a number for text": '{"n": 7, "name": 8}',
    "a column twice": '{"n": 7, "n": 8}',
    "two objects in a line": '{"n": 7} {"n": 8}',
    "the first line of an object": "{",
}

BAD_CSV = {
    "too few values": "7",
    "too many values": "7,seven,8",
    "text for a number": "seven,7",
    "too large": "70000000000,x",
    "a quote that is not closed": '7,"seven',
    "a quote inside": '7,se"ven',
}


def bad_line(job: Job, kind: str, line: str) -> None:
    good = [json.dumps({"n": n, "name": f"number {n}"}) if kind == "json" else f"{n},number {n}" for n in range(6)]
    (job.input / "a").write_text("\n".join([*good[:3], line, *good[3:]]) + "\n")


CASES = [("json", *item) for item in BAD_JSON.items()] + [("csv", *item) for item in BAD_CSV.items()]


@pytest.mark.parametrize(("kind", "case", "line"), CASES, ids=[f"{kind}: {case}" for kind, case, _ in CASES])
def test_a_bad_record_is_named_skipped_or_kept(job: Job, kind: str, case: str, line: str) -> None:
    bad_line(job, kind, line)
    with pytest.raises(BadRecordError) as caught:
        job.rows(kind)
    message = str(caught.value)
    assert "/in/a, record 4 (byte " in message
    assert "expected" in message
    assert f"found '{line}'" in message or f"found {line!r}" in message
    assert "Set the option badRecords to 'skip', or to a folder" in message
    assert job.numbers(kind, badRecords="skip") == list(range(6))
    assert job.numbers(kind, badRecords=job.bad) == list(range(6))
    (kept,) = job.kept()
    assert kept["record"] == line
    assert kept["file"].endswith("/in/a")


def test_nothing_of_a_records_batch_counts_before_the_error(job: Job) -> None:
    bad_line(job, "json", "garbage")
    reader = job.open("json", maxRowsPerTrigger=3)
    start = reader.initial()
    first = reader.latest(start, False)
    assert [b.num_rows for s in reader.splits(start, first) for b in reader.read(s)] == [3]
    second = reader.latest(first, False)
    (split,) = reader.splits(first, second)
    with pytest.raises(BadRecordError, match=r"record 4 \(byte \d+\)"):
        next(reader.read(split))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_a_bad_record_is_kept_once_across_replays_whatever_the_batches_are(job: Job, kind: str, rows: int) -> None:
    bad_line(job, kind, "garbage")
    for limit in (rows, 1000, rows):
        assert job.numbers(kind, badRecords=job.bad, maxRowsPerTrigger=limit) == list(range(6))
    (kept,) = job.kept()
    assert kept["place"].startswith("record 4 (byte ")


def test_invalid_utf8_is_a_bad_record(job: Job) -> None:
    (job.input / "a").write_bytes(b'{"n":1,"name":"x"}\n{"n":2,"name":"\xff"}\n{"n":3}\n')
    assert job.numbers("json", badRecords=job.bad) == [1, 3]
    assert r"\xff" in job.kept()[0]["record"]
    (job.input / "a").write_bytes(b"1,x\n2,\xff\n3,y\n")
    job.metadata = job.metadata.with_name("job2")
    assert job.numbers("csv", badRecords="skip") == [1, 3]


@settings(max_examples=some(15), deadline=None)
@given(st.lists(st.sampled_from(["good", "bad", "open", ""]), max_size=12), st.integers(1, 5))
def test_whether_a_record_is_good_does_not_depend_on_its_neighbours(kinds: list[str], rows: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder))
        lines = [{"good": f'{i},"x"', "bad": "x,y,z", "open": f'{i},"x', "": ""}[kind] for i, kind in enumerate(kinds)]
        (job.input / "a").write_text("\r\n".join(lines))
        good = [i for i, kind in enumerate(kinds) if kind == "good"]
        assert job.numbers("csv", badRecords="skip") == good
        assert job.numbers("csv", badRecords=job.bad, maxRowsPerTrigger=rows) == good
        assert len(job.kept()) == len([kind for kind in kinds if kind in ("bad", "open")])


# -- whole files ---------------------------------------------------------------------------------------------------


def parquet(job: Job, name: str, numbers: Any, **options: Any) -> Path:
    file = job.input / name
    pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), file, **options)
    return file


@pytest.mark.parametrize(
    "content",
    [b"this is no parquet file", b"PAR1", b"PAR1" + b"\0" * 50 + b"PAR1"],
    ids=["text", "cut short", "no footer"],
)
@pytest.mark.parametrize("limit", [{}, {"maxRowsPerTrigger": "1"}])
def test_a_malformed_parquet_file_is_named_skipped_or_kept(job: Job, content: bytes, limit: dict[str, str]) -> None:
    (job.input / "a").write_bytes(content)
    parquet(job, "b", [1, 2])
    with pytest.raises(BadRecordError, match="/in/a, the file as a whole: expected a Parquet file"):
        job.rows("parquet", **limit)
    assert job.numbers("parquet", badRecords="skip", **limit) == [1, 2]
    assert job.numbers("parquet", badRecords=job.bad, **limit) == [1, 2]
    assert [kept["place"] for kept in job.kept()] == ["the file as a whole"]


@pytest.mark.parametrize("rows", [3, 5, 1000])
def test_a_damaged_row_group_is_kept_once_and_the_others_are_read(job: Job, rows: int) -> None:
    file = parquet(job, "a", range(30), row_group_size=10, compression="snappy", use_dictionary=False)
    column = pq.ParquetFile(file).metadata.row_group(1).column(0)
    data = bytearray(file.read_bytes())
    for at in range(column.data_page_offset, column.data_page_offset + column.total_compressed_size):
        data[at] = 0xFF
    file.write_bytes(data)
    with pytest.raises(BadRecordError, match="row group 1: expected a readable row group"):
        job.rows("parquet")
    expected = [*range(10), *range(20, 30)]
    assert job.numbers("parquet", badRecords=job.bad, maxRowsPerTrigger=rows) == expected
    assert [kept["place"] for kept in job.kept()] == ["row group 1"]


def test_a_parquet_value_that_does_not_fit_is_a_bad_record(job: Job) -> None:
    parquet(job, "a", [1, 2**40, 3], row_group_size=2)
    with pytest.raises(
        BadRecordError, match=r"row 2: expected columns \(n int32, name string\), found .*1099511627776"
    ):
        job.rows("parquet")
    assert job.numbers("parquet", badRecords=job.bad) == [1, 3]
    assert [kept["place"] for kept in job.kept()] == ["row 2"]


@pytest.mark.parametrize("line", ["1{}", "-7{}.5", "1e30"])
def test_a_decimal_of_too_many_digits_is_a_bad_record_and_no_other_number(job: Job, line: str) -> None:
    """Arrow's own readers and casts lose high bits of some, and say nothing."""
    number = line.format("0" * 30)
    schema = parse_ddl("a decimal(38,18), s struct<b: array<decimal(38,18)>>")
    (job.input / "a.json").write_text(f'{{"a": 1.5}}\n{{"a": {number}}}\n{{"s": {{"b": [{number}]}}}}\n')
    assert job.rows("json", schema, badRecords="skip") == [{"a": Decimal("1.5"), "s": None}]
    (job.input / "a.json").write_text(f" 1.5\n{number}\n")
    job.metadata = job.metadata.with_name("job2")
    assert job.rows("csv", parse_ddl("a decimal(38,18)"), badRecords="skip") == [{"a": Decimal("1.5")}]
    job.metadata = job.metadata.with_name("job3")
    (job.input / "a.json").unlink()
    pq.write_table(pa.table({"a": pa.array([Decimal(number)], pa.decimal128(38, 1))}), job.input / "b")
    with pytest.raises(BadRecordError, match="row 1: expected columns"):
        job.rows("parquet", parse_ddl("a decimal(38,18)"))


def test_a_parquet_file_of_another_schema_is_a_bad_file(job: Job) -> None:
    pq.write_table(pa.table({"other": [1]}), job.input / "a")
    with pytest.raises(BadRecordError, match=r"it has columns \['other'\], none of \['n', 'name'\]"):
        job.rows("parquet")
    pq.write_table(pa.table({"n": [[1]]}), job.input / "a")
    job.metadata = job.metadata.with_name("job2")
    with pytest.raises(BadRecordError, match="column 'n': expected int32, found list"):
        job.rows("parquet")


def test_null_in_a_column_that_must_not_be_null_is_a_bad_record(job: Job) -> None:
    schema = StructType([StructField("n", LongType(), False)])
    parquet(job, "a", [1, None, 3])
    with pytest.raises(BadRecordError, match=r"row 2: .*column 'n' must not be null"):
        job.rows("parquet", schema)
    assert job.rows("parquet", schema, badRecords="skip") == [{"n": 1}, {"n": 3}]


def test_a_header_that_names_none_of_the_columns_is_a_bad_file(job: Job) -> None:
    (job.input / "a").write_text("x,y\n1,2\n")
    (job.input / "b").write_text("name,n\none,1\n")
    with pytest.raises(BadRecordError, match=r"the header names \['x', 'y'\]"):
        job.rows("csv", header="true")
    assert job.rows("csv", header="true", badRecords="skip") == [{"n": 1, "name": "one"}]


def test_a_file_with_a_header_read_without_one_is_an_error_and_not_nulls(job: Job) -> None:
    (job.input / "a").write_text("n,name\n1,one\n")
    with pytest.raises(BadRecordError, match=r"record 1 .*found 'n,name'"):
        job.rows("csv")


@pytest.mark.parametrize("limit", [{}, {"maxRowsPerTrigger": "2"}])
def test_a_damaged_compressed_file_is_a_bad_file(job: Job, limit: dict[str, str]) -> None:
    whole = gzip.compress(b"".join(b'{"n": %d}\n' % n for n in range(5)))
    (job.input / "a.json.gz").write_bytes(whole[:-12])
    (job.input / "b.json.gz").write_bytes(b"not gzip at all")
    (job.input / "c.json.gz").write_bytes(whole)
    with pytest.raises(BadRecordError, match="cannot be decompressed"):
        job.rows("json", **limit)
    assert job.numbers("json", badRecords="skip", **limit)[-5:] == list(range(5))


# -- what is good --------------------------------------------------------------------------------------------------


def test_columns_are_matched_by_name_missing_ones_are_null_and_others_are_ignored(job: Job) -> None:
    pq.write_table(pa.table({"more": [1], "NAME": ["one"]}), job.input / "a")
    assert job.rows("parquet") == [{"n": None, "name": "one"}]
    (job.input / "a").write_text('{"more": {"x": [1]}, "name": "one"}\n{}\n')
    job.metadata = job.metadata.with_name("job2")
    assert job.rows("json") == [{"n": None, "name": "one"}, {"n": None, "name": None}]
    (job.input / "a").write_text("more,Name\n1,one\n")
    job.metadata = job.metadata.with_name("job3")
    assert job.rows("csv", header="true") == [{"n": None, "name": "one"}]


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_text_timestamps_with_any_zone_or_none_become_utc_microseconds(job: Job, kind: str) -> None:
    texts = [
        "2024-01-02T03:04:05Z",
        "2024-01-02 03:04:05.5",
        "2024-01-02T03:04:05.123456789+02:00",
        "2024-01-02T03:04:05-0130",
        "2024-01-02",
    ]
    lines = [json.dumps({"t": text}) if kind == "json" else text for text in texts]
    (job.input / "a").write_text("\n".join(lines))
    found = [row["t"].isoformat() for row in job.rows(kind, parse_ddl("t timestamp"))]
    assert found == [
        "2024-01-02T03:04:05+00:00",
        "2024-01-02T03:04:05.500000+00:00",
        "2024-01-02T01:04:05.123456+00:00",
        "2024-01-02T04:34:05+00:00",
        "2024-01-02T00:00:00+00:00",
    ]


def test_parquet_timestamps_become_what_the_schema_says(job: Job) -> None:
    table = pa.table({"a": pa.array([1_500], pa.timestamp("ns")), "b": pa.array([2], pa.timestamp("ms", "Asia/Tokyo"))})
    pq.write_table(table, job.input / "a")
    reader = job.open("parquet", parse_ddl("a timestamp, b timestamp_ntz"))
    (split,) = reader.splits(reader.initial(), reader.latest(reader.initial(), False))
    (batch,) = reader.read(split)
    assert batch.schema.types == [pa.timestamp("us", "UTC"), pa.timestamp("us")]
    assert [column.cast(pa.int64()).to_pylist() for column in batch.columns] == [[1], [2000]]


def test_every_plain_type_is_read_from_text(job: Job) -> None:
    ddl = "a tinyint, b bigint, c double, d boolean, e date, f decimal(10,2), g binary, h timestamp_ntz"
    values = {
        "a": 1,
        "b": 2**60,
        "c": 0.5,
        "d": True,
        "e": "2024-02-29",
        "f": "1.25",
        "g": "xy",
        "h": "2024-01-01 10:00",
    }
    (job.input / "a").write_text(json.dumps(values))
    (row,) = job.rows("json", parse_ddl(ddl))
    texts = {name: str(value) for name, value in row.items()}
    assert texts == {
        "a": "1",
        "b": str(2**60),
        "c": "0.5",
        "d": "True",
        "e": "2024-02-29",
        "f": "1.25",
        "g": "b'xy'",
        "h": "2024-01-01 10:00:00",
    }
    (job.input / "a").write_text(",".join(str(value) for value in values.values()))
    job.metadata = job.metadata.with_name("job2")
    assert job.rows("csv", parse_ddl(ddl)) == [row]


def test_nested_json_is_read(job: Job) -> None:
    (job.input / "a").write_text('{"s": {"d": "2024-01-01", "l": [1, null], "extra": 1}}\n{"s": null}\n')
    rows = job.rows("json", parse_ddl("s struct<d: date, l: array<bigint>, x: string>"))
    assert str(rows[0]["s"]["d"]) == "2024-01-01"
    assert rows[0]["s"]["l"] == [1, None]
    assert rows[0]["s"]["x"] is None
    assert rows[1] == {"s": None}


def test_csv_options(job: Job) -> None:
    (job.input / "a").write_text("n;name\n1;'a;b'\n2;NA\n3;\n")
    options = {"sep": ";", "quote": "'", "header": "true", "nullValue": "NA"}
    assert [row["name"] for row in job.rows("csv", **options)] == ["a;b", None, ""]


def test_a_quoted_empty_value_is_empty_text_and_an_empty_one_is_null(job: Job) -> None:
    (job.input / "a").write_text('1,""\n2,\n')
    assert [row["name"] for row in job.rows("csv")] == ["", None]
    (job.input / "a").write_text('"1",')
    job.metadata = job.metadata.with_name("job2")
    assert [row["name"] for row in job.rows("csv")] == [None]


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_values_with_line_breaks_are_read_with_multi_line(job: Job, rows: int) -> None:
    (job.input / "a").write_text('n,name\n1,"one\nand ""more"""\n\n2,two\n3,"three\n\n3"\n')
    found = job.rows("csv", header="true", multiLine="true", maxRowsPerTrigger=rows)
    assert [row["name"] for row in found] == ['one\nand "more"', "two", "three\n\n3"]


@pytest.mark.parametrize("rows", [2, 1000])
def test_byte_order_marks_windows_line_ends_and_blank_lines_do_no_harm(job: Job, rows: int) -> None:
    (job.input / "a").write_bytes(b"\xef\xbb\xbfn,name\r\n1,a\r\n\r\n2,b\r\n3,c")
    assert job.numbers("csv", header="true", maxRowsPerTrigger=rows) == [1, 2, 3]
    (job.input / "a").write_bytes(b'\xef\xbb\xbf{"n":1}\r\n\r\n   \r\n{"n":2}\r\n{"n":3}')
    job.metadata = job.metadata.with_name("job2")
    assert job.numbers("json", maxRowsPerTrigger=rows) == [1, 2, 3]


def test_files_of_many_chunks_are_read_whole(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_ckpt.sources import _text_records

    monkeypatch.setattr(_text_records, "CHUNK_BYTES", 37)
    (job.input / "a").write_text("".join(f'{n},"line\n{n}"\n' for n in range(50)))
    for limit in ({}, {"maxRowsPerTrigger": "7"}):
        assert job.numbers("csv", multiLine="true", **limit) == list(range(50))


def test_batches_are_bounded(job: Job) -> None:
    (job.input / "a").write_text("".join(f"{n},x\n" for n in range(100_000)))
    reader = job.open("csv")
    (split,) = reader.splits(reader.initial(), reader.latest(reader.initial(), False))
    sizes = [batch.num_rows for batch in reader.read(split)]
    assert sum(sizes) == 100_000
    assert max(sizes) <= 65_536


def test_a_file_that_begins_with_null_has_a_bad_record(tmp_path: Path) -> None:
    """Arrow's JSON reader crashes on one that is alone or in front."""
    job = Job(tmp_path)
    (job.input / "a.json").write_text('null\n{"n": 1, "name": "a"}\n')
    assert job.rows("json", badRecords="skip") == [{"n": 1, "name": "a"}]


REFUSED = {
    "expected mode .* or badRecords, found both": {"mode": "PERMISSIVE", "badRecords": "skip"},
    "escape goes with option mode": {"escape": "x", "fileFormat": "csv"},
    "expected one of permissive": {"mode": "lenient"},
    "expected mode with fileFormat json or csv only": {"mode": "PERMISSIVE", "fileFormat": "parquet"},
}


@pytest.mark.parametrize("why", REFUSED)
def test_modes_that_do_not_go_together_are_refused(tmp_path: Path, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        FilesSource({"path": str(tmp_path), "fileFormat": "json", **REFUSED[why]})


@pytest.mark.parametrize(
    ("ddl", "why"),
    [
        ("n int not null", "columns that may be null, found NOT NULL for n"),
        ("n int, _corrupt_record int", "must have the nullable STRING type"),
        ("_corrupt_record string", "expected a column beside `_corrupt_record`"),
    ],
)
def test_a_schema_that_permissive_cannot_keep_to_is_refused(job: Job, ddl: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        job.open("json", parse_ddl(ddl), mode="PERMISSIVE")


def test_spark_s_names_of_modes_are_bad_records(job: Job) -> None:
    (job.input / "a.json").write_text('{"n": 1}\nx\n{"n": 2}\n')
    assert job.numbers("json", mode="DROPMALFORMED") == [1, 2]


def test_permissive_splits_by_records_and_reads_headers_by_name(job: Job) -> None:
    (job.input / "a.csv").write_text("name,n\na,1\nb,x\nc\n")
    schema = parse_ddl("n int, name string, _corrupt_record string")
    rows = job.rows("csv", schema, mode="PERMISSIVE", header="true", maxRowsPerTrigger=2)
    assert [tuple(row.values()) for row in rows] == [(1, "a", None), (None, "b", "b,x"), (None, "c", "c")]


def test_a_bad_row_with_a_day_that_python_has_not_is_shown() -> None:
    day = pa.array([2**31 - 1], pa.int32()).cast(pa.date32())
    batch = pa.record_batch({"d": day, "i": ["x"]})
    (bad,) = converted(batch, 0, pa.schema([("d", pa.date32()), ("i", pa.int32())]))
    assert bad.found == '{"d":"+5881580-07-11","i":"x"}'
