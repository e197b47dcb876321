"""A whole job whose targets are in databases, lakes and object stores, rolled back by the command. No Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pytest
import s3fs
from deltalake import DeltaTable
from typer.testing import CliRunner

from spark_ckpt.cli import app
from spark_ckpt.jobs.spec import SinkSpec
from spark_ckpt.storage.object_options import delta_rs_options
from spark_ckpt.types import Committable
from tests.s3_server import shared_s3
from tests.sinks.iceberg_harness import catalog_of, catalog_options
from tests.sinks.sql_harness import new_database, run
from tests.sinks.whole_job_into import JobInto, Rows, rows_of
from tests.storage.whole_job import JOB, KEYS, OUTPUT, ROWS


@dataclass(frozen=True)
class Target:
    """A target of sink ``format``. ``rows`` reads what everybody sees; ``secret``: options that the job's folder has
    not, so that the command gets them."""

    format: str
    options: Mapping[str, str]
    rows: Callable[[], Rows]
    secret: tuple[str, ...] = ()


def in_database(kind: str, folder: Path) -> Target:
    url = new_database(kind, folder)
    options = {"url": url, "table": "t", "checkpointColumn": "came_with"}
    secret = () if kind == "sqlite" else ("url",)
    return Target("sql", options, lambda: sorted(run(url, f"SELECT {', '.join(OUTPUT.names)} FROM t")), secret)


def in_iceberg(folder: Path) -> Target:
    options = {**catalog_options(folder), "table": "db.t"}

    def rows() -> Rows:
        return rows_of(catalog_of(options).load_table("db.t").scan().to_arrow())

    return Target("iceberg", options, rows, ("catalog.s3.secret-access-key",))


def delta_on_s3(folder: Path) -> Target:
    server = shared_s3()
    options, url = server.options(), f"s3://{server.new_bucket()}/t"
    table = partial(DeltaTable, url, storage_options=delta_rs_options(url, options))
    return Target(
        "delta", {"path": url, **stored(options)}, lambda: rows_of(pa.table(table().to_pyarrow_table())), SECRETS
    )


def files_on_s3(folder: Path) -> Target:
    server = shared_s3()
    bucket = server.new_bucket()

    def rows() -> Rows:
        files: s3fs.S3FileSystem = server.files()
        return rows_of(pds.dataset(files.glob(f"{bucket}/t/*.parquet"), filesystem=files, schema=OUTPUT).to_table())

    return Target("files", {"path": f"s3://{bucket}/t", **stored(server.options())}, rows, SECRETS)


SECRETS = ("storage.key", "storage.secret")


def stored(options: Mapping[str, str]) -> dict[str, str]:
    return {f"storage.{name}": value for name, value in options.items()}


TARGETS = {
    "postgresql": partial(in_database, "postgresql"),
    "mariadb": partial(in_database, "mariadb"),
    "iceberg": in_iceberg,
    "delta on s3": delta_on_s3,
    "files on s3": files_on_s3,
}


def rolled_back(root: Path, checkpoint: int, *more: str) -> str:
    done = CliRunner().invoke(app, ["rollback", str(root / "jobs"), JOB, str(checkpoint), *more])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "postgresql" else pytest.mark.soak) for name in TARGETS]
)
def test_a_target_goes_back_with_its_job_and_gets_each_row_once_when_it_goes_on(tmp_path: Path, name: str) -> None:
    target = TARGETS[name](tmp_path)
    sinks = [(target.format, {"uid": "out", **target.options})]
    job = JobInto(tmp_path, sinks)
    job.start()
    for _ in range(3):
        job.step(True)
    job.step(False)
    assert target.rows() == job.all_rows[:21]
    given = [f"--option=out.{name}={target.options[name]}" for name in target.secret]
    said = rolled_back(tmp_path, 1, "--confirm=out", *given)
    assert "sink out: loses" in said
    assert target.rows() == job.all_rows[:7]
    job = JobInto(tmp_path, sinks)
    job.start(location="elsewhere")
    for _ in range(3):
        job.step(True)
    assert target.rows() == job.all_rows[:28]
    rolled_back(tmp_path, 5, "--confirm=out", *given)
    assert target.rows() == job.all_rows[:21], "of the second time"


class Late(JobInto):
    """What the first batch has is filtered out in front of its sinks."""

    def _staged(self, spec: SinkSpec, rows: pa.RecordBatch, batch: int) -> list[Committable]:
        rows = rows.filter(pc.greater_equal(rows["row"], ROWS))
        return super()._staged(spec, rows, batch) if rows.num_rows else []


def test_an_iceberg_table_that_had_no_snapshot_goes_back_as_the_message_says(tmp_path: Path) -> None:
    target = in_iceberg(tmp_path)
    sinks = [("iceberg", {"uid": "out", **target.options})]
    job = Late(tmp_path, sinks)
    job.start()
    for _ in range(3):
        job.step(True)
    given = [f"--option=out.{name}={target.options[name]}" for name in target.secret]
    command = ["rollback", str(tmp_path / "jobs"), JOB, "1", "--confirm=out", *given]
    refused = CliRunner().invoke(app, command, env={"COLUMNS": "500"})
    assert refused.exit_code == 1
    assert "Drop the table, create it again as it is, without rows, and roll back again" in refused.output
    catalog = catalog_of(target.options)
    schema = catalog.load_table("db.t").schema()
    catalog.drop_table("db.t")
    catalog.create_table("db.t", schema=schema)
    assert "sink out: stands there already" in rolled_back(tmp_path, 1, "--confirm=out", *given)
    job = Late(tmp_path, sinks)
    job.start(location="elsewhere")
    for _ in range(3):
        job.step(True)
    assert target.rows() == job.all_rows[ROWS:]


@pytest.fixture(params=("postgresql", pytest.param("mariadb", marks=pytest.mark.soak)))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_database(request.param, tmp_path)


def test_a_target_that_cannot_go_back_is_listed_and_its_rejects_with_it(tmp_path: Path, url: str) -> None:
    """One that merges ends with the right rows; what it refuses comes again. Beside one that can, in one database."""
    row = "`row`" if "mariadb" in url else "row"
    run(url, f"CREATE TABLE m ({row} BIGINT, k BIGINT PRIMARY KEY, n BIGINT CHECK (n <> 3))")
    merged = {"uid": "last", "url": url, "table": "m", "mergeKeys": "k", "rejects": "bad"}
    sinks = [("sql", {"uid": "all", "url": url, "table": "t", "checkpointColumn": "came_with"}), ("sql", merged)]
    job = JobInto(tmp_path, sinks)
    job.start()
    for _ in range(3):
        job.step(True)
    before = shown(url)
    assert before == (job.all_rows, job.all_rows[-KEYS:], [2] * 4)
    options = [f"--option={sink}.url={url}" for sink in ("all", "last", "last-rejects")]
    refused = CliRunner().invoke(app, ["rollback", str(tmp_path / "jobs"), JOB, "1", *options])
    assert refused.exit_code == 1
    for said in ("sink all: loses 14 row(s)", "sink last: stays as it is", "sink last-rejects: stays as it is"):
        assert said in refused.output
    assert shown(url) == before
    rolled_back(tmp_path, 1, "--partial", *options)
    assert shown(url) == (job.all_rows[:7], *before[1:])
    job = JobInto(tmp_path, sinks)
    job.start(location="elsewhere")
    for _ in range(2):
        job.step(True)
    assert shown(url) == (*before[:2], [2] * 8)


def shown(url: str) -> tuple[Rows, Rows, list[int]]:
    tables = (run(url, f"SELECT * FROM {table} ORDER BY 1") for table in ("t", "m"))
    all_rows, last = ([row[:3] for row in rows] for rows in tables)
    return all_rows, last, [epoch for (epoch,) in run(url, "SELECT epoch FROM bad")]
