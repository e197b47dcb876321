"""A job's records on S3, spoken by a server on loopback: what is created only if absent, replaced, listed, damaged."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.record_store import RecordStore
from spark_ckpt.testing.record_store_conformance import RecordStoreConformance
from tests.s3_server import SERVERS, S3Server, shared_s3


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> S3Server:
    return shared_s3(request.param)


@pytest.fixture(scope="module")
def bucket(server: S3Server) -> str:
    return server.new_bucket()


@pytest.fixture(scope="module")
def storage_options(server: S3Server) -> dict[str, Any]:
    return dict(server.options())


class TestS3(RecordStoreConformance):
    @pytest.fixture
    def store(self, bucket: str, storage_options: dict[str, Any]) -> RecordStore:
        return RecordStore(f"s3://{bucket}/{uuid.uuid4().hex}", storage_options)


def test_sparks_spellings_of_s3_are_the_same_folder(bucket: str, storage_options: dict[str, Any]) -> None:
    name = uuid.uuid4().hex
    Folder(f"s3a://{bucket}/{name}/", storage_options).replace("a", b"1")
    assert Folder(f"s3://{bucket}/{name}", storage_options).read("a") == b"1"
    assert name in Folder(f"s3://{bucket}", storage_options).folders()
