"""Methods that look at each row alone, and joins with static DataFrames: many in a query, each as Spark's batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt.errors import ControlColumnsError, InvalidInputError
from tests.generated.bundles import check_chains, rows_of
from tests.generated.chains import APPEND, Chain
from tests.generated.lab import Lab
from tests.generated.operations import Operation
from tests.generated.static_joins import JOINS, words
from tests.generated.values import SCHEMA, write_batches


class Does(Operation):
    """A function of a DataFrame, by its name."""

    def __init__(self, func: Callable[[Any], Any]) -> None:
        self.func = func

    def __repr__(self) -> str:
        return f".transform({self.func.__name__})"

    def apply(self, df: Any) -> Any:
        return self.func(df)


ROWS: tuple[Callable[[Any], Any], ...] = (
    lambda df: df.select("id", F.explode("xs")),
    lambda df: df.select("id", F.explode_outer("xs").alias("x"), "k"),
    lambda df: df.select(F.posexplode("xs").alias("nth", "x"), "*"),
    lambda df: df.select("id", F.posexplode_outer("tags")),
    lambda df: df.select("id", F.explode("tags")),
    lambda df: df.select("id", F.explode_outer("tags").alias("tag", "weight")),
    lambda df: df.withColumn("x", F.explode(F.array("k", "n", F.lit(7)))),
    lambda df: df.select("id", F.inline(F.array("st", F.struct(F.col("n").alias("a"), F.col("t").alias("b"))))),
    lambda df: df.select("id", F.inline_outer(F.when(F.col("k") > 0, F.array("st")))),
    lambda df: df.select("id", F.stack(F.lit(3), "id", F.col("big"), F.lit(None), "id").alias("one", "two")),
    lambda df: df.select("id", F.json_tuple(F.to_json("st"), "a", "b").alias("a", "b")),
    lambda df: df.selectExpr("id", "explode(xs) as x"),
    lambda df: df.selectExpr("id", "posexplode_outer(tags) as (at, tag, weight)"),
    lambda df: df.selectExpr("id", "explode(split(coalesce(s, '(a'), 'a')) as part"),
    lambda df: df.select("id", F.explode(F.array(F.array("k", "n"), "xs")).alias("ys")).select("id", F.explode("ys")),
    lambda df: df.select("id", F.explode(F.transform("xs", lambda x: F.struct(x.alias("x")))).alias("s")).select("s.x"),
    lambda df: df.select("id", F.explode(F.array(F.udf(lambda v: v + 1, "bigint")("id"), F.col("id"))).alias("x")),
    lambda df: df.withColumn("id", F.explode(F.sequence(F.lit(0), F.col("id")))).where("id % 2 = 0").select("id", "k"),
    lambda df: df.select("id", F.explode("xs").alias("x"), F.explode(F.array("k", "n")).alias("y")),
    lambda df: df.fillna(0),
    lambda df: df.fillna("?").fillna(True).fillna(0.5, subset=["d", "k", "s"]),
    lambda df: df.na.fill({"k": 9, "s": "none", "flag": False, "D": 1.5}),
    lambda df: df.dropna(),
    lambda df: df.dropna("all", subset=["k", "d", "s"]),
    lambda df: df.na.drop(thresh=2, subset=["k", "d", "f"]),
    lambda df: df.dropna(thresh=19),
    lambda df: df.na.drop(subset="K"),
    lambda df: df.replace(0, 5),
    lambda df: df.na.replace(["a", ""], ["b", "c"], ["s"]),
    lambda df: df.replace({1: None, 2: 3}, subset="k").replace(True, False),
    lambda df: df.sample(1.0),
    lambda df: df.sample(False, 0.0, 3),
    lambda df: df.sample(fraction=1.0, seed=1),
    lambda df: df.unpivot("id", ["k", "n"], "which", "v"),
    lambda df: df.select("id", "big", "k").melt(["id"], None, "name", "value"),
    lambda df: df.unpivot([F.col("id"), "k"], [(F.col("n") % 7).alias("mod"), F.col("tiny")], "which", "v"),
    lambda df: df.repartition(2, "k").coalesce(1).hint("rebalance").repartition("k"),
    lambda df: df.select(df.colRegex("`(?i)(ID|t.*)`"), df.colRegex("`s|k`")),
    lambda df: df.select(df.colRegex("`.*`")).withMetadata("k", {"unit": "none"}),
)


def chains_of(spark: Any, funcs: Any) -> list[Chain]:
    empty = spark.createDataFrame([], SCHEMA)
    return [Chain(n, APPEND, (Does(func),), dict(func(empty).dtypes), ()) for n, func in enumerate(funcs)]


ALL = [pytest.param(slice(None), chaining, marks=pytest.mark.soak) for chaining in (True, False)]


@pytest.mark.parametrize(("some", "chaining"), [(slice(0, None, 4), True), *ALL])
def test_row_methods_give_what_batch_gives(lab: Lab, some: slice, chaining: bool) -> None:
    check_chains(lab, "rows", chains_of(lab.spark, ROWS[some]), rows_of(11, {}), chaining)


@pytest.mark.parametrize(("some", "chaining"), [(slice(4, None, 8), True), *ALL])
def test_static_joins_give_what_batch_gives(lab: Lab, some: slice, chaining: bool) -> None:
    check_chains(lab, "joins", chains_of(lab.spark, JOINS[some]), rows_of(12, {}), chaining)


@pytest.fixture(scope="module")
def stream(lab: Lab) -> Any:
    folder = lab.folder / "rows" / "in"
    write_batches(folder, rows_of(1, {}), 1)
    return lab.stream(folder)


def test_joins_that_are_not_there_are_refused_as_in_spark(lab: Lab, stream: Any) -> None:
    ckpt, static = spark_ckpt.enable(lab.spark), words(stream)
    for how, said in (
        ("right", "RightOuter join with a streaming DataFrame/Dataset on the left and a static .* not supported"),
        ("right_outer", "RightOuter join"),
        ("full", "FullOuter join with a streaming DataFrame/Dataset on the left and a static .* not supported"),
        ("outer", "FullOuter join"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            ckpt.check(stream.join(static, "k", how))


def test_names_of_the_control_columns_are_refused_wherever_they_come_from(lab: Lab, stream: Any) -> None:
    ckpt, static = spark_ckpt.enable(lab.spark), words(stream)
    for df in (
        stream.join(static.withColumn("__ckpt_tag", F.lit(1)), "k"),
        stream.withColumn("__CKPT_ctl", F.lit(1)).where("id > 1"),
        stream.withColumnRenamed("n", "__ckpt_tag").drop("__ckpt_tag"),
    ):
        with pytest.raises(ControlColumnsError, match=r"has column.*reserved for the barriers.*rename"):
            ckpt.check(df)
