"""A job from Iceberg into Iceberg, killed around each step of its commit: each row counts once.

Its REST catalogue's tokens time out all the time, and it is killed once, too.
"""

from __future__ import annotations

import itertools
import json
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

import spark_ckpt
from tests.iceberg_server import PASSWORD, shared_iceberg
from tests.kill.processes import Session, environment
from tests.kill.test_spark_stream_killed import PLACES

KEYS, ROWS = 7, 40
"""Rows of a snapshot."""
SCHEMA = pa.schema([("k", pa.int32()), ("v", pa.int64())])
Row = tuple[int, int, int, int]


def add(catalog: Catalog, snapshots: range) -> None:
    table = catalog.load_table("db.orders")
    for snapshot in snapshots:
        numbers = range(snapshot * ROWS, (snapshot + 1) * ROWS)
        table.append(pa.table({"k": [v * v % KEYS for v in numbers], "v": list(numbers)}, SCHEMA))


def expected(snapshots: int) -> list[Row]:
    """Each row with count and sum of its key so far."""
    seen = [[v for v in range(snapshots * ROWS) if v * v % KEYS == k] for k in range(KEYS)]
    made = [zip(vs, itertools.count(1), itertools.accumulate(vs), strict=False) for vs in seen]
    return sorted((k, *row) for k, rows in enumerate(made) for row in rows)


def found(catalog: Catalog, table: str) -> list[Row]:
    if not catalog.table_exists(table):
        return []
    rows = catalog.load_table(table).scan().to_arrow().to_pylist()
    return sorted((r["k"], r["v"], r["n"], r["s"]) for r in rows)


@pytest.mark.soak  # eight starts of Spark
@pytest.mark.timeout(1800)
def test_each_row_of_an_iceberg_table_counts_once_in_two_others_whatever_is_killed(tmp_path: Path) -> None:
    server = shared_iceberg()
    server.emptied_for(tmp_path)
    catalog = server.catalog()
    catalog.create_namespace("db")
    catalog.create_table("db.orders", SCHEMA)
    command = [sys.executable, str(Path(__file__).with_name("iceberg_job.py")), str(tmp_path)]
    command.append(json.dumps(server.properties))
    for life, place in enumerate([*PLACES, ""]):
        add(catalog, range(3 * life, 3 * life + 3))
        if place == "after CreateCompletion":
            server.kill()
            server.restart()
        at = f"{place}#{life % 2 + 1}={tmp_path}/died-{life}" if place else ""
        with Session(command, tmp_path / "log", environment(SPARK_CKPT_KILL_AT=at)) as driver:
            code = driver.wait()
        assert code == (-signal.SIGKILL if place else 0), (place, (tmp_path / "log").read_text()[-3000:])
        upto = expected(3 * life + 3)
        assert set(found(catalog, "db.running")) <= set(upto)
    assert found(catalog, "db.running") == upto
    assert found(catalog, "db.totals") == sorted({row[0]: row for row in upto}.values())
    assert spark_ckpt.job(str(tmp_path / "jobs"), "orders").verify() == []
    checkpoints = [s.summary["spark-ckpt.checkpoint"] for s in catalog.load_table("db.running").metadata.snapshots]
    assert len(set(checkpoints)) == len(checkpoints)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
