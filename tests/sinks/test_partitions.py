"""``partitionBy`` of files and Delta tables: folders and values as Spark and Hive have them, once whatever crashes."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sinks import _partitions
from spark_ckpt.sinks.registry import create_sink
from spark_ckpt.testing.sink_harness import SinkTarget, context, crash_in_commit, permit, stage_table
from spark_ckpt.types import Committable

SCHEMA = pa.schema([("p", pa.string()), ("v", pa.int64()), ("day", pa.date32())])
DAY = dt.date(2026, 2, 28)
ROWS = [("a", 1, DAY), ("b", 2, DAY), ("a", 3, None), (None, 4, DAY), ("", 5, DAY), ("x=y/%:é\n", 6, None)]
AS_READ = [(p or None, v, day) for p, v, day in ROWS]


def table(rows: Sequence[tuple[Any, ...]] = ROWS) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 3
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def staged(sink: Any, rows: pa.Table, epoch: int = 1) -> list[Committable]:
    return stage_table(sink, context(epoch, epoch, schema=rows.schema), rows)


class Files(SinkTarget):
    def read(self, schema: pa.Schema) -> pa.Table:
        raise NotImplementedError

    def leftovers(self) -> list[str]:
        return [p.name for p in Path(self.options["path"], ".staging").iterdir()]

    def found(self) -> list[tuple[str, int]]:
        """(folder, v) of every row in the folder."""
        root = Path(self.options["path"])
        paths = [p for p in root.rglob("part-*.parquet") if ".staging" not in p.parts]
        both = [(p.parent.relative_to(root).as_posix(), pq.ParquetFile(p).read()) for p in paths]
        assert all(t.column_names == ["v"] for _, t in both)
        return sorted((folder, v) for folder, t in both for v in t["v"].to_pylist())


NULL = "__HIVE_DEFAULT_PARTITION__"
FOLDERS = sorted(
    [
        ("p=a/day=2026-02-28", 1), ("p=b/day=2026-02-28", 2), (f"p=a/day={NULL}", 3), (f"p={NULL}/day=2026-02-28", 4),
        (f"p={NULL}/day=2026-02-28", 5), (f"p=x%3Dy%2F%25%3Aé%0A/day={NULL}", 6),
    ]
)  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files("files", {"path": f"{tmp_path}/out", "partitionBy": "p, day"})


def test_files_lie_in_folders_named_as_spark_names_them(files: Files) -> None:
    sink = files.validated(SCHEMA)
    committables = staged(sink, table())
    assert files.found() == []
    sink.commit(permit(1), committables)
    assert files.found() == FOLDERS
    assert files.leftovers() == []
    (manifest,) = Path(files.options["path"], "_manifests").iterdir()
    assert {f["file"].rpartition("/")[0] for f in json.loads(manifest.read_text())["files"]} == {f for f, _ in FOLDERS}


def test_a_crash_between_any_two_steps_leaves_each_row_once(files: Files) -> None:
    files.validated(SCHEMA)
    for at in range(1, 40):
        committables = staged(files.make(), table(), at)
        crashed = crash_in_commit(files, permit(at), committables, at)
        files.make().commit(permit(at), committables)
        assert files.found() == sorted(FOLDERS * at)
        assert files.leftovers() == []
        if not crashed:
            return
    pytest.fail("more steps than expected")


def test_many_rows_of_many_values_are_written_as_they_come(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_partitions, "_BUFFER_ROWS", 100)
    rows = [(f"{i % 7}", i, DAY) for i in range(1000)]
    sink = files.validated(SCHEMA)
    ctx = context(1, 1, schema=SCHEMA)
    committables = stage_table(sink, ctx, *(table(rows[i : i + 50]) for i in range(0, 1000, 50)))
    assert len(committables) == 10 * 7
    sink.commit(permit(1), committables)
    assert files.found() == sorted((f"p={p}/day=2026-02-28", v) for p, v, _ in rows)


def test_what_is_aborted_or_never_committed_leaves_nothing(files: Files) -> None:
    sink = files.validated(SCHEMA)
    sink.abort(staged(sink, table()))
    assert files.leftovers() == []
    staged(sink, table())
    assert len(sink.gc("a job/1", [])) == len(set(FOLDERS)) - 1
    assert files.leftovers() == []


@pytest.mark.parametrize("kind", ["files", "delta"])
def test_columns_that_cannot_be_partitions_are_refused_at_start(tmp_path: Path, kind: str) -> None:
    schema = pa.schema(
        [
            ("v", pa.int64()),
            ("f", pa.float64()),
            ("t", pa.timestamp("us", "UTC")),
            ("s", pa.struct([("x", pa.int64())])),
        ]
    )
    for names, match in (("x", "names x"), ("f", "type double.*Cast"), ("t", "timestamp.*Cast"), ("s", "struct")):
        with pytest.raises(InvalidInputError, match=match):
            create_sink(kind, {"path": f"{tmp_path}/o", "partitionBy": names}).validate(schema)
    with pytest.raises(InvalidInputError, match="names all columns"):
        create_sink(kind, {"path": f"{tmp_path}/o", "partitionBy": "v"}).validate(pa.schema([("v", pa.int64())]))
    with pytest.raises(ConfigError, match="distinct column names"):
        create_sink(kind, {"path": f"{tmp_path}/o", "partitionBy": "v,v"})


def read_delta(path: str) -> list[tuple[Any, ...]]:
    found = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute("select p, v, day from t").read_all())
    # What a merge writes is delta-rs's own, which keeps an empty text.
    return sorted(((r["p"] or None, r["v"], r["day"]) for r in found.to_pylist()), key=repr)


@pytest.mark.parametrize("keys", [{}, {"mergeKeys": "v"}], ids=["append", "merge"])
def test_a_delta_table_has_the_values_in_its_log_and_gives_the_rows_back(tmp_path: Path, keys: dict[str, str]) -> None:
    path = f"{tmp_path}/t"
    target = Files("delta", {"path": path, "partitionBy": "p,day", **keys})
    sink = target.validated(SCHEMA)
    sink.commit(permit(1), staged(sink, table()))
    assert DeltaTable(path).metadata().partition_columns == ["p", "day"]
    assert read_delta(path) == sorted(AS_READ, key=repr)
    values = {json.dumps(a, default=str) for a in DeltaTable(path).get_add_actions()["partition"].to_pylist()}
    assert len(values) == 5
    again = target.validated(SCHEMA)
    again.commit(permit(2), staged(again, table([("b", 1, None)]), 2))
    rows = [r for r in AS_READ if not keys or r[1] != 1] + [("b", 1, None)]
    assert read_delta(path) == sorted(rows, key=repr)


def test_typed_partition_values_survive_in_delta(tmp_path: Path) -> None:
    schema = pa.schema(
        [("v", pa.int64()), ("i", pa.int16()), ("b", pa.bool_()), ("n", pa.decimal128(20, 10)), ("d", pa.date32())]
    )
    rows = [
        {"v": 1, "i": -7, "b": True, "n": Decimal("1.5000000000"), "d": dt.date(1582, 10, 4)},
        {"v": 2, "i": None, "b": False, "n": Decimal("-0.0000000001"), "d": None},
        {"v": 3, "i": 0, "b": None, "n": Decimal("0E-10"), "d": dt.date(9999, 12, 31)},
    ]
    path = f"{tmp_path}/t"
    sink = create_sink("delta", {"path": path, "partitionBy": "i,b,n,d"})
    sink.validate(schema)
    sink.commit(permit(1), staged(sink, pa.Table.from_pylist(rows, schema=schema)))
    found = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute("select * from t order by v").read_all())
    assert found.to_pylist() == rows


def test_a_delta_table_partitioned_otherwise_is_refused_with_the_call_that_fits(tmp_path: Path) -> None:
    path = f"{tmp_path}/t"
    create_sink("delta", {"path": path, "partitionBy": "day,p"}).validate(SCHEMA)
    for given in ({}, {"partitionBy": "p"}):
        with pytest.raises(InvalidInputError, match=r"write with partitionBy\('day', 'p'\)"):
            create_sink("delta", {"path": path, **given}).validate(SCHEMA)
    create_sink("delta", {"path": f"{path}2"}).validate(SCHEMA)
    with pytest.raises(InvalidInputError, match="write with no partitionBy"):
        create_sink("delta", {"path": f"{path}2", "partitionBy": "p"}).validate(SCHEMA)


def test_where_without_columns_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"option where \('wanted'\) names a column"):
        create_sink("files", {"path": str(tmp_path), "fileFormat": "json", "where": "wanted"})


def test_where_names_a_boolean_column_of_the_query(tmp_path: Path) -> None:
    schema = pa.schema([("v", pa.int64()), ("wanted", pa.bool_())])
    given = {"path": str(tmp_path), "columns": "v"}
    create_sink("memory", {**given, "where": "wanted"}).validate(schema)
    for wrong in ("v", "v > 1"):
        with pytest.raises(InvalidInputError, match=r"expected the name of a boolean column.*columns are v, wanted"):
            create_sink("memory", {**given, "where": wrong}).validate(schema)


def test_a_replaced_table_is_replaced_in_all_partitions_by_none_as_well(tmp_path: Path) -> None:
    sink = create_sink("delta", {"path": str(tmp_path), "partitionBy": "p,day"}, replacing=True)
    sink.validate(SCHEMA)
    for checkpoint, rows in enumerate([ROWS, ROWS[:1], [], ROWS[1:3]], 1):
        sink.commit(permit(checkpoint), staged(sink, table(rows), checkpoint))
        found = pa.table(QueryBuilder().register("t", DeltaTable(str(tmp_path))).execute("select v from t").read_all())
        assert sorted(found["v"].to_pylist()) == [v for _, v, _ in rows]
