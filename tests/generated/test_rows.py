"""Methods that look at each row alone, and joins with static DataFrames: many in a query, each as Spark's batch."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

from spark_ckpt.errors import ControlColumnsError, InvalidInputError
from tests.generated.bundles import check_chains, rows_of
from tests.generated.chains import APPEND, Chain
from tests.generated.lab import Lab
from tests.generated.operations import Operation
from tests.generated.static_joins import JOINS, pairs, words
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


def test_what_spark_does_not_take_is_refused_as_spark_does(lab: Lab, stream: Any) -> None:
    wrong: list[Callable[[Any], Any]] = [
        lambda df: df.select(F.explode("k")),
        lambda df: df.withColumn("x", F.explode("xs") + 1),
        lambda df: df.fillna([1]),
        lambda df: df.fillna(0, subset=["nope"]),
        lambda df: df.dropna(subset=["nope"]),
        lambda df: df.replace(1, "a"),
        lambda df: df.replace("a"),
        lambda df: df.sample("0.5"),
        lambda df: df.sample(2.0),
        lambda df: df.unpivot("id", ["k", "s", "xs"], "which", "v"),
        lambda df: df.withMetadata("k", 5),
    ]
    for func in wrong:
        with pytest.raises(PySparkException) as in_batch:
            func(lab.spark.createDataFrame([], SCHEMA))
        with pytest.raises(type(in_batch.value), match=re.escape(str(in_batch.value)[:70])):
            func(stream)
    with pytest.raises(InvalidInputError, match=r"withReplacement=True.*use sample\(fraction\)"):
        stream.sample(True, 0.5)
    for touched in (
        lambda df: df.fillna({"__ckpt_tag": 0}),
        lambda df: df.dropna(subset="__ckpt_ctl"),
        lambda df: df.replace(1, 2, ["__ckpt_tag"]),
        lambda df: df.withMetadata("__ckpt_tag", {}),
    ):
        with pytest.raises(ControlColumnsError, match="carry the barriers"):
            touched(stream)


def test_names_types_and_the_plan_are_shown_without_the_control_columns(
    stream: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    df = stream.select("id", F.posexplode("xs").alias("at", "x")).fillna(0)
    assert df.dtypes == [("id", "bigint"), ("at", "int"), ("x", "int")]
    assert stream.withMetadata("k", {"unit": "m"}).schema["k"].metadata == {"unit": "m"}
    df.explain()
    df.explain(True)
    df.explain(mode="formatted")
    said = capsys.readouterr().out
    assert said.count("query.explain() prints the plan of the running query") == 3
    assert said.count("== Physical Plan ==") == 3
    assert "== Analyzed Logical Plan ==" in said


def test_columns_stand_as_in_sparks_join_and_are_found_as_there(lab: Lab, stream: Any) -> None:
    batch, static = lab.spark.createDataFrame([], "id bigint, k int, d double"), pairs(stream)
    some = stream.select("id", "k", "d")
    for on, how in (("k", "inner"), (["d", "k"], "left"), ("d", "left_semi"), (["k"], "left_anti"), (None, "cross")):
        assert some.join(static, on, how).columns == batch.join(static, on, how).columns
    both = some.join(static, some["k"] == static["k"])
    assert both.columns == ["id", "k", "d", "k", "d", "found"]
    assert both.select("*").columns == both.columns
    assert both.drop(static["k"]).columns == ["id", "k", "d", "d", "found"]
    assert both.toDF("a", "b", "c", "d", "e", "f").columns == ["a", "b", "c", "d", "e", "f"]
    for ambiguous in (
        lambda: both.select("k"),
        lambda: some.join(static, F.col("k") == F.col("k")),
        lambda: some.join(static, F.col("k") > 0, "left_semi"),
        lambda: some.join(static, F.col("k") == static["k"], "left"),
    ):
        with pytest.raises(AnalysisException, match="AMBIGUOUS_REFERENCE"):
            ambiguous()


def test_joins_that_are_not_there_are_refused_as_in_spark(lab: Lab, stream: Any) -> None:
    static = words(stream)
    for how, said in (
        (
            "right",
            "RightOuter join with a streaming DataFrame/Dataset on the left and a static .* not supported.*left_s",
        ),
        ("right_outer", "RightOuter join"),
        ("full", "FullOuter joins with streaming DataFrames/Datasets on the left and a static .* not supported.*inner"),
        ("outer", "FullOuter joins"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            stream.join(static, "k", how)
    with pytest.raises(AnalysisException, match="UNSUPPORTED_JOIN_TYPE"):
        stream.join(static, "k", "sideways")
    with pytest.raises(AnalysisException, match="nope"):
        stream.join(static, "nope")
    with pytest.raises(AnalysisException, match="nope"):
        stream.join(static, stream["k"] == F.col("nope"), "left_semi")
    with pytest.raises(InvalidInputError, match=r"a stream of Spark's own.*ckpt.readStream"):
        stream.join(lab.spark.readStream.format("rate").load(), F.lit(True))
    with pytest.raises(InvalidInputError, match="expects a static DataFrame, found str"):
        stream.join("words", "k")
    with pytest.raises(InvalidInputError, match="names or conditions"):
        stream.join(static, 5)
    with pytest.raises(InvalidInputError, match="reserved for the barriers"):
        stream.join(static.withColumn("__ckpt_tag", F.lit(1)), "k")
    with pytest.raises(ControlColumnsError, match="carry the barriers"):
        stream.join(static, "__ckpt_tag")
