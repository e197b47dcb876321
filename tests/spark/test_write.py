"""``trigger`` and ``outputMode``: honoured, or refused with what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import IllegalArgumentException, PySparkValueError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupState

from spark_ckpt import agg
from spark_ckpt.errors import ConfigError, InvalidInputError
from tests.spark.conftest import DEADLINE_S, Input, Job, ordered

NewInput = Callable[[str, str], Input]


@pytest.fixture
def data(new_input: NewInput) -> Input:
    found = new_input("in", "k string, v long")
    found.add(("a", 1), ("b", 2))
    found.add(("a", 3))
    return found


def test_trigger_once_takes_all_there_is_and_ends_with_a_final_checkpoint(ckpt: Any, data: Input, job: Job) -> None:
    writer = data.stream(ckpt).writeStream.format("memory").option("path", job.sink).queryName("job")
    query = writer.trigger(once=True).start()
    assert query.awaitTermination(DEADLINE_S)
    assert job.rows() == [("a", 1), ("a", 3), ("b", 2)]
    assert [c["kind"] for c in query.checkpoints()] == ["final"]


def test_a_query_has_a_name_or_none_is_given(ckpt: Any, data: Input) -> None:
    for name in ("", " ", None):
        with pytest.raises(PySparkValueError, match="VALUE_NOT_NON_EMPTY_STR"):
            data.stream(ckpt).writeStream.queryName(name)


def test_a_query_without_a_name_is_the_job_of_its_location(ckpt: Any, data: Input, tmp_path: Path) -> None:
    seen: list[Any] = []

    def run(**options: str) -> str:
        writer = data.stream(ckpt).writeStream.foreachBatch(lambda rows, _: seen.extend(rows.collect()))
        query = writer.options(**options).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S)
        return str(query.name)

    name = run(checkpointLocation=str(tmp_path / "at" / "orders"))
    assert name.startswith("orders-")
    data.add(("c", 4))
    assert run(checkpointLocation=f"file://{tmp_path}/at/orders/") == name
    assert ordered(map(tuple, seen)) == [("a", 1), ("a", 3), ("b", 2), ("c", 4)]
    assert run(checkpointLocation=str(tmp_path / "other" / "orders")) not in (name, run())
    assert len(seen) == 3 * 4
    with pytest.raises(ConfigError, match=r"a job needs a name.*checkpointLocation, which names it too"):
        data.stream(ckpt).writeStream.format("memory").option("path", str(tmp_path / "m")).start()


def _rows(data: Input, session: Any, ckpt: Any) -> Any:
    return data.stream(ckpt) if session is ckpt else data.spark_stream(session)


def test_a_name_that_a_running_query_has_is_refused_and_that_query_goes_on(
    ckpt: Any, spark: SparkSession, data: Input, job: Job, tmp_path: Path
) -> None:
    def started(session: Any, format: str, at: str) -> Any:
        rows, path = _rows(data, session, ckpt), job.sink if session is ckpt else str(tmp_path / "out")
        writer = rows.writeStream.format(format).option("path", path).queryName(f"running-{format}")
        return writer.option("checkpointLocation", str(tmp_path / at)).start()

    queries = [started(spark, "parquet", "plain"), started(ckpt, "memory", "ours")]
    try:
        for session, format, at in ((spark, "parquet", "other"), (ckpt, "memory", "other"), (ckpt, "memory", "ours")):
            with pytest.raises(IllegalArgumentException, match=r"query with name running-\w+ .* already active"):
                started(session, format, at)
        data.add(("c", 4))
        queries[1].processAllAvailable()
        assert job.rows() == [("a", 1), ("a", 3), ("b", 2), ("c", 4)]
        assert queries[1].exception() is None
    finally:
        for query in queries:
            query.stop()


def test_a_query_without_a_name_is_stopped_by_a_new_one_at_its_location(
    ckpt: Any, spark: SparkSession, data: Input, job: Job, tmp_path: Path
) -> None:
    def started(session: Any, format: str, path: str) -> Any:
        writer = _rows(data, session, ckpt).writeStream.format(format).option("path", path)
        return writer.option("checkpointLocation", str(tmp_path / format)).start()

    for session, format, path in ((spark, "parquet", str(tmp_path / "out")), (ckpt, "memory", job.sink)):
        first = started(session, format, path)
        first.processAllAvailable()
        second = started(session, format, path)
        assert (first.isActive, first.exception(), second.isActive) == (False, None, True)
        data.add(("c", 4))
        second.processAllAvailable()
        second.stop()
    assert job.rows() == [("a", 1), ("a", 3), ("b", 2), ("c", 4), ("c", 4)]


def test_triggers_that_say_nothing_or_two_things_are_refused(ckpt: Any, data: Input) -> None:
    writer = data.stream(ckpt).writeStream
    for given in ({}, {"once": False}, {"availableNow": False}, {"processingTime": "1s", "availableNow": True}):
        with pytest.raises(PySparkValueError, match=r"ONLY_ALLOW_SINGLE_TRIGGER|VALUE_NOT_TRUE|VALUE_NOT_ALLOWED"):
            writer.trigger(**given)
    for given in ({"continuous": "1s"}, {"realTime": "1s"}):
        with pytest.raises(InvalidInputError, match="barriers travel in micro-batches"):
            writer.trigger(**given)


def _count(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    yield pd.DataFrame({"k": [key[0]]})


def test_an_output_mode_that_the_operators_do_not_have_is_refused(ckpt: Any, data: Input) -> None:
    stream = data.stream(ckpt)
    updates = stream.groupBy("k").aggregate(n=agg.count()).uid("t")
    running = stream.groupBy("k").aggregate(emit="rows", n=agg.count()).uid("t")
    appends = stream.groupBy("k").applyInPandasWithState(_count, "k string", "n int", "append", "NoTimeout").uid("f")
    for df, mode, right in ((updates, "append", "update"), (appends, "Update", "append")):
        with pytest.raises(InvalidInputError, match=rf"outputMode is .*use outputMode\('{right}'\)"):
            df.writeStream.outputMode(mode)
        df.writeStream.outputMode(right)
    for df in (stream, running):
        df.writeStream.outputMode("append").outputMode("update")
