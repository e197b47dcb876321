"""A driver and executors that see no file of each other, as pods of Kubernetes: all that is kept is on an object store,
Spark's own location too."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

import spark_ckpt
from examples.flights import batch, s3
from examples.flights.compare import compare
from examples.flights.prepare import prepare
from tests.cluster.pods import can_have_pods, pod, temporary
from tests.cluster.standalone import EXECUTORS, Cluster, standalone_cluster
from tests.kill.killed_job import JAVA_OPTIONS
from tests.kill.processes import Session, await_condition, environment
from tests.postgres_server import shared_server
from tests.s3_server import REGION, S3Server
from tests.s3a_jars import S3A_JARS

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(not can_have_pods(), reason="a disk of one's own is mounted by root"),
]
DEADLINE_S = 900.0
SCRIPT = Path(__file__).parents[1] / "soak/cluster_flights.py"
FILES = 24
"""Of 96: six batches."""


@pytest.fixture
def place() -> Iterator[str]:
    """A URL on an S3 server, which the environment knows."""
    assert S3A_JARS.is_dir(), f"the test needs Hadoop's client of S3 in {S3A_JARS}: with_env.sh --s3a fetches it"
    server = S3Server("moto").start()
    try:
        with server.in_environment():
            yield f"s3://{server.new_bucket()}/lake"
    finally:
        server.stop()


def test_a_driver_that_is_killed_goes_on_in_another_pod(place: str, tmp_path: Path) -> None:
    flights = prepare(tmp_path / "input", 96)
    for path in sorted((tmp_path / "input").iterdir())[FILES:]:
        path.unlink()
    s3.upload(tmp_path / "input", place)
    database = shared_server().new_database()
    (tmp_path / "cluster").mkdir()
    with standalone_cluster(tmp_path / "cluster", hosts=2, pods=tmp_path) as cluster:
        plan = {"folder": str(tmp_path), "place": place, "database": database, "conf": _conf(cluster, place)}
        with _driver(plan, tmp_path) as driver:
            await_condition(
                "a checkpoint", lambda: driver.process.poll() is not None or _newest(place) >= 2, DEADLINE_S
            )
            assert driver.process.poll() is None, driver.log.read_text()[-6000:]
        with _driver(plan, tmp_path) as driver:
            await_condition("the end of the input", lambda: driver.process.poll() is not None, DEADLINE_S)
    assert driver.process.returncode == 0, driver.log.read_text()[-6000:]
    _check(batch.expected_flights(flights.slice(0, FILES * -(-flights.num_rows // 96))), place, database)
    assert spark_ckpt.job(f"{place}/checkpoints", "flights").verify() == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cluster", "input", "log"]
    assert all(p.suffix == ".log" for p in (tmp_path / "cluster").iterdir()), "the workers write on their own disks"


def _conf(cluster: Cluster, place: str) -> dict[str, str]:
    jars = f"{S3A_JARS}/*"
    return {
        **EXECUTORS,
        "spark.master": cluster.url,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        "spark.hadoop.fs.s3a.endpoint.region": REGION,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.ckpt.sparkDir": f"{place.replace('s3://', 's3a://')}/spark",
    }


def _driver(plan: dict[str, object], folder: Path) -> Session:
    """In a pod of its own, with an empty disk."""
    command = [*pod(folder), sys.executable, str(SCRIPT), json.dumps(plan)]
    return Session(command, folder / "log", environment(TMPDIR=temporary(folder)))


def _has_ended(driver: Session) -> bool:
    return driver.process.poll() is not None


def _newest(place: str) -> int:
    try:
        return max(spark_ckpt.job(f"{place}/checkpoints", "flights").records.ids("committed"), default=0)
    except FileNotFoundError:
        return 0


def _check(expected: pd.DataFrame, place: str, database: str) -> None:
    found = DeltaTable(f"{place}/flights").to_pyarrow_table().to_pandas()
    result = compare(expected, found, "id")
    assert result.equal, result
    engine = sa.create_engine(database)
    try:
        aircraft = pd.read_sql_query(f"SELECT {', '.join(batch.AIRCRAFT)} FROM aircraft", engine)
    finally:
        engine.dispose()
    result = compare(batch.expected_aircraft(expected), aircraft, "tailnum")
    assert result.equal, result
