"""Source ``files`` in mode PERMISSIVE has the rows of Spark's own reader of such files."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_ckpt.errors import BadRecordError
from spark_ckpt.sources import _csv_lenient, _file_lenient
from spark_ckpt.sources._convert import arrow_schema
from spark_ckpt.sources._text_records import Records, SparkRules, TextFormat, content_ends
from spark_ckpt.sources.base import InnerReader
from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.sources.files import FilesSource
from tests.generated.csv_texts import CsvWriter
from tests.generated.json_texts import JsonWriter
from tests.spark.conftest import Job, ordered, rows_of_spark

SCHEMAS = (
    "i int, s string, d double, t timestamp, st struct<x:int,y:string>, _corrupt_record string",
    "m map<string,int>, b binary, _corrupt_record string, ms map<string,struct<x:int>>",
    "a array<int>, dec decimal(10,2), _corrupt_record string, sa array<struct<x:int,y:string>>, dt date, by tinyint",
)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_json_of_any_kind_has_the_rows_of_sparks_reader(spark: SparkSession, tmp_path: Path, schema: str) -> None:
    check_json(spark, tmp_path, schema, 250, seed=1)


@pytest.mark.soak
def test_much_json_has_the_rows_of_sparks_reader(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(2, 8):
        for n, schema in enumerate(SCHEMAS):
            check_json(spark, tmp_path / f"{seed}-{n}", schema, 3000, seed)


def check_json(spark: SparkSession, folder: Path, schema: str, count: int, seed: int) -> None:
    kind = pa.struct([f for f in arrow_schema(parse_ddl(schema)) if f.name != "_corrupt_record"])
    random = Random(f"{seed} {schema}")
    writer = JsonWriter(random)
    lines = [line(writer.record(kind)) for _ in range(count)]
    lines += [
        f"[{','.join(line(writer.record(kind)) for _ in range(random.randrange(3)))}]" for _ in range(count // 20)
    ]
    random.shuffle(lines)
    write(folder, "a.json", "\n".join([*lines, "", "  ", "null", "5", "[]", ""]))
    zone = random.choice(["Europe/Paris", "+02:30"])
    compare(spark, folder, schema, "json", timeZone=zone)
    # Lines that are read as a whole, if they can be, have the rows that each by itself has.
    good = [text for text in lines if text.startswith("{") and text.endswith("}")]
    for n in range(0, len(good), 7):
        records = _records(good[n : n + 7])
        lenient = _lenient(schema, zone)
        together = lenient.read(records)
        singly = [_lenient(schema, zone).read(records.part(at, at + 1)) for at in range(len(records))]
        assert repr(numbers(pa.Table.from_batches([together.rows]))) == repr(
            numbers(pa.Table.from_batches([one.rows for one in singly]))
        )


def _records(lines: list[str]) -> Records:
    data = "".join(text + "\n" for text in lines).encode()
    return Records(data, *content_ends(data, TextFormat("json")))


def _lenient(schema: str, zone: str) -> _file_lenient.Lenient:
    fmt = TextFormat("json", zone=zone, sparks=SparkRules("permissive", "_corrupt_record"))
    found = _file_lenient.lenient_parser(fmt, arrow_schema(parse_ddl(schema)), [])
    assert found is not None
    return found


GOOD, BAD = '{"id":1,"name":"a","at":"2020-01-01 10:00:00","raw":"aGk=","tags":{"x":1}}', '{"id":"2","name":3,"at":"x"'
JSON_SCHEMA = "id int not null, name string, at timestamp, raw binary, tags map<string,int>, _bad string"


def test_streams_of_json_and_csv_are_those_of_spark_where_nobody_names_a_mode(
    spark: SparkSession, ckpt: Any, job: Job, tmp_path: Path
) -> None:
    """Two starts, one file each; the columns of CSV go by their places, whatever the header says."""
    (tmp_path / "in").mkdir()
    spark.conf.set("spark.sql.columnNameOfCorruptRecord", "_bad")
    try:
        for kind, schema, texts, options in (
            ("json", JSON_SCHEMA, (f"{GOOD}\n{BAD}\n[{GOOD},{GOOD}]\nnull\n", f"{GOOD}\r{GOOD}\n"), {}),
            ("csv", "a int not null, b string", ('b,a\n1,x\ny,"a\\"b"\n3\n', 'b,a\n4,""\n5,6,7\n'), {"header": "true"}),
        ):
            folder = tmp_path / kind
            folder.mkdir()
            job.sink = str(tmp_path / f"sink-{kind}")
            for n, text in enumerate(texts):
                (folder / f"{n}.txt").write_text(text)
                reader = ckpt.readStream.schema(schema).options(**options)
                stream = reader.format(kind).load(str(folder)) if n else getattr(reader, kind)(str(folder))
                job.run(stream.select("*"), spark__ckpt__job=kind)
            plain = spark.readStream.schema(schema).options(**options).format(kind).load(str(folder))
            assert stream.schema == plain.schema
            rows = rows_of_spark(plain, tmp_path / f"location-{kind}")
            assert [_plain(row) for row in job.rows()] == [_plain(row) for row in ordered(map(tuple, rows))]
    finally:
        spark.conf.unset("spark.sql.columnNameOfCorruptRecord")


def test_values_of_columns_that_are_not_selected_are_not_looked_at_where_spark_prunes(
    spark: SparkSession, ckpt: Any, job: Job, tmp_path: Path
) -> None:
    write(tmp_path, "a.csv", "1,x,2.5\n2,y\n3,z,nope\nbad,w,4\n5,q,6,more\n")
    rows = []
    for reader in (ckpt.readStream, spark.readStream):
        reader = reader.schema("a int, b string, c double").option("mode", "DROPMALFORMED")
        rows.append(reader.option("columnPruning", "true").csv(str(tmp_path / "in")).select("b"))
    job.run(rows[0])
    assert job.rows() == ordered(map(tuple, rows_of_spark(rows[1], tmp_path / "plain"))) != []
    assert len(job.rows()) == 5


def _plain(row: Any) -> str:
    """Maps come as lists of pairs from a sink, and times without a zone from Spark."""
    return repr([str(sorted(dict(v).items())) if isinstance(v, dict | list) else _shown(v) for v in row])


def _shown(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    return value.replace(tzinfo=None).isoformat() if hasattr(value, "isoformat") else value


def test_a_warning_says_once_how_many_records_did_not_fit_and_nothing_of_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "a.json", '{"i": 1}\n{"i": "secret"}\n{"i": "secret"}\n')
    with caplog.at_level(logging.WARNING, "spark_ckpt"):
        for _ in range(2):
            assert ours(tmp_path, "i int", "json").column("i").to_pylist() == [1, None, None]
    (said,) = [record.getMessage() for record in caplog.records]
    assert "a.json: of 3 record(s) read, 2 did not fit the columns (i) and what does not fit is null" in said
    assert "secret" not in said
    assert ours(tmp_path, "i int", "json", mode="DROPMALFORMED").column("i").to_pylist() == [1]
    with pytest.raises(BadRecordError, match=r"record 2 \(byte 9.*FAILFAST"):
        ours(tmp_path, "i int", "json", mode="FAILFAST")


def test_a_warning_says_that_a_header_names_other_columns_than_the_schema(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, header in {"same": "I,s", "other": "s,i", "none": "secret,7", "short": "i"}.items():
        write(tmp_path / name, "a.csv", f"{header}\n1,x\n")
        with caplog.at_level(logging.WARNING, "spark_ckpt"):
            rows = ours(tmp_path / name, "i int, s string", "csv", header="true", enforceSchema="true")
        assert rows.to_pylist() == [{"i": 1, "s": "x"}]
    said = [record.getMessage() for record in caplog.records]
    assert ["number 1 is not 'i'" in text for text in said] == [True, True, False]
    assert "short/in/a.csv" in said[2]
    assert "number 2 is not 's'" in said[2]
    assert "secret" not in " ".join(said)


@pytest.mark.parametrize("seed", range(6))
def test_csv_of_any_kind_has_the_rows_of_sparks_reader(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_csv(spark, tmp_path, 60, seed, monkeypatch)


@pytest.mark.soak
def test_much_csv_has_the_rows_of_sparks_reader(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(10, 400):
        check_csv(spark, tmp_path / str(seed), 60, seed, monkeypatch)


def check_csv(spark: SparkSession, folder: Path, count: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = CsvWriter(Random(f"{seed} csv"))
    schema, data = writer.schema(), writer.file(count)
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "a.csv").write_bytes(data)
    options = {"mode": "PERMISSIVE", "timeZone": "Europe/Paris", "enforceSchema": "true", **writer.options}
    compare(spark, folder, schema, "csv", **options)
    found = numbers(ours(folder, schema, "csv", **options))
    with monkeypatch.context() as patch:
        patch.setattr(_csv_lenient.CsvRecords, "_may_differ", lambda *_: True)
        assert repr(numbers(ours(folder, schema, "csv", **options))) == repr(found), "read by types, and as texts"


def test_lines_of_several_records_in_quotes_have_the_rows_of_sparks_reader(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(5)
    for n in range(6):
        values = ["1", "x", "", '"a"', '"a,b"', '"a\nb"', '"say \\"hi\\"\n"', '"a""b"', ' "x"', 'x"y'][
            : 6 + 2 * (n % 3)
        ]
        lines = [",".join(random.choice(values) for _ in range(random.choice([3, 3, 3, 2, 4]))) for _ in range(40)]
        folder = tmp_path / str(n)
        write(folder, "a.csv", ("\r\n" if n == 4 else "\n").join([*lines, "", "#c", "  ", "1,2,3", ""]))
        options = {"multiLine": "true", "mode": "PERMISSIVE", **({"comment": "#"} if n == 5 else {})}
        compare(spark, folder, "a int, b string, c string, _corrupt_record string", "csv", **options)


def line(text: str) -> str:
    """A text of zeros is in another encoding to Spark."""
    return text.replace("\n", " ").replace("\r", " ").replace("\x00", "?")


def write(folder: Path, name: str, text: str) -> None:
    (folder / "in").mkdir(parents=True)
    (folder / "in" / name).write_text(text)


def compare(spark: SparkSession, folder: Path, schema: str, kind: str, **options: str) -> None:
    read = spark.read.schema(schema).options(**options).format(kind).load(str(folder / "in"))
    expected = numbers(read.coalesce(1).toArrow())
    found = numbers(ours(folder, schema, kind, **options))
    assert len(found) == len(expected)
    assert [(a, b) for a, b in zip(found, expected, strict=True) if repr(a) != repr(b)][:2] == []


def ours(folder: Path, schema: str, kind: str, **options: str) -> pa.Table:
    given = {"path": str(folder / "in"), "fileFormat": kind, "mode": "PERMISSIVE", "discoveryInterval": "0s", **options}
    source = FilesSource(given)
    shutil.rmtree(folder / "job", ignore_errors=True)
    source.metadata_url = str(folder / "job")
    reader = InnerReader(source, parse_ddl(schema))
    start = reader.initial()
    splits = reader.splits(start, reader.latest(start, False))
    batches = [batch for split in splits for batch in reader.read(split)]
    return pa.Table.from_batches(batches, arrow_schema(parse_ddl(schema)))


def numbers(table: pa.Table) -> list[dict[str, Any]]:
    """Times as numbers, some of which Python has no times for."""
    columns = [
        c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c.cast(pa.int32()) if pa.types.is_date(c.type) else c
        for c in table.columns
    ]
    rows: list[dict[str, Any]] = pa.table(columns, names=table.column_names).to_pylist()
    return rows
