"""State that a start writes anew: by a function over the old rows, or for another number of key groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt import agg, faults
from spark_ckpt.api._migrations import Migrations
from spark_ckpt.errors import InvalidInputError, ProtocolBugError, TopologyError
from spark_ckpt.storage.run_files import encode_run_file
from tests.spark.conftest import Input, Job

NewInput = Callable[[str, str], Input]
ROWS = [("x1", 1, 0.5), ("x2", 2, 0.5), ("y1", 4, 1.0), ("y2", 8, 1.0), ("y2", 16, 2.0), (None, 32, 4.0)]


@pytest.fixture
def source(new_input: NewInput) -> Input:
    return new_input("input", "k string, v long, w double")


def totals(source: Input, ckpt: Any, key: str = "k", uid: str = "totals", rows: Any = None) -> Any:
    rows = (source.stream(ckpt) if rows is None else rows).withColumn("k", F.expr(key))
    return rows.groupBy("k").aggregate(n=agg.count(), total=agg.sum("v")).uid(uid)


def folder(tmp_path: Path) -> spark_ckpt.Job:
    return spark_ckpt.job(str(tmp_path / "jobs"), "job")


def state(tmp_path: Path, uid: str = "totals") -> list[tuple[Any, ...]]:
    found = folder(tmp_path).state(uid).arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def began(source: Input, ckpt: Any, job: Job) -> None:
    source.add(*ROWS)
    job.run(totals(source, ckpt), "k")


def by_letter(old: DataFrame) -> DataFrame:
    return old.groupBy(F.substring("k", 1, 1).alias("k")).agg(F.sum("n").alias("n"), F.sum("total").alias("total"))


def test_keys_are_merged_by_a_function_once_and_rows_that_come_find_them(
    ckpt: Any, source: Input, job: Job, tmp_path: Path, caplog: Any
) -> None:
    began(source, ckpt, job)
    merged, query = [("x", 2, 3), ("y", 3, 28), (None, 1, 32)], totals(source, ckpt, "substr(k, 1, 1)")
    ckpt.migrate("totals").by(by_letter)
    told = str(ckpt.plan_restore(query, "job", outputMode="update"))
    assert (
        "operator totals  migrated: written anew by by_letter, in one pass at the start, from 5 keys of 'totals'"
        in told
    )
    job.run(query, "k")
    assert state(tmp_path) == merged
    assert "the state of 'totals' was written anew by by_letter: 3 rows of 5. This is done once" in caplog.text
    for added in (100, 1000):  # the line stays beside the query
        source.add(("x7", added, 0.0), ("z1", added, 0.0))
        job.run(query, "k")
    assert state(tmp_path) == [("x", 4, 1103), ("y", 3, 28), ("z", 2, 1100), (None, 1, 32)]
    assert caplog.text.count("was written anew") == 1
    assert spark_ckpt.job(str(tmp_path / "jobs"), "job").verify() == []


def test_sql_retypes_a_key_and_another_aggregate_begins_with_what_it_says(
    ckpt: Any, source: Input, job: Job, tmp_path: Path
) -> None:
    began(source, ckpt, job)
    rows = source.stream(ckpt).selectExpr("CAST(length(k) AS INT) AS size", "v", "w")
    query = rows.groupBy("size").agg(F.sum("v").alias("total"), F.max("w").alias("most")).uid("totals")
    sized = Job(tmp_path / "sized")
    with pytest.raises(TopologyError, match="the key schema changed"):
        sized.start(query, "size", mode="update")
    before = state(tmp_path)
    lengths = "WITH longer AS (SELECT length(k) AS size, total FROM state) SELECT size, {} FROM longer{}"
    ckpt.migrate("totals").sql(lengths.format("total AS sum_v, CAST(0 AS DOUBLE) AS max_w", ""), name="twice")
    with pytest.raises(InvalidInputError, match=r"expected one row for each key \(size\), found 3 more rows"):
        sized.start(query, "size", mode="update")
    assert state(tmp_path) == before
    ckpt.migrations = Migrations()
    ckpt.migrate("totals").sql(lengths.format("sum(total) AS sum_v, CAST(9 AS DOUBLE) AS max_w", " GROUP BY size"))
    source.add(("zz", 100, 0.5))
    sized.run(query, "size", mode="update")
    assert sized.rows() == [(2, 131, 9.0)]
    assert state(tmp_path) == [(2, 9.0, 131), (None, 9.0, 32)]


def test_the_checkpoint_that_was_written_anew_is_whole_when_the_one_it_was_made_of_is_dropped(
    ckpt: Any, source: Input, job: Job, tmp_path: Path
) -> None:
    """With the state of an operator that was not written anew."""

    def query(key: str) -> Any:
        rows = source.stream(ckpt)
        return totals(source, ckpt, key, rows=rows).union(totals(source, ckpt, "k", "kept", rows))

    source.add(*ROWS)
    job.run(query("k"), "k")
    before = state(tmp_path, "kept")
    ckpt.migrate("totals").by(by_letter)
    source.add(("x1", 100, 0.0))
    job.run(query("substr(k, 1, 1)"), "k", retain="2")
    assert [c.checkpoint for c in folder(tmp_path).completed()] == [2, 3]
    assert folder(tmp_path).verify() == []
    found = folder(tmp_path).state("kept", checkpoint=2).arrow().to_pylist()
    assert sorted((tuple(row.values()) for row in found), key=repr) == before


STOPPED_IN_SHORT = "rewritten checkpoint recorded"
"""Of the three, the one behind which a checkpoint is there. The simulation stops a start at each (_rewriting.py)."""


@pytest.mark.parametrize(
    "place",
    [
        p if p == STOPPED_IN_SHORT else pytest.param(p, marks=pytest.mark.soak)
        for p in ("state written anew", STOPPED_IN_SHORT, "after RewriteState")
    ],
)
def test_a_start_that_is_stopped_in_the_pass_leaves_the_job_as_it_was_and_the_next_does_it(
    ckpt: Any, source: Input, job: Job, tmp_path: Path, place: str
) -> None:
    def stop(reached: str) -> None:
        if reached == place:
            raise KeyboardInterrupt

    began(source, ckpt, job)
    before = state(tmp_path)
    ckpt.migrate("totals").by(by_letter)
    with faults.heard_by(stop), pytest.raises(KeyboardInterrupt):
        job.start(totals(source, ckpt, "substr(k, 1, 1)"), "k")
    spark_ckpt.job(str(tmp_path / "jobs"), "job").gc(min_age_s=0, force=True)
    source.add(("x7", 100, 0.0))
    job.run(totals(source, ckpt, "substr(k, 1, 1)"), "k")
    assert state(tmp_path) == [("x", 3, 103), ("y", 3, 28), (None, 1, 32)]
    assert len(before) == 5


def test_state_is_hashed_anew_for_another_number_of_key_groups_and_the_new_number_stays(
    ckpt: Any, source: Input, job: Job, tmp_path: Path
) -> None:
    """Also of rows that an operator keeps beside its own."""

    def query() -> Any:
        return source.stream(ckpt).groupBy("k").aggregate(n=agg.count(), kinds=agg.count_distinct("w")).uid("totals")

    source.add(*ROWS)
    job.run(query(), "k")
    (family,) = (t for t in folder(tmp_path).completed()[-1].tables if t != "totals")
    before = state(tmp_path), state(tmp_path, family)
    with pytest.raises(TopologyError, match=r"maxParallelism=4, or write `ckpt.rescale\(\)` beside the query"):
        job.start(query(), "k", maxParallelism="7")
    ckpt.rescale()
    job.run(query(), "k", maxParallelism="7")
    assert (state(tmp_path), state(tmp_path, family)) == before
    found = ckpt.state("totals")
    assert [found.get(row[0]) for row in before[0]] == [
        [dict(zip(found.schema.names, r, strict=True))] for r in before[0]
    ]
    source.add(("x1", 100, 0.5), ("y2", 1, 0.5), ("new", 1, 0.0))
    job.run(query(), "k", maxParallelism="7")
    assert job.rows() == [("new", 1, 1), ("x1", 2, 1), ("x2", 1, 1), ("y1", 1, 1), ("y2", 3, 3), (None, 1, 1)]


@pytest.mark.parametrize("harm", ["a value", pytest.param("a key", marks=pytest.mark.soak)])
def test_state_that_is_not_what_it_was_behind_the_hash_is_refused_and_the_old_one_goes_on(
    ckpt: Any, source: Input, job: Job, tmp_path: Path, harm: str
) -> None:
    """As many rows as before, of which one is another."""

    def change(reached: str) -> None:
        if reached != "state hashed anew":
            return
        file = min((tmp_path / "jobs/job/state/totals").glob("e0000000002-*.parquet"))
        rows = pq.read_table(file).to_pylist()
        rows[0] |= {"k": "lost"} if harm == "a key" else {"total": rows[0]["total"] + 1}
        file.write_bytes(encode_run_file(pa.Table.from_pylist(rows, schema=pq.read_schema(file))))

    began(source, ckpt, job)
    before = state(tmp_path)
    ckpt.rescale()
    told = r"expected the rows that it had, 5 rows, .* found 5 rows"
    with faults.heard_by(change), pytest.raises(ProtocolBugError, match=told):
        job.start(totals(source, ckpt), "k", maxParallelism="7")
    assert state(tmp_path) == before
    ckpt.migrations = Migrations()
    source.add(("x1", 100, 0.0))
    job.run(totals(source, ckpt), "k")
    assert state(tmp_path)[0] == ("x1", 2, 101)


def test_an_operator_becomes_two_and_two_become_one(ckpt: Any, source: Input, job: Job, tmp_path: Path) -> None:
    def two() -> Any:
        rows = source.stream(ckpt)  # one source
        few = totals(source, ckpt, "IF(k LIKE 'x%', k, 'x')", "exes", rows)
        return few.union(totals(source, ckpt, "IF(k LIKE 'y%', k, 'y')", "whys", rows))

    began(source, ckpt, job)
    before = state(tmp_path)
    for uid, letter in (("exes", "x"), ("whys", "y")):
        ckpt.migrate(uid).by(lambda old, letter=letter: old.where(f"k LIKE '{letter}%'"), of="totals", name="split")
    job.run(two(), "k")
    assert (state(tmp_path, "exes"), state(tmp_path, "whys")) == (before[:2], before[2:4])
    ckpt.migrate("whole").by(lambda exes, whys: exes.union(whys), of=["exes", "whys"], name="merged")
    for _ in range(2):
        source.add(("x1", 100, 0.0))
        job.run(totals(source, ckpt, uid="whole"), "k")
    assert state(tmp_path, "whole") == [("x1", 3, 201), *before[1:4]]
