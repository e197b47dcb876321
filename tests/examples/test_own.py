"""The sink and the source of one's own that examples/ show keep to the contracts that ours keep to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from examples import own_sink, own_source
from examples.foreach_batch import __main__ as moved_over
from examples.foreach_batch import after, before
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.testing.sink_conformance import SinkConformance, SinkTarget, typed_rows
from spark_ckpt.testing.source_conformance import SourceConformance, SourceTarget


class Outbox(SinkTarget):
    def __init__(self, path: Path) -> None:
        super().__init__(own_sink.OutboxSink, {"path": f"{path}/outbox.db"})

    def read(self, schema: pa.Schema) -> pa.Table:
        return pa.Table.from_pylist(own_sink.documents(self.options["path"]), schema)

    def leftovers(self) -> list[str]:
        with own_sink.transaction(self.options["path"]) as db:
            return [s for (s,) in db.execute("SELECT DISTINCT stage FROM staged WHERE checkpoint IS NULL")]


class TestOutbox(SinkConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkTarget:
        return Outbox(tmp_path)

    def typed_rows(self) -> pa.Table:
        return typed_rows().select(["id", "long", "double", "text", "empty"])

    def test_other_types_are_refused_before_the_query_starts(self, target: SinkTarget) -> None:
        with pytest.raises(InvalidInputError, match=r"at timestamp\[us\]"):
            target.validated(pa.schema([pa.field("id", pa.int64()), pa.field("at", pa.timestamp("us"))]))


class Measurements(SourceTarget):
    def expected(self) -> list[tuple[str, int]]:
        return [("abc"[i % 3], i) for i in range(self.there)]

    def add(self) -> bool:
        self.there += 7
        own_source.Feed.rows[:] = map(list, self.expected())
        return True

    there = 0


class TestMeasurements(SourceConformance):
    @pytest.fixture
    def target(self, tmp_path: Path) -> Iterator[SourceTarget]:
        with ThreadingHTTPServer(("127.0.0.1", 0), own_source.Feed) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            url = f"http://127.0.0.1:{server.server_port}"
            target = Measurements(own_source.HttpSource, {"url": url}, str(tmp_path / "metadata"))
            target.add()
            yield target
            server.shutdown()
            thread.join()
            own_source.Feed.rows.clear()


@pytest.fixture(scope="module")
def one_jvm() -> Iterator[None]:
    """The examples make their sessions by ``getOrCreate``: they share this one, and nobody else gets its settings."""
    SparkContext._ensure_initialized()
    session = SparkSession.builder.master("local[2]").getOrCreate()
    yield
    session.stop()


def test_the_source_reads_each_row_once_and_forgets_what_a_checkpoint_covers(
    one_jvm: None, capsys: pytest.CaptureFixture[str]
) -> None:
    own_source.main()
    assert capsys.readouterr().out.splitlines() == [
        "checkpoint 1 covers 3,000 rows",
        "stopped: 4,000 rows were read, and the feed keeps 1,000, which no checkpoint covers",
        "  sensor a: 2,000 rows, mean 2,998.5",
        "  sensor b: 2,000 rows, mean 2,999.5",
        "  sensor c: 2,000 rows, mean 3,000.5",
        "exactly once",
    ]


def test_the_sink_shows_rows_when_a_checkpoint_is_complete(one_jvm: None, capsys: pytest.CaptureFixture[str]) -> None:
    own_sink.main()
    assert capsys.readouterr().out.splitlines() == [
        "1,000 rows are in the database, 0 visible",
        "checkpoint 1: 1,000 visible",
        "2,000 rows are in the database, 1,000 visible",
        "stopped and started again, with 500 more: 2,500 visible",
        "exactly once",
    ]


def test_the_job_of_foreach_batch_and_the_one_moved_over_give_the_same_totals(one_jvm: None, tmp_path: Path) -> None:
    """If nothing dies; test_foreach_batch.py kills them."""
    expected = moved_over.prepare(tmp_path)
    before.main(str(tmp_path))
    after.main(str(tmp_path))
    assert moved_over.totals("before", tmp_path) == moved_over.totals("after", tmp_path) == expected
