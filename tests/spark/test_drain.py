"""Stop with drain: what waits for the event time comes out, once, and the job ends for good."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.state import GroupState

import spark_ckpt
from spark_ckpt import agg
from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.protocol.records import FINAL
from tests.spark.conftest import DEADLINE_S, Input, Job

cloudpickle.register_pickle_by_value(sys.modules[__name__])

NewInput = Callable[[str, str], Input]
NOON = datetime(2024, 7, 1, 12, tzinfo=timezone.utc)
DAY_MS = 24 * 3_600_000
END_MS = 253_402_300_799_999


def _last_seen(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Puts a key out when nothing came for a day of event time: how many rows it had, and the watermark then."""
    if state.hasTimedOut:
        yield pd.DataFrame({"k": [key[0]], "n": [state.get[0]], "at_ms": [state.getCurrentWatermarkMs()]})
        state.remove()
        return
    n, latest = state.get if state.exists else (0, 0)
    for frame in frames:
        n += int(frame["n"].sum()) if "n" in frame else len(frame)
        times = frame["at"].map(lambda t: int(t.timestamp() * 1000)) if "at" in frame else frame["at_ms"]
        latest = max([latest, *(t for t in times if t < END_MS)])
    state.update((n, latest))
    state.setTimeoutTimestamp(max(latest, state.getCurrentWatermarkMs()) + DAY_MS)


def held(df: Any, uid: str, key: str) -> Any:
    out = "k string, n long, at_ms long"
    state = "n long, latest long"
    return df.groupBy(key).applyInPandasWithState(_last_seen, out, state, "append", "EventTimeTimeout").uid(uid)


def chain(stream: Any) -> Any:
    """Keys one by one, then all of them together: the second operator gets its rows from the first one's time-outs."""
    keys = held(stream.withWatermark("at", "1 hour"), "keys", "k")
    return held(keys.selectExpr("'all' as k", "n", "at_ms"), "all", "k")


@pytest.mark.parametrize("mode", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.soak)])
def test_what_waits_for_the_event_time_comes_out_through_all_operators_and_the_job_ends(
    ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path, mode: str
) -> None:
    first, second = new_input("first", "k string, at timestamp"), new_input("second", "k string, at timestamp")
    first.add(("a", NOON), ("b", NOON + timedelta(hours=1)))
    first.add(("a", NOON + timedelta(hours=2)))
    second.add(("b", NOON), ("c", NOON))
    options = {"spark__ckpt__mode": mode}

    def rows() -> Any:
        return chain(first.stream(ckpt, uid="first").union(second.stream(ckpt, uid="second")))

    query = job.start(rows(), now=False, **options)
    query.processAllAvailable()
    assert job.rows() == [], "nothing has timed out"
    first.add(("d", NOON + timedelta(hours=3)))
    savepoint = tmp_path / "savepoint" if mode == "exactly_once" else None
    done = query.stop(savepoint=savepoint and str(savepoint), drain=True)
    assert query.exception() is None
    folder = spark_ckpt.job(str(tmp_path / "jobs"), "job")
    record = folder.show(done)
    assert (record.drained, record.kind) == (True, "savepoint" if savepoint else "final")
    (row,) = job.rows()
    assert row[0] == "all"
    assert row[1] in (5, 6), "d may have come behind the drain"
    assert row[2] == END_MS

    # The location is drained for good: the next start reads nothing and ends by itself.
    second.add(("e", NOON + timedelta(hours=5)))
    again = job.start(rows(), now=False, **options)
    assert again.awaitTermination(DEADLINE_S)
    assert job.rows() == [row]
    # Elsewhere it goes on behind the last row, with the watermark of the rows: they are not late.
    where = {"restore": str(savepoint)} if savepoint else {}
    elsewhere = job.start(rows(), now=False, checkpointLocation=str(tmp_path / "elsewhere"), **where, **options)
    elsewhere.processAllAvailable()
    elsewhere.stop(drain=True)
    assert sorted(r[1] for r in job.rows()) == sorted([row[1], 7 - row[1]])


def test_the_command_line_drains_a_job_and_its_query_ends_by_itself(
    ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    from typer.testing import CliRunner

    from spark_ckpt.cli import app

    data = new_input("in", "k string, at timestamp")
    data.add(("a", NOON), ("b", NOON))
    query = job.start(held(data.stream(ckpt).withWatermark("at", "1 hour"), "keys", "k"), now=False)
    query.processAllAvailable()
    said = CliRunner().invoke(app, ["stop", str(tmp_path / "jobs"), "job", "--drain"])
    assert (said.exit_code, "is drained" in said.output) == (0, True), said.output
    assert query.awaitTermination(DEADLINE_S)
    assert job.rows() == [("a", 1, END_MS), ("b", 1, END_MS)]
    assert CliRunner().invoke(app, ["stop", str(tmp_path / "jobs"), "job"]).exit_code == 2


@pytest.mark.soak  # without a drain: test_sources.py; with one: tests/protocol/test_protocol_drain.py
def test_a_source_that_has_ended_counts_as_arrived_after_restarts_restores_and_in_a_drain(
    ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    data = new_input("in", "timestamp timestamp, value long")

    def rows() -> Any:
        reader = ckpt.readStream.format("rate-micro-batch")
        bounded = reader.options(numRows=3, startTimestamp=int(NOON.timestamp() * 1000)).load()
        both = data.stream(ckpt).union(bounded).selectExpr("'k' as k", "timestamp as at")
        return held(both.withWatermark("at", "1 hour"), "keys", "k")

    for number, location in enumerate(("here", "here", "elsewhere")):
        data.add((NOON, number))
        options = {"spark__ckpt__mode": "at_least_once", "checkpointLocation": str(tmp_path / location)}
        query = job.start(rows(), now=False, **options)
        query.processAllAvailable()
        query.checkpoint()
        if location == "elsewhere":
            query.stop(drain=True)
        else:
            query.stop()
    assert job.rows() == [("k", 6, END_MS)]
    ended = query.job.completed()[-1].sources["rate-1"]
    assert ended["ended"]


def test_a_paused_job_reads_nothing_over_restarts_until_it_is_resumed(
    ckpt: Any, new_input: NewInput, job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    left, right = new_input("left", "k string, v long"), new_input("right", "k string, v long")

    def totals() -> Any:
        rows = left.stream(ckpt, uid="left").union(right.stream(ckpt, uid="right"))
        return rows.groupBy("k").aggregate(total=agg.sum("v")).uid("totals")

    left.add(("a", 1))
    right.add(("b", 2))
    query = job.start(totals(), "k", now=False)
    query.processAllAvailable()
    done = query.pause("the warehouse moves")
    assert query.checkpoints()[-1]["id"] >= done
    left.add(("a", 10))
    right.add(("b", 20))
    assert query.checkpoint() > done, "checkpoints go on"
    query.stop()

    with pytest.raises(InvalidInputError, match=r"is paused.*the warehouse moves.*spark-ckpt resume"):
        job.start(totals(), "k")
    query = job.start(totals(), "k", now=False)
    assert "reads nothing until it is resumed" in caplog.text
    query.processAllAvailable()
    assert job.rows() == [("a", 1), ("b", 2)]
    with pytest.raises(InvalidInputError, match="is paused, and reads no further"):
        query.await_visible(DEADLINE_S)
    query.resume()
    seen = query.await_visible(DEADLINE_S)
    assert job.rows() == [("a", 11), ("b", 22)]
    at = query.job.show(seen).sources
    offsets = {uid: at[uid]["inner"] for uid in ("left", "right")}
    assert query.job.await_visible(offsets, DEADLINE_S) == seen
    query.stop()


def test_a_run_ends_with_a_checkpoint_exactly_where_it_is_told_to_end(ckpt: Any, new_input: NewInput, job: Job) -> None:
    left, right = new_input("left", "k string, v long"), new_input("right", "k string, v long")
    for v in (1, 10, 100, 1000):
        left.add(("a", v))
    for v in (3, 30, 300):
        right.add(("b", v))

    def totals() -> Any:
        rows = left.stream(ckpt, uid="left").union(right.stream(ckpt, uid="right"))
        return rows.groupBy("k").aggregate(total=agg.sum("v")).uid("totals")

    def ends(left_files: int, right_files: int) -> dict[str, Any]:
        return {"left": {"file": left_files}, "right": {"file": right_files}}

    def cut() -> tuple[str, dict[str, int]]:
        done = spark_ckpt.job(ckpt.config().dir, "job").completed()[-1]
        return done.kind, {uid: at["inner"]["file"] for uid, at in done.sources.items()}

    job.run(totals(), "k", endingAt=ends(2, 1))
    assert cut() == (FINAL, {"left": 2, "right": 1})
    assert job.rows() == [("a", 11), ("b", 3)]

    # Without availableNow it waits for what is not there yet, and ends by itself.
    query = job.start(totals(), "k", now=False, endingAt=ends(5, 2))
    left.add(("a", 10_000))
    left.add(("a", 100_000))
    assert query.awaitTermination(DEADLINE_S), "the query did not come to its end"
    assert cut() == (FINAL, {"left": 5, "right": 2})
    assert job.rows() == [("a", 11_111), ("b", 33)]

    query = job.start(totals(), "k", endingAt=ends(7, 3))
    with pytest.raises(StreamingQueryException, match=r"source 'left' has nothing behind .*expected rows up to there"):
        query.awaitTermination(DEADLINE_S)
    query = job.start(totals(), "k", endingAt=ends(1, 3))
    with pytest.raises(StreamingQueryException, match=r"beyond .*: restore an earlier checkpoint or savepoint"):
        query.awaitTermination(DEADLINE_S)
    assert cut()[0] != FINAL or cut()[1] == {"left": 5, "right": 2}, "none is taken elsewhere"
    with pytest.raises(ConfigError, match=r"expected an end for each source .* found none for \['right'\]"):
        job.start(totals(), "k", now=False, endingAt={"left": {"file": 7}})
    with pytest.raises(ConfigError, match=r"endingAt: expected uids of the query's sources, .* found \['x'\]"):
        job.start(totals(), "k", endingAt={"x": {"file": 7}})
    job.run(totals(), "k")
    assert job.rows() == [("a", 111_111), ("b", 333)]
