"""A job's records on S3, spoken by a server on loopback: what is created only if absent, replaced, listed, damaged."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import s3fs
from moto.server import ThreadedMotoServer

from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.record_store import RecordStore
from spark_ckpt.testing.record_store_conformance import RecordStoreConformance

BUCKET = "lake"


@pytest.fixture(scope="module")
def storage_options() -> Iterator[dict[str, Any]]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = {"endpoint_url": f"http://{host}:{port}", "region_name": "us-east-1"}
    options = {"key": "key", "secret": "secret", "client_kwargs": client}
    s3fs.S3FileSystem(**options).call_s3("create_bucket", Bucket=BUCKET)
    yield options
    server.stop()


class TestS3(RecordStoreConformance):
    @pytest.fixture
    def store(self, storage_options: dict[str, Any]) -> RecordStore:
        return RecordStore(f"s3://{BUCKET}/{uuid.uuid4().hex}", storage_options)


def test_sparks_spellings_of_s3_are_the_same_folder(storage_options: dict[str, Any]) -> None:
    name = uuid.uuid4().hex
    Folder(f"s3a://{BUCKET}/{name}/", storage_options).replace("a", b"1")
    assert Folder(f"s3://{BUCKET}/{name}", storage_options).read("a") == b"1"
    assert name in Folder(f"s3://{BUCKET}", storage_options).folders()
