"""Several sources that end at different times, and a location that stops in the first batch after its restore."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.listener import StreamingQueryListener

from spark_ckpt import agg
from spark_ckpt.errors import CheckpointFailedError
from spark_ckpt.jobs.requests import create_request
from tests.spark.conftest import DEADLINE_S, Input, Job, wait_until

NewInput = Callable[[str, str], Input]
SCHEMA = "k string, v int"


class Ending(DataSource):
    """One row, then the end: it says that nothing will ever come again."""

    @classmethod
    def name(cls) -> str:
        return "ending"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return EndingReader()


class EndingReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def latestOffset(self) -> dict[str, int]:
        return {"rows": 1}

    def finished(self, offset: dict[str, int]) -> bool:
        return offset == {"rows": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"k": ["end"], "v": pa.array([1], pa.int32())})


def totals(*streams: Any) -> Any:
    both = streams[0]
    for other in streams[1:]:
        both = both.union(other)
    return both.groupBy("k").aggregate(n=agg.count(), s=agg.sum("v")).uid("totals")


@pytest.mark.soak
def test_checkpoints_go_on_after_a_restore_although_the_second_source_has_ended(
    ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    source = new_input("leader", SCHEMA)
    source.add(("a", 1))

    def query() -> Any:
        ending = ckpt.readStream.format(Ending).option("uid", "ending").load()
        return totals(source.stream(ckpt, uid="leader"), ending)

    job.run(query(), "k")
    first = job.start(query(), "k", now=False)
    first.checkpoint()  # in an offset that says that the second source has ended
    first.stop()
    source.add(("a", 2))
    second = job.start(query(), "k", now=False, checkpointLocation=str(tmp_path / "elsewhere"))
    wait_until(lambda: second.lastProgress and second.lastProgress["batchId"] >= 1, second)
    second.checkpoint(timeout_s=DEADLINE_S)
    second.stop()
    assert job.rows() == [("a", 2, 3), ("end", 1, 1)]


def test_the_first_batch_of_a_restored_location_is_repeated_and_adopts_its_checkpoint(
    ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    source = new_input("leader", SCHEMA)
    source.add(("a", 1), ("b", 10))
    before = job.run(totals(source.stream(ckpt)), "k")
    source.add(("a", 2))
    elsewhere = tmp_path / "elsewhere"
    moved = {"checkpointLocation": str(elsewhere)}
    # Its very first batch takes a checkpoint, and the process ends before Spark writes that the batch is done.
    create_request(before.job.records.store, "checkpoint")
    query = job.start(totals(source.stream(ckpt)), "k", now=False, **moved)
    wait_until(lambda: 2 in query.job.records.ids("committed"), query)
    query.stop()
    assert query.job.show(2).batch == 0
    for file in [*elsewhere.glob("commits/*"), *elsewhere.glob("commits/.*")]:
        file.unlink(missing_ok=True)  # Spark may still be renaming its checksum file
    job.run(totals(source.stream(ckpt)), "k", **moved)
    assert job.rows() == [("a", 2, 3), ("b", 1, 10)]
    source.add(("b", 5))
    job.run(totals(source.stream(ckpt)), "k", **moved)
    assert job.rows() == [("a", 2, 3), ("b", 2, 15)]


def test_checkpoints_commit_while_the_slowest_of_several_bounded_sources_is_still_read(
    ckpt: Any, new_input: NewInput, job: Job
) -> None:
    short, long = new_input("short", SCHEMA), new_input("long", SCHEMA)
    short.add(("a", 1))
    for i in range(4):
        long.add(("b", i))
    df = totals(short.stream(ckpt, uid="short"), long.stream(ckpt, uid="long"))
    done = job.run(df, "k", interval="1ms", initialDelay="0s", triggerPollInterval="1ms")
    kinds = [row["kind"] for row in done.checkpoints() if row["outcome"] == "completed"]
    assert kinds.count("final") == 1
    assert kinds[-1] == "final"
    assert len(kinds) > 2, "the first source was drained after its first file"
    assert job.rows() == [("a", 1, 1), ("b", 4, 6)]


def test_all_that_is_available_is_what_a_database_has_now(ckpt: Any, tmp_path: Path) -> None:
    url, found = f"sqlite:///{tmp_path}/in.db", list[int]()
    database = sqlite3.connect(tmp_path / "in.db", isolation_level=None)
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    database.execute("INSERT INTO orders VALUES (1)")
    rows = ckpt.readStream.format("sql").options(url=url, table="orders", offsetColumn="id", settleDelay="100ms").load()
    query = rows.writeStream.foreachBatch(lambda rows, _: found.extend(r.id for r in rows.collect())).start()
    for number in (2, 3):
        query.processAllAvailable()
        assert found == list(range(1, number))
        database.execute(f"INSERT INTO orders VALUES ({number})")
    query.stop()
    database.close()


def test_rows_of_a_database_are_visible_when_waiting_for_them_ends_though_they_were_not_settled(
    ckpt: Any, tmp_path: Path
) -> None:
    url, found = f"sqlite:///{tmp_path}/in.db", list[int]()
    database = sqlite3.connect(tmp_path / "in.db", isolation_level=None)
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    options = {"url": url, "table": "orders", "offsetColumn": "id", "settleDelay": "1s", "discoveryInterval": "100ms"}
    rows = ckpt.readStream.format("sql").options(**options).load()
    query = rows.writeStream.foreachBatch(lambda rows, _: found.extend(r.id for r in rows.collect())).start()
    query.await_visible(DEADLINE_S)
    assert found == []
    for number in (1, 2):
        database.execute(f"INSERT INTO orders VALUES ({number})")
        query.await_visible(DEADLINE_S)
        assert found == list(range(1, number + 1))
    query.stop()
    database.close()


def test_a_stop_that_is_not_complete_in_time_is_an_error_and_the_query_goes_on(
    ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    source = new_input("leader", SCHEMA)
    source.add(("a", 1))
    query = job.start(totals(source.stream(ckpt)), "k", now=False)
    wait_until(lambda: query.lastProgress, query)  # a batch takes one file
    with pytest.raises(CheckpointFailedError, match="withdrawn"):
        query.stop(savepoint=str(tmp_path / "late"), timeout_s=0.001)
    assert query.isActive
    source.add(("a", 2))
    query.checkpoint()
    assert job.rows() == [("a", 2, 3)]
    saved = query.stop(savepoint=str(tmp_path / "saved"))
    source.add(("a", 4))
    again = job.start(totals(source.stream(ckpt)), "k", now=False, retain="1")
    assert again.checkpoint() > saved
    again.checkpoint()  # the savepoint's own records are retired
    again.stop()
    source.add(("a", 8))
    last = job.start(totals(source.stream(ckpt)), "k", now=False, retain="1")
    last.checkpoint()
    last.stop()
    assert job.rows() == [("a", 4, 15)]
    assert last.job.records.store.names("requests") == []


class Heard(StreamingQueryListener):
    def __init__(self) -> None:
        self.rows: dict[int, int] = {}

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        if event.progress.numInputRows:
            self.rows[event.progress.batchId] = event.progress.numInputRows

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass


@pytest.mark.parametrize("chaining", ["true", pytest.param("false", marks=pytest.mark.soak)])
def test_progress_counts_the_rows_of_each_source_and_no_control_rows(
    chaining: str, ckpt: Any, new_input: NewInput, job: Job
) -> None:
    one, two = new_input("one", SCHEMA), new_input("two", SCHEMA)
    for size in (5, 4, 3):
        one.add(*[(f"k{i}", i) for i in range(size)])
    two.add(*[(f"k{i}", i) for i in range(7)])
    heard = Heard()
    ckpt.streams.addListener(heard)
    # One whose rows are packed where they are read, one whose rows Spark sees.
    streams = one.stream(ckpt, uid="one"), two.stream(ckpt, uid="two").where("v >= 0")
    query = job.run(totals(*streams), "k", chaining=chaining)
    recent = query.recentProgress
    assert [sum(p.sources[i].numInputRows for p in recent) for i in (0, 1)] == [12, 7]
    counted = {p.batchId: p.numInputRows for p in recent if p.numInputRows}
    assert sum(counted.values()) == 19
    assert all(p["numInputRows"] == p["sources"][0]["numInputRows"] + p.sources[1]["numInputRows"] for p in recent)
    assert all((p.processedRowsPerSecond > 0) == (p.numInputRows > 0) for p in recent)
    assert f'"numInputRows": {recent[0].numInputRows}' in recent[0].json
    assert query.lastProgress.numInputRows == recent[-1].numInputRows
    assert sum(p.sink.numOutputRows for p in recent) >= 5  # keys that changed, of each batch
    phases = {name for p in recent for name in p.durationMs}
    assert {"addBatch", "checkpoint.alignment", "checkpoint.commitSinks"} <= phases
    wait_until(lambda: heard.rows == counted)
    ckpt.streams.removeListener(heard)


def test_files_by_sparks_short_forms_and_names_of_options(ckpt: Any, job: Job, tmp_path: Path) -> None:
    (tmp_path / "in" / "below").mkdir(parents=True)
    (tmp_path / "in" / "a.csv").write_text("k;v\na;1\nb;NA\n")
    (tmp_path / "in" / "below" / "b.csv").write_text("k;v\nc;3\nd;four\n")
    (tmp_path / "in" / "c.json").write_text('{"k": "e", "v": 5}\n')
    stream = ckpt.readStream.option("pathGlobFilter", "*.csv").csv(
        f"{tmp_path}/in", SCHEMA, header=True, sep=";", nullValue="NA", recursiveFileLookup=True, mode="DROPMALFORMED"
    )
    json = ckpt.readStream.options(uid="json", pathGlobFilter="*.json").json(f"{tmp_path}/in", schema=SCHEMA)
    again = ckpt.readStream.format("JSON").schema(SCHEMA).options(uid="again").load(f"{tmp_path}/in/c.json")
    job.run(stream.union(json).union(again))
    assert job.rows() == [("a", 1), ("b", None), ("c", 3), ("e", 5), ("e", 5)]
