"""The plain plugin from outside: a driver that is killed, a savepoint, a stop, and a start from it elsewhere."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

import spark_ckpt
from tests.kill.plain_job import ROWS
from tests.kill.processes import REPOSITORY, Session, await_condition, environment, own_defaults

EXPECTED = [(v, v % 7) for v in range(ROWS)]


def in_delta(folder: Path) -> list[tuple[int, int]]:
    if not (folder / "lake" / "_delta_log").exists():
        return []
    return sorted((r["value"], r["k"]) for r in DeltaTable(str(folder / "lake")).to_pyarrow_table().to_pylist())


def in_database(folder: Path) -> list[tuple[int, int]]:
    try:
        with sqlite3.connect(folder / "rows.db") as connection:
            return connection.execute("SELECT value, k FROM rows ORDER BY value").fetchall()
    except sqlite3.OperationalError:
        return []


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_plain_query_killed_stopped_with_a_savepoint_and_started_from_it_has_each_row_once(tmp_path: Path) -> None:
    conf = f"spark.ckpt.dir {tmp_path}/jobs\nspark.sql.streaming.checkpointLocation {tmp_path}/locations\n"
    conf += "spark.ckpt.interval 1s\nspark.ckpt.initialDelay 0s\nspark.ckpt.retain 3\n"
    defaults = own_defaults(tmp_path, conf)

    def driver(job: str, *options: str) -> Session:
        command = [sys.executable, str(REPOSITORY / "tests/kill/plain_job.py"), str(tmp_path), job, *options]
        return Session(command, tmp_path / "driver.log", environment(**defaults))

    with driver("plain"):
        await_condition("some rows are committed", lambda: len(in_database(tmp_path)) >= 300)
    killed_at = len(in_database(tmp_path))
    job = spark_ckpt.job(f"{tmp_path}/jobs", "plain")
    with driver("plain") as second:
        await_condition("more rows are committed", lambda: len(in_delta(tmp_path)) > killed_at)
        job.stop(f"{tmp_path}/savepoint", timeout_s=120)
        stopped_at = in_delta(tmp_path)
        assert second.process.poll() is None
    assert stopped_at == EXPECTED[: len(stopped_at)] == in_database(tmp_path)
    assert killed_at < len(stopped_at) < ROWS
    assert job.verify() == []
    with driver("another", f"restore={tmp_path}/savepoint"):
        await_condition("all rows are committed", lambda: len(in_database(tmp_path)) >= ROWS)
    assert in_delta(tmp_path) == in_database(tmp_path) == EXPECTED
    assert spark_ckpt.job(f"{tmp_path}/jobs", "another").verify() == []
