"""A whole job on an object store, without Spark: what it asks for, what comes out when requests fail, and clean-up."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import s3fs
from typer.testing import CliRunner

from spark_ckpt.cli import app
from tests.s3_proxy import FAULTS, S3Proxy
from tests.s3_server import KEY, SECRET, SERVERS, S3Server, shared_s3
from tests.storage.job_on_s3 import JobOnS3

REQUESTS = {"LIST": 25, "CREATE": 9, "PUT": 6, "POST": 2, "GET": 13, "HEAD": 12, "DELETE": 10}
"""The most that a checkpoint may ask for, with one operator, one source and a sink `delta`: docs/object-stores.md."""


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> S3Server:
    return shared_s3(request.param)


@pytest.fixture
def url(server: S3Server) -> str:
    """With what a name of S3 may have, and libraries read and quote in ways of their own."""
    return f"s3://{server.new_bucket()}/the lake/ü+x=y&'z'"


def test_a_checkpoint_asks_for_no_more_than_the_docs_say_however_long_the_job_runs(
    server: S3Server, url: str, tmp_path: Path
) -> None:
    with S3Proxy(server.endpoint) as proxy:
        job = JobOnS3(tmp_path, url, server.options(proxy.endpoint))
        job.start()
        asked = []
        for _ in range(8):
            proxy.take()
            job.step(True)
            asked.append(Counter(request.split()[0] for request in proxy.take()))
        assert job.rows() == job.expected()
    for number, found in enumerate(asked[3:], 4):  # retention has something to drop
        over = {kind: n for kind, n in found.items() if n > REQUESTS.get(kind, 0)}
        assert not over, f"checkpoint {number}: {dict(found)}"


def test_a_batch_without_a_barrier_asks_for_its_rows_and_its_record(server: S3Server, url: str, tmp_path: Path) -> None:
    with S3Proxy(server.endpoint) as proxy:
        job = JobOnS3(tmp_path, url, server.options(proxy.endpoint))
        job.start()
        job.step(True)
        proxy.take()
        job.step(False)
        found = Counter(request.split()[0] for request in proxy.take())
    assert found == {"POST": 2, "PUT": 2}  # an upload in one part, and batches/...


@pytest.mark.parametrize("kind", ["delta", pytest.param("files", marks=pytest.mark.soak)])
def test_requests_that_fail_or_wait_change_nothing_but_time(
    kind: str, server: S3Server, url: str, tmp_path: Path
) -> None:
    """One in twenty: refused for now, not answered, answered late, or done and the answer lost."""
    _run_with_faults(server, url, tmp_path, kind, seed=3, batches=6)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
def test_many_requests_that_fail_or_wait_change_nothing_but_time(server: S3Server, tmp_path: Path, seed: int) -> None:
    _run_with_faults(server, f"s3://{server.new_bucket()}", tmp_path, ("delta", "files")[seed % 2], seed, batches=60)


def _run_with_faults(server: S3Server, url: str, root: Path, kind: str, seed: int, batches: int) -> None:
    met: Counter[str] = Counter()
    # delta-rs uploads in parts, and takes a repeated completion whose first answer was lost for a failure of the task.
    kinds = tuple(f for f in FAULTS if kind != "delta" or f != "lost answer")
    with S3Proxy(server.endpoint, 0.05, seed, kinds) as proxy:
        job = JobOnS3(root, url, server.options(proxy.endpoint), kind)
        job.start()
        for number in range(batches):
            job.step(number % 2 == 1)
            if number == batches // 2:
                job.start(location="another")  # from the newest checkpoint
        while job.committer._view is not None and job.committer._view.pending:
            job.step(True)
        job.step(True)
        met.update(r.partition(" (")[2] for r in proxy.take() if " (" in r)
    assert sum(met.values()) > batches, met
    sound = JobOnS3(root, url, server.options(), kind)
    assert sound.job.verify() == []
    assert _rows_of(sound, server, url, kind) == job.expected()


def _rows_of(job: JobOnS3, server: S3Server, url: str, kind: str) -> list[tuple[int, ...]]:
    """What readers see; of files, those that the manifests name."""
    if kind == "delta":
        return job.rows()
    files, out = server.files(), f"{url.removeprefix('s3://')}/out"
    found: list[tuple[int, ...]] = []
    for manifest in files.ls(f"{out}/_manifests", detail=False):
        for entry in json.loads(files.cat_file(manifest))["files"]:
            with files.open(f"{out}/{entry['file']}") as stream:
                found += [tuple(row.values()) for row in pq.read_table(stream).to_pylist()]
    return sorted(found)


def test_the_command_line_lists_verifies_and_collects_with_credentials_of_the_environment(
    server: S3Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = JobOnS3(tmp_path, url, server.options())
    job.start()
    for _ in range(3):
        job.step(True)
    files, folder = server.files(), f"{url.removeprefix('s3://')}/jobs/job"
    orphan = f"{folder}/state/counts/e0000000001-orphan.parquet"
    files.pipe_file(orphan, b"nobody names me")
    files.rm(f"{folder}/alive", recursive=True) if files.exists(f"{folder}/alive") else None

    for name, value in (("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_REGION", "eu-west-3")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    s3fs.S3FileSystem.clear_instance_cache()  # a process has one environment, and fsspec keeps what it made there

    def ran(*command: str) -> str:
        done = CliRunner().invoke(app, [command[0], f"{url}/jobs", "job", *command[1:]], env=dict(os.environ))
        assert done.exit_code == 0, done.output
        assert SECRET not in done.output
        return done.output

    assert [row["id"] for row in json.loads(ran("list", "--json"))] == [1, 2, 3]
    assert "whole" in ran("verify")
    assert "e0000000001-orphan.parquet" in ran("gc")
    assert not files.exists(orphan)
    job.start()
    job.step(True)
    assert job.rows() == job.expected()


def test_no_record_below_the_jobs_folder_holds_a_secret(server: S3Server, url: str, tmp_path: Path) -> None:
    job = JobOnS3(tmp_path, url, server.options())
    job.start()
    job.step(True)
    files = server.files()
    written = {path: files.cat_file(path) for path in files.find(url.removeprefix("s3://"))}
    assert len(written) > 10
    assert [path for path, content in written.items() if SECRET.encode() in content] == []


def test_a_savepoint_on_s3_starts_a_job_of_another_folder(server: S3Server, url: str, tmp_path: Path) -> None:
    job = JobOnS3(tmp_path / "a", url, server.options())
    job.start()
    job.step(True)
    path = f"{url}/savepoints/one"
    job.savepoint(path)
    other = JobOnS3(tmp_path / "b", f"{url}/other", server.options())
    other.start(restore=path)
    assert (other.position, other.counts) == (job.position, job.counts)
    begun = other.position
    other.step(True)
    assert other.rows() == other.expected()[begun:]
    assert other.job.verify() == []
