"""ORC files: stripes, ranges of rows, Spark's types, damage, and what Spark would read in another way."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql.types import StructType

from spark_ckpt.errors import BadRecordError, ConfigError
from spark_ckpt.sources.base import InnerReader
from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.sources.files import FilesSource


def source(folder: Path, **options: Any) -> FilesSource:
    given = {"path": str(folder / "in"), "fileFormat": "orc", "discoveryInterval": "0s", **options}
    found = FilesSource({key: str(value) for key, value in given.items()})
    found.metadata_url = str(folder / "job")
    return found


def batches(folder: Path, schema: StructType, **options: Any) -> list[list[pa.RecordBatch]]:
    reader = InnerReader(source(folder, **options), schema)
    at, found = reader.initial(), []
    while (end := reader.latest(at, False)) != at:
        found.append([batch for split in reader.splits(at, end) for batch in reader.read(split)])
        at = end
    return found


def rows(folder: Path, schema: StructType, **options: Any) -> list[dict[str, Any]]:
    return [row for some in batches(folder, schema, **options) for batch in some for row in batch.to_pylist()]


def write(folder: Path, table: pa.Table, **options: Any) -> Path:
    (folder / "in").mkdir(exist_ok=True)
    path = folder / "in" / f"{len(list((folder / 'in').iterdir()))}.orc"
    orc.write_table(table, path, **options)
    return path


@pytest.mark.parametrize("options", [{}, {"maxRowsPerTrigger": 3500}, {"maxSplitBytes": 5000}])
def test_all_rows_of_many_stripes_are_read_once(tmp_path: Path, options: dict[str, Any]) -> None:
    numbers = list(range(20_000))
    table = pa.table({"n": numbers, "s": [f"text {n}" for n in numbers], "unused": numbers})
    assert orc.ORCFile(write(tmp_path, table, stripe_size=20_000, batch_size=1000)).nstripes > 5
    found = batches(tmp_path, parse_ddl("s string, n bigint, absent int"), **options)
    assert [n for some in found for b in some for n in b.column("n").to_pylist()] == numbers
    assert {tuple(b.schema.names) for some in found for b in some} == {("s", "n", "absent")}
    if "maxRowsPerTrigger" in options:
        assert [sum(b.num_rows for b in some) for some in found] == [3500] * 5 + [2500]


def test_types_are_sparks(tmp_path: Path) -> None:
    ntz = pa.field("w", pa.int64(), metadata={"spark.sql.catalyst.type": "timestamp_ntz"})
    at = pa.array([dt.datetime(2024, 7, 1, 12, 0, 0, 123456)], pa.timestamp("ns"))
    table = pa.Table.from_arrays(
        [at, pa.array([[dt.datetime(2024, 7, 1)]], pa.list_(pa.timestamp("ns"))), pa.array([1_704_110_400_000_000])],
        schema=pa.schema([("t", at.type), ("ts", pa.list_(pa.timestamp("ns"))), ntz]),
    )
    write(tmp_path, table)
    schema = source(tmp_path).schema()
    assert schema.simpleString() == "struct<t:timestamp,ts:array<timestamp>,w:timestamp_ntz>"
    [row] = rows(tmp_path, parse_ddl("t timestamp, w timestamp_ntz"))
    utc = dt.timezone.utc
    assert (row["t"], row["w"]) == (dt.datetime(2024, 7, 1, 12, 0, 0, 123456, utc), dt.datetime(2024, 1, 1, 12))


@pytest.fixture
def berlin() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


def test_timestamps_are_refused_where_sparks_would_be_others(tmp_path: Path, berlin: None) -> None:
    write(tmp_path, pa.table({"n": [1]}))
    assert rows(tmp_path, parse_ddl("n int, w timestamp_ntz")) == [{"n": 1, "w": None}]
    for text in ("t timestamp", "a array<timestamp>", "s struct<t:timestamp>"):
        with pytest.raises(ConfigError, match="expected a machine whose zone is UTC, found CET"):
            rows(tmp_path, parse_ddl(text))


def test_a_day_of_the_older_calendar_is_a_bad_record(tmp_path: Path) -> None:
    days = [dt.date(1582, 10, 15), dt.date(1582, 10, 14), None, dt.date(2024, 1, 1)]
    write(tmp_path, pa.table({"d": days}))
    with pytest.raises(BadRecordError, match="expected days from 1582-10-15 on, found one of the older calendar"):
        rows(tmp_path, parse_ddl("d date"))
    assert rows(tmp_path, parse_ddl("d date"), badRecords="skip") == [{"d": d} for d in (days[0], None, days[3])]


@pytest.mark.parametrize("content", [b"ORC", b"this is no such file, whatever its name says"])
def test_what_is_no_orc_file_is_named_or_skipped(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, pa.table({"n": [1, 2]}))
    (tmp_path / "in" / "bad.orc").write_bytes(content)
    with pytest.raises(BadRecordError, match=r"bad\.orc, the file as a whole: expected an ORC file"):
        rows(tmp_path, parse_ddl("n int"))
    assert rows(tmp_path, parse_ddl("n int"), badRecords="skip") == [{"n": 1}, {"n": 2}]


def test_a_damaged_stripe_ends_a_file_and_no_other(tmp_path: Path) -> None:
    numbers = [n * 7919 % 1_000_003 for n in range(20_000)]
    table = pa.table({"n": numbers, "s": [f"{n * 31} {n}" for n in numbers]})
    path = write(tmp_path, table, stripe_size=20_000, batch_size=1000, compression="zlib")
    write(tmp_path, pa.table({"n": [-1]}))
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 3000] = Random(1).randbytes(3000)
    path.write_bytes(content)
    with pytest.raises(BadRecordError, match=r"stripe .* and what follows: expected a readable stripe"):
        rows(tmp_path, parse_ddl("n int, s string"))
    found = [row["n"] for row in rows(tmp_path, parse_ddl("n int, s string"), badRecords="skip")]
    assert found[0] == -1  # the older file
    assert 1 < len(found) < len(numbers)
    assert found[1:] == numbers[: len(found) - 1]
