"""Names of columns are names, not paths, patterns or texts to be folded: what a file has under one is what is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql.types import DataType, StringType, StructField, StructType

from spark_ckpt.sinks.registry import create_sink
from spark_ckpt.sources.base import InnerReader
from spark_ckpt.sources.files import FilesSource
from spark_ckpt.testing.sink_harness import context, permit, stage_table

ROWS: dict[str, dict[str, Any]] = {
    "flat names beside paths of the same text": {
        "host.name": "flat", "host": {"name": "inner", "ip": "1"}, "a.b.c": "abc", "a": {"b": {"c": "deep"}},
        "host.ip": "2",
    },
    "signs": {
        name: f"value of {name}"
        for name in ["a`b", "a'b", 'a"b', "[x]", ".x", " ", "a\\b", "a,b", "{}", "*", "a/b", "%41", "#", "=", "$.x"]
    },
    "pairs that differ in case": {"id": "lower", "ID": "upper", "Id": "mixed", "s": {"x": "1", "X": "2"}},
    "pairs that look alike": {"\u00e9": "one", "e\u0301": "two", "s": {"e\u0301": "4", "\u00e9": "5"}, "\u00e9.x": "6"},
}  # fmt: skip


def spark_type(value: Any) -> DataType:
    return schema_of(value) if isinstance(value, dict) else StringType()


def schema_of(row: dict[str, Any]) -> StructType:
    return StructType([StructField(name, spark_type(value)) for name, value in row.items()])


def arrow_type(value: Any) -> pa.DataType:
    return pa.struct([(k, arrow_type(v)) for k, v in value.items()]) if isinstance(value, dict) else pa.string()


def write(folder: Path, kind: str, row: dict[str, Any]) -> None:
    """By our sink, and what has none by Arrow."""
    table = pa.Table.from_pylist([row], schema=pa.schema(list(arrow_type(row))))
    if kind in ("orc", "parquet"):
        folder.mkdir()
        (orc if kind == "orc" else pq).write_table(table, folder / f"x.{kind}")
        return
    sink = create_sink("files", {"path": str(folder), "fileFormat": kind})
    sink.validate(table.schema)
    sink.commit(permit(1), stage_table(sink, context(1, 1, schema=table.schema), table))


def read(folder: Path, kind: str, row: dict[str, Any]) -> list[dict[str, Any]]:
    given = {"path": str(folder / "in"), "fileFormat": kind, "discoveryInterval": "0s"}
    source = FilesSource({**given, "header": "true"} if kind == "csv" else given)
    source.metadata_url = str(folder / "job")
    reader = InnerReader(source, schema_of(row))
    end = reader.latest(reader.initial(), False)
    return [r for s in reader.splits(reader.initial(), end) for b in reader.read(s) for r in b.to_pylist()]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("kind", ["parquet", "orc", "json", "csv"])
def test_each_column_of_a_file_is_read_under_its_own_name_beside_others_and_alone(
    tmp_path: Path, kind: str, row: dict[str, Any]
) -> None:
    flat = {name: value for name, value in row.items() if kind != "csv" or isinstance(value, str)}
    write(tmp_path / "in", kind, flat)
    assert read(tmp_path, kind, flat) == [flat]
    if kind == "csv" and "ID" in row:
        return  # of names that differ in case alone, a CSV file is read with all of them: its header is checked
    for name, value in flat.items():
        assert read(tmp_path, kind, {name: value}) == [{name: value}]
