"""Iceberg's sink and source beside a REST catalogue: credentials, and a server that is away.

What a table is read and written like is in ``test_iceberg_sink`` and ``test_source_iceberg``, on this server, too.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sources.iceberg.source import IcebergSource
from spark_ckpt.testing.sink_harness import permit, stage
from tests.iceberg_server import PASSWORD, USER, IcebergServer, shared_iceberg
from tests.s3_proxy import S3Proxy
from tests.servers import Missed
from tests.sinks.iceberg_harness import SECRET, IcebergTarget, catalog_options, use
from tests.sources.test_source_iceberg import IcebergSourceTarget

REQUESTS = 12
"""What a token of the server is good for."""
UNUSED = "http://127.0.0.1:9"
FAULTS = ("500", "503", "no connection", "lost answer")
WRONG = "wr0ng/pass:w0rd"


@pytest.fixture(autouse=True)
def rest() -> Iterator[None]:
    with use("rest"):
        yield


@pytest.fixture
def server() -> IcebergServer:
    return shared_iceberg()


def target_of(folder: Path, **options: str) -> IcebergTarget:
    return IcebergTarget("iceberg", {"table": "db.t", **catalog_options(folder), **options})


CREDENTIALS = {
    "secret": ({"catalog.credential": f"{USER}:{WRONG}"}, "invalid_client.*Check catalog.credential or catalog.token"),
    "token": ({"catalog.token": WRONG, "catalog.credential": ""}, "Check catalog.credential or catalog.token"),
    "header": (
        {"catalog.header.authorization": f"Bearer {WRONG}", "catalog.credential": ""},
        "Check catalog.credential or catalog.token",
    ),
    "server": (
        {"catalog.uri": f"http://{USER}:{WRONG}@127.0.0.1:9", "catalog.oauth2-server-uri": UNUSED},
        "Connection refused.*Check catalog.uri, and whether the server runs",
    ),
}


@pytest.mark.parametrize("case", CREDENTIALS)
def test_wrong_credentials_and_a_server_that_is_away_are_refused_at_start(tmp_path: Path, case: str) -> None:
    """The server says in its answers what it was given."""
    more, said = CREDENTIALS[case]
    target = target_of(tmp_path, **more)
    asked: list[Callable[[], Any]] = [target.validated, IcebergSource(target.options).schema]
    for ask in asked:
        with pytest.raises(InvalidInputError, match=said) as refused:
            ask()
        shown = "".join(traceback.format_exception(refused.value))
        assert [s for s in (PASSWORD, WRONG, SECRET) if s in shown] == []


def test_a_token_whose_time_is_over_ends_the_query_without_it_and_credentials_get_another(
    tmp_path: Path, server: IcebergServer
) -> None:
    IcebergSourceTarget(tmp_path, 1)
    token = requests.post(
        f"{server.uri}/v1/oauth/tokens", {"client_id": USER, "client_secret": PASSWORD}, timeout=60
    ).json()["access_token"]
    alone = target_of(tmp_path, **{"catalog.token": token}).options
    del alone["catalog.credential"]
    reader = IcebergSource(alone)
    with pytest.raises(InvalidInputError, match=r"Check catalog\.credential or catalog\.token") as refused:
        [reader.schema() for _ in range(REQUESTS + 1)]
    assert token not in "".join(traceback.format_exception(refused.value))
    kept = IcebergSource(target_of(tmp_path).options)
    assert {len(kept.schema()) for _ in range(REQUESTS + 1)} == {2}


def test_a_task_and_a_source_wait_for_a_server_that_is_away(tmp_path: Path, server: IcebergServer) -> None:
    """It has forgotten the tokens that it gave, too."""
    source = IcebergSourceTarget(tmp_path, 1)
    reader = source.make()
    start = reader.latest(reader.initial(), False)
    source.add()
    target = target_of(tmp_path, table="db.written")
    sink = target.validated()
    with Missed(server) as missed, ThreadPoolExecutor() as pool:
        looking, staging = pool.submit(reader.latest, start, False), pool.submit(stage, sink, [(1, "a")])
    assert "it is asked again for 30 s" in missed.said
    sink.commit(permit(1), staging.result())
    assert target.rows() == [(1, "a")]
    assert source.rows(reader, start, looking.result()) == source.expected()[2:]


@pytest.mark.soak
@pytest.mark.parametrize("keys", ["", "k"])
def test_each_checkpoint_lands_once_through_a_network_that_fails(
    tmp_path: Path, server: IcebergServer, keys: str
) -> None:
    """A fifth of the requests: refused, cut off before they arrive, or done and never answered."""
    straight = target_of(tmp_path, mergeKeys=keys)
    straight.validated()
    with S3Proxy(server.uri, 0.2, seed=7, kinds=FAULTS) as proxy:
        target = target_of(tmp_path, **{"mergeKeys": keys, "catalog.uri": proxy.endpoint})
        expected = []
        for checkpoint in range(1, 41):
            sink = target.make()
            rows = [(checkpoint, f"v{checkpoint}"), (-checkpoint, None)]
            sink.commit(permit(checkpoint), stage(sink, rows, checkpoint, checkpoint))
            expected += rows
        met = [request for request in proxy.take() if request.endswith(")")]
    assert sorted(straight.rows(), key=repr) == sorted(expected, key=repr)
    assert len(straight.table().metadata.snapshots) == 40
    assert [kind for kind in FAULTS if not any(m.startswith("POST") and kind in m for m in met)] == []
