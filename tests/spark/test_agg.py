"""PySpark's own aggregates over a stream, beside Spark's batch result of the same expressions on the same rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt import agg
from spark_ckpt.errors import InvalidInputError, TopologyError
from tests.spark.conftest import Input, Job, ordered

NewInput = Callable[[str, str], Input]

SCHEMA = "k string, g int, a int, b double, d decimal(9,2), s string, t boolean"
FIRST = [
    ("x", 1, 1, 1.5, Decimal("1.25"), "m", True),
    ("x", 1, None, -0.0, None, None, False),
    ("y", 2, 7, math.nan, Decimal("-3.50"), "Ä", None),
    (None, 1, 4, None, Decimal("0.01"), "z", True),
]
SECOND = [
    ("x", 2, -3, 0.0, Decimal("99999.99"), "b", True),
    (None, 2, None, None, None, None, None),
    ("z", 1, 2**31 - 1, math.inf, Decimal("5.00"), "", False),
]


def _expressions() -> list[Any]:
    return [
        F.count("*").alias("n"),
        F.count("a"),
        F.expr("count(a, s)"),
        F.sum("a"),
        F.sum(F.col("a") * F.col("b")).alias("x"),
        F.sum(F.when(F.col("t"), F.col("d")).otherwise(0)).alias("chosen"),
        F.sum("d"),
        (F.sum("a") / F.nullif(F.count("b"), F.lit(0))).alias("ratio"),
        F.round(F.avg(F.col("d") + 1), 3),
        F.max("s"),
        F.min(F.lower("s")),
        F.concat(F.coalesce(F.max("s"), F.lit("?")), F.lit("!"), F.coalesce("k", F.lit("none"))).alias("text"),
        F.bool_and("t"),
        F.bool_or(F.col("a") > 3),
        F.count_if(F.col("a") > 0),
        F.expr("sum(a) filter (where b >= 0)"),
        F.expr("count(*) filter (where t)"),
        F.expr("max(b) - min(b) AS range"),
        F.stddev("a"),
        F.stddev("b").alias("deviation"),
        F.approx_count_distinct("a"),
        F.count_distinct("s"),
        F.count_distinct(F.col("a") % 2).alias("parities"),
        F.first("s", ignorenulls=True).isNull().alias("empty"),
    ]


def _both(spark: SparkSession, ckpt: Any, new_input: NewInput, query: Callable[[Any], Any]) -> tuple[Any, Any, Input]:
    """The query over a stream of two batches, and over all of it by Spark alone."""
    rows = new_input("in", SCHEMA)
    rows.add(*FIRST)
    rows.add(*SECOND)
    return query(rows.stream(ckpt)), query(rows.table(spark)), rows


def _newest(job: Job, df: Any, keys: str, **options: Any) -> list[tuple[Any, ...]]:
    job.run(df, keys, **options)
    return job.rows()


@pytest.mark.parametrize("chaining", ["true", pytest.param("false", marks=pytest.mark.soak)])
def test_every_expression_is_sparks(spark, ckpt, job, new_input, monkeypatch, chaining) -> None:  # type: ignore[no-untyped-def]
    spark.conf.set("spark.ckpt.chaining", chaining)

    def query(df: Any) -> Any:
        grouped = df.groupBy("k", (F.col("g") % 2).alias("odd"))
        return grouped.agg(*_expressions(), **({} if hasattr(df, "rdd") else {"uid": "all"}))

    ours, theirs, _ = _both(spark, ckpt, new_input, query)
    assert [(f.name, f.dataType) for f in ours.schema] == [(f.name, f.dataType) for f in theirs.schema]
    assert _newest(job, ours, "k,odd") == ordered(tuple(row) for row in theirs.collect())


def _uid(df: Any, uid: str = "all") -> dict[str, str]:
    """What only ours take."""
    return {} if hasattr(df, "sparkSession") else {"uid": uid}


FORMS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "count": ("k", lambda df: df.groupBy("k").count(**_uid(df))),
    "sum of all numbers": ("k", lambda df: df.groupBy("k").sum(**_uid(df))),
    "max of two": ("k", lambda df: df.groupBy("k").max("a", "d", **_uid(df))),
    "avg": ("k", lambda df: df.groupBy("k").avg("a", **_uid(df))),
    "a dict": ("k", lambda df: df.groupBy("k").agg({"*": "count", "a": "max", "d": "sum"}, **_uid(df))),
    "over everything": ("n", lambda df: df.agg(F.count("*").alias("n"), F.max("a").alias("most"), **_uid(df))),
    "the key's own column": ("low", lambda df: df.groupBy(F.lower("k").alias("low")).agg(F.max("k"), **_uid(df))),
    "a key as what it reads": ("k", lambda df: df.groupBy("k").agg(F.max("k").alias("same"), F.count("k"), **_uid(df))),
    "a key named as a column": ("a", lambda df: df.groupBy((F.col("a") % 2).alias("a")).agg(F.sum("a"), **_uid(df))),
    "one sum twice": ("k", lambda df: df.groupBy("k").agg(F.sum("a"), F.sum("a").alias("again"), **_uid(df))),
    "another case": ("K", lambda df: df.groupBy("K").agg(F.sum("A").alias("N"), **_uid(df))),
    "behind it": (
        "m",
        lambda df: (
            df.groupBy("k")
            .agg(F.sum("a").alias("n"), **_uid(df))
            .where("n > 2")
            .select((F.col("n") + 1).alias("m"), "k")
        ),
    ),
}


SHORT = ("a dict", "over everything", "a key named as a column", "behind it")
"""In the test command; the others with the soak tests."""


@pytest.mark.parametrize("form", [f if f in SHORT else pytest.param(f, marks=pytest.mark.soak) for f in FORMS])
def test_every_form_is_sparks(spark, ckpt, job, new_input, form) -> None:  # type: ignore[no-untyped-def]
    keys, query = FORMS[form]
    rows = new_input("in", SCHEMA)
    rows.add(*FIRST, *SECOND)
    ours, theirs = query(rows.stream(ckpt)), query(rows.table(spark))
    assert [(f.name, f.dataType) for f in ours.schema] == [(f.name, f.dataType) for f in theirs.schema]
    assert _newest(job, ours, keys if form != "over everything" else "n") == ordered(map(tuple, theirs.collect()))


def test_functions_that_print_alike_are_told_apart(ckpt, job, new_input) -> None:  # type: ignore[no-untyped-def]
    rows = new_input("in", "k string, a int")
    rows.add(("x", 1), ("x", 5))
    once, twice = F.udf(lambda a: a, "int"), F.udf(lambda a: 2 * a, "int")
    stream = rows.stream(ckpt)
    assert stream.select(once("a")).columns == stream.select(twice("a")).columns
    both = (F.sum(once("a")).alias("one"), F.sum(twice("a")).alias("two"), F.max(twice("a")) + F.min(once("a")))
    job.run(stream.groupBy("k").agg(*both), "k")
    assert job.rows() == [("x", 6, 12, 11)]


def test_its_state_is_found_again_when_results_are_renamed_and_moved(ckpt, job, new_input) -> None:  # type: ignore[no-untyped-def]
    rows = new_input("in", "k string, a int")
    rows.add(("x", 1), ("x", 2))
    one, other = F.sum("a").alias("total"), (F.count("*") + 1).alias("more")
    job.run(rows.stream(ckpt).groupBy("k").agg(one, other, uid="sums"), "k", checkpointLocation=f"{job.sink}-a")
    rows.add(("x", 4))
    again = rows.stream(ckpt).groupBy("k").agg(F.count("*").alias("rows"), F.sum("a").alias("n"), uid="sums")
    job.run(again.select("k", F.col("n").alias("total"), (F.col("rows") + 1).alias("more")), "k")
    assert job.rows() == [("x", 7, 4)]


def test_another_expression_does_not_go_on_from_the_state(ckpt, job, new_input) -> None:  # type: ignore[no-untyped-def]
    rows = new_input("in", "k string, a int, b int")
    rows.add(("x", 1, 2))
    job.run(rows.stream(ckpt).groupBy("k").agg(F.sum(F.col("a") * 2).alias("n"), uid="sums"), "k")
    with pytest.raises(TopologyError, match=r"sum__a_\*_2_ int64, found sum__b_\*_2_ int64"):
        job.start(rows.stream(ckpt).groupBy("k").agg(F.sum(F.col("b") * 2).alias("n"), uid="sums"), "k")


def test_what_cannot_be_kept_is_refused_when_it_is_built(ckpt, new_input) -> None:  # type: ignore[no-untyped-def]
    grouped = new_input("in", SCHEMA).stream(ckpt).groupBy("k")
    for expression, why in (
        (F.skewness("a"), "the aggregate skewness cannot be kept"),
        (F.sum_distinct("a"), r"the aggregate sum\(DISTINCT ...\) cannot be kept"),
        (F.max(F.array("a")), r"max does not support column 'array\(a\)'"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            grouped.agg(expression, uid="x")
    for nothing in ((), ("a",)):
        with pytest.raises(InvalidInputError, match="agg"):
            grouped.agg(*nothing, uid="x")
    with pytest.raises(AnalysisException, match="MISSING_AGGREGATION"):
        grouped.agg(F.col("a"), uid="x")
    with pytest.raises(InvalidInputError, match='"s" is not a numeric column'):
        grouped.sum("s", uid="x")
    with pytest.raises(InvalidInputError, match="at least one key column"):
        new_input("other", SCHEMA).stream(ckpt).groupBy().aggregate(uid="x", n=agg.count())
