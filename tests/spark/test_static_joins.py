"""Behind a join with a static DataFrame: columns of one name, told apart by ``stream["k"]``, ``static["k"]``, alias."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples.payments.job import merchants_table
from tests.spark.conftest import Input, Job, ordered, wait_until


def _static(df: Any) -> Any:
    spark = df.sparkSession
    return spark.createDataFrame([("a", "A", 1), ("b", "B", 2), (None, "none", 3)], "k string, word string, n int")


def _inner(a: Any) -> Any:
    x = _static(a)
    return a.join(x, a["k"] == x["k"]).select(a["id"], F.concat(a["k"], "word", x["k"]))


def _left(a: Any) -> Any:
    x = _static(a)
    made = a.join(x, a["k"] == x["k"], "left").where(a["n"] > 0).withColumn("m", a["n"] * 10 + F.coalesce(x["n"], "n0"))
    return made.drop(a["n"]).select("id", F.concat_ws("-", a["k"], "m", "n"))


def _by_alias(a: Any) -> Any:
    made = a.alias("a").join(_static(a).alias("x"), F.expr("a.k = x.k AND x.n < a.n"))
    return made.withColumn("both", F.concat("a.k", "x.word")).select("a.id", F.concat("both", "x.n"))


def _twice(a: Any) -> Any:
    x, y = _static(a), _static(a)
    made = a.join(x, a["k"] == x["k"]).join(y, a["n"] == y["n"], "left")
    return made.select("id", F.concat_ws("-", a["n"], x["word"], y["word"], a["k"]))


KINDS: list[Callable[[Any], Any]] = [_inner, _left, _by_alias, _twice]


def _all(a: Any) -> Any:
    made = [kind(a).toDF("id", "found").withColumn("kind", F.lit(kind.__name__)) for kind in KINDS]
    return reduce(lambda one, two: one.union(two), made)


@pytest.mark.soak
def test_columns_of_one_name_are_told_apart_as_in_spark(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input], job: Job
) -> None:
    data = new_input("in", "id long, k string, n int, n0 int")
    data.add((1, "a", 1, 0), (2, "b", 5, 0), (3, None, 2, 0), (4, "c", 3, 7))
    data.add((5, "a", 2, 0), (6, "b", 0, 0))
    expected = ordered(map(tuple, _all(data.table(spark)).collect()))
    assert {kind for *_, kind in expected} == {kind.__name__ for kind in KINDS}
    job.run(_all(data.stream(ckpt)))
    assert job.rows() == expected


def _chosen(chance: random.Random) -> Callable[[Any], Any]:
    """Two joins by names, and what is told by alias behind them, by a star or a key that the join hides."""
    early, late = chance.choice([None, F.coalesce("k", F.lit("b"))]), chance.choice([None, F.lit("B"), F.upper("k")])
    hows = [chance.choice(["inner", "left", "left", "left_semi"]), chance.choice(["inner", "left", "left_anti"])]
    has_word = late is not None or hows[0] != "left_semi"
    key, again = chance.choice(["k", "early", "word" if has_word else "k"]), chance.random() < 0.3
    known = [
        "a",
        *("x" for _ in hows[:1] if hows[0] != "left_semi"),
        *("y" for _ in hows[1:] if hows[1] != "left_anti"),
    ]
    if again:
        known = ["b", *known[-1:]] if known[-1] == "y" else ["b"]
    stars = [f"{name}.*" for name in known]
    wanted = chance.sample([*stars, *stars, F.struct(stars[0]).alias("all"), f"{known[-1]}.k"], 3)

    def made(a: Any) -> Any:
        rows = a.withColumn("early", F.col("k") if early is None else early).alias("a")
        rows = rows.join(_static(a).withColumnRenamed("n", "m").alias("x"), "k", hows[0])
        rows = rows if late is None else rows.withColumn("word", late)
        rows = rows.alias("b") if again else rows
        return rows.join(_static(a).withColumn("early", F.col("k")).alias("y"), key, hows[1]).select(*wanted)

    return made


def _texts(made: Any) -> Any:
    names = [f"c{i}" for i in range(len(made.columns))]
    return made.toDF(*names).select(F.to_json(F.struct(*names)).alias("row"))


SOAK = pytest.mark.soak


@pytest.mark.parametrize("seeds", [range(2), *[pytest.param(range(n, n + 10), marks=SOAK) for n in range(2, 92, 10)]])
def test_a_star_behind_joins_has_the_columns_that_it_has_in_spark(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input], job: Job, seeds: range
) -> None:
    data = new_input("in", "id long, k string, n int, n0 int")
    data.add((1, "a", 1, 0), (2, "b", 5, 0), (3, None, 2, 0), (4, "c", 3, 7))
    ours, expected = [], []
    for seed in seeds:
        plain, made = (_chosen(random.Random(seed))(rows) for rows in (data.table(spark), data.stream(ckpt)))
        assert made.columns == plain.columns, seed
        ours.append(_texts(made).withColumn("seed", F.lit(seed)))
        expected += [(text, seed) for (text,) in _texts(plain).collect()]
    job.run(reduce(lambda one, two: one.union(two), ours))
    assert job.rows() == ordered(expected)


def _by_key(a: Any) -> Any:
    x = _static(a)
    made = a.join(x, a["k"] == x["k"], "left").groupBy(a["k"])
    return made.agg(F.sum(a["n"] * 10 + F.coalesce(x["n"], F.lit(0))), F.max(x["k"]))


def _by_key_of_table(a: Any) -> Any:
    made = a.alias("a").join(_static(a).alias("x"), F.expr("a.n >= x.n")).groupBy("x.k")
    return made.agg(F.count("a.k"), F.max("x.n").cast("string"))


def _by_another(a: Any) -> Any:
    made = a.join(_static(a), F.expr("id < 9"))
    return made.groupBy("word").agg({"id": "max"}).withColumn("none", F.lit("none"))


def _same_twice(a: Any) -> Any:
    return a.select("k", "k", "n", F.col("n0").alias("N")).groupBy("k").agg(F.count("*"), F.lit("none"))


def _behind_two(a: Any) -> Any:
    made = a.alias("a").join(_static(a).alias("x"), F.expr("a.k = x.k"))
    return made.join(_static(a).alias("d"), F.expr("x.n = d.n"))


def _by_key_of_second(a: Any) -> Any:
    return _behind_two(a).groupBy("d.k").agg(F.sum("a.n"), F.max("d.word"))


def _by_window(a: Any) -> Any:
    sums = _behind_two(a.withColumn("t", F.timestamp_seconds(F.col("id") * 1000))).groupBy(
        F.window("a.t", "1 hour"), "a.k"
    )
    made = sums.agg(F.sum("a.n"), F.max("d.word"))
    return made.select(F.concat_ws(" ", "k", "window.start"), "sum(n)", "max(word)")


GROUPS: list[Callable[[Any], Any]] = [
    _by_key,
    _by_key_of_table,
    _by_another,
    _same_twice,
    _by_key_of_second,
    _by_window,
]


@pytest.mark.soak
def test_groups_are_told_apart_where_names_come_twice(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input], job: Job
) -> None:
    def every(a: Any) -> Any:
        made = [kind(a).toDF("key", "found", "more").withColumn("kind", F.lit(kind.__name__)) for kind in GROUPS]
        return reduce(lambda one, two: one.union(two), made)

    data = new_input("in", "id long, k string, n int, n0 int")
    data.add((1, "a", 1, 0), (2, "b", 5, 0), (3, None, 2, 0), (4, "c", 3, 7))
    data.add((5, "a", 2, 0), (6, "b", 0, 0))
    job.run(every(data.stream(ckpt)), "kind,key", mode="update")
    assert job.rows() == ordered(map(tuple, every(data.table(spark)).collect()))
    joined = data.stream(ckpt).join(_static(data.stream(ckpt)), F.expr("id < 9"))
    with pytest.raises(AnalysisException, match="AMBIGUOUS"):
        joined.groupBy("k").count()
    with pytest.raises(AnalysisException, match="AMBIGUOUS"):
        joined.groupBy("word").agg(F.max("k"))


def test_each_batch_reads_a_static_table_that_python_reads_anew(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input], job: Job, tmp_path: Path
) -> None:
    def write(category: str) -> None:
        table = pa.table({"merchant": pa.array([1, 2], pa.int32()), "category": [category, None]})
        write_deltalake(str(tmp_path / "merchants"), table, mode="overwrite")

    write("food")
    data = new_input("in", "id long, merchant int")
    data.add((1, 1), (2, 2), (3, 3))
    merchants = merchants_table(spark, str(tmp_path))
    newest = merchants.select(F.max("category")).scalar()
    joined = data.stream(ckpt).join(merchants, "merchant").select("id", "category", newest)
    spark.conf.set("spark.ckpt.interval", "1ms")
    spark.conf.set("spark.ckpt.initialDelay", "0s")
    query = job.start(joined, now=False)
    wait_until(lambda: len(job.rows()) == 2, query)
    write("fuel")
    data.add((4, 1), (5, 2))
    wait_until(lambda: len(job.rows()) == 4, query)
    query.stop()
    food, fuel = "food", "fuel"
    assert job.rows() == ordered([(1, food, food), (2, None, food), (4, fuel, fuel), (5, None, fuel)])
