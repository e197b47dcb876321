"""Savepoints that are made of DataFrames: a start goes on from them as from any other."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt import agg, faults
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.state_writing import hashed_rows
from spark_ckpt.runtime.state_writing import ROUTE, HashRows
from spark_ckpt.spark_versions.arrow_schemas import to_arrow_schema
from spark_ckpt.state.lsm.layout import StateLayout
from spark_ckpt.state.lsm.written_rows import WrittenRows
from spark_ckpt.state.subtasks import Subtasks
from spark_ckpt.types import KEY_HASH
from tests.spark.conftest import Input, Job

NewInput = Callable[[str, str], Input]
SCHEMA = "k string, v long"
TOTALS = "k string, n long, total long"


@pytest.fixture
def source(new_input: NewInput) -> Input:
    return new_input("input", SCHEMA)


def totals(source: Input, ckpt: Any) -> Any:
    return source.stream(ckpt).groupBy("k").aggregate(n=agg.count(), total=agg.sum("v")).uid("totals")


def rows_of(savepoint: Any, uid: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(r.values()) for r in savepoint.state(uid).arrow().to_pylist()), key=repr)


def folder(tmp_path: Path) -> spark_ckpt.Job:
    return spark_ckpt.job(str(tmp_path / "jobs"), "job")


@pytest.fixture
def taken(ckpt: Any, source: Input, job: Job, tmp_path: Path) -> Any:
    """A savepoint of a job that read a file."""
    source.add(("a", 1), ("b", 10), (None, 5), ("a", 2))
    job.run(totals(source, ckpt), "k")
    folder(tmp_path).savepoint(str(tmp_path / "taken"), checkpoint=folder(tmp_path).completed()[-1].checkpoint)
    return spark_ckpt.savepoint(str(tmp_path / "taken"))


def test_spark_hashes_and_routes_rows_of_state_as_tasks_do(spark: SparkSession) -> None:
    plain = "boolean byte short int long float double string binary date timestamp timestamp_ntz"
    kinds = [*plain.split(), "decimal(10,2)", "decimal(30,4)"]
    texts = ["1", "0", "-7", "12.5", "-0.0", "NaN", "2024-02-29", "x"]
    columns = [f"try_cast(t AS {kind}) c{at}" for at, kind in enumerate(kinds)]
    rows = spark.createDataFrame([(t,) for t in [*texts, None]], "t string").selectExpr(*columns, "hash(t) value")
    keys = [f"c{at}" for at in range(len(kinds))]
    schema = to_arrow_schema(rows.schema)
    layout = StateLayout(pa.schema(list(schema)[:-1]), pa.schema([schema.field("value")]), False)
    for own, partitions in ((None, 3), (1, 3), (None, 200)):
        form, subtasks = WrittenRows(layout, 128, own), Subtasks(128, partitions)
        found = hashed_rows(rows, keys, form, subtasks).toArrow()
        tasks = HashRows(form, subtasks)(iter(rows.toArrow().combine_chunks().to_batches()))
        expected = pa.Table.from_batches(list(tasks))
        assert expected.num_rows == len(texts) + 1
        for name in (*keys, KEY_HASH, ROUTE):
            assert repr(found[name].to_pylist()) == repr(expected[name].to_pylist()), name


def test_a_job_goes_on_from_written_state_with_any_parallelism(
    spark: SparkSession, ckpt: Any, source: Input, job: Job, tmp_path: Path
) -> None:
    history = spark.range(1000).selectExpr("CAST(id AS STRING) k", "id n", "id * 2 total").repartition(3)
    written = ckpt.savepoint_writer(totals(source, ckpt)).with_operator("totals", history).write(str(tmp_path / "made"))
    assert written.verify() == []
    assert written.describe()["operators"]["totals"]["keys"] == 1000
    assert rows_of(written, "totals") == sorted(((str(i), i, 2 * i) for i in range(1000)), key=repr)
    assert written.state("totals").get("77") == [{"k": "77", "n": 77, "total": 154}]
    source.add(("77", 1), ("new", 5))
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    job.run(totals(source, ckpt), "k", spark__ckpt__restore=str(tmp_path / "made"))
    assert job.rows() == [("77", 78, 155), ("new", 1, 5)]
    assert len(rows_of(folder(tmp_path), "totals")) == 1001
    assert folder(tmp_path).verify() == []


def test_a_changed_savepoint_is_another_one_and_the_job_goes_on_at_its_offsets(
    spark: SparkSession, ckpt: Any, source: Input, job: Job, taken: Any, tmp_path: Path
) -> None:
    before = rows_of(taken, "totals")
    assert before == [("a", 2, 3), ("b", 1, 10), (None, 1, 5)]
    query = totals(source, ckpt).writeStream.format("memory").outputMode("update").queryName("job")
    writer = ckpt.savepoint_writer(query, taken)
    writer.patch("totals", spark.createDataFrame([(None, 7, 7), ("c", 1, 1)], TOTALS))
    writer.delete("totals", pa.table({"k": ["b"]}))
    made = writer.write(str(tmp_path / "made"))
    assert rows_of(made, "totals") == [("a", 2, 3), ("c", 1, 1), (None, 7, 7)]
    assert rows_of(taken, "totals") == before
    assert taken.verify() == made.verify() == []
    source.add(("a", 4), (None, 1))
    spark.conf.set("spark.ckpt.dir", str(tmp_path / "others"))
    job.run(totals(source, ckpt), "k", spark__ckpt__restore=made.path)
    assert {r for r in job.rows() if r[0] in ("a", None)} == {("a", 3, 7), (None, 8, 8)}


def test_two_parts_of_a_savepoint_merge_to_what_it_was_and_a_key_in_both_is_refused(
    spark: SparkSession, ckpt: Any, source: Input, taken: Any, tmp_path: Path
) -> None:
    query, parts = totals(source, ckpt), []
    for name, keep in (("one", "k = 'a'"), ("other", "k <> 'a' OR k IS NULL")):
        parts.append(ckpt.savepoint_writer(query, taken).split("totals", keep).write(str(tmp_path / name)))
    whole = ckpt.savepoint_writer(query, parts[0]).merge(parts[1]).write(str(tmp_path / "whole"))
    assert rows_of(whole, "totals") == rows_of(taken, "totals")
    assert whole.describe()["sources"] == taken.describe()["sources"]
    both = ckpt.savepoint_writer(query, parts[0]).merge(taken)
    with pytest.raises(InvalidInputError, match=r"'totals': expected one row for each key \(k\), found 1 more"):
        both.write(str(tmp_path / "both"))
    assert not (tmp_path / "both").exists()


def test_a_kept_table_is_copied_and_hashed_anew_for_another_number_of_key_groups(
    spark: SparkSession, ckpt: Any, source: Input, taken: Any, tmp_path: Path
) -> None:
    same = ckpt.savepoint_writer(totals(source, ckpt), taken).write(str(tmp_path / "same"))
    names = {p.name for p in (tmp_path / "taken/state/totals").glob("*.parquet")}
    assert {p.name for p in (tmp_path / "same/state/totals").glob("*.parquet")} == names
    spark.conf.set("spark.ckpt.maxParallelism", "7")
    more = ckpt.savepoint_writer(totals(source, ckpt), taken).write(str(tmp_path / "more"))
    assert more.describe()["max_parallelism"] == 7
    assert rows_of(more, "totals") == rows_of(same, "totals") == rows_of(taken, "totals")
    assert [more.state("totals").get(k) for k in ("a", "b", None)] == [
        [{"k": k, "n": n, "total": t}] for k, n, t in (("a", 2, 3), ("b", 1, 10), (None, 1, 5))
    ]


def test_what_does_not_fit_is_refused_before_anything_is_written(
    spark: SparkSession, ckpt: Any, source: Input, taken: Any, tmp_path: Path
) -> None:
    writer = ckpt.savepoint_writer(totals(source, ckpt), taken)

    def rows(schema: str) -> Any:
        return spark.createDataFrame([], schema)

    for call, told in (
        (lambda: writer.with_operator("total", rows(TOTALS)), r"no state 'total': expected one of \['totals'\]"),
        (lambda: writer.with_operator("totals", rows("k string, n long")), "missing: total"),
        (lambda: writer.with_operator("totals", rows(f"{TOTALS}, x int")), "not of it: x"),
        (lambda: writer.with_operator("totals", rows("k string, n int, total long")), r"cast\('bigint'\)"),
        (lambda: writer.with_operator("totals", totals(source, ckpt)), "found a streaming one"),
        (lambda: writer.with_operator("totals", 5), "found int"),
        (lambda: writer.split("totals", "n = 1"), r"a condition over the key columns \['k'\]"),
        (lambda: writer.delete("totals", rows("n long")), r"expected the key columns \['k'\]"),
        (lambda: writer.with_offsets("order", {}), "expected one of"),
        (lambda: writer.with_offsets("files-0", nosuchoption="1"), "nosuchoption"),
        (lambda: writer.remove_operator("total"), "expected one of"),
    ):
        with pytest.raises(InvalidInputError, match=told):
            call()
    twice = spark.createDataFrame([("x", 1, 1), ("x", 2, 2), ("y", 1, 1)], TOTALS)
    with pytest.raises(InvalidInputError, match=r"found 1 more rows for keys that have one.*groupBy\('k'\)"):
        writer.with_operator("totals", twice).write(str(tmp_path / "made"))
    assert not (tmp_path / "made").exists()
    inside = f"{ckpt.config().dir}/{taken.summary()['job']}/made"
    with pytest.raises(InvalidInputError, match="inside the job's own folder"):
        ckpt.savepoint_writer(totals(source, ckpt), taken).write(inside)


@pytest.mark.parametrize("place", ["written savepoint claimed", "written table published", "written state complete"])
def test_a_write_that_is_stopped_leaves_no_savepoint_and_the_same_calls_finish_it(
    ckpt: Any, source: Input, tmp_path: Path, place: str
) -> None:
    def writer() -> Any:
        rows = pa.table({"k": ["a", "b"], "n": [1, 2], "total": [3, 4]})
        return ckpt.savepoint_writer(totals(source, ckpt)).with_operator("totals", rows)

    def stop(reached: str) -> None:
        if reached == place:
            raise KeyboardInterrupt

    path = str(tmp_path / "made")
    with faults.heard_by(stop), pytest.raises(KeyboardInterrupt):
        writer().write(path)
    with pytest.raises(InvalidInputError, match="expected a complete savepoint"):
        spark_ckpt.savepoint(path).record()
    with pytest.raises(InvalidInputError, match="holds an unfinished savepoint"):
        writer().with_operator("totals", None).write(path)
    made = writer().write(path)
    with pytest.raises(InvalidInputError, match="holds a finished savepoint of these steps, perhaps of other rows"):
        writer().write(path)
    assert made.verify() == []
    assert rows_of(made, "totals") == [("a", 1, 3), ("b", 2, 4)]


class Rising:
    """The longest run of rising values, so that the order of rows shows."""

    def __call__(self, key: Any, frames: Any, state: Any) -> Any:
        best, run, last = state.get if state.exists else (0, 0, -1)
        for frame in frames:
            for value in frame["v"]:
                run = run + 1 if value > last else 1
                best, last = max(best, run), value
        state.update((int(best), int(run), int(last)))
        yield pd.DataFrame({"k": [key[0]], "best": [int(best)]})


BRANCHES = ("aggregates", "duplicates", "windows", "function")


def all_kinds(source: Input, ckpt: Any) -> Any:
    """Kinds of operators with state in one query; each row says which one it is of."""
    rows = source.stream(ckpt).where("v >= 0").withColumn("at", F.timestamp_seconds("v"))
    window, timed = F.window("at", "10 seconds"), rows.withWatermark("at", "10 seconds")
    fields = "best int, run int, last long"
    sums = [F.count("*").alias("n"), F.avg("v").alias("mean"), F.countDistinct("v").alias("d")]
    made = [
        rows.groupBy("k").agg(*sums).uid("aggregates").select("k", F.concat_ws(" ", "n", "mean", "d")),
        rows.dropDuplicates(["k"]).uid("duplicates").select("k", F.col("v").cast("string")),
        timed.groupBy(window, "k").agg(F.sum("v").alias("total")).uid("windows")
        .select(F.concat_ws(" ", "window.start", "k"), F.col("total").cast("string")),
        rows.groupBy("k").applyInPandasWithState(Rising(), "k string, best int", fields, "update", "NoTimeout")
        .uid("function").select("k", F.col("best").cast("string")),
    ]  # fmt: skip
    named = [df.toDF("k", "value").withColumn("kind", F.lit(kind)) for df, kind in zip(made, BRANCHES, strict=True)]
    return reduce(lambda one, other: one.unionByName(other), named)


def test_operators_that_are_bootstrapped_from_history_go_on_as_if_they_had_read_it_as_a_stream(
    spark: SparkSession, ckpt: Any, new_input: NewInput, tmp_path: Path
) -> None:
    history = [[(f"k{i % 7}", i) for i in range(50)], [(f"k{i % 5}", 50 + i) for i in range(40)]]
    history[0] += [(None, 3), ("dropped", -1)]
    after = [*[(f"k{i % 9}", 95 + i) for i in range(30)], (None, 125), ("k1", 1)]
    past, live, whole = (new_input(name, SCHEMA) for name in ("past", "live", "whole"))
    for into, files in ((past, history), (live, [after]), (whole, [*history, after])):
        for rows in files:
            into.add(*rows)
    writer = ckpt.savepoint_writer(all_kinds(live, ckpt), outputMode="update")
    for kind in BRANCHES:
        writer.bootstrap(kind, past.table(spark), orderBy="v" if kind == "function" else ())
    made = writer.write(str(tmp_path / "made"))
    assert made.verify() == []
    seen = {}
    for name, source_, options in (("live", live, {"spark.ckpt.restore": made.path}), ("whole", whole, {})):
        spark.conf.set("spark.ckpt.dir", str(tmp_path / name / "jobs"))
        job_ = Job(tmp_path / name)
        job_.run(all_kinds(source_, ckpt), "kind,k", mode="update", **options)
        seen[name] = {(kind, k): value for k, value, kind in job_.rows()}
    assert {kind for kind, _ in seen["live"]} == set(BRANCHES)
    assert seen["live"] == {key: seen["whole"][key] for key in seen["live"]}
    assert {k for kind, k in seen["live"] if kind == "duplicates"} == {"k7", "k8"}
    over = ("windows", "1969-12-31 19:00:00 k1")  # in the session's zone
    assert over in seen["whole"]
    assert over not in seen["live"], "a window that is over came out again"
