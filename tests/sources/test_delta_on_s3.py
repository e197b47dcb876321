"""The Delta source over a table in an object store: quoted names, new versions, splits, secrets."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_ckpt.errors import CkptError
from spark_ckpt.sources.base import InnerReader, open_source
from spark_ckpt.storage.object_options import delta_rs_options
from spark_ckpt.testing.source_harness import batches, read
from tests.s3_server import SECRET, S3Server, shared_s3

ROWS = [(1, "a b/ü%"), (2, "x=y:z"), (3, None), (4, "2024-01-01 00:00:00")]


@pytest.fixture(scope="module")
def s3() -> S3Server:
    return shared_s3()


def opened(s3: S3Server, url: str, job_storage: bool = False, **options: str) -> InnerReader:
    own = {} if job_storage else {f"storage.{key}": value for key, value in s3.options().items()}
    source = open_source("delta", {"path": url, **own, **options}, None, f"{url}-jobs", s3.options())
    return source.reader(source.schema())


def rows(reader: InnerReader, start: dict[str, object] | None = None) -> list[tuple[object, ...]]:
    found = batches(reader, start or reader.initial())
    return [row for r in found for split in reader.splits(*r) for row in read(reader, split)]


def test_a_table_in_an_object_store_is_read_as_any_other(s3: S3Server) -> None:
    url = f"s3://{s3.new_bucket()}/tables/t"
    options = delta_rs_options(url, s3.options())
    columns = pa.table({"id": [n for n, _ in ROWS], "p": [p for _, p in ROWS]})
    write_deltalake(url, columns, partition_by=["p"], storage_options=options)
    reader = opened(s3, url.replace("s3://", "s3a://"))
    assert sorted(rows(reader)) == sorted(ROWS)
    end = batches(reader, reader.initial())[-1][1]
    write_deltalake(url, pa.table({"id": [5], "p": ["new"]}), mode="append", storage_options=options)
    for one in (reader, opened(s3, url), opened(s3, url, job_storage=True)):
        deadline = time.monotonic() + 120
        while (new := rows(one, end)) == [] and time.monotonic() < deadline:
            time.sleep(0.01)  # it looks for new versions a tenth of the time at most
        assert new == [(5, "new")]
    DeltaTable(url, storage_options=options).create_checkpoint()
    assert len(rows(opened(s3, url))) == 5


def test_no_secret_is_in_what_is_told(s3: S3Server) -> None:
    with pytest.raises(CkptError, match="is no Delta table") as told:
        opened(s3, f"s3://{s3.new_bucket()}/none")
    assert SECRET not in str(told.value)
