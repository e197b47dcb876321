"""Source ``files`` in mode PERMISSIVE has the rows of Spark's own reader of such files."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_ckpt.sources._convert import arrow_schema
from spark_ckpt.sources.base import InnerReader
from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.sources.files import FilesSource
from tests.generated.json_texts import JsonWriter

SCHEMAS = (
    "i int, s string, d double, t timestamp, st struct<x:int,y:string>, _corrupt_record string",
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
    compare(spark, folder, schema, "json", timeZone=random.choice(["Europe/Paris", "+02:30"]))


CSV = (
    "i int, s string, d double, b boolean, _corrupt_record string",
    "dec decimal(10,2), t timestamp, _corrupt_record string, dt date, f float, by tinyint, n timestamp_ntz",
)


@pytest.mark.parametrize("schema", CSV)
def test_csv_of_any_kind_has_the_rows_of_sparks_reader(spark: SparkSession, tmp_path: Path, schema: str) -> None:
    check_csv(spark, tmp_path, schema, 250, seed=1)


@pytest.mark.soak
def test_much_csv_has_the_rows_of_sparks_reader(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(2, 8):
        for n, schema in enumerate(CSV):
            check_csv(spark, tmp_path / f"{seed}-{n}", schema, 3000, seed)


def check_csv(spark: SparkSession, folder: Path, schema: str, count: int, seed: int) -> None:
    random = Random(f"{seed} {schema}")
    fields = [f for f in parse_ddl(schema) if f.name != "_corrupt_record"]
    lines = [",".join(csv_value(random, f.dataType.simpleString()) for f in fields) for _ in range(count)]
    for n in range(0, count, 4):
        lines[n] = random.choice([lines[n] + ",x", lines[n].rsplit(",", 1)[0], "x", "", "   ", lines[n] + ","])
    write(folder, "a.csv", "\n".join(lines))
    options = random.choice([{}, {"nullValue": "NA"}])
    compare(spark, folder, schema, "csv", timeZone="Europe/Paris", **options)


def csv_value(random: Random, kind: str) -> str:
    if random.randrange(5) == 0:
        return random.choice(CSV_TEXTS)
    values = {
        "int": ["1", "-7", "2147483647", "2147483648", "+5"], "double": ["1.5", "-0.0", "1e3", "NaN", "Inf", "12"],
        "boolean": ["true", "FALSE"], "decimal(10,2)": ["1.5", "1234567.891", '"1,234.5"', "123456789.5"],
        "timestamp": ["2020-01-01 10:00:00", "2020-01-01T10:00:00Z", "2020-01-01"],
        "float": ["0.1", "16777217", "3.5e38"],
        "timestamp_ntz": ["2020-01-01 10:00:00", "2020-01-01T10:00:00Z"], "date": ["2020-01-02", "2020-1-2"],
        "tinyint": ["1", "200"], "string": ["a", "é", '"a, b"', " x "],
    }  # fmt: skip
    return random.choice(values[kind])


CSV_TEXTS = (
    "",
    "x",
    "NA",
    '""',
    "1",
    " 1",
    "1.0",
    "true",
    "2020-13-01",
    "5",
    "NaN",
    "nan",
    "-Inf",
    "Infinity",
    "0x1p3",
    "1d",
)


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
    source.metadata_url = str(folder / "job")
    reader = InnerReader(source, parse_ddl(schema))
    start = reader.initial()
    splits = reader.splits(start, reader.latest(start, False))
    return pa.Table.from_batches([batch for split in splits for batch in reader.read(split)])


def numbers(table: pa.Table) -> list[dict[str, Any]]:
    """Times as numbers, some of which Python has no times for."""
    columns = [
        c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c.cast(pa.int32()) if pa.types.is_date(c.type) else c
        for c in table.columns
    ]
    rows: list[dict[str, Any]] = pa.table(columns, names=table.column_names).to_pylist()
    return rows
