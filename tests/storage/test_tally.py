"""What a process counts of its requests to S3 and of its reads of state: all of it, once, and for the right job."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from spark_ckpt.jobs.batch_reports import with_reports_before
from spark_ckpt.protocol import events as ev
from spark_ckpt.protocol.events import Run
from spark_ckpt.protocol.records import BatchRecord, Figures
from spark_ckpt.protocol.reports import Reports
from spark_ckpt.protocol.weights import batch_record
from spark_ckpt.storage import tally
from spark_ckpt.storage.filesystem import Folder
from spark_ckpt.storage.run_cache import RunCache
from spark_ckpt.storage.run_files import write_run_file
from spark_ckpt.types import KEY_GROUP, KEY_HASH
from tests.s3_proxy import S3Proxy
from tests.s3_server import shared_s3


@pytest.fixture(autouse=True)
def fresh():
    tally.forget()
    yield
    tally.forget()


PRICED = {
    "GET": "get", "HEAD": "get", "PUT": "put", "CREATE": "put", "COPY": "put", "LIST": "list", "DELETE": "delete",
}  # fmt: skip


def kinds(requests: list[str], bucket: str) -> Counter[str]:
    """As the server saw them. Of what is posted, all but a removal of many are of uploads."""
    posted = {f"/{bucket}": "delete"}
    return Counter(PRICED.get(kind) or posted.get(path, "put") for kind, path, *_ in map(str.split, requests))


@pytest.mark.parametrize("faults", [0.0, 0.2])
def test_each_request_that_the_server_sees_is_counted_by_its_kind(faults: float) -> None:
    server = shared_s3()
    bucket = server.new_bucket()
    with S3Proxy(server.endpoint, faults, seed=4, kinds=("503",)) as proxy:
        tally.working_for("job", 1)
        folder = Folder(f"s3://{bucket}/x", server.options(proxy.endpoint))
        assert folder.create("a", b"1")
        assert not folder.create("a", b"2")
        folder.replace("b", b"12345")
        assert (folder.read("b"), folder.read("none"), folder.read_range("b", 1, 2)) == (b"12345", None, b"23")
        assert (folder.exists("a"), folder.exists("c")) == (True, False)
        assert folder.names() == ["a", "b"]
        with folder.fs.open(folder.path("large"), "wb", block_size=5 << 20) as file:  # as the files sink does
            file.write(bytes(11 << 20))
        folder.fs.cp_file(folder.path("a"), folder.path("copy"))
        folder.remove("a")
        folder.remove_all("")
        seen = kinds(proxy.take(), bucket)
    assert set(seen) == {"get", "put", "list", "delete"}
    assert tally.taken() == seen


def test_a_file_system_that_was_sent_to_another_process_counts_there() -> None:
    server = shared_s3()
    folder = Folder(f"s3://{server.new_bucket()}/x", server.options())
    folder.fs.clear_instance_cache()
    sent = pickle.loads(pickle.dumps(folder.fs))
    assert sent.storage_options == folder.fs.storage_options
    tally.working_for("job", 1)
    Folder(folder.url, server.options()).replace("a", b"1")
    assert tally.taken() == {"put": 1}


def test_what_was_counted_is_told_once_and_to_the_start_that_it_was_counted_for() -> None:
    tally.count("get")  # for nobody: of the user's own process
    assert tally.taken() == {}
    tally.working_for("a", 1)
    tally.count("get")
    tally.working_for("b", 1)  # a worker's next task is of another query
    tally.count("put")
    assert tally.taken() == {"put": 1}
    tally.working_for("a", 1)
    assert tally.taken() == {"get": 1}
    assert tally.taken() == {}
    tally.count("get")
    tally.working_for("a", 2)
    assert tally.taken() == {}, "a new start begins at 0"


def test_reads_of_state_are_hits_where_the_cache_has_them(tmp_path: Path) -> None:
    url = str(tmp_path / "state")
    columns = {"k": pa.array(range(4)), KEY_GROUP: pa.array([0] * 4, pa.int32()), KEY_HASH: pa.array(range(4))}
    write_run_file(url, "a.parquet", pa.table(columns))
    cache = RunCache(url, str(tmp_path / "cache"), 1 << 20)
    tally.working_for("job", 1)
    found = []
    for _ in range(2):
        cache.read(Run("a.parquet", 0, 4, 1))
        found.append(tally.taken())
    RunCache(url, str(tmp_path / "cache"), 1 << 20).read(Run("a.parquet", 1, 2, 1))
    assert [*found, tally.taken()] == [{"miss": 1}, {"hit": 1}, {"hit": 1}]


def test_what_all_processes_tell_adds_up_over_a_start() -> None:
    told = [ev.Asked({"get": 2, "hit": 1}), ev.RowsRead("in", 3), ev.Asked({"get": 1, "put": 4})]
    folded = Reports(Reports(told).events()).events()
    assert folded == [ev.RowsRead("in", 3), ev.Asked({"get": 3, "hit": 1, "put": 4})]
    assert ev.decode(ev.encode(folded[1])) == folded[1]
    before = BatchRecord(1, 0, 1, figures=Figures(asked={"get": 5, "miss": 7}))
    record = with_reports_before(batch_record(1, 1, 1, (), told), before, Figures())
    assert record.figures.asked == {"get": 8, "hit": 1, "miss": 7, "put": 4}
    assert record.events == ()  # nothing but a figure is kept
