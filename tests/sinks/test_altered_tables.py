"""Tables that somebody alters behind rows that are staged for them: none is lost, none lands in another column, and
no table is spoilt for its readers."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, QueryBuilder, write_deltalake
from deltalake.schema import PrimitiveType
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks.base import Part
from spark_ckpt.sinks.delta.sink import DeltaSink
from spark_ckpt.sinks.together import try_sinks
from spark_ckpt.storage.retry import Retry
from spark_ckpt.testing.sink_harness import SCHEMA, context, permit, stage, stage_table
from tests.sinks.iceberg_harness import IcebergTarget, catalog_of, catalog_options
from tests.sinks.sql_harness import make, new_database, run

K, V = SCHEMA
NOT_NULL = {"nullable": False}

# -- delta -------------------------------------------------------------------------------------------------------------


def overwritten(path: Path, row: dict[str, Any], *fields: pa.Field, **options: Any) -> None:
    """What ``df.write.mode("overwrite").option("overwriteSchema", "true")`` does in Spark."""
    rows = pa.Table.from_pylist([row], pa.schema(fields))
    write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite", **options)


def rows_of(path: Path, columns: str = "k, v") -> list[tuple[Any, ...]]:
    query = QueryBuilder().register("t", DeltaTable(path)).execute(f"select {columns} from t order by 1")
    return [tuple(row.values()) for row in pa.table(query.read_all()).to_pylist()]


Alter = Callable[[Path], None]
DELTA: dict[str, tuple[Alter, str]] = {
    "a column is gone": (lambda p: overwritten(p, {"k": 9}, K), r"it has no column 'v' \(string\) any more"),
    "by another spelling": (
        lambda p: overwritten(p, {"k": 9, "V": "z"}, K, pa.field("V", pa.string())),
        r"it has no column 'v' \(string\) any more",
    ),
    "another type": (
        lambda p: overwritten(p, {"k": 9, "v": 7}, K, pa.field("v", pa.int64())),
        "column 'v' is int64 and the rows have string",
    ),
    "a narrower type": (
        lambda p: overwritten(p, {"k": 9, "v": "z"}, pa.field("k", pa.int32()), V),
        "column 'k' is int32 and the rows have int64",
    ),
    "one that must be there": (
        lambda p: overwritten(p, {"k": 9, "v": "z", "w": 1}, K, V, pa.field("w", pa.int32(), **NOT_NULL)),
        "column 'w' must not be null, and is in some row",
    ),
    "nulls": (
        lambda p: overwritten(p, {"k": 9, "v": "z"}, K, pa.field("v", pa.string(), **NOT_NULL)),
        "column 'v' must not be null, and is in some row",
    ),
    "partitions": (
        lambda p: overwritten(p, {"k": 9, "v": "z"}, K, V, partition_by=["v"]),
        "it is partitioned by v and the rows by nothing",
    ),
}


@pytest.mark.parametrize("keys", ["", "k"])
@pytest.mark.parametrize("case", DELTA)
def test_what_does_not_fit_a_delta_table_any_more_is_not_written_until_it_does(
    tmp_path: Path, case: str, keys: str
) -> None:
    """Files are added unseen: with a text in a column of numbers nobody could read the table any more."""
    (alter, said), path = DELTA[case], tmp_path / "t"
    sink = DeltaSink({"path": str(path), "mergeKeys": keys})
    sink.validate(SCHEMA)
    sink.commit(permit(1), stage(sink, [(1, "a")]))
    staged, before = stage(sink, [(2, "b"), (3, None)], 2, 2), DeltaTable(path).version()
    alter(path)
    refused = try_sinks({"s": Part(sink, staged)}, Retry(1)).refused
    if case == "partitions" and keys:  # a merge writes the rows anew, as the table is laid out
        assert refused == ()
        sink.commit(permit(2), staged)
        assert rows_of(path) == [(2, "b"), (3, None), (9, "z")]
        return
    assert re.search(f"altered since the query started: {said}", refused[0].reason), "before it is complete"
    with pytest.raises(InvalidInputError, match=f"altered behind the rows that wait for checkpoint 2: {said}"):
        sink.commit(permit(2), staged)
    assert DeltaTable(path).version() == before + 1, "nothing was written"
    DeltaTable(path).restore(before)
    sink.commit(permit(2), staged)
    assert rows_of(path) == [(1, "a"), (2, "b"), (3, None)]


@pytest.mark.parametrize("keys", ["", "k"])
def test_columns_and_fields_that_come_to_a_delta_table_are_null_in_rows_that_wait(tmp_path: Path, keys: str) -> None:
    narrow, wide = (pa.field("s", pa.struct([(n, pa.int64()) for n in names])) for names in ("a", "ab"))
    schema, path = pa.schema([K, narrow]), tmp_path / "t"
    sink = DeltaSink({"path": str(path), "mergeKeys": keys})
    sink.validate(schema)
    staged = stage_table(sink, context(1, 1, schema=schema), pa.table([[1], [{"a": 1}]], schema=schema))
    overwritten(path, {"k": 9, "s": None, "w": 1}, K, wide, pa.field("w", pa.int32(), nullable=True))
    sink.commit(permit(1), staged)
    assert rows_of(path, "k, s, w") == [(1, {"a": 1, "b": None}, None), (9, None, 1)]


def test_partitions_of_a_delta_table_that_must_not_be_null_may_not_be_null(tmp_path: Path) -> None:
    schema, path = pa.schema([K, pa.field("v", pa.string(), **NOT_NULL)]), tmp_path / "t"
    sink = DeltaSink({"path": str(path), "partitionBy": "v"})
    DeltaTable.create(path, schema=schema, partition_by=["v"])
    sink.validate(schema)
    for number, value in enumerate(("a", None), 1):
        rows = pa.table([[number], [value]], schema=SCHEMA)
        staged = stage_table(sink, context(number, number, schema=SCHEMA), rows)
        with contextlib.nullcontext() if value else pytest.raises(InvalidInputError, match="'v' must not be null"):
            sink.commit(permit(number), staged)
    assert rows_of(path) == [(1, "a")]


def test_a_delta_table_that_is_made_anew_is_seen_as_it_is_now(tmp_path: Path) -> None:
    """It has versions of the same numbers, so what was known of the former one would be taken for its."""
    path = tmp_path / "t"
    sink = DeltaSink({"path": str(path)})
    sink.validate(SCHEMA)
    staged = stage(sink, [(1, "a")])
    sink.commit(permit(1), staged)
    waiting = stage(sink, [(2, "b")], 2, 2)
    shutil.rmtree(path / "_delta_log")
    for row in ({"k": 7}, {"k": 8}, {"k": 9}):
        write_deltalake(path, pa.Table.from_pylist([row], pa.schema([K])), mode="append")
    with pytest.raises(InvalidInputError, match="it has no column 'v'"):
        sink.commit(permit(2), waiting)
    DeltaTable(path).alter.add_columns([Field("v", PrimitiveType("string"))])
    sink.commit(permit(2), waiting)
    assert rows_of(path) == [(2, "b"), (7, None), (8, None), (9, None)]


# -- sql ---------------------------------------------------------------------------------------------------------------


ROWS_OF_OTHERS = {
    "no key": (["ALTER TABLE t DROP PRIMARY KEY"],
               "altered behind the rows that wait for checkpoint 2: no primary key or unique index is on exactly"),
    "another one": (["ALTER TABLE t MODIFY v varchar(20), ADD UNIQUE (v)", "INSERT INTO t VALUES (7, 'b')"],
                    "Duplicate entry for key 'v'"),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS_OF_OTHERS)
def test_an_upsert_into_mariadb_looks_at_its_keys_again(tmp_path: Path, case: str) -> None:
    """Without the key it would append, and by another one replace somebody else's row."""
    (statements, said), url = ROWS_OF_OTHERS[case], new_database("mariadb", tmp_path)
    sink = make(url, mergeKeys="k")
    sink.commit(permit(1), stage(sink, [(1, "a")]))
    staged = stage(sink, [(1, "new"), (2, "b")], 2, 2)
    run(url, *statements)
    before = run(url, "SELECT k, v FROM t ORDER BY k")
    with pytest.raises(InvalidInputError, match=said):
        sink.commit(permit(2), staged)
    assert run(url, "SELECT k, v FROM t ORDER BY k") == before
    run(url, "ALTER TABLE t ADD PRIMARY KEY (k)" if case == "no key" else "ALTER TABLE t DROP INDEX v")
    sink.commit(permit(2), staged)
    assert run(url, "SELECT k, v FROM t ORDER BY k") == [(1, "new"), (2, "b"), *before[1:]]


# -- iceberg -----------------------------------------------------------------------------------------------------------


def altered(target: IcebergTarget, *steps: Callable[[Any], Any]) -> None:
    """Each step is a change of its own, as ``ALTER TABLE`` makes them."""
    for step in steps:
        with target.table().update_schema(allow_incompatible_changes=True) as update:
            step(update)


def made_anew(target: IcebergTarget) -> None:
    """With the same columns in another order, so that each has the id that the other one had."""
    catalog = catalog_of(target.options)
    catalog.drop_table("db.t")
    fields = [NestedField(1, "v", StringType()), NestedField(2, "k", LongType())]
    catalog.create_table("db.t", Schema(*fields))


ICEBERG: dict[str, tuple[Callable[[IcebergTarget], None], dict[str, str], dict[str, str]]] = {
    # what somebody does: then (append, upsert) of {"k": 2, "v": "b"} gives this row, or the error
    "renamed": (lambda t: altered(t, lambda u: u.rename_column("v", "w")), {"w": "b"}, {"": "no column 'v'"}),
    "dropped": (lambda t: altered(t, lambda u: u.delete_column("v")), {"": "no column 'v'"}, {"": "no column 'v'"}),
    "dropped and added": (
        lambda t: altered(t, lambda u: u.delete_column("v"), lambda u: u.add_column("v", StringType())),
        {"v": "b"},
        {"v": "b"},
    ),
    "of another type": (
        lambda t: altered(t, lambda u: u.delete_column("v"), lambda u: u.add_column("v", LongType())),
        {"": "column 'v' is long in the table and string in the query"},
        {"": "column 'v' is long in the table and string in the query"},
    ),
    "moved": (lambda t: altered(t, lambda u: u.move_first("v")), {"v": "b"}, {"v": "b"}),
    "made anew": (made_anew, {"v": "b"}, {"v": "b"}),
}


@pytest.mark.parametrize("keys", ["", "k"])
@pytest.mark.parametrize("case", ICEBERG)
def test_rows_that_wait_for_an_iceberg_table_land_in_their_columns_or_nowhere(
    tmp_path: Path, case: str, keys: str
) -> None:
    """Readers find columns by id, and a file has those of the day that it was written."""
    alter, appended, upserted = ICEBERG[case]
    expected = upserted if keys else appended
    target = IcebergTarget("iceberg", {"table": "db.t", **catalog_options(tmp_path), "mergeKeys": keys})
    sink = target.validated()
    sink.commit(permit(1), stage(sink, [(1, "a")]))
    staged = stage(sink, [(2, "b")], 2, 2)
    alter(target)
    refused = try_sinks({"s": Part(sink, staged)}, Retry(1)).refused
    if "" in expected:
        assert re.search(f"altered since the query started: .*{expected['']}", refused[0].reason)
        with pytest.raises(InvalidInputError, match=f"altered behind the rows .* checkpoint 2: .*{expected['']}"):
            sink.commit(permit(2), staged)
        assert target.table().scan().to_arrow()["k"].to_pylist() == [1]
    else:
        assert refused == ()
        sink.commit(permit(2), staged)
        found = [row for row in target.table().scan().to_arrow().to_pylist() if row["k"] == 2]
        assert found == [{"k": 2, **expected}]
    if "v" not in expected:  # later rows are refused by their task
        with pytest.raises(InvalidInputError, match="does not fit the query"):
            stage(sink, [(3, "c")], 3, 3)


def test_a_column_that_must_be_there_by_now_refuses_nulls_that_wait(tmp_path: Path) -> None:
    """With the nulls in it nobody could say what the table's schema promises."""
    target = IcebergTarget("iceberg", {"table": "db.t", **catalog_options(tmp_path)})
    sink = target.validated()
    staged = stage(sink, [(1, None)])
    altered(target, lambda u: u._set_column_requirement("v", required=True))
    with pytest.raises(InvalidInputError, match="column 'v' is required in the table and may be null"):
        sink.commit(permit(1), staged)
    altered(target, lambda u: u.make_column_optional("v"))
    sink.commit(permit(1), staged)
    assert target.rows() == [(1, None)]
