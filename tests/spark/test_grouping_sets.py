"""``cube``, ``rollup`` and ``groupingSets``, beside Spark's own streams over the same files; and samples."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_ckpt.errors import InvalidInputError
from tests.spark.conftest import Input, Job, batches_of_spark, last_result, named, ordered
from tests.spark.test_window_columns import BASE, _flat
from tests.spark.test_window_columns import SCHEMA as WINDOWED

NewInput = Callable[[str, str], Input]
SCHEMA = "k string, region string, v int"


def _cube(df: Any) -> Any:
    """Keys inside of aggregates are what they were; outside of them null where their set is without them."""
    return named(df.cube("k", F.col("Region"), (F.col("v") % 2).alias("odd")).agg(
        F.sum("v"), F.count("k").alias("ks"), F.min("region"), F.max(F.expr("concat(k, region)")),
        F.grouping("REGION"), F.grouping_id(), (F.grouping("k") * 10 + F.count("*")).alias("x"),
        F.coalesce("k", F.when(F.grouping("k") == 1, "all").otherwise("none")).alias("shown"),
    ), "cube")  # fmt: skip


def _renamed(df: Any) -> Any:
    """Keys with names of other columns, and what is the same key, within aggregates and outside; earlier results."""
    up, pairs = F.upper("k").alias("region"), F.when(F.col("k").isNotNull(), F.create_map("k", "v"))
    keys = [F.col("v").alias("k"), up, F.upper("k").alias("again"), pairs.alias("pairs")]
    results = [F.max("region"), F.sum("v").alias("total"), F.coalesce(F.upper("k"), F.lit("none")), F.grouping("v")]
    more = [
        F.grouping(F.upper("k")),
        F.expr("grouping_id()"),
        (F.col("total") + 1).alias("more"),
        F.concat("again", "again"),
    ]
    return named(df.cube(*keys).agg(*results, *more), "renamed").withColumn("pairs", F.to_json("pairs"))


def _of_literals(df: Any) -> Any:
    """Of which Spark knows that they are never null."""
    rows = df.select(F.lit(5).alias("e"), F.explode(F.array("k", "region")).alias("k"))
    return named(rows.cube("e", "k", F.col("e") + 1).agg(F.min("k").alias("least"), F.max("e")), "of_literals")


def _none(df: Any) -> Any:
    return named(df.rollup().agg(F.count("*").alias("n"), F.grouping_id(), F.max("k")), "none")


def _keys_alone(df: Any) -> Any:
    return named(df.cube("k", "v").agg({}), "keys_alone")


def _rollup(df: Any) -> Any:
    return named(df.rollup("region", "k").count(), "rollup").where("count > 1")


def _sets(df: Any) -> Any:
    sets: list[list[Any]] = [["k"], ["region"], [], ["k"]]
    return named(df.groupingSets(sets, "k", "region").agg({"v": "max", "*": "count"}), "sets")


def _of_windows(df: Any) -> Any:
    """They end, and sets without them never do."""
    window = F.window("t", "10 minutes", "5 minutes")
    late = df.withWatermark("t", "1 minute").cube(window, "k")
    results = [F.count("*").alias("n"), F.grouping("window"), F.max("window.end").alias("m"), F.sum("v")]
    results.append(F.count_if(F.minute(window.start) > 10).alias("behind"))
    return named(late.agg(*results), "of_windows")


def _of_earlier_windows(df: Any) -> Any:
    windows = df.withWatermark("t", "1 minute").select("k", F.window("t", "10 minutes"))
    return named(windows.rollup("k", "window").count(), "of_earlier_windows")


def _within_a_set(df: Any) -> Any:
    window = F.window("t", "10 minutes")
    keys = (window.start.alias("from"), "k")
    return named(
        df.groupingSets([[window.start.alias("from"), F.col("k")], ["k"]], *keys).agg(F.sum("v")), "within_a_set"
    )


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["append", "update", "complete"])
@pytest.mark.parametrize("query", [_of_windows, _of_earlier_windows, _within_a_set])
def test_sets_of_windows_are_those_of_spark(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, query: Any, mode: str
) -> None:
    if query is _within_a_set and mode == "append":
        pytest.skip("its groups never end")
    made = new_input("in", WINDOWED)
    theirs: list[Any] = []
    for minutes in ((0, 4, 7), (31, 12, 59), (3, 90, 91)):
        made.add(*((BASE + timedelta(minutes=m), "ab"[m % 2], m) for m in minutes), (None, "a", 0), (BASE, None, 1))
        job.run(query(made.stream(ckpt)), mode=mode)
        plain = query(made.spark_stream(spark))
        batches = batches_of_spark(plain, tmp_path / "plain", mode)
        theirs = batches[-1] if mode == "complete" else [*theirs, *(row for batch in batches for row in batch)]
    assert query(made.stream(ckpt)).schema.simpleString() == plain.schema.simpleString()
    assert len(theirs) > 4
    assert _flat(job.rows()) == _flat(row.asDict(recursive=True).values() for row in theirs)


@pytest.mark.parametrize(
    "query",
    [
        _of_literals,
        *(pytest.param(q, marks=pytest.mark.soak) for q in (_renamed, _cube, _rollup, _sets, _none, _keys_alone)),
    ],
)
@pytest.mark.soak
def test_each_set_of_keys_has_the_rows_that_spark_gives_it(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, query: Any
) -> None:
    made = new_input("in", SCHEMA)
    made.add(("a", "north", 1), ("a", None, 2), (None, "north", 3), ("b", "south", None))
    made.add(("a", "north", 4), (None, None, 5), ("b", "south", 7))
    ours, plain = query(made.stream(ckpt)), query(made.spark_stream(spark))
    assert ours.schema.simpleString() == plain.schema.simpleString()
    job.run(ours, mode="complete")
    theirs = ordered(last_result(plain, tmp_path / "plain"))
    assert len(theirs) > (0 if query is _none else 4)
    assert job.rows() == theirs


def test_what_has_no_sets_is_refused(ckpt: Any, new_input: NewInput) -> None:
    rows = new_input("in", "t timestamp, k string, v int").stream(ckpt)
    for wrong, said in (
        (
            lambda: ckpt.check(rows.cube(F.session_window("t", "1 hour"), "k").count(), "complete"),
            r"cube, rollup .* of session windows.*groupBy\(F.session_window",
        ),
        (lambda: rows.cube(F.window("t", "1 hour"), F.window("t", "2 hours").end).count(), "cartesian product"),
        (lambda: rows.cube(F.upper("k").alias("up")).agg(F.grouping("up")), "(?i)grouping"),
        (lambda: rows.cube("k").agg(F.sum("x")), "UNRESOLVED_COLUMN"),
        (lambda: rows.cube("k").agg(F.grouping("v")), "(?i)grouping"),
    ):
        with pytest.raises((InvalidInputError, AnalysisException), match=said):
            wrong()


def test_samples_and_columns_by_a_schema_are_those_of_spark(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput
) -> None:
    made = new_input("in", SCHEMA)
    made.add(*(("abc"[i % 3], "north", i) for i in range(300)), (None, "south", 300))
    rows = made.stream(ckpt)
    assert repr(rows) == repr(made.spark_stream(spark)) == "DataFrame[k: string, region: string, v: int]"
    job.run(rows.sampleBy("k", {"a": 1.0, "b": 0.5, 7: 1.0}, 3).to(StructType.fromDDL("v bigint, k string, x date")))
    counted = {k: sum(1 for _, key, _ in job.rows() if key == k) for k in ("a", "b", "c", None)}
    assert (counted["a"], counted["c"], counted[None]) == (100, 0, 0)
    assert 20 < counted["b"] < 80
    assert {(type(v), x) for v, _, x in job.rows()} == {(int, None)}
    for wrong, said in (
        (lambda: rows.stat.sampleBy("k", {"a": 1.5}), "Fractions must be in"),
        (lambda: rows.stat.corr("v", "v"), "Queries with streaming sources"),
    ):
        with pytest.raises(Exception, match=said):
            wrong()
