"""Without duplicates, batch for batch, as in plain Spark on the same files; and what is kept of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt import agg
from spark_ckpt.errors import InvalidInputError
from tests.spark.conftest import Input, Job, ordered, rows_of_spark

NewInput = Callable[[str, str], Input]
ROWS = "id long, k string, n int, at timestamp, xs array<double>, s struct<a:int,b:string>"
BASE = datetime(2023, 11, 5, tzinfo=timezone.utc)


def _batches(chance: random.Random, batches: int, first: int) -> list[list[tuple[Any, ...]]]:
    """The newest event time goes on by a second a batch; rows are up to five seconds older, and some are late."""
    found, number = [], 1000 * first
    for batch in range(first, first + batches):
        rows: list[tuple[Any, ...]] = []
        for _ in range(0 if chance.random() < 0.15 else 14):
            number += 1
            back = timedelta(microseconds=chance.choice([0, 1, 1_000_000, 1_500_000, chance.randrange(5_000_000)]))
            at = None if chance.random() < 0.1 else BASE + timedelta(seconds=batch) - back
            xs = chance.choice([None, [], [None], [1.5], [float("nan"), 2.0], [1.0, None]])
            s = chance.choice([None, {"a": None, "b": None}, {"a": 1, "b": "n"}, {"a": 1, "b": None}])
            rows.append((number, chance.choice(["a", "b", "c", None]), chance.randrange(3), at, xs, s))
        found.append(rows)
    return found


def _timed(df: Any) -> Any:
    return df.withWatermark("at", "1 second")


def _a_second_later() -> Any:
    """What is computed of an event time is none, so no row is late."""
    return F.col("at") + F.expr("interval 1 second")


KINDS: dict[str, Callable[..., Any]] = {
    "once": lambda df: df.dropDuplicates(["K", "n"]),
    "timed": lambda df: _timed(df).drop_duplicates(("at", "k")),
    "late": lambda df: _timed(df).dropDuplicates(["k", "n"]),
    "within": lambda df: _timed(df).dropDuplicatesWithinWatermark(["k"]),
    "nested": lambda df: df.dropDuplicates(["xs", "s"]),
    "renamed": lambda df: _timed(df).withColumnRenamed("at", "x").dropDuplicatesWithinWatermark(["k"]),
    "computed": lambda df: _timed(df).withColumn("at", _a_second_later()).dropDuplicates(["k", "n"]),
    "twice": lambda df: _timed(df).dropDuplicates(["k", "at"]).dropDuplicates(["n", "at"]),
}
SOME = ("timed", "nested")
"""In the test command; "within" is in test_distinct_stages.py."""


def _all(df: Any, kinds: Iterable[str]) -> Any:
    """All kinds beside each other, in one query."""
    made = [KINDS[name](df).select(F.lit(name).alias("kind"), "id") for name in kinds]
    return reduce(lambda one, two: one.union(two), made)


def _plain(df: Any, folder: Path) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows_of_spark(df, folder)]


RUNS = [(1, SOME, 2), *(pytest.param(seed, tuple(KINDS), 3, marks=pytest.mark.soak) for seed in range(2, 8))]


@pytest.mark.smoke
@pytest.mark.parametrize(("seed", "kinds", "lives"), RUNS)
def test_what_comes_out_is_what_comes_out_of_spark(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path, seed: int, kinds: Any, lives: int
) -> None:
    """The last life goes on at an empty location with more partitions, others where it stood."""
    chance, data, expected = random.Random(seed), new_input("in", ROWS), list[tuple[Any, ...]]()
    untimed = set[int]()
    for life in range(lives):
        last = life == lives - 1
        size = 2 if kinds == SOME else 3
        for rows in _batches(chance, size, size * life):
            data.add(*rows)
            untimed.update(row[0] for row in rows if row[3] is None)
        if last:
            data.add((-1, "z", 9, BASE + timedelta(hours=1), None, None))
        spark.conf.set("spark.sql.shuffle.partitions", 1)
        expected += _plain(_all(data.spark_stream(spark), kinds), tmp_path / "plain")
        spark.conf.set("spark.sql.shuffle.partitions", 2 if last else 1)
        options = {"checkpointLocation": str(tmp_path / str(last)), "chaining": str(not life).lower()}
        query = job.run(_all(data.stream(ckpt), kinds), **options)
    assert job.rows() == ordered(expected)
    assert {kind for kind, _ in expected} == set(kinds)
    state = {int(uid.rpartition("-")[2]): size.keys for uid, size in query.checkpoints()[-1]["state"].items()}
    for name, (_, keys) in zip(kinds, sorted(state.items()), strict=False):
        came = [i for kind, i in expected if kind == name]
        left = {"timed": [i for i in came if i == -1 or i in untimed], "within": [-1], "renamed": [-1]}.get(name, came)
        assert name == "twice" or (name, keys) == (name, len(left)), "those that the watermark passed are forgotten"


def test_what_cannot_work_is_refused_and_what_grows_is_told(
    spark: SparkSession, ckpt: Any, new_input: NewInput, caplog: pytest.LogCaptureFixture
) -> None:
    data = new_input("in", "k string, at timestamp, m map<string,int>, s struct<x:int>, c string collate UNICODE_CI")
    df = data.stream(ckpt)
    timed = df.withWatermark("at", "1 hour")
    for wrong, said in [
        (df.dropDuplicatesWithinWatermark(["k"]), "not supported on streaming .* without watermark.*withWater"),
        (df.dropDuplicates(["c"]), r"column 'c'.*cast\(\"string collate UTF8_BINARY\"\)"),
    ]:
        with pytest.raises(InvalidInputError, match=f"(?s){said}"):
            ckpt.check(wrong)
    assert not caplog.records
    df, timed = df.drop("c"), timed.drop("c")
    ckpt.check(timed.dropDuplicates(["k", "at"]))
    ckpt.check(timed.dropDuplicatesWithinWatermark(["k"]))
    assert not caplog.records
    ckpt.check(df.dropDuplicates(["k"]))
    assert "dropDuplicates keeps every key for ever, so its state grows with each new one. To forget" in caplog.text
    ckpt.check(timed.drop("m").distinct())
    ckpt.check(timed.dropDuplicates(["k"]))
    assert caplog.text.count("for ever") == 2
    assert "Have the event-time column among its columns, or use dropDuplicatesWithinWatermark" in caplog.text
    with pytest.raises(InvalidInputError, match=r"More than one event time columns .*'at', 'again'"):
        ckpt.check(timed.withColumn("again", F.col("at")).dropDuplicates(["k"]))
    # Behind a de-duplication the event time still is one.
    ckpt.check(timed.dropDuplicates(["k", "at"]).dropDuplicatesWithinWatermark(["k"]))
    with pytest.raises(InvalidInputError, match="without watermark"):
        ckpt.check(timed.groupBy("k").aggregate(n=agg.count()).dropDuplicatesWithinWatermark(["k"]))
