"""Object stores below a job's folder: options under either library's names, credentials that nobody writes down, and
what is refused before anything runs."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import pyarrow as pa
import pytest
import s3fs
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from spark_ckpt.cli import app
from spark_ckpt.config import JobConfig
from spark_ckpt.errors import (
    ConfigError,
    InvalidInputError,
    RetryableError,
    StorageNotWritableError,
    StorageUnavailableError,
)
from spark_ckpt.jobs.spec import SinkSpec, with_absolute_dir, with_job_storage
from spark_ckpt.sinks import staging
from spark_ckpt.sinks.base import JobPlace
from spark_ckpt.sinks.delta.sink import DeltaSink
from spark_ckpt.sinks.files import FilesSink
from spark_ckpt.sinks.memory import MemorySink
from spark_ckpt.sinks.registry import create_sink
from spark_ckpt.sources.base import open_source
from spark_ckpt.sources.ddl import parse_ddl
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.history import History, HistoryRow
from spark_ckpt.storage.object_options import PATIENCE, delta_rs_options, fsspec_options
from spark_ckpt.storage.record_store import RecordStore
from spark_ckpt.storage.retry import Retry
from spark_ckpt.testing.sink_harness import permit
from spark_ckpt.types import Committable
from tests.ports import free_port
from tests.s3_proxy import S3Proxy
from tests.s3_server import KEY, PAGE, REGION, SECRET, SERVERS, S3Server, shared_s3

ROWS = pa.schema([("k", pa.int64())])
AT_ONCE = Retry(timeout_s=0)


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> S3Server:
    return shared_s3(request.param)


@pytest.fixture
def bucket(server: S3Server) -> str:
    return server.new_bucket()


# -- one set of options -------------------------------------------------------------------------------------------

FOR_FSSPEC = {"key": "K", "secret": "S", "endpoint_url": "http://h:1", "client_kwargs": {"region_name": "eu"}}
FOR_DELTA_RS = {
    "aws_access_key_id": "K",
    "aws_secret_access_key": "S",
    "aws_endpoint_url": "http://h:1",
    "aws_region": "eu",
    "aws_allow_http": "true",
    "aws_conditional_put": "etag",
    **PATIENCE,
}


@pytest.mark.parametrize(
    "given",
    [
        FOR_FSSPEC,
        {"key": "K", "secret": "S", "client_kwargs": {"endpoint_url": "http://h:1", "region_name": "eu"}},
        {"access_key_id": "K", "secret_access_key": "S", "endpoint": "http://h:1", "region": "eu"},
        {k.upper(): v for k, v in FOR_DELTA_RS.items()},
    ],
)
def test_both_libraries_get_the_same_from_either_ones_names(given: dict[str, Any], no_environment: None) -> None:
    assert fsspec_options("s3://b/x", given) == FOR_FSSPEC
    assert delta_rs_options("s3a://b/x", given) == FOR_DELTA_RS


def test_what_one_library_alone_knows_does_not_reach_the_other(no_environment: None) -> None:
    given = {"anon": True, "config_kwargs": {"max_pool_connections": 3}, "timeout": "5s", "aws_sse_kms_key_id": "x",
             "retry_timeout": "1min", "backoff_config.init_backoff": "1s"}  # fmt: skip
    assert fsspec_options("s3://b", given) == {"anon": True, "config_kwargs": {"max_pool_connections": 3}}
    wanted = {"aws_skip_signature": "true", "timeout": "5s", "aws_sse_kms_key_id": "x", "aws_conditional_put": "etag",
              **PATIENCE, "retry_timeout": "1min", "backoff_config.init_backoff": "1s"}  # fmt: skip
    assert delta_rs_options("s3://b", given) == wanted


def test_names_of_azure_and_google_are_translated_too() -> None:
    assert delta_rs_options("abfss://c@a.dfs.core.windows.net/x", {"account_name": "a", "account_key": "k"}) == {
        "azure_storage_account_name": "a",
        "azure_storage_account_key": "k",
        **PATIENCE,
    }
    assert fsspec_options("gs://b", {"google_service_account": "/key.json"}) == {"token": "/key.json"}


def test_an_option_given_twice_is_refused_without_its_values() -> None:
    with pytest.raises(ConfigError, match="aws_secret_access_key is given twice") as error:
        fsspec_options("s3://b", {"secret": "hunter2", "aws_secret_access_key": "hunter3"})
    assert "hunter" not in str(error.value)


def test_a_profile_that_delta_rs_would_not_follow_is_refused() -> None:
    with pytest.raises(ConfigError, match="set AWS_PROFILE"):
        delta_rs_options("s3://b", {"profile": "prod"})


@pytest.mark.parametrize(
    ("cls", "options", "inherits"),
    [
        (DeltaSink, {"path": "s3a://other/t"}, True),
        (FilesSink, {"PATH": "s3://other/t"}, True),
        (DeltaSink, {"path": "/local"}, False),
        (DeltaSink, {"path": "gs://b/t"}, False),
        (DeltaSink, {"path": "s3://b/t", "storage.key": "own"}, False),
        (MemorySink, {"path": "s3://b/t"}, False),
    ],
)
def test_a_sink_where_the_job_is_has_the_jobs_storage_options(
    cls: Any, options: dict[str, str], inherits: bool
) -> None:
    config = JobConfig.from_options({"dir": "s3://lake/c", "storage.key": "K", "storage.secret": "hunter2"})
    found = with_job_storage(SinkSpec("s", cls, options), config)
    assert found.storage == ({"storage.key": "K", "storage.secret": "hunter2"} if inherits else {})
    assert found.options == options  # what is recorded
    assert "hunter2" not in repr(found)


# -- credentials that are nowhere in the options ------------------------------------------------------------------


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.fixture(params=["variables", "profile", "container"])
def environment(
    request: pytest.FixtureRequest,
    server: S3Server,
    no_environment: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[str]:
    """Credentials as a cluster has them: in variables, in a profile, or from the container's own address."""
    s3fs.S3FileSystem.clear_instance_cache()  # a process has one environment, and fsspec keeps what it made there
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    monkeypatch.setenv("AWS_REGION", REGION)
    if request.param == "variables":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    elif request.param == "profile":
        keys = f"[prod]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
        (tmp_path / "AWS_SHARED_CREDENTIALS_FILE").write_text(keys)
        monkeypatch.setenv("AWS_PROFILE", "prod")
    else:
        with CredentialsServer() as (url, asked):
            monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
            yield request.param
            assert asked
            return
    yield request.param


class CredentialsServer:
    """What gives a container its credentials: an address of its own, as those of Amazon's containers do."""

    def __enter__(self) -> tuple[str, list[str]]:
        asked: list[str] = []
        body = {"AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": "", "Expiration": "2100-01-01T00:00:00Z"}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                content = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}/credentials", asked

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._server.server_close()


def row(k: int) -> HistoryRow:
    return HistoryRow(k, "checkpoint", "completed", 1, 1, 1, completed_ms=2)


def test_credentials_of_the_environment_reach_both_libraries(environment: str, bucket: str) -> None:
    store = RecordStore(f"s3://{bucket}/jobs/{environment}")
    store.check_writable("j")
    assert store.read("job.json", "job") == {"job": "j"}
    history = History(f"s3://{bucket}/jobs/{environment}/history")
    assert history.append(row(1))
    assert [r.id for r in history.read()] == [1]
    DeltaSink({"path": f"s3a://{bucket}/{environment}"}).validate(ROWS)


# -- what is refused ----------------------------------------------------------------------------------------------


def test_a_store_without_create_if_absent_is_refused_before_a_record_is_written() -> None:
    server = shared_s3("moto")  # MinIO would notice that a header is gone
    bucket = server.new_bucket()
    with S3Proxy(server.endpoint, drop="if-none-match") as proxy:
        store = RecordStore(f"s3://{bucket}/j", server.options(proxy.endpoint))
        with pytest.raises(StorageNotWritableError, match="creates an object only if there is none"):
            store.check_writable("j")
        sink = DeltaSink({"path": f"s3://{bucket}/t", **_storage(server, proxy.endpoint)})
        with pytest.raises(InvalidInputError, match="creates an object only if there is none"):
            sink.validate(ROWS)
    assert server.files().find(bucket) == []


class ExpiredHandler(BaseHTTPRequestHandler):
    """What S3 says of temporary credentials whose time is over; to a HEAD request without a reason."""

    protocol_version = "HTTP/1.1"  # a client waits to be told to send its data

    def _answer(self) -> None:
        shown = self.headers["X-Amz-Security-Token"]
        reason = f"<Error><Code>ExpiredToken</Code><Message>The provided token has expired: {shown}.</Message></Error>"
        content = b"" if self.command == "HEAD" else reason.encode()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(400)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_credentials_whose_time_is_over_are_told_at_once_by_the_stores_word_and_not_its_sentence() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), ExpiredHandler)
    Thread(target=server.serve_forever, daemon=True).start()
    options = {"key": KEY, "secret": SECRET, "token": "t0ken", "region": REGION}
    folder = Folder("s3://lake/j", {**options, "endpoint_url": f"http://127.0.0.1:{server.server_port}"})
    asked = {
        "PermissionError (ExpiredToken)": [lambda: folder.read("a"), folder.names, lambda: folder.replace("a", b"x"),
                                           lambda: folder.create("a", b"x"), lambda: folder.remove("a")],
        "OSError (400)": [lambda: folder.exists("a")],
    }  # fmt: skip
    for said, asks in asked.items():
        for ask in asks:
            with pytest.raises((InvalidInputError, StorageNotWritableError)) as refused:
                ask()
            assert f"found {said}. " in str(refused.value)
            assert "the time of temporary ones may be over. Nothing is lost: start the query again" in str(
                refused.value
            )
            assert "t0ken" not in "".join(traceback.format_exception(refused.value))
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("character", "#?%[]^|\\")
def test_what_the_libraries_read_differently_in_a_url_is_refused(character: str) -> None:
    """fsspec would write to another place than delta-rs reads, or delta-rs fails."""
    url = f"s3://lake/a{character}b"
    with pytest.raises(ConfigError, match="choose another folder"):
        with_absolute_dir(JobConfig.from_options({"dir": url}))
    with pytest.raises(ConfigError, match="choose another folder"):
        DeltaSink({"path": url, "mergeKeys": "k"}).validate(ROWS)


def test_a_store_that_does_not_answer_is_said_without_the_clients_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_ckpt.storage.filesystem.Retry", lambda: AT_ONCE)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    options = {"key": "K", "secret": "hunter2", "endpoint_url": f"http://127.0.0.1:{free_port()}"}
    with pytest.raises(StorageUnavailableError, match=r"s3://lake/j.*could not be written") as error:
        RecordStore("s3://lake/j", options).check_writable("j")
    assert "hunter2" not in str(error.value)


def test_a_folder_of_more_names_than_a_page_is_listed_whole(server: S3Server, bucket: str) -> None:
    names = [f"{n:04d}.json" for n in range(PAGE + 1 if server.kind == "moto" else 1001)]
    server.files().pipe({f"{bucket}/j/many/{name}": b"" for name in names})
    server.files().pipe(f"{bucket}/j/many/below/x.json", b"")
    folder = Folder(f"s3://{bucket}/j", server.options())
    assert folder.names("many") == names
    assert folder.folders("many") == ["below"]
    assert folder.names("none") == []


def test_a_bucket_that_is_not_there_is_said(server: S3Server, bucket: str) -> None:
    store = RecordStore(f"s3://{bucket}-not/j", server.options())
    with pytest.raises(StorageNotWritableError, match=f"Cannot write s3://{bucket}-not/.*expected a bucket"):
        store.check_writable("j")


def test_a_sink_or_source_of_files_whose_bucket_is_misspelt_says_so_and_makes_none(
    server: S3Server, bucket: str, tmp_path: Path
) -> None:
    storage = {f"storage.{name}": value for name, value in server.options().items()}
    nowhere = {"path": f"s3://{bucket}-x/t", "fileFormat": "json", **storage}
    with pytest.raises(StorageNotWritableError, match=r"expected a bucket .* found none of that name"):
        FilesSink(nowhere).validate(ROWS)
    read = open_source("files", nowhere, parse_ddl("k long"), str(tmp_path)).reader(parse_ddl("k long"))
    with pytest.raises(InvalidInputError, match=rf"expected a bucket .* found none at s3://{bucket}-x/t"):
        read.latest(read.initial(), False)
    with pytest.raises(InvalidInputError, match=rf"Delta table s3://{bucket}-x/t: opening it failed: .*NoSuchBucket"):
        open_source("delta", {"path": f"s3://{bucket}-x/t", **storage}, None, str(tmp_path)).schema()
    assert f"{bucket}-x" not in server.files().ls("")
    there = open_source("files", {**nowhere, "path": f"s3://{bucket}/t"}, parse_ddl("k long"), str(tmp_path))
    empty = there.reader(parse_ddl("k long"))
    assert empty.latest(empty.initial(), False) == empty.initial(), "a folder is there when something is in it"


def test_without_credentials_the_message_says_where_they_are_looked_for(
    server: S3Server, bucket: str, no_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
    folder = Folder(f"s3://{bucket}/j", {"endpoint_url": server.endpoint, "region": REGION}, AT_ONCE)
    with pytest.raises(InvalidInputError, match="the credentials in storage options or the environment"):
        folder.names()
    with pytest.raises(StorageNotWritableError, match="NoCredentialsError"):
        folder.replace("a", b"")


@pytest.mark.soak  # moto takes any signature
@pytest.mark.parametrize("wrong", [{"key": "NOBODY"}, {"secret": "hunter2"}])
def test_wrong_credentials_are_refused_without_showing_them(wrong: dict[str, str]) -> None:
    real = shared_s3("minio")
    bucket, options = real.new_bucket(), {**real.options(), **wrong}
    with pytest.raises(StorageNotWritableError, match="Cannot write s3://") as written:
        RecordStore(f"s3://{bucket}/j", options).check_writable("j")
    with pytest.raises(InvalidInputError, match="Cannot read s3://") as read:
        RecordStore(f"s3://{bucket}/j", options).names("checkpoints")
    with pytest.raises(InvalidInputError) as made:
        DeltaSink({"path": f"s3://{bucket}/t", **{f"storage.{k}": v for k, v in options.items()}}).validate(ROWS)
    storage = {f"storage.{k}": v for k, v in options.items()}
    with pytest.raises(InvalidInputError, match=r"opening it failed: .*403 Forbidden \(\w+\)\. Check the") as opened:
        open_source("delta", {"path": f"s3://{bucket}/t", **storage}, None, "none").schema()
    with pytest.raises(StorageNotWritableError, match="Cannot write s3://") as filed:
        FilesSink({"path": f"s3://{bucket}/t", **storage}).validate(ROWS)
    for told in (written, read, made, opened, filed):
        assert not {"NOBODY", "hunter2", SECRET} & set(re.split(r"[\s'\"]", str(told.value)))
        assert "hunter2" not in str(told.value)


def test_the_command_line_takes_the_same_options_and_shows_no_secret(server: S3Server, bucket: str) -> None:
    storage = [f"--storage={name}={value}" for name, value in server.options().items()]
    ran = CliRunner().invoke(app, ["list", f"s3://{bucket}/c", "orders", *storage])
    assert ran.exit_code == 1
    assert "there is no job 'orders' in s3://" in ran.output
    assert not re.search(re.escape(SECRET), ran.output)


def _storage(server: S3Server, endpoint: str | None = None) -> dict[str, str]:
    return {f"storage.{name}": value for name, value in server.options(endpoint).items()}


def test_what_delta_rs_says_of_a_store_that_is_away_is_one_line_without_a_secret() -> None:
    patience = {"max_retries": "1", "retry_timeout": "1s"}
    options = {"key": "K", "secret": "hunter2", "endpoint_url": f"http://127.0.0.1:{free_port()}", **patience}
    sink = DeltaSink({"path": "s3://lake/table", **{f"storage.{name}": value for name, value in options.items()}})
    staged = Committable("delta", 1, staging.encode("delta", file="f", size=1, stats={}, written_ms=0, keys=[]))
    for doing, ask in (
        ("the commit", lambda: sink.commit(permit(1), [staged])),
        ("looking for what is staged", sink.staged_by),
        ("collecting garbage", lambda: sink.gc("job", [])),
        ("collecting garbage", lambda: sink.discard("job@0")),
        ("aborting", lambda: sink.abort([staged])),
    ):
        with pytest.raises(RetryableError, match=rf"Delta table s3://lake/table: {doing} failed: .*Connect") as error:
            ask()
        said = str(error.value)
        assert "\n" not in said
        assert "\x1b" not in said
        assert "hunter2" not in said


def test_delta_rs_asks_again_for_as_long_as_the_job_says(no_environment: None) -> None:
    config = JobConfig.from_options({"spark.ckpt.dir": "s3://lake/jobs", "spark.ckpt.retry.timeout": "2min"})
    options = {"path": "s3://lake/table", "storage.key": "K", "storage.secret": "S"}

    def asked(options: dict[str, str], config: JobConfig) -> str:
        return str(create_sink("delta", options, place=JobPlace("s3://lake/jobs/j", config))._storage["retry_timeout"])

    assert asked(options, config) == "120000ms"
    assert asked({**options, "storage.retry_timeout": "7s"}, config) == "7s"
    short = JobConfig.from_options({"spark.ckpt.dir": "s3://lake/jobs", "spark.ckpt.timeout": "1min"})
    assert asked(options, replace(short, retry_timeout_ms=50_000)) == "30000ms"
    assert History("s3://lake/jobs/j/history", {}, 120.0)._options["retry_timeout"] == "120000ms"
    assert delta_rs_options("/a/table", {}, 120.0) == {}


@pytest.mark.soak
def test_delta_rs_waits_for_a_store_that_is_away_as_long_as_the_job_does() -> None:
    server = S3Server("minio").start()
    try:
        url = f"s3://{server.new_bucket()}/table"
        options = delta_rs_options(url, server.options())
        write_deltalake(url, pa.table({"k": [1]}), storage_options=options)
        server.kill()
        back = Timer(15, server.restart)  # ten tries often take less than three seconds
        back.start()
        write_deltalake(url, pa.table({"k": [2]}), mode="append", storage_options=options)
        back.join()
        assert sorted(DeltaTable(url, storage_options=options).to_pyarrow_table()["k"].to_pylist()) == [1, 2]
    finally:
        server.stop()
