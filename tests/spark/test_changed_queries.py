"""A query that has changed is started as ever, with the same command and the same ``checkpointLocation``."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta, timezone
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt import agg
from spark_ckpt.errors import ConfigError, InvalidInputError, TopologyError
from tests.spark.conftest import DEADLINE_S, Input, Job, wait_until

NewInput = Callable[[str, str], Input]
SCHEMA = "k string, v long"


def totals(stream: Any, uid: str = "totals") -> Any:
    return stream.groupBy("k").aggregate(n=agg.count(), total=agg.sum("v")).uid(uid)


@pytest.fixture
def inputs(new_input: NewInput) -> tuple[Input, Input]:
    return new_input("a", SCHEMA), new_input("b", SCHEMA)


def read(ckpt: Any, made: Input, uid: str) -> Any:
    return made.stream(ckpt, uid=uid)


def test_sources_may_change_places(ckpt: Any, inputs: tuple[Input, Input], job: Job, caplog: Any) -> None:
    """Each is read on from where it stood: the first has one file more than the second."""
    a, b = inputs
    a.add(("a", 1), ("a", 1))
    a.add(("a", 10))
    b.add(("b", 1))
    job.run(totals(read(ckpt, a, "left").union(read(ckpt, b, "right"))), "k")
    assert job.rows() == [("a", 3, 12), ("b", 1, 1)]
    a.add(("a", 100))
    b.add(("b", 10))
    b.add(("b", 100))
    for total in (112, 1112):  # the second start goes on where the first one went
        job.run(totals(read(ckpt, b, "right").union(read(ckpt, a, "left"))), "k")
        assert job.rows() == [("a", 4 + (total > 1000), total), ("b", 3, 111)]
        a.add(("a", 1000))
    assert caplog.text.count("So the job goes on from its checkpoint") == 1


@pytest.mark.soak  # tests/testing/test_jobs_that_change.py, and sources of this file
def test_operators_may_change_places(ckpt: Any, inputs: tuple[Input, Input], job: Job) -> None:
    a, b = inputs

    def query(turned: bool) -> Any:
        one = totals(read(ckpt, a, "left"), "first").withColumn("of", F.lit("a"))
        two = totals(read(ckpt, b, "right"), "second").withColumn("of", F.lit("b"))
        return two.union(one) if turned else one.union(two)

    a.add(("x", 1), ("y", 2))
    b.add(("x", 10))
    job.run(query(False), "k,of")
    a.add(("x", 100))
    b.add(("x", 1000), ("z", 1))
    job.run(query(True), "k,of")
    assert job.rows() == [("x", 2, 101, "a"), ("x", 2, 1010, "b"), ("y", 1, 2, "a"), ("z", 1, 1, "b")]


def test_a_sink_may_take_anothers_place(ckpt: Any, inputs: tuple[Input, Input], job: Job, tmp_path: Path) -> None:
    """The new one gets the rows that come from then on."""
    a, _ = inputs
    other = Job(tmp_path / "other")
    a.add(("a", 1), ("b", 2))
    job.run(totals(read(ckpt, a, "left")), "k")
    a.add(("a", 4))
    other.run(totals(read(ckpt, a, "left")), "k", uid="other")
    assert other.rows() == [("a", 2, 5)]


@pytest.mark.soak  # tests/testing/test_jobs_that_change.py; at the same location: test_sources_may_change_places
@pytest.mark.parametrize("given", [True, False], ids=["location given", "by default"])
def test_sources_operators_and_sinks_may_come_and_go(
    ckpt: Any, inputs: tuple[Input, Input], job: Job, tmp_path: Path, given: bool
) -> None:
    a, b = inputs
    place = {"checkpointLocation": str(tmp_path / "given")} if given else {}
    a.add(("a", 1), ("a", 1))
    job.run(totals(read(ckpt, a, "left")), "k", **place)
    b.add(("b", 5))
    job.run(totals(read(ckpt, b, "right").union(read(ckpt, a, "left"))), "k", **place)
    assert job.rows() == [("a", 2, 2), ("b", 1, 5)]
    a.add(("a", 10), ("a", 10))
    distinct = read(ckpt, b, "right").union(read(ckpt, a, "left")).dropDuplicates(["k", "v"]).uid("once")
    job.run(totals(distinct), "k", **place)
    assert job.rows() == [("a", 3, 12), ("b", 1, 5)]
    gone = totals(read(ckpt, a, "left").dropDuplicates(["k", "v"]).uid("once"))
    with pytest.raises(TopologyError, match=r"the checkpoint holds state of \['right'\]"):
        job.start(gone, "k", **place)
    a.add(("a", 10), ("a", 100))
    query = job.run(gone, "k", allowNonRestoredState="true", **place)
    assert job.rows() == [("a", 4, 112), ("b", 1, 5)]
    assert query.job.verify() == []
    query.job.gc(min_age_s=0)
    a.add(("c", 1))
    job.run(gone, "k", **place)
    assert job.rows() == [("a", 4, 112), ("b", 1, 5), ("c", 1, 1)]
    where = tmp_path / "jobs" / "job"
    assert len([p for p in where.iterdir() if p.name.startswith("spark-")]) == 1, "gc leaves the one that is in use"
    assert given or not (where / "spark").exists()


@pytest.mark.soak  # tests/testing/test_jobs_that_change.py
def test_rows_behind_the_newest_checkpoint_are_read_again_by_the_changed_query(
    ckpt: Any, inputs: tuple[Input, Input], job: Job
) -> None:
    a, b = inputs
    a.add(("a", 1))
    job.run(totals(read(ckpt, a, "left")), "k")
    a.add(("a", 10))
    query = job.start(totals(read(ckpt, a, "left")), "k", now=False)
    query.processAllAvailable()
    query.stop()  # without a checkpoint behind the second file
    b.add(("b", 5))
    job.run(totals(read(ckpt, b, "right").union(read(ckpt, a, "left"))), "k")
    assert job.rows() == [("a", 2, 11), ("b", 1, 5)]


def test_a_dry_run_says_what_becomes_of_each_part_and_changes_nothing(
    ckpt: Any, inputs: tuple[Input, Input], job: Job, tmp_path: Path
) -> None:
    a, b = inputs
    a.add(("a", 1), ("b", 2))
    job.run(totals(read(ckpt, a, "left").dropDuplicates(["k", "v"]).uid("once")), "k")
    before = {p for p in tmp_path.rglob("*") if p.is_file()}
    plan = _dry_run(totals(read(ckpt, b, "right").union(read(ckpt, a, "left"))), job)
    assert [(f.part, f.name, f.becomes) for f in plan.fates] == [
        ("source", "right", "begins empty"),
        ("source", "left", "kept"),
        ("operator", "totals", "kept"),
        ("operator", "once", "dropped"),
        ("sink", "memory", "kept"),
    ]
    assert "holds state of ['once']" in plan.refused
    assert "! operator once" in str(plan)
    same = ckpt.plan_restore(
        totals(read(ckpt, a, "left").dropDuplicates(["k", "v"]).uid("once")), "job", outputMode="update"
    )
    assert (same.refused, same.loses) == ("", ())
    assert same.goes_on == "The job goes on where it stands, behind checkpoint 1."
    assert "operator totals  kept: goes on with 2 keys" in str(same)
    left = {p for p in tmp_path.rglob("*") if p.is_file()}
    assert left <= before, "the query that has just ended may still remove some of its own"


def _dry_run(df: Any, job: Job, **options: Any) -> Any:
    writer = df.writeStream.format("memory").option("path", job.sink).option("mergeKeys", "k").queryName("job")
    return writer.options(**options).start(dryRun=True)


def test_a_start_that_would_lose_something_waits_until_a_person_approves(
    ckpt: Any, inputs: tuple[Input, Input], job: Job
) -> None:
    a, _ = inputs
    a.add(("a", 1), ("a", 1))
    query = job.run(totals(read(ckpt, a, "left").dropDuplicates(["k", "v"]).uid("once")), "k")
    assert query.job.plan() is None
    with pytest.raises(InvalidInputError, match="expected a start that waits to be approved, found none"):
        query.job.approve()
    a.add(("a", 1))
    option = {"spark__ckpt__restore__approve": "ask"}

    def person() -> Any:
        plan = wait_until(query.job.plan)
        assert job.rows() == [("a", 1, 1)]
        assert query.job.approve() == plan
        return plan

    with ThreadPoolExecutor() as pool:
        approved = pool.submit(person)
        job.run(totals(read(ckpt, a, "left")), "k", **option)
        assert [f.name for f in approved.result(DEADLINE_S).loses] == ["once"]
    assert job.rows() == [("a", 2, 2)]
    assert job.run(totals(read(ckpt, a, "left")), "k", **option).job.plan() is None, "there is nothing more to lose"


def test_operators_without_uids_do_not_change_places(ckpt: Any, inputs: tuple[Input, Input], job: Job) -> None:
    """Both keep the same keys and values of one source."""
    a, _ = inputs

    def query(*least: int) -> Any:
        rows = read(ckpt, a, "a")
        sums = (rows.where(f"v > {n}").groupBy("k").agg(F.sum("v"), F.lit(n).alias("least")) for n in least)
        return reduce(DataFrame.union, sums)

    a.add(("a", 1), ("a", 10))
    job.run(query(0, 5), "k,least", mode="update")
    with pytest.raises(TopologyError, match=r"'aggregate-0' is derived .* was 'aggregate-1': they changed places"):
        job.start(query(5, 0), "k,least", mode="update")


def test_windows_that_waited_for_their_end_come_out_in_mode_update_too(
    ckpt: Any, new_input: NewInput, job: Job
) -> None:
    data = new_input("timed", "k string, t timestamp")
    noon = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)

    def counts() -> Any:
        timed = data.stream(ckpt).withWatermark("t", "0 seconds")
        made = timed.groupBy(F.window("t", "10 minutes"), "k").count().uid("counts")
        return made.select(F.minute("window.start").alias("m"), "k", "count")

    data.add(("a", noon), ("a", noon + timedelta(minutes=1)), ("b", noon + timedelta(minutes=5)))
    job.run(counts(), "m,k", mode="append")
    assert job.rows() == []
    data.add(("b", noon + timedelta(minutes=6)), ("c", noon + timedelta(minutes=30)))
    data.add(("c", noon + timedelta(minutes=31)))
    job.run(counts(), "m,k", mode="update")
    assert job.rows() == [(0, "a", 2), (0, "b", 2), (30, "c", 2)]


def test_a_source_without_uid_is_not_taken_for_another(ckpt: Any, inputs: tuple[Input, Input], job: Job) -> None:
    a, b = inputs
    a.add(("a", 1))
    job.run(totals(a.stream(ckpt)), "k")
    b.add(("b", 5))
    both = totals(b.stream(ckpt).union(a.stream(ckpt)))
    with pytest.raises(
        TopologyError, match=rf"'files-0' was derived .* read files path={a.folder}, and reads .*/b now"
    ):
        job.start(both, "k")
    job.run(totals(b.stream(ckpt, uid="b").union(a.stream(ckpt, uid="files-0"))), "k")
    assert job.rows() == [("a", 1, 1), ("b", 1, 5)]


def test_a_source_under_another_uid_goes_on_where_it_stood(ckpt: Any, inputs: tuple[Input, Input], job: Job) -> None:
    """Also from a derived one; the line stays, and a savepoint of it is whole."""
    a, b = inputs
    a.add(("a", 1))
    a.add(("a", 10))
    job.run(totals(a.stream(ckpt)), "k")
    b.add(("b", 5))
    both = totals(read(ckpt, b, "b").union(read(ckpt, a, "orders")))
    with pytest.raises(TopologyError, match=r"goes on with .*`ckpt.moved\('files-0', 'orders'\)`"):
        job.start(both, "k")
    ckpt.moved("files-0", "orders")
    assert "source orders    kept: goes on behind" in str(_dry_run(both, job))
    for added in (100, 1000):
        a.add(("a", added))
        query = job.run(both, "k")
    assert job.rows() == [("a", 4, 1111), ("b", 1, 5)]
    assert query.job.verify() == []


def test_a_source_is_sent_elsewhere_once_and_everything_else_stays(
    ckpt: Any, inputs: tuple[Input, Input], job: Job, caplog: Any
) -> None:
    a, b = inputs
    a.add(("a", 1))
    a.add(("a", 10))
    b.add(("b", 1))

    def run(**more: Any) -> list[Any]:
        job.run(totals(read(ckpt, a, "left").union(read(ckpt, b, "right"))), "k", **more)
        return job.rows()

    assert run() == [("a", 2, 11), ("b", 1, 1)]
    second = spark_ckpt.job(ckpt.config().dir, "job").show(1).sources["left"]["inner"]
    first = {**second, "file": 1}
    b.add(("b", 10))
    plan = _dry_run(totals(read(ckpt, a, "left").union(read(ckpt, b, "right"))), job, startingFrom={"left": first})
    assert 'source left      moved: goes on behind {"' in str(plan)
    assert "as startingFrom says: rows in between are read again" in str(plan)
    assert (plan.refused, plan.loses) == ("", ())
    for _ in range(2):  # the line stays beside the query
        assert run(startingFrom={"left": first}) == [("a", 3, 21), ("b", 2, 11)]
    assert "sources ['left'] are to begin where startingFrom says" in caplog.text
    assert caplog.text.count("source 'left' begins at the offset that is given, as startingFrom asks") == 1
    a.add(("a", 100))
    assert run(startingFrom={"left": "latest"}) == [("a", 3, 21), ("b", 2, 11)]
    a.add(("a", 1000))
    assert run(startingFrom={"left": "latest"}) == [("a", 4, 1021), ("b", 2, 11)]
    assert run(startingFrom={"left": "earliest"}) == [("a", 8, 2132), ("b", 2, 11)]
    with pytest.raises(ConfigError, match=r"expected uids of the query's sources, \['left', 'right'\], found \['x'\]"):
        run(startingFrom={"x": "latest"})
    with pytest.raises(ConfigError, match=r"startingFrom: expected an offset of source 'files'"):
        run(startingFrom={"left": {"nothing": 1}})


def test_a_job_that_was_rolled_back_goes_on_with_the_same_command(
    ckpt: Any, spark: Any, inputs: tuple[Input, Input], job: Job, tmp_path: Path, caplog: Any
) -> None:
    """State, offsets and both sinks are where they were, and the rows behind come once again."""
    a, _ = inputs
    table = f"sqlite:///{tmp_path}/x.db"

    def run() -> Any:
        writer = totals(read(ckpt, a, "left")).writeStream.format("delta").queryName("job")
        writer = writer.option("path", str(tmp_path / "delta")).option("mergeKeys", "k").trigger(availableNow=True)
        query = writer.alsoTo("sql", url=table, table="t", checkpointColumn="came_with").start()
        assert query.awaitTermination(DEADLINE_S)
        return query

    for value in (1, 10, 100):
        a.add(("a", value))
        query = run()
    found = ckpt.as_of(2, "job")
    assert found.state("totals").get("a") == [{"k": "a", "n": 2, "total": 11}]
    assert [tuple(r) for r in found.df("delta").collect()] == [("a", 2, 11)]
    assert [r["total"] for r in found.df("sql").orderBy("n").collect()] == [1, 11]
    done = query.job.rollback(1)
    assert (done.is_whole, done.newest) == (True, 3)
    assert DeltaTable(str(tmp_path / "delta")).to_pyarrow_table().to_pylist() == [{"k": "a", "n": 1, "total": 1}]
    run()
    assert "the job was rolled back to checkpoint 1" in caplog.text
    assert DeltaTable(str(tmp_path / "delta")).to_pyarrow_table().to_pylist() == [{"k": "a", "n": 3, "total": 111}]
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        rows = database.execute("SELECT n, total, came_with FROM t ORDER BY n").fetchall()
    assert [row[:2] for row in rows] == [(1, 1), (2, 11), (3, 111)]
    assert rows[0][2] == 1
    assert rows[1][2] == rows[2][2] > 3, "both came once again, with the checkpoint behind the rollback"
