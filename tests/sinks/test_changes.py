"""Change rows in sinks that merge by key: beyond what the conformance suite asks of each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sinks import memory
from spark_ckpt.sinks.base import TwoPhaseSink
from spark_ckpt.sinks.registry import create_sink
from spark_ckpt.testing.sink_harness import CHANGES, context, permit, stage_table
from tests.sinks.sql_harness import DATABASES, new_database, run

WIDE = pa.schema([("a", pa.string()), ("op", pa.string()), ("b", pa.int64()), ("v", pa.float64())])


def _commit(sink: TwoPhaseSink, checkpoint: int, *rows: tuple[Any, ...]) -> None:
    table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=WIDE)
    ctx = context(checkpoint, checkpoint, schema=WIDE)
    sink.commit(permit(checkpoint), stage_table(sink, ctx, table))


def _two_checkpoints(sink: TwoPhaseSink) -> None:
    sink.validate(WIDE)
    _commit(sink, 1, ("x", "+I", 1, 1.0), ("x", "+I", 2, 2.0), ("X", "+I", 1, 3.0), ("y", "+I", 1, None))
    _commit(sink, 2, ("x", "-U", 1, 1.0), ("x", "+U", 1, 1.5), ("X", "-D", 1, None), ("y", "-U", 1, None))


@pytest.mark.parametrize("database", DATABASES)
def test_several_keys_decide_which_row_goes_in_a_database(database: str, tmp_path: Path) -> None:
    url = new_database(database, tmp_path)
    _two_checkpoints(create_sink("sql", {"url": url, "table": "t", "mergeKeys": "a, b", "changeColumn": "op"}))
    assert sorted(run(url, "SELECT a, b, v FROM t")) == [("x", 1, 1.5), ("x", 2, 2.0)]


@pytest.mark.parametrize("database", DATABASES)
def test_a_tables_own_column_of_that_name_is_left_alone(database: str, tmp_path: Path) -> None:
    url = new_database(database, tmp_path)
    run(url, "CREATE TABLE t (a varchar(9), b bigint, v double precision, op integer DEFAULT 7, PRIMARY KEY (a, b))")
    if database == "mariadb":
        run(url, "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin")
    _two_checkpoints(create_sink("sql", {"url": url, "table": "t", "mergeKeys": "a,b", "changeColumn": "op"}))
    assert sorted(run(url, "SELECT a, b, v, op FROM t")) == [("x", 1, 1.5, 7), ("x", 2, 2.0, 7)]


def test_delta_keys_that_are_null_are_removed_like_others(tmp_path: Path) -> None:
    sink = create_sink("delta", {"path": f"{tmp_path}/t", "mergeKeys": "a,b", "changeColumn": "op"})
    sink.validate(WIDE)
    _commit(sink, 1, (None, "+I", 1, 1.0), (None, "+I", None, 2.0), ("x", "+I", 1, 3.0))
    _commit(sink, 2, (None, "-D", None, 2.0), ("x", "-U", 1, 3.0), ("x", "+U", 1, 3.5))
    table = DeltaTable(f"{tmp_path}/t")
    rows = QueryBuilder().register("t", table).execute("select a, b, v from t order by v").read_all()
    assert pa.table(rows).to_pylist() == [{"a": None, "b": 1, "v": 1.0}, {"a": "x", "b": 1, "v": 3.5}]
    assert [f.name for f in table.schema().fields] == ["a", "b", "v"]


def test_delta_removes_rows_of_a_partitioned_table_and_partitions_with_their_last_row(tmp_path: Path) -> None:
    path = f"{tmp_path}/t"
    sink = create_sink("delta", {"path": path, "mergeKeys": "b", "partitionBy": "a", "changeColumn": "op"})
    sink.validate(WIDE)
    _commit(sink, 1, ("x", "+I", 1, 1.0), ("y", "+I", 2, 2.0), ("y", "+I", 3, 3.0))
    _commit(sink, 2, ("x", "-U", 1, 1.0), ("y", "+U", 1, 1.0), ("y", "-D", 2, 2.0))
    rows = QueryBuilder().register("t", DeltaTable(path)).execute("select a, b, v from t order by b").read_all()
    assert [tuple(r.values()) for r in pa.table(rows).to_pylist()] == [("y", 1, 1.0), ("y", 3, 3.0)]
    assert {p["a"] for p in DeltaTable(path).partitions()} == {"y"}


def test_delta_leaves_a_tables_own_column_of_that_name_alone(tmp_path: Path) -> None:
    path = f"{tmp_path}/t"
    there = pa.schema([*(f for f in WIDE if f.name != "op"), pa.field("op", pa.int64())])
    DeltaTable.create(path, schema=there)
    _two_checkpoints(create_sink("delta", {"path": path, "mergeKeys": "a,b", "changeColumn": "op"}))
    rows = QueryBuilder().register("t", DeltaTable(path)).execute("select a, b, v, op from t order by b").read_all()
    found = [tuple(r.values()) for r in pa.table(rows).to_pylist()]
    assert found == [("x", 1, 1.5, None), ("x", 2, 2.0, None)]


def test_the_memory_sink_shows_what_is_there(tmp_path: Path) -> None:
    _two_checkpoints(create_sink("memory", {"path": f"{tmp_path}/m", "mergeKeys": "a,b", "changeColumn": "op"}))
    found = memory.read(f"{tmp_path}/m")
    assert found.column_names == ["a", "b", "v"]
    assert sorted(tuple(r.values()) for r in found.to_pylist()) == [("x", 1, 1.5), ("x", 2, 2.0)]


@pytest.mark.parametrize("sink", ["delta", "memory", "sql", "files"])
def test_where_rows_are_appended_the_option_is_refused(sink: str, tmp_path: Path) -> None:
    options = {"path": f"{tmp_path}/t"} if sink != "sql" else {"url": f"sqlite:///{tmp_path}/x.db", "table": "t"}
    message = "unknown option.*changeColumn" if sink == "files" else "'changeColumn' needs 'mergeKeys'"
    with pytest.raises(ConfigError, match=message):
        create_sink(sink, {**options, "changeColumn": "op"})


def test_columns_must_keep_the_column_of_changes(tmp_path: Path) -> None:
    options = {"path": f"{tmp_path}/t", "mergeKeys": "k", "changeColumn": "op", "columns": "k,v"}
    with pytest.raises(InvalidInputError, match="'changeColumn' names op; the columns are k, v"):
        create_sink("delta", options).validate(CHANGES)
