"""Option ``rejects`` of sinks that write files: rows that the table cannot hold go elsewhere, the rest is written."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks.delta.sink import DeltaSink
from spark_ckpt.sinks.files import FilesSink
from spark_ckpt.testing.sink_harness import CHANGES, SCHEMA, stage
from tests.sinks.iceberg_harness import catalog_of, catalog_options
from tests.sinks.rejects_harness import Rejecting

LONG = "x" * 300
FAR = pa.scalar(200_000_000, pa.int32()).cast(pa.date32())
Found = list[dict[str, Any]]


def delta(folder: Path, schema: pa.Schema = SCHEMA, **options: str) -> tuple[Rejecting, Callable[[], Found], Any]:
    sink = Rejecting("delta", {"path": f"{folder}/t", "rejects": f"{folder}/bad", **options}, schema)
    target = lambda: DeltaTable(f"{folder}/t").to_pyarrow_table()  # noqa: E731
    return sink, lambda: DeltaTable(f"{folder}/bad").to_pyarrow_table().to_pylist(), target


def files(folder: Path, schema: pa.Schema = SCHEMA, **options: str) -> tuple[Rejecting, Callable[[], Found], Any]:
    sink = Rejecting("files", {"path": f"{folder}/t", "rejects": f"{folder}/bad", **options}, schema)

    def bad() -> Found:
        return [json.loads(line) for p in Path(folder, "bad").glob("*.json") for line in p.read_text().splitlines()]

    return sink, bad, lambda: ds.dataset(f"{folder}/t", format="parquet", partitioning="hive").to_table()


def iceberg(folder: Path, schema: pa.Schema = SCHEMA, **options: str) -> tuple[Rejecting, Callable[[], Found], Any]:
    catalog = catalog_options(folder)
    sink = Rejecting("iceberg", {"table": "db.t", "rejects": "db.bad", **catalog, **options}, schema)

    def rows(table: str) -> pa.Table:
        return catalog_of(catalog).load_table(table).scan().to_arrow()

    return sink, lambda: rows("db.bad").to_pylist(), lambda: rows("db.t")


def check(sink: Rejecting, bad: Callable[[], Found], target: Any, rows: Any, keys: list[int], said: str) -> None:
    """Of ``rows``, those of ``keys`` are written, the others are rejected by a reason that says ``said``; once."""
    staged = sink.stage(rows)
    tried = sink.tried(staged)
    assert tried.refused == ()
    assert bad() == []
    sink.commit(staged)
    sink.commit(staged)  # again, as after a crash
    assert sorted(target()["k"].to_pylist()) == keys
    found = bad()
    assert len(found) == len(rows) - len(keys)
    assert {json.loads(r["data"])["k"] for r in found}.isdisjoint(keys)
    assert all(said in r["reason"] and (r["sink"], r["epoch"], r["rule"]) == ("s", 1, None) for r in found)


@pytest.mark.parametrize("keys", ["", "k"])
def test_delta_nulls_where_the_table_has_none(tmp_path: Path, keys: str) -> None:
    DeltaTable.create(f"{tmp_path}/t", schema=pa.schema([SCHEMA.field("k"), SCHEMA.field("v").with_nullable(False)]))
    with pytest.raises(InvalidInputError, match="must not be null in the table"):
        DeltaSink({"path": f"{tmp_path}/t"}).validate(SCHEMA)
    options = {"mergeKeys": keys} if keys else {}
    rows = [(1, "a"), (2, None), (3, "b"), (4, None)]
    check(*delta(tmp_path, **options), rows, [1, 3], "column 'v' is declared not null")


def test_delta_days_that_no_partition_can_have(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("day", pa.date32())])
    rows = pa.table({"k": [1, 2, 3], "day": [pa.scalar(dt.date(2026, 1, 1)), FAR, None]}, schema)
    check(*delta(tmp_path, schema, partitionBy="day"), rows, [1, 3], "which a Delta table's partition cannot hold")


def test_delta_unknown_kinds_of_change(tmp_path: Path) -> None:
    rows = [("+I", 1, "a"), (None, 2, "b"), ("+X", 3, "c"), ("+U", 4, "d")]
    check(*delta(tmp_path, CHANGES, mergeKeys="k", changeColumn="op"), rows, [1, 4], "changeColumn")


def test_files_values_that_no_folder_can_be_named_by(tmp_path: Path) -> None:
    rows = [(1, "a"), (2, LONG), (3, None), (4, "a"), (5, "\0")]
    check(*files(tmp_path, partitionBy="v"), rows, [1, 3, 4], "partitionBy: a value of column 'v' makes")
    assert len(list(Path(tmp_path, "t", "v=a").iterdir())) == 1, "one file a value, whatever was rejected"


def test_iceberg_nulls_where_the_table_has_none(tmp_path: Path) -> None:
    required = pa.schema([SCHEMA.field("k"), SCHEMA.field("v").with_nullable(False)])
    catalog_of(catalog_options(tmp_path)).create_table("db.t", schema=required)
    check(*iceberg(tmp_path), [(1, "a"), (2, None), (3, "b")], [1, 3], "column 'v' is declared not null")


def test_iceberg_nulls_and_kinds_of_change_in_a_merge(tmp_path: Path) -> None:
    required = pa.schema([SCHEMA.field("k"), SCHEMA.field("v").with_nullable(False)])
    catalog_of(catalog_options(tmp_path)).create_table("db.t", schema=required)
    rows = [("+I", 1, "a"), ("+I", 2, None), ("?", 3, "b"), ("+I", 4, "c")]
    check(*iceberg(tmp_path, CHANGES, mergeKeys="k", changeColumn="op"), rows, [1, 4], "column '")


def test_iceberg_values_that_no_folder_can_be_named_by(tmp_path: Path) -> None:
    rows = [(1, "a"), (2, LONG), (3, "b")]
    check(*iceberg(tmp_path, partitionBy="v"), rows, [1, 3], "partition column 'v': a value makes a name of")


def test_without_the_option_the_task_fails_as_before(tmp_path: Path) -> None:
    sink = FilesSink({"path": f"{tmp_path}/t", "partitionBy": "v"})
    sink.validate(SCHEMA)
    with pytest.raises(InvalidInputError, match="a name of 302 bytes"):
        stage(sink, [(2, LONG)])
