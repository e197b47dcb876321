"""PySpark's own aggregates over a stream, beside Spark's batch result of the same expressions on the same rows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt import agg
from spark_ckpt.errors import InvalidInputError, TopologyError
from spark_ckpt.operators.aggregate_kinds import KINDS
from spark_ckpt.plan.analysed.ledger_of_expressions import refused_aggregates
from tests.spark.conftest import Input, Job, named, ordered

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
        *_kept(),
    ]


def _kept() -> list[Any]:
    """Order is not Spark's to promise where the batch has several partitions."""
    return [
        F.sort_array(F.collect_list("s")).alias("list"),
        F.max_by("s", "a"),
        F.min_by(F.upper("s"), F.col("d") + 1).alias("low"),
        F.max(F.struct("a", "s")).getField("s").alias("newest"),
        F.max(F.struct(F.array("g", "a"), "s")).getField("s").alias("largest"),
        F.min(F.when(F.col("t"), F.array("a", F.lit(2)))).alias("least"),
        (F.col("least")[0] + 1).alias("of an earlier one"),
        F.var_pop("a"),
        F.variance("a"),
        F.var_samp("b").alias("vb"),
        F.stddev_pop("d"),
        F.skewness("a"),
        F.kurtosis("a"),
        F.covar_pop("a", "d"),
        F.covar_samp("a", "d"),
        F.corr("a", "d"),
        F.regr_count("a", "d"),
        F.regr_avgx("a", "d"),
        F.regr_slope("a", "d"),
        F.bit_and("a"),
        F.bit_or("a"),
        F.bit_xor("g"),
        F.product("a").alias("product"),
        F.median("a"),
        F.expr("count(distinct a, g) filter (where t)").alias("chosen pairs"),
        F.last("s", ignorenulls=True).isNull().alias("none"),
        F.every("t"),
        F.some("t"),
        F.expr("any(t)").alias("any"),
        (F.sum("a") - F.sum_distinct("a")).alias("repeated"),
    ]


def _more_kept() -> list[Any]:
    """Each has a state table of its own, which costs a test more than it tells."""
    return [
        F.sort_array(F.collect_set("a")).alias("set"),
        F.size(F.array_agg(F.col("a") % 2)).alias("items"),
        F.mode("g", True).alias("mode"),
        F.percentile("d", 0.3),
        F.percentile("a", [0.1, 0.9]).alias("shares"),
        F.percentile("a", 0.3, F.col("g") % 2 + 1),
        F.max_by("s", F.struct("a", "d"), 2),
        F.expr("percentile_disc(0.3) within group (order by d desc)"),
        F.percentile_approx("a", 0.5),
        F.percentile_approx("d", [0.25, 0.75], 100).alias("ranks"),
        F.count_distinct("a", "s"),
        F.count_distinct(F.array("a", "g"), F.struct("s", F.make_ym_interval(F.lit(0), F.lit(1)).alias("m"))).alias(
            "n"
        ),
        F.expr("count(distinct map(1, a))").alias("maps"),
        F.expr("avg(distinct d)"),
        F.expr("collect_list(a) filter (where b > 0)").alias("chosen list"),
        F.expr("array_sort(collect_list(distinct s))").alias("sorted set"),
        F.array_sort(F.split(F.listagg_distinct("a", ";"), ";")).alias("distinct text"),
    ]


def _texts() -> list[Any]:
    """By themselves: Spark's optimiser fails with a ClassCastException on an ordered one beside count(DISTINCT ...)."""
    return [
        F.concat(F.lit("<"), F.expr("listagg(s, ', ') within group (order by s desc)"), F.lit(">")),
        F.array_sort(F.split(F.listagg("a", "-"), "-")).alias("numbers"),
        F.expr("string_agg(s) within group (order by t desc nulls last, a % 2, s desc, d)"),
        F.expr("listagg(encode(s, 'utf-8'), x'2c') within group (order by a nulls first, s) filter (where t)"),
        *(
            F.expr(f"listagg(coalesce(s, '-')) within group (order by nullif(t, true) nulls {place})")
            for place in ("first", "last")
        ),
        F.listagg(F.lit(None).cast("string")).alias("none"),
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


@pytest.mark.parametrize(
    ("chaining", "expressions"),
    [
        ("true", _expressions),
        pytest.param("false", _expressions, marks=pytest.mark.soak),
        pytest.param("true", _more_kept, marks=pytest.mark.soak),
        ("true", _texts),
    ],
)
def test_every_expression_is_sparks(spark, ckpt, job, new_input, chaining, expressions) -> None:  # type: ignore[no-untyped-def]
    spark.conf.set("spark.ckpt.chaining", chaining)

    def query(df: Any) -> Any:
        grouped = df.groupBy("k", (F.col("g") % 2).alias("odd"))
        return named(grouped.agg(*expressions()), "all")

    ours, theirs, _ = _both(spark, ckpt, new_input, query)
    # Of a stream Spark 4.3 takes every element of an array for nullable.
    assert [(f.name, f.dataType.simpleString()) for f in ours.schema] == [
        (f.name, f.dataType.simpleString()) for f in theirs.schema
    ]
    assert _newest(job, ours, "k,odd") == ordered(tuple(row) for row in theirs.collect())


FORMS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "count": ("k", lambda df: named(df.groupBy("k").count(), "all")),
    "sum of all numbers": ("k", lambda df: named(df.groupBy("k").sum(), "all")),
    "max of two": ("k", lambda df: named(df.groupBy("k").max("a", "d"), "all")),
    "avg": ("k", lambda df: named(df.groupBy("k").avg("a"), "all")),
    "a dict": ("k", lambda df: named(df.groupBy("k").agg({"*": "count", "a": "max", "d": "sum"}), "all")),
    "over everything": ("n", lambda df: named(df.agg(F.count("*").alias("n"), F.max("a").alias("most")), "all")),
    "the key's own column": ("low", lambda df: named(df.groupBy(F.lower("k").alias("low")).agg(F.max("k")), "all")),
    "a key as what it reads": (
        "k",
        lambda df: named(df.groupBy("k").agg(F.max("k").alias("same"), F.count("k")), "all"),
    ),
    "a key named as a column": ("a", lambda df: named(df.groupBy((F.col("a") % 2).alias("a")).agg(F.sum("a")), "all")),
    "one sum twice": ("k", lambda df: named(df.groupBy("k").agg(F.sum("a"), F.sum("a").alias("again")), "all")),
    "another case": ("K", lambda df: named(df.groupBy("K").agg(F.sum("A").alias("N")), "all")),
    "behind it": (
        "m",
        lambda df: (
            named(df.groupBy("k").agg(F.sum("a").alias("n")), "all")
            .where("n > 2")
            .select((F.col("n") + 1).alias("m"), "k")
        ),
    ),
}


SHORT = ("over everything", "a key named as a column")
"""In the test command; the others with the soak tests. test_front_door.py has results in expressions and filters."""


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
    job.run(rows.stream(ckpt).groupBy("k").agg(one, other).uid("sums"), "k", checkpointLocation=f"{job.sink}-a")
    rows.add(("x", 4))
    again = rows.stream(ckpt).groupBy("k").agg(F.count("*").alias("rows"), F.sum("a").alias("n")).uid("sums")
    job.run(again.select("k", F.col("n").alias("total"), (F.col("rows") + 1).alias("more")), "k")
    assert job.rows() == [("x", 7, 4)]


def test_aggregates_come_and_go(spark, ckpt, job, new_input, tmp_path, caplog) -> None:  # type: ignore[no-untyped-def]
    rows = new_input("in", "k string, a int")

    def run(place: str, *aggregates: Any, **options: Any) -> list[Any]:
        made = rows.stream(ckpt).groupBy("k").agg(*aggregates).uid("u")
        shown = made.select("k", F.to_json(F.struct(*made.columns[1:])).alias("found"))
        caplog.clear()
        job.run(shown, "k", checkpointLocation=str(tmp_path / place), **options)
        return [(k, *json.loads(found).values()) for k, found in job.rows()]

    n, total, items = F.count("*").alias("n"), F.sum("a").alias("total"), F.collect_list("a").alias("items")
    rows.add(("x", 1), ("x", 2), ("y", 3))
    assert run("one", n, total) == [("x", 2, 3), ("y", 1, 3)]
    rows.add(("x", 4), ("z", 5))
    assert run("one", items, n) == [("x", [4], 3), ("y", 1, 3), ("z", [5], 1)]
    assert "'u' goes on from its state with other columns. New, and empty so far: collect_list(a)." in caplog.text
    assert "No longer kept: sum(a); added again, it begins empty" in caplog.text
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    rows.add(("x", 6), ("y", 7))
    assert run("two", total, n, items) == [("x", 6, 4, [4, 6]), ("y", 7, 2, [7]), ("z", [5], 1)]
    rows.add(("x", 8), ("y", 8))
    assert run("two", items, total) == [("x", [4, 6, 8], 14), ("y", [7, 8], 15), ("z", [5], 1)]
    assert "No longer kept: count(*)" in caplog.text
    # The first checkpoint is what it was.
    assert run("three", n, total, restore="1")[:2] == [("x", 5, 21), ("y", 3, 18)]
    with pytest.raises(TopologyError, match=r"first\(a, ignore_nulls=False\) cannot begin in keys that are there"):
        run("three", n, total, F.first("a"))


def test_an_aggregate_that_a_failed_start_left_out_goes_on(ckpt, job, new_input, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Stopped behind its decision, with or without the state table's new columns, before a batch of the other query."""
    rows = new_input("in", "k string, a int")

    def run(*aggregates: Any) -> list[Any]:
        made = rows.stream(ckpt).groupBy("k").agg(*aggregates).uid("u")
        job.run(made.select("k", F.to_json(F.struct(*made.columns[1:])).alias("found")), "k")
        return [(k, *json.loads(found).values()) for k, found in job.rows()]

    n, total = F.count("*").alias("n"), F.sum("a").alias("total")
    rows.add(("x", 1), ("x", 2))
    assert run(n, total) == [("x", 2, 3)]
    for failing in ("_say_changes", "_run_spec"):
        with monkeypatch.context() as patched:
            patched.setattr(f"spark_ckpt.jobs.start.{failing}", _fails)
            with pytest.raises(OSError, match="no room"):
                run(n, F.max("a"))
    rows.add(("x", 4), ("y", 5))
    assert run(n, total) == [("x", 3, 7), ("y", 1, 5)]


def _fails(*_: Any) -> None:
    raise OSError("no room")


def test_another_expression_does_not_go_on_from_the_state(ckpt, job, new_input) -> None:  # type: ignore[no-untyped-def]
    rows = new_input("in", "k string, a int, b int")
    rows.add(("x", 1, 2))
    job.run(rows.stream(ckpt).groupBy("k").agg(F.sum(F.col("a") * 2).alias("n")).uid("sums"), "k")
    with pytest.raises(
        TopologyError, match=r"sum\(\(a \* 2\)\) \(int64\) goes and sum\(\(b \* 2\)\) \(int64\) comes, both for 'n'"
    ):
        job.start(rows.stream(ckpt).groupBy("k").agg(F.sum(F.col("b") * 2).alias("n")).uid("sums"), "k")


def test_every_aggregate_of_spark_is_there_or_refused_with_another_way(spark) -> None:  # type: ignore[no-untyped-def]
    """As the registry of Spark has them, and docs/aggregates.md."""
    registry = spark._jsparkSession.sessionState().functionRegistry()
    functions, known = registry.listFunction().iterator(), {*KINDS, *refused_aggregates(), "grouping", "grouping_id"}
    infos = []
    while functions.hasNext():
        name = functions.next()
        infos.append((name.funcName(), registry.lookupFunction(name).get()))
    aggregates = {name for name, info in infos if info.getGroup() == "agg_funcs"}
    assert len(aggregates) > 80
    assert not aggregates - known
    assert not {name for name, _ in infos if name.endswith("_agg")} - known
    text = (Path(__file__).parents[2] / "docs/aggregates.md").read_text(encoding="utf-8")
    told = text.split("## Aggregate functions")[1].split("## Top-N")[0]
    of_other_types = {name for name in refused_aggregates() if name.endswith(("_integer", "_double", "_float"))}
    there = {name for name, _ in infos}  # others are names of Spark's classes, or of a newer Spark
    assert not {name for name in (known & there) - of_other_types if f"`{name}`" not in told}


def test_what_cannot_be_kept_is_refused_before_a_start(ckpt, new_input) -> None:  # type: ignore[no-untyped-def]
    grouped = new_input("in", SCHEMA).stream(ckpt).groupBy("k")
    for expression, why in (
        (F.histogram_numeric("a", F.lit(3)), "the aggregate histogram_numeric is not there.*width_bucket"),
        (F.expr("kll_sketch_agg_bigint(a)"), "the aggregate kll_sketch_agg_bigint is not there.*percentile_approx"),
        (F.expr("vector_sum(array(cast(a as float)))"), "the aggregate vector_sum is not there.*posexplode"),
        (F.expr("count_if(distinct t)"), r"the aggregate count_if\(DISTINCT ...\) cannot be kept"),
        (F.max(F.struct("a", "a")), "which a keyed operator cannot keep, as a field's name comes twice in it"),
        (F.first(F.parse_json("k")), "type variant, which a keyed operator cannot keep.*F.to_json"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            ckpt.check(grouped.agg(expression), "update")
    for nothing in ((), ("a",)):
        with pytest.raises(AssertionError, match="exprs"):
            grouped.agg(*nothing)
    with pytest.raises(AnalysisException, match="MISSING_AGGREGATION"):
        grouped.agg(F.col("a"))
    with pytest.raises(AnalysisException, match='"s" is not a numeric column'):
        grouped.sum("s")
    with pytest.raises(InvalidInputError, match="at least one key column"):
        new_input("other", SCHEMA).stream(ckpt).groupBy().aggregate(n=agg.count())
