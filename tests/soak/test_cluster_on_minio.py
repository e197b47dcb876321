"""A standalone cluster with MinIO: all that is ours is there, Spark's own location on a path that all reach.

An executor is killed in the middle, and a worker added: the result is that of the batch computation.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import s3fs
import sqlalchemy as sa
from deltalake import DeltaTable

import spark_ckpt
from examples.flights import batch, s3
from examples.flights.compare import compare
from examples.flights.prepare import prepare
from examples.payments import demo
from examples.payments.generator import payments
from tests.cluster.standalone import EXECUTORS, Cluster, executors_of, standalone_cluster
from tests.kill.killed_job import JAVA_OPTIONS
from tests.kill.processes import Session, await_condition, environment
from tests.postgres_server import shared_server
from tests.s3_server import SECRET, S3Server
from tests.soak.left_over import collected, objects_with, staged_rows, unnamed_files

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
DEADLINE_S = 1800.0
LOCAL = {"flights": ["cluster", "input", "spark"], "payments": ["cluster", "payments", "spark"]}
"""Folders on a disk: of the daemons, what the test itself made, and Spark's own."""
SCRIPT = Path(__file__).with_name("cluster_flights.py")
CONF = {
    **EXECUTORS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.cores.max": "3",  # two at first
    "spark.scheduler.minRegisteredResourcesRatio": "0.6",
}


@pytest.fixture
def place() -> Iterator[str]:
    """A URL on MinIO, which the environment knows."""
    server = S3Server("minio").start()
    try:
        with server.in_environment():
            yield f"s3://{server.new_bucket()}/lake"
    finally:
        server.stop()


@pytest.fixture
def cluster(place: str, tmp_path: Path) -> Iterator[Cluster]:
    """Two workers of one core, each on a host of its own, with MinIO's credentials in their environment."""
    assert place
    (tmp_path / "cluster").mkdir()
    with standalone_cluster(tmp_path / "cluster", hosts=2) as running:
        yield running


def test_the_flights_are_counted_once_when_an_executor_is_killed_and_another_added(
    place: str, cluster: Cluster, tmp_path: Path
) -> None:
    flights = prepare(tmp_path / "input", 36)
    s3.upload(tmp_path / "input", place)
    database = shared_server().new_database()
    plan = {"folder": str(tmp_path), "place": place, "database": database, "conf": _conf(cluster, tmp_path)}
    with Session([sys.executable, str(SCRIPT), json.dumps(plan)], tmp_path / "log", environment()) as job:
        _kill_and_add(cluster, f"{place}/checkpoints", "flights", lambda: job.process.poll() is not None)
        await_condition("the end of the input", lambda: job.process.poll() is not None, DEADLINE_S)
    assert job.process.returncode == 0, job.log.read_text()[-6000:]
    expected = batch.expected_flights(flights)
    found = DeltaTable(f"{place}/flights").to_pyarrow_table().to_pandas()
    result = compare(expected, found, "id")
    assert result.equal, result
    aircraft = compare(batch.expected_aircraft(expected), _aircraft(database), "tailnum")
    assert aircraft.equal, aircraft
    print(f"{result.rows} flights, {aircraft.rows} aircraft, {result.cells + aircraft.cells} cells equal")  # noqa: T201
    _check_storage(place, "flights", "flights", database, tmp_path)


def test_payments_are_counted_once_when_an_executor_is_killed_and_another_added(
    place: str, cluster: Cluster, tmp_path: Path
) -> None:
    sent = list(payments(12_000))
    with demo.servers(tmp_path / "payments", place) as given:
        demo.produce(given.places["brokers"], sent)
        conf = _conf(cluster, tmp_path)
        job = demo.start_job(given, tmp_path / "log", now=True, maxOffsetsPerTrigger=600, conf=conf)
        try:
            _kill_and_add(cluster, f"{place}/checkpoints", "payments", lambda: job.poll() is not None)
            assert job.wait(DEADLINE_S) == 0, (tmp_path / "log").read_text()[-6000:]
        finally:
            demo.kill(job)
        demo.compare(given, sent)
        bad = s3fs.S3FileSystem().find(f"{place}/bad")
        assert bad, "what is no payment is kept"
        _check_storage(place, "payments", "sums", given.places["database"], tmp_path)


def _conf(cluster: Cluster, folder: Path) -> dict[str, str]:
    return {**CONF, "spark.master": cluster.url, "spark.ckpt.sparkDir": str(folder / "spark")}


def _kill_and_add(cluster: Cluster, url: str, name: str, ended: Callable[[], bool]) -> None:
    """Behind the first checkpoint an executor dies, behind two more a worker comes, and the job gets its core."""
    job = spark_ckpt.job(url, name)
    first = _await_checkpoint(job, 1, ended)
    before = cluster.executors()
    assert len(before) == 2
    before[0].kill()
    _await_checkpoint(job, first + 2, ended)
    worker = cluster.add_worker()
    await_condition("an executor of the new worker", lambda: ended() or executors_of(worker.members()) != [])
    assert not ended(), "the input ended before the new executor was there"
    assert 137 in cluster.executor_ends()
    newest = _newest(job)
    _await_checkpoint(job, newest + 1, ended)


def _await_checkpoint(job: Any, number: int, ended: Callable[[], bool]) -> int:
    await_condition(f"checkpoint {number}", lambda: ended() or _newest(job) >= number, DEADLINE_S)
    assert not ended(), f"the job ended before checkpoint {number}: the test needs more input"
    return _newest(job)


def _newest(job: Any) -> int:
    with contextlib.suppress(FileNotFoundError):
        return max(job.records.ids("committed"), default=0)
    return 0


def _aircraft(database: str) -> pd.DataFrame:
    engine = sa.create_engine(database)
    try:
        return pd.read_sql_query(f"SELECT {', '.join(batch.AIRCRAFT)} FROM aircraft", engine)
    finally:
        engine.dispose()


def _check_storage(place: str, name: str, sink: str, database: str, folder: Path) -> None:
    """Nothing is wrong with what is on MinIO, nothing is left over, nothing of ours is on a disk, nor a secret."""
    url = f"{place}/checkpoints"
    job = collected(url, name, database)
    assert staged_rows(database) == {}
    assert job.verify() == []
    assert unnamed_files(job, f"{url}/{name}", f"{place}/{sink}") == []
    assert objects_with(SECRET, place) == []
    assert sorted(p.name for p in folder.iterdir() if not p.is_file()) == LOCAL[name]
