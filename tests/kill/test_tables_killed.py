"""Jobs over a growing table (Delta, PostgreSQL, MariaDB): the driver is killed again and again, no row counts twice."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import spark_ckpt
from tests.kill.processes import REPOSITORY, Session, await_condition, environment, own_defaults
from tests.kill.test_kafka_killed import KEYS, counted, expected, in_database
from tests.sinks.sql_harness import new_database, run

KILLS, ROWS, MORE = 3, 3000, 1000
BATCH = 150


class DeltaTable:
    source = "delta"

    def __init__(self, folder: Path) -> None:
        self.options = {"path": f"{folder}/table", "maxFilesPerTrigger": "1"}

    def add(self, numbers: range) -> None:
        """A file a batch."""
        for start in range(numbers.start, numbers.stop, BATCH):
            part = range(start, min(start + BATCH, numbers.stop))
            rows = {"id": list(part), "k": [f"k{n % KEYS}" for n in part]}
            write_deltalake(self.options["path"], pa.table(rows), mode="append")


class SqlTable:
    source = "sql"

    def __init__(self, kind: str, folder: Path) -> None:
        url = new_database(kind, folder)
        run(url, "CREATE TABLE t (id bigint PRIMARY KEY, k varchar(9))")
        settled = {"settleDelay": "500ms", "discoveryInterval": "100ms"}
        self.options = {"url": url, "table": "t", "offsetColumn": "id", "maxRowsPerTrigger": str(BATCH), **settled}

    def add(self, numbers: range) -> None:
        run(self.options["url"], "INSERT INTO t (id, k) VALUES " + ", ".join(f"({n}, 'k{n % KEYS}')" for n in numbers))


TABLES: dict[str, Callable[[Path], DeltaTable | SqlTable]] = {
    "delta": DeltaTable,
    "postgresql": lambda folder: SqlTable("postgresql", folder),
    "mariadb": lambda folder: SqlTable("mariadb", folder),
}


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", list(TABLES))
def test_a_driver_that_is_killed_again_and_again_counts_each_row_of_a_table_once(kind: str, tmp_path: Path) -> None:
    conf = f"spark.ckpt.dir {tmp_path}/jobs\nspark.sql.streaming.checkpointLocation {tmp_path}/locations\n"
    defaults = own_defaults(tmp_path, f"{conf}spark.ckpt.interval 1s\nspark.ckpt.initialDelay 0s\n")
    table = TABLES[kind](tmp_path)
    table.add(range(ROWS))

    def driver() -> Session:
        command = [sys.executable, str(REPOSITORY / "tests/kill/totals_job.py"), str(tmp_path)]
        arguments = [table.source, json.dumps(table.options)]
        return Session([*command, *arguments], tmp_path / "driver.log", environment(**defaults))

    found = [0]
    for _ in range(KILLS):
        with driver():
            await_condition("more rows are counted", lambda: counted(tmp_path) > found[-1])
        found.append(counted(tmp_path))
    with driver():
        table.add(range(ROWS, ROWS + MORE))
        await_condition("all rows are counted", lambda: counted(tmp_path) >= ROWS + MORE)
    assert in_database(tmp_path) == expected(ROWS + MORE)
    assert 0 < found[1] < ROWS, "it was killed in the middle"
    assert spark_ckpt.job(f"{tmp_path}/jobs", "totals").verify() == []
