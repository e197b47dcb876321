"""Where a start goes on from: the Spark location, the newest checkpoint, a named one, a savepoint, or nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import spark_ckpt
from spark_ckpt import agg
from spark_ckpt.errors import ConfigError, InvalidInputError, TopologyError
from spark_ckpt.storage.record_store import RecordStore
from tests.spark.conftest import Input, Job, wait_until

NewInput = Callable[[str, str], Input]
SCHEMA = "k string, v long"


@pytest.fixture
def source(new_input: NewInput) -> Input:
    made = new_input("input", SCHEMA)
    made.add(("a", 1), ("b", 10))
    made.add(("a", 2), ("c", 100))
    return made


def totals(source: Input, ckpt: Any) -> Any:
    return source.stream(ckpt).groupBy("k").aggregate(n=agg.count(), total=agg.sum("v")).uid("totals")


def folder(tmp_path: Path, job: str = "job") -> spark_ckpt.Job:
    return spark_ckpt.job(str(tmp_path / "jobs"), job)


FIRST = [("a", 2, 3), ("b", 1, 10), ("c", 1, 100)]
SECOND = [("a", 3, 7), ("b", 1, 10), ("c", 1, 100)]


@pytest.mark.soak  # test_distinct_values_are_a_table_of_their_own_and_go_where_the_counts_go does, with two tables
def test_an_empty_spark_location_restores_the_newest_checkpoint_with_any_number_of_shuffle_partitions(
    spark: SparkSession, ckpt: Any, source: Input, job: Job, tmp_path: Path
) -> None:
    job.run(totals(source, ckpt), "k")
    source.add(("a", 4))
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        job.run(totals(source, ckpt), "k", checkpointLocation=str(tmp_path / "elsewhere"))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert job.rows() == SECOND
    assert folder(tmp_path).verify() == []


def test_a_restore_reads_the_manifest_and_opens_state_only_when_a_key_is_touched(
    ckpt: Any, source: Input, job: Job, tmp_path: Path
) -> None:
    job.run(totals(source, ckpt), "k")
    state = tmp_path / "jobs/job/state/totals"
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    files = sorted(state.glob("*.parquet"))
    assert files
    for file in files:
        file.rename(hidden / file.name)
    # Nothing new to read: the restore itself must not need the state files.
    job.run(
        totals(source, ckpt), "k", checkpointLocation=str(tmp_path / "elsewhere"), cache__dir=str(tmp_path / "no-cache")
    )
    assert job.rows() == FIRST
    for file in files:
        (hidden / file.name).rename(file)


def looks_the_same(spark: SparkSession, ckpt: Any, job: spark_ckpt.Job, uid: str) -> None:
    """As a DataFrame, by SQL, as Arrow, by key, and to a Delta reader, deletion vectors and removed keys included."""
    url, version = job.state_table(uid)
    delta = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(url, version=version))
    wanted = pa.table(delta.execute("SELECT * FROM t").read_all()).drop(["_key_hash", "_key_group"])
    state = ckpt.state(uid, job=job.name)
    state.createOrReplaceTempView("state_of_it")
    shown = spark.sql("SELECT * FROM state_of_it")
    assert shown.columns == wanted.column_names
    rows = sorted((tuple(r.values()) for r in wanted.to_pylist()), key=repr)
    assert sorted((tuple(r) for r in shown.collect()), key=repr) == rows
    assert sorted((tuple(r.values()) for r in state.arrow().to_pylist()), key=repr) == rows
    by_key = [r for k in {r[0] for r in rows} for r in state.get(k)]
    assert sorted((tuple(r.values()) for r in by_key), key=repr) == rows
    assert state.get("no such key") == []


@pytest.mark.smoke
def test_distinct_values_are_a_table_of_their_own_and_go_where_the_counts_go(
    spark: SparkSession, ckpt: Any, source: Input, job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def distinct() -> Any:
        return source.stream(ckpt).groupBy("k").aggregate(n=agg.count(), amounts=agg.count_distinct("v")).uid("seen")

    job.run(distinct(), "k")
    source.add(("a", 2), ("a", 3), ("c", None), (None, 3))
    job.run(distinct(), "k")
    assert job.rows() == [("a", 4, 3), ("b", 1, 1), ("c", 2, 1), (None, 1, 1)]
    source.add(("a", 1), ("b", 11))
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    assert "Spark location is empty" not in caplog.text
    try:
        job.run(distinct(), "k", checkpointLocation=str(tmp_path / "elsewhere"))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert "Job job: the Spark location is empty, so the job goes on from its checkpoint 2" in caplog.text
    assert job.rows() == [("a", 5, 3), ("b", 2, 2), ("c", 2, 1), (None, 1, 1)]
    done = folder(tmp_path)
    url, version = done.state_table("seen.amounts")
    rows = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(url, version=version))
    found = pa.table(rows.execute("SELECT k, amounts FROM t ORDER BY k, amounts").read_all())
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("a", 1), ("a", 2), ("a", 3), ("b", 10), ("b", 11), ("c", 100), (None, 3),
    ]  # fmt: skip
    looks_the_same(spark, spark_ckpt.enable(spark), done, "seen.amounts")
    looks_the_same(spark, spark_ckpt.enable(spark), done, "seen")
    done.gc()
    assert done.verify() == []
    source.add(("c", 100), ("d", 5))
    query = job.start(distinct(), "k", now=False, checkpointLocation=str(tmp_path / "elsewhere"))
    wait_until(lambda: query.lastProgress and query.lastProgress["numInputRows"], query)
    query.savepoint(str(tmp_path / "savepoint"))
    query.stop()
    shutil.rmtree(tmp_path / "jobs")
    source.add(("d", 5), ("d", 6))
    forked = Job(tmp_path / "forked")
    forked.run(distinct(), "k", restore=str(tmp_path / "savepoint"), job="forked")
    assert forked.rows() == [("d", 3, 2)]


@pytest.mark.soak  # with rows held back, too: test_alignment.py
def test_restore_by_id_goes_back_and_leaves_the_checkpoints_behind_it(
    ckpt: Any, source: Input, job: Job, tmp_path: Path
) -> None:
    job.run(totals(source, ckpt), "k")
    first = folder(tmp_path).completed()[-1].checkpoint
    source.add(("a", 4))
    job.run(totals(source, ckpt), "k")  # the same Spark location goes on where it was
    assert job.rows() == SECOND
    # The sink keeps what was committed; the state goes back, and the third file is read again.
    job.run(totals(source, ckpt), "k", restore=str(first), checkpointLocation=str(tmp_path / "back"))
    assert job.rows() == SECOND
    url, version = folder(tmp_path).state_table("totals")
    table = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(url, version=version))
    rows = table.execute("select k, n, total from t order by k").read_all()
    assert [tuple(r.values()) for r in rows.to_struct_array().to_pylist()] == SECOND


def test_a_missing_checkpoint_is_refused_and_restore_none_is_the_explicit_fresh_start(
    ckpt: Any, source: Input, job: Job, tmp_path: Path
) -> None:
    job.run(totals(source, ckpt), "k")
    with pytest.raises(ConfigError, match="expected one of the job's checkpoints"):
        job.start(totals(source, ckpt), "k", restore="999", checkpointLocation=str(tmp_path / "x"))
    with pytest.raises(InvalidInputError, match="savepoint"):
        job.start(totals(source, ckpt), "k", restore=str(tmp_path / "none"), checkpointLocation=str(tmp_path / "x"))
    fresh = Job(tmp_path / "fresh")
    fresh.run(totals(source, ckpt), "k", restore="none", checkpointLocation=str(tmp_path / "fresh-location"))
    assert fresh.rows() == FIRST
    ids = [c.checkpoint for c in folder(tmp_path).completed()]
    assert ids == sorted(set(ids)), "ids are never used twice"


def test_an_aggregate_that_became_another_does_not_go_on_from_its_state(
    ckpt: Any, source: Input, job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def keyed(uid: str = "totals", **aggregates: Any) -> Any:
        return source.stream(ckpt).groupBy("k").aggregate(**aggregates).uid(uid)

    highest = keyed(high=agg.max("v"))
    savepoint = str(tmp_path / "savepoint")
    query = job.start(highest, "k", now=False)
    wait_until(lambda: query.lastProgress and query.lastProgress["batchId"] >= 1, query)
    query.stop(savepoint=savepoint)
    elsewhere = {"checkpointLocation": str(tmp_path / "elsewhere")}
    entrances: list[dict[str, str]] = [{}, elsewhere, {**elsewhere, "restore": "1"}, {"job": "b", "restore": savepoint}]
    for options in entrances:
        with pytest.raises(TopologyError, match=r"'totals': max\(v\) .* goes and min\(v\) .* comes, both for 'high'"):
            job.start(keyed(high=agg.min("v")), "k", **options)
    # What only has another name goes on, and so do the ways out that the messages name.
    source.add(("a", 1))
    renamed = Job(tmp_path / "renamed")
    renamed.run(keyed(top=agg.max("v")), "k", checkpointLocation=str(tmp_path / "renamed-location"))
    assert renamed.rows() == [("a", 2)]
    source.add(("a", 7))
    ckpt.migrate("totals").begin_empty("min(v)")
    # Another uid for the sink, as its target lacks what went to the other one meanwhile.
    job.run(keyed(high=agg.min("v")), "k", **elsewhere, uid="back")
    assert job.rows() == [("a", 7), ("b", 10), ("c", 100)]
    assert "could not be compared" not in caplog.text


def test_a_job_of_a_version_that_did_not_record_what_state_is_made_of_goes_on(
    ckpt: Any, source: Input, job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job.run(totals(source, ckpt), "k")
    records = RecordStore(str(tmp_path / "jobs/job"))
    for kind in ("checkpoint", "generation"):
        for name in records.names(f"{kind}s"):
            record = records.read(f"{kind}s/{name}", kind)
            assert record is not None
            for part in ("made_of", "timeout"):
                del record["topology"]["operators"]["totals"][part]
            records.replace(f"{kind}s/{name}", kind, record)
    source.add(("a", 4))
    job.run(totals(source, ckpt), "k", checkpointLocation=str(tmp_path / "elsewhere"))
    assert job.rows() == SECOND
    assert "state of totals was written by a version" in caplog.text


@pytest.mark.smoke
def test_a_savepoint_outlives_the_job_and_starts_another_one(
    ckpt: Any, source: Input, job: Job, tmp_path: Path
) -> None:
    query = job.start(totals(source, ckpt), "k", now=False)
    wait_until(lambda: query.lastProgress and query.lastProgress["batchId"] >= 1, query)
    savepoint = tmp_path / "savepoints/before"
    query.savepoint(str(savepoint))
    query.stop()
    shutil.rmtree(tmp_path / "jobs")
    table = deltalake.DeltaTable(str(savepoint / "state/totals"))
    assert sorted(table.to_pyarrow_table().select(["k", "n", "total"]).to_pylist(), key=lambda r: r["k"]) == [
        dict(zip(("k", "n", "total"), row, strict=True)) for row in FIRST
    ]
    source.add(("a", 4))
    forked = Job(tmp_path / "forked")
    forked.run(totals(source, ckpt), "k", restore=str(savepoint), job="forked")
    assert forked.rows() == [("a", 3, 7)]
    shutil.rmtree(savepoint)
    source.add(("b", 1))
    forked.run(totals(source, ckpt), "k", job="forked", checkpointLocation=str(tmp_path / "again"))
    assert forked.rows() == [("a", 3, 7), ("b", 2, 11)]


def test_stop_with_savepoint_processes_nothing_behind_its_barrier(
    ckpt: Any, source: Input, job: Job, tmp_path: Path
) -> None:
    query = job.start(totals(source, ckpt), "k", now=False)
    wait_until(lambda: query.lastProgress and query.lastProgress["batchId"] >= 1, query)
    savepoint = tmp_path / "stopped"
    checkpoint = query.stop(savepoint=str(savepoint))
    assert not query.isActive
    assert job.rows() == FIRST
    source.add(("a", 4))
    record = folder(tmp_path).show(checkpoint)
    assert record.kind == "savepoint"
    restored = Job(tmp_path / "restored")
    restored.run(totals(source, ckpt), "k", restore=str(savepoint), job="restored")
    assert restored.rows() == [("a", 3, 7)], "exactly what came behind the barrier"


def test_a_savepoint_into_a_used_folder_is_refused_and_the_job_goes_on(
    ckpt: Any, source: Input, job: Job, tmp_path: Path
) -> None:
    nightly = {"savepoint.every": "1d", "savepoint.dir": str(tmp_path / "nightly"), "interval": "1s"}
    query = job.start(totals(source, ckpt), "k", now=False, **nightly)
    target = str(tmp_path / "taken")
    query.savepoint(target)
    with pytest.raises(InvalidInputError, match="already holds another savepoint"):
        query.savepoint(target)
    assert query.isActive
    source.add(("a", 4))
    query.checkpoint()
    wait_until(lambda: [s for s in spark_ckpt.savepoints(nightly["savepoint.dir"]) if s.summary()["complete"]], query)
    query.stop()
    assert job.rows() == SECOND
    (scheduled,) = spark_ckpt.savepoints(nightly["savepoint.dir"])
    assert (scheduled.summary()["job"], scheduled.verify()) == ("job", [])


def test_retention_delete_removes_the_checkpoints_of_a_query_that_is_stopped_on_purpose(
    ckpt: Any, source: Input, job: Job, tmp_path: Path
) -> None:
    query = job.start(totals(source, ckpt), "k", now=False, retention="delete")
    query.checkpoint()
    query.stop(savepoint=str(tmp_path / "kept"))
    assert folder(tmp_path).completed() == []
    assert (tmp_path / "kept/savepoint.json").exists()
