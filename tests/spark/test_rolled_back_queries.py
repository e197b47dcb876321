"""Queries that the command rolls back and that go on, into sinks of every kind, against all of the input at once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as pds
import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType, Schema
from typer.testing import CliRunner

from spark_ckpt.cli import app
from tests.kafka.sink_target import committed
from tests.kafka_server import shared_kafka
from tests.sinks.iceberg_harness import SECRET, catalog_of, catalog_options
from tests.sinks.sql_harness import new_database
from tests.sinks.sql_harness import run as sql
from tests.spark.conftest import DEADLINE_S, Input

pytestmark = pytest.mark.soak
VALUES = ([("a", 1), ("b", 2)], [("a", 10), (None, 7)], [("a", 100), ("c", 3)])
"""The rows of each checkpoint."""


@pytest.fixture
def rows(new_input: Callable[[str, str], Input]) -> Input:
    return new_input("in", "k string, v bigint")


def three_checkpoints(rows: Input, start: Callable[[], Any]) -> None:
    for values in VALUES:
        rows.add(*values)
        run(start)


def run(start: Callable[[], Any]) -> None:
    assert start().awaitTermination(DEADLINE_S), "the query did not come to its end"


def rolled_back(folder: Path, *more: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["rollback", str(folder / "jobs"), "job", "1", *more])
    assert done.exit_code == code, done.output
    return done.output


def totals(through: int) -> list[tuple[Any, ...]]:
    found: Counter[str | None] = Counter()
    for values in VALUES[:through]:
        for k, v in values:
            found[k] += v
    return sorted(found.items(), key=str)


def in_delta(path: Path) -> list[tuple[Any, ...]]:
    return sorted((tuple(r.values()) for r in DeltaTable(path).to_pyarrow_table().to_pylist()), key=str)


def test_output_mode_complete_shows_the_result_as_it_was_and_then_all_of_it(
    ckpt: Any, rows: Input, tmp_path: Path
) -> None:
    """The lakes go back; a database keeps the newest result until the next one replaces it."""
    url, lake = new_database("postgresql", tmp_path), {**catalog_options(tmp_path), "table": "db.t"}

    def start() -> Any:
        found = rows.stream(ckpt).groupBy("k").agg({"v": "sum"}).withColumnRenamed("sum(v)", "total").uid("totals")
        writer = found.writeStream.format("delta").option("path", f"{tmp_path}/delta").queryName("job")
        writer = writer.alsoTo("iceberg", **lake).alsoTo("sql", url=url, table="t")
        return writer.outputMode("complete").trigger(availableNow=True).start()

    def shown() -> list[list[tuple[Any, ...]]]:
        iceberg = catalog_of(lake).load_table("db.t").scan().to_arrow().to_pylist()
        found = [tuple(r.values()) for r in iceberg], sql(url, "SELECT k, total FROM t")
        return [in_delta(tmp_path / "delta"), *(sorted(one, key=str) for one in found)]

    three_checkpoints(rows, start)
    assert shown() == [totals(3)] * 3
    given = ["--confirm=iceberg", f"--option=iceberg.catalog.s3.secret-access-key={SECRET}", f"--option=sql.url={url}"]
    assert "sink sql: stays as it is" in rolled_back(tmp_path, *given, code=1)
    assert shown() == [totals(3)] * 3
    rolled_back(tmp_path, "--partial", *given)
    assert shown() == [totals(1), totals(1), totals(3)]
    run(start)
    assert shown() == [totals(3)] * 3


def test_rows_that_a_lake_refuses_go_back_with_it(ckpt: Any, rows: Input, tmp_path: Path) -> None:
    strict = Schema([Field("k", PrimitiveType("string"), False), Field("v", PrimitiveType("long"))])
    DeltaTable.create(f"{tmp_path}/delta", strict)

    def start() -> Any:
        writer = rows.stream(ckpt).writeStream.format("delta").option("path", f"{tmp_path}/delta").queryName("job")
        return writer.option("rejects", f"{tmp_path}/bad").trigger(availableNow=True).start()

    def bad() -> list[Any]:
        return [json.loads(row[0]) for row in in_delta(tmp_path / "bad")]

    good = sorted(row for values in VALUES for row in values if row[0])
    three_checkpoints(rows, start)
    assert (in_delta(tmp_path / "delta"), bad()) == (good, [{"k": None, "v": 7}])
    rolled_back(tmp_path)
    assert (in_delta(tmp_path / "delta"), bad()) == (sorted(VALUES[0]), [])
    run(start)
    assert (in_delta(tmp_path / "delta"), bad()) == (good, [{"k": None, "v": 7}])


def test_kafka_keeps_its_messages_and_gets_those_behind_the_checkpoint_again(
    ckpt: Any, rows: Input, tmp_path: Path
) -> None:
    """Files beside it go back. The ledger does not take the later checkpoints for older ones."""
    server = shared_kafka()
    topic = server.new_topic(1)
    options = {f"kafka.{k}": v for k, v in server.sasl.items()} | {"topic": topic}

    def start() -> Any:
        messages = rows.stream(ckpt).selectExpr("k AS key", "CAST(v AS string) AS value")
        writer = messages.writeStream.format("kafka").options(**options).queryName("job").trigger(availableNow=True)
        return writer.alsoTo("files", path=f"{tmp_path}/files").start()

    def in_kafka() -> list[int]:
        return sorted(int(message.value()) for message in committed(server, topic))

    def in_files() -> list[int]:
        return sorted(int(v) for v in pds.dataset(tmp_path / "files", format="parquet").to_table()["value"].to_pylist())

    behind = [10, 7, 100, 3]
    three_checkpoints(rows, start)
    given = ["--confirm=kafka", *(f"--option=kafka.{k}={v}" for k, v in options.items() if "jaas" in k or "pass" in k)]
    said = rolled_back(tmp_path, *given, code=1)
    assert "sink kafka: stays as it is" in said, said
    assert "rows of checkpoints up to 3" in said
    rolled_back(tmp_path, "--partial", *given)
    assert (in_kafka(), in_files()) == (sorted([1, 2, *behind]), [1, 2])
    run(start)
    assert (in_kafka(), in_files()) == (sorted([1, 2, *behind, *behind]), sorted([1, 2, *behind]))
    run(start)
    assert len(in_kafka()) == 10
