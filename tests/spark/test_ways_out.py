"""A changed query is refused, and the way that the message names is taken: it works, with the values it promises."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from spark_ckpt import agg
from spark_ckpt.errors import TopologyError
from tests.spark.conftest import Input, Job

NewInput = Callable[[str, str], Input]
SCHEMA = "k string, v long"
FIRST = [("a", 2, 3), ("b", 1, 10)]


def totals(stream: Any, uid: str = "totals") -> Any:
    return stream.groupBy("k").aggregate(n=agg.count(), total=agg.sum("v")).uid(uid)


@pytest.fixture
def source(new_input: NewInput, ckpt: Any, job: Job) -> Input:
    """What the job has read once, up to a checkpoint."""
    made = new_input("input", SCHEMA)
    made.add(("a", 1), ("b", 10), ("a", 2))
    job.run(totals(made.stream(ckpt)), "k")
    assert job.rows() == FIRST
    return made


@pytest.fixture
def empty(tmp_path: Path) -> str:
    """An empty Spark location."""
    return str(tmp_path / "empty")


def test_another_uid_begins_empty_where_that_is_allowed(ckpt: Any, source: Input, job: Job, empty: str) -> None:
    renamed = totals(source.stream(ckpt), "sums")
    for place in ({}, {"checkpointLocation": empty}):
        with pytest.raises(TopologyError, match=r"set spark\.ckpt\.allowNonRestoredState to drop their state"):
            job.start(renamed, "k", **place)
    source.add(("a", 4))
    job.run(renamed, "k", allowNonRestoredState="true")
    assert job.rows() == [("a", 1, 4), ("b", 1, 10)]


def test_other_keys_begin_empty_where_the_query_says_so(ckpt: Any, source: Input, tmp_path: Path, empty: str) -> None:
    def by_length(uid: str) -> Any:
        return totals(source.stream(ckpt).selectExpr("length(k) as k", "v"), uid)

    fresh = Job(tmp_path / "fresh")
    with pytest.raises(TopologyError, match=r"the key schema changed.*`ckpt.migrate\('totals'\).begin_empty\(\)`"):
        fresh.start(by_length("totals"), "k", checkpointLocation=empty)
    source.add(("a", 4))
    ckpt.migrate("totals").begin_empty()
    fresh.run(by_length("totals"), "k", checkpointLocation=empty)
    assert fresh.rows() == [(1, 1, 4)]


def test_other_windows_begin_empty_where_the_query_says_so(
    ckpt: Any, new_input: NewInput, job: Job, empty: str
) -> None:
    times = new_input("times", "t timestamp, v long")
    noon = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)

    def sums(*minutes: int) -> Any:
        window = F.window("t", *[f"{m} minutes" for m in minutes])
        made = times.stream(ckpt).groupBy(window).agg(F.sum("v").alias("total")).uid("windows")
        return made.select(F.minute("window.start").alias("k"), F.minute("window.end").alias("end"), "total")

    times.add((noon + timedelta(minutes=12), 1))
    job.run(sums(10), "k")
    times.add((noon + timedelta(minutes=13), 10))
    was = r"'window_start' was of windows of 0:10:00 every 0:10:00 from 0:00:00, and is now of windows of"
    for other, now in (((20,), "0:20:00 every"), ((10, 5), "0:10:00 every 0:05:00"), ((10, 10, 1), ".* from 0:01:00")):
        with pytest.raises(TopologyError, match=f"{was} {now}.*begin_empty"):
            job.start(sums(*other), "k")
    job.run(sums(10), "k")
    assert job.rows() == [(10, 20, 11)]
    times.add((noon + timedelta(minutes=14), 100))
    ckpt.migrate("windows").begin_empty()
    job.run(sums(20), "k", checkpointLocation=empty)
    assert sorted(job.rows()) == [(0, 20, 100), (10, 20, 11)]


def test_an_operator_without_uid_keeps_its_state_until_the_query_changes(
    ckpt: Any, new_input: NewInput, job: Job, empty: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = new_input("some", SCHEMA)
    source.add(("a", 1), ("b", 10), ("a", 2))

    def counted(df: Any, uid: str | None = None) -> Any:
        made = df.groupBy("k").aggregate(n=agg.count(), total=agg.sum("v"))
        return made.uid(uid) if uid else made

    def inserted(uid: str | None = None) -> Any:
        rows = source.stream(ckpt).groupBy("k", "v").aggregate(emit="rows", seen=agg.count())
        return counted(rows.where("seen = 1"), uid)

    job.run(counted(source.stream(ckpt)), "k")
    assert "Job job: the keyed operators are aggregate-0 (derived)" in caplog.text
    source.add(("a", 4))
    query = job.run(counted(source.stream(ckpt)), "k")
    assert job.rows() == [("a", 3, 7), ("b", 1, 10)]
    assert list(query.job.show(query.checkpoints()[-1]["id"]).topology.operators) == ["aggregate-0"]
    for place in ({}, {"checkpointLocation": empty}):
        with pytest.raises(TopologyError, match=r"expected 'aggregate-0' behind files-0, found .*uid\('aggregate-0'\)"):
            job.start(inserted(), "k", **place)
    source.add(("a", 4), ("a", 4))
    query = job.run(inserted("aggregate-0"), "k", checkpointLocation=empty)
    assert job.rows() == [("a", 4, 11), ("b", 1, 10)]
    assert "the keyed operators are aggregate-1 (derived), aggregate-0. A derived" in caplog.text


def test_the_number_of_key_groups_is_set_back_or_begins_without_state(
    ckpt: Any, source: Input, job: Job, tmp_path: Path, empty: str
) -> None:
    source.add(("a", 4))
    same = totals(source.stream(ckpt))
    for place in ({}, {"checkpointLocation": empty}):
        with pytest.raises(
            TopologyError, match=r"expected .*4.*found 8; set .*maxParallelism=4, or write `ckpt.rescale"
        ):
            job.start(same, "k", maxParallelism="8", **place)
    job.run(same, "k", maxParallelism="4")
    assert job.rows() == [("a", 3, 7), ("b", 1, 10)]
    fresh = Job(tmp_path / "fresh")
    fresh.run(same, "k", maxParallelism="8", restore="none", checkpointLocation=empty)
    assert fresh.rows() == [("a", 3, 7), ("b", 1, 10)]


def test_a_query_that_names_two_things_alike_is_built_as_the_message_says(
    ckpt: Any, source: Input, new_input: NewInput, tmp_path: Path
) -> None:
    twice = source.stream(ckpt, uid="orders"), source.stream(ckpt, uid="orders")
    built = Job(tmp_path / "built")
    with pytest.raises(TopologyError, match=r"two sources have the same uid.*reader option uid"):
        built.start(totals(twice[0].union(twice[1])), "k", job="built")
    own = totals(source.stream(ckpt, uid="orders").union(source.stream(ckpt, uid="again")))
    built.run(own, "k", job="built", checkpointLocation=str(tmp_path / "built-location"))
    assert built.rows() == [("a", 4, 6), ("b", 2, 20)]
