"""Stateful operators through Spark Connect, beside Spark's own: ``python -m tests.spark.over_connect FOLDER [NAME...]``

A process of its own, because classic Spark and Connect do not go together in one. Exits with 1 if a case came out
wrong. Without names: all of them.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyspark.errors
import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import spark_ckpt
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.front_door import front_door
from tests.how_many import some
from tests.spark import (
    changing_models,
    changing_queries,
    test_changed_state,
    test_distinct,
    test_drop_in_calls,
    test_event_time,
    test_fails_on_nulls,
    test_joins,
    test_nested_values,
    test_stars,
    test_sub_queries,
    test_topn,
    test_transform_with_state,
    test_windows,
)
from tests.spark.changing_cells import Cell, covering, tried
from tests.spark.conftest import DEADLINE_S, Input, Job, ordered
from tests.spark.operated_over_connect import operated

Query = Callable[..., Any]
REFUSED_JOINS = ("unmatched", "known behind", "guide")
"""One asks for a key that a left join by names hides, one filters behind a join what Spark filters in front of it, one
has its condition as a SQL text."""
IN_PARTS = "taken apart"
"""A SQL text, of which Spark filters a part in front of the watermark."""
OF_A_COLUMN = "windows of a column of window_time"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CONFS = {
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.streaming.stateStore.providerClass": ROCKS,
    "spark.ckpt.interval": "1h",
    "spark.ckpt.initialDelay": "1h",
    "spark.ckpt.maxParallelism": "2",
    "spark.ckpt.lanes": "1",
    "spark.ckpt.history": "false",
}


@dataclass(frozen=True)
class Case:
    """``query`` gets a stream for each of ``inputs``: a schema, and the rows of each batch."""

    query: Query
    inputs: tuple[tuple[str, list[list[tuple[Any, ...]]]], ...]
    mode: str = "append"
    batch: Query | None = None
    """What a batch of Spark's has, of the first input, where its streams have nothing; ours puts out changes to it."""
    keys: str | None = None
    """Results are those of Spark's batch, kept by these; "" for all rows."""
    changes: str | None = None
    """The column that says of each row what it is in the changes."""


def _both(name: str) -> Case:
    chance = Random(name)
    alike = name == "windows behind"  # else they never end in Spark, which has one watermark
    batches = [test_joins._batches(chance, 8 if alike else 4, 0, alike) for _ in range(2)]
    sides = [[*some, [(-1, "z", 9, test_joins.BASE, None)]] for some in batches]
    return Case(lambda a, b: test_joins._all(a, b, [name]), ((test_joins.LEFT, sides[0]), (test_joins.RIGHT, sides[1])))


def _distinct(name: str) -> Case:
    return Case(
        lambda df: test_distinct._all(df, [name]), ((test_distinct.ROWS, test_distinct._batches(Random(name), 4, 0)),)
    )


def _timed(query: Query, mode: str = "append") -> Case:
    batches = test_windows._batches(7, 6)
    return Case(lambda df: query(df.withWatermark("t", "300 seconds")), ((test_windows.SCHEMA, batches),), mode)


def _filtered(form: str) -> Case:
    rows = ((test_windows.SCHEMA, test_windows.FILTERED),)
    return Case(lambda df: test_windows._filtered(df, form), rows, "update")


def _processed(query: Query) -> Case:
    at = test_transform_with_state.at
    batches = [[("a", 1, at(0)), ("b", 2, at(5)), ("a", 3, at(9))], [("a", 3, at(90)), (None, 4, at(80))]]
    return Case(query, (("k string, v long, t timestamp", batches),), "update")


def _visits(df: Any) -> Any:
    grouped = df.withWatermark("t", "1 hour").groupBy("k")
    visits = test_transform_with_state.Visits()
    return grouped.transformWithStateInPandas(visits, "k string, n long, seen string", "update", "eventTime")


def _sessions(df: Any) -> Any:
    grouped = df.withWatermark("t", "10 seconds").groupBy("k")
    sessions = test_transform_with_state.Sessions()
    return grouped.transformWithState(sessions, "k string, what string, seen string", "update", "eventTime")


def _in_expressions(forms: Any) -> Case:
    inputs = ((test_sub_queries.SCHEMA, test_sub_queries.BATCHES),)
    return Case(lambda df: test_sub_queries.together(df, forms), inputs)


def _groups_of_batches(df: Any) -> Any:
    def largest(pdf):  # type: ignore[no-untyped-def]
        return pdf.nlargest(1, "v")[["k", "v"]].assign(n=len(pdf))

    def named(key, rows):  # type: ignore[no-untyped-def]
        return rows.set_column(0, "k", rows["k"].fill_null(f"none of {key[0]}"))

    tops = df.groupBy(F.upper("k").alias("up"), (F.col("v") % 2).alias("odd")).applyInPandas(
        largest, "k string, v long, n long"
    )
    return tops.groupBy("n").applyInArrow(named, "k string, v long, n long")


def _windows_within(df: Any) -> Any:
    """And structs as keys, over which the client cannot look either."""
    window = F.window("t", "4 minutes", "2 minutes")
    timed = df.withWatermark("t", "300 seconds").where(F.window("t", "4 minutes").start > "2000-01-01").where("v > 0")
    keys = [F.struct(F.col("k").alias("name"), window).alias("s"), F.array("v")]
    sums = timed.drop("window").groupBy(*keys).agg(F.sum("v"), F.max(window.end))
    return sums.selectExpr("*", "s.name", "s.window.end AS e")


def _by_windows(df: Any) -> Any:
    def named(key, pdf):  # type: ignore[no-untyped-def]
        return pdf.head(1)[["k"]].assign(key=repr(key), n=len(pdf), columns=repr(list(pdf.columns)))

    window = F.window("t", "4 minutes", "2 minutes")
    return df.groupBy(window, F.struct("k"), window.end).applyInPandas(
        named, "k string, key string, n long, columns string"
    )


def _cube_of_windows(df: Any) -> Any:
    timed = df.withWatermark("t", "300 seconds")
    return timed.cube(F.window("t", "4 minutes"), "k").agg(F.count("*").alias("n"), F.grouping("window"), F.sum("v"))


def _sized(key, left, right):  # type: ignore[no-untyped-def]
    import pandas as pd

    return pd.DataFrame({"k": [key[0]], "l": [len(left)], "r": [len(right)]})


def _groups_of_both_sides(a: Any, b: Any) -> Any:
    def counted(left, right):  # type: ignore[no-untyped-def]
        return left[["k"]].head(1).assign(n=10 * len(left) + len(right))

    def named(key, left, right):  # type: ignore[no-untyped-def]
        return left.set_column(0, "k", left["k"].fill_null(f"{key[0]} {right.num_rows}"))

    counts = (
        a.groupBy(F.upper("k")).cogroup(b.groupBy(F.upper("j").alias("up"))).applyInPandas(counted, "k string, n long")
    )
    both = counts.groupBy("n").cogroup(b.groupBy("v")).applyInArrow(named, "k string, n long")
    static = _session(a).createDataFrame([("b", 1), ("q", 2)], "name string, m int")
    return both.groupBy("k").cogroup(static.groupBy(F.upper("name"))).applyInPandas(_sized, "k string, l long, r long")


def _session(df: Any) -> SparkSession:
    return df.sparkSession


def _is_ours(df: Any) -> bool:
    return front_door(df.sparkSession).session_of(df) is not None


def _initial(df: Any) -> Any:
    begin = _session(df).createDataFrame([("a", 10), ("c", 5), (None, 7)], "name string, start long")
    balance = test_transform_with_state.Balance()
    out = "k string, total long"
    return df.groupBy("k").transformWithStateInPandas(balance, out, "update", "none", begin.groupBy("name"))


def _newer(df: Any) -> Any:
    """Aggregates whose values are in tables of their own, and some of two columns."""
    return df.groupBy("k").agg(
        F.sort_array(F.collect_list("v")).alias("list"), F.collect_set(F.col("v") + 1),
        F.median("v"), F.percentile("v", 0.25), F.max_by("v", "t"), F.corr("v", F.col("v") * 2),
        F.first("v", ignorenulls=True), F.bool_and(F.col("v") > 1), F.count("*"), F.sum("v") / F.count("v"),
        F.array_sort(F.split(F.listagg("v", "-"), "-")).alias("text"), F.length(F.string_agg(F.encode("k", "utf-8"))),
        F.sum(F.make_ym_interval(F.lit(0), F.col("v").cast("int"))).cast("string").alias("months"),
        F.md5(F.bitmap_construct_agg(F.bitmap_bit_position("v"))).alias("bits"),
        F.avg(F.make_dt_interval(F.col("v").cast("int"))), F.min_by("v", "t", 2),
        F.percentile("v", [0.2, 0.5], F.col("v") % 2 + 1), F.mode("v", True),
        F.try_sum("v"), F.try_avg(F.col("v") / 2).alias("tried"),
    )  # fmt: skip


def _computed(df: Any) -> Any:
    changed = df.fillna(9).fillna({"v": 8}).replace({3: 30, 8: 80, 9: 90})
    there = "v > 1 AND v BETWEEN 1.5D AND 1e9 AND t - interval 1 day -2 hours BETWEEN '1999-12-31' AND '2100-01-01'"
    columns = changed.where(f"{there} AND k IS NOT NULL").withColumn(
        "w", F.col("v") * 2 + F.expr("CASE k WHEN 'a' THEN 1 ELSE 0.5D END")
    )
    named = columns.select(df["k"], "w", F.struct("K", "v").alias("row"), F.hour("t"), F.upper(F.concat("k", "v")))
    words = _session(df).createDataFrame([("a", "A"), ("b", "B"), (None, "nothing")], "name string, word string")
    named = named.join(words, (named["k"] == words["name"]) & (words["word"] != "b"), "left").drop(words["name"])
    named = named.fillna("none").replace(["a", "B2"], ["A", None], ["k"])
    return named.withColumnRenamed("w", "x").alias("o").where(F.col("o.row.v") != 3).withColumn("y", F.lit(1)).drop("y")


def _of_json(df: Any) -> Any:
    """What most queries of a topic begin with."""
    text = F.concat(F.lit('{"k": "'), "k", F.lit('", "v": '), "v", F.lit(', "at": "2024-05-01T10:00:00Z"}'))
    schema = StructType().add("k", "string").add("v", "long").add("at", "timestamp")
    read = F.from_json(F.col("value").cast("string"), schema).alias("j")
    records = df.select(text.alias("value"))
    return records.select(read).select("j.*").where("v > 1").groupBy("k").agg(F.sum("v"), F.max("at"))


def _inputs(df: Any) -> Any:
    """Of aggregates."""
    return df.groupBy("k").agg(F.sum(F.col("v") * 2), F.max(F.upper("k")), F.avg(F.expr("v + 1")))


def _as_batch(query: Query, keys: str = "") -> Case:
    return Case(query, (("k string, v int", test_nested_values.ROWS),), "update" if keys else "append", keys=keys)


def _known_columns(df: Any) -> Any:
    """Columns that are taken from a stream, of it and of what was made of it."""
    more = df.withColumn("w", df["v"] + 1).withColumn("s", F.struct(df.k, "v"))
    kept = more[more["w"] > df.v][["k", "s", "w"]]
    return kept.select(kept[0], kept["s.v"], kept["s"].k, more["w"]).where(df["k"].isNotNull())


def _inner_texts(df: Any) -> Any:
    """SQL texts inside of aggregates."""
    return df.groupBy("k").agg(F.sum(F.expr("v * 2")), F.max(F.expr("v + 1")), F.avg(F.expr("v / 2")) * 2)


def _sets_of_windows(df: Any) -> Any:
    start = F.window(F.timestamp_seconds("v"), "3 seconds", "1 second").start.alias("at")
    sets = df.select("k", "v", start).cube("k", "at")
    return sets.agg(F.count("k").alias("n"), F.sum("v"), F.grouping("at"), F.grouping_id().alias("g"))


def _keys_of_sets(df: Any) -> Any:
    """Maps, intervals and names of other columns; names of keys and of earlier results."""
    pairs = F.when(F.col("k").isNotNull(), F.create_map("k", "v")).alias("pairs")
    late = F.expr("make_dt_interval(0, 0, 0, v)").alias("late")
    results = [F.sum("v").alias("total"), (F.col("total") + 1).alias("more"), F.max("k"), F.grouping("v")]
    made = df.cube(F.col("v").alias("k"), pairs, late).agg(*results, (F.col("late") * 2).cast("string").alias("later"))
    return made.withColumns({"pairs": F.to_json("pairs"), "late": F.col("late").cast("string")})


def _static(how: str) -> Query:
    def joined(df: Any) -> Any:
        static = _session(df).createDataFrame([("a", "A"), ("a", "AA"), (None, "nothing")], "k string, word string")
        made = df.join(static, df["k"] == static["k"], how)
        return made.drop(static["k"]) if how in ("inner", "left") else made

    return joined


def _static_known(form: str) -> Query:
    """Joins with tables; what is behind them knows columns by name, by alias and by DataFrame."""

    def joined(df: Any) -> Any:
        words = _session(df).createDataFrame([("a", "A"), ("a", "AA"), (None, "nothing")], "k string, word string")
        numbers = _session(df).range(8).selectExpr("cast(id as int) as n", "id * 2 as twice").alias("numbers")
        numbers = numbers.where(F.rand() >= 0) if form == "read by each batch" else numbers
        if form == "names":
            made = df.join(words, "k", "left").join(numbers, F.col("v") == F.col("numbers.n"))
        else:
            renamed = words.select(F.col("k").alias("name"), "word")
            made = df.join(renamed, (df["k"] == renamed["name"]) & (F.length(renamed["word"]) > 1), "left")
            made = made.join(numbers, (numbers["n"] == df.v) & (numbers["twice"] < 100)).where(
                renamed["word"].isNotNull() | F.col("numbers.twice").isNull()
            )
        made = made.join(numbers.select(F.col("twice").alias("even")), F.expr("v = even"), "left_anti")
        return made.where("twice > 0").select("k", "word", "v", F.col("twice") + 1, "t")

    return joined


def _top(kind: str) -> Case:
    chance, batches = Random(kind), list[list[tuple[Any, ...]]]()
    for _ in range(3):
        batches.append(test_topn._some(chance, sum(map(len, batches))))
    rows = ((test_topn.ROWS, batches),)
    return Case(lambda df: test_topn._streams(df, [kind]), rows, batch=lambda df: test_topn._in_spark(df, [kind]))


def _best_of_sums() -> Case:
    """The first rows of what rises and falls, and the first of those: products leave and come back."""
    chance = Random("top-N of updates")
    batches = [
        [(chance.choice("xy"), chance.choice("abcde"), chance.randrange(-9, 15)) for _ in range(12)] for _ in "1234"
    ]

    def best(df: Any) -> Any:
        sums = df.groupBy("shop", "product").agg(F.sum("n").alias("sales"))
        order = (F.desc("sales"), "product")
        if _is_ours(df):
            first = sums.groupBy("shop").topN(2, *order, rank="place", mergeKeys="product")
            return first.groupBy().topN(3, *order, F.asc("shop"), rank="of_all", mergeKeys=["shop", "product"])
        of_shop, of_all = Window.partitionBy("shop").orderBy(*order), Window.orderBy(*order, "shop")
        first = sums.withColumn("place", F.row_number().over(of_shop)).where("place <= 2")
        return first.withColumn("of_all", F.row_number().over(of_all)).where("of_all <= 3")

    rows = (("shop string, product string, n int", batches),)
    return Case(best, rows, "update", keys="of_all", changes="op")


def _by_event_time() -> dict[str, Case]:
    left_out = (*test_event_time.NONE_ENDS, OF_A_COLUMN)
    queries = {name: query for name, query in test_event_time.QUERIES.items() if name not in left_out}
    return {f"event time, {name}": _timed(query) for name, query in queries.items()}


def _cases() -> dict[str, Case]:
    found = {f"join, {name}": _both(name) for name in test_joins.KINDS if name not in REFUSED_JOINS}
    found |= {f"distinct, {name}": _distinct(name) for name in test_distinct.KINDS}
    found |= _by_event_time()
    found |= {f"windows, {name}, {m}": _timed(test_windows.QUERIES[name], m) for name, m in test_windows.CASES}
    found |= {f"filters, {form}": _filtered(form) for form in test_windows.FILTERS if form != IN_PARTS}
    found |= {f"times, {name}": _timed(*case) for name, case in test_event_time.OF_TIMES.items() if name != "complete"}
    found |= {f"top-N, {kind}": _top(kind) for kind in test_topn.KINDS}
    found["top-N of updates"] = _best_of_sums()
    found |= {f"static, {how}": _processed(_static(how)) for how in ("inner", "left", "left_semi", "left_anti")}
    forms = ("names", "conditions", "read by each batch")
    found |= {f"static, known by {form}": _processed(_static_known(form)) for form in forms}
    found["processor of DataFrames"], found["processor of rows"] = _processed(_visits), _processed(_sessions)
    found["columns"], found["inputs of aggregates"] = _processed(_computed), _processed(_inputs)
    stars = {name: test_stars.ROWS[name] for name in ("struct", "column", "several", "product")}
    found |= {f"star, {name}": _as_batch(query) for name, query in stars.items()}
    found["star, aggregate"] = _as_batch(test_stars.GROUPS["aggregate"], "k")
    found["from_json"] = _as_batch(_of_json, "k")
    found["texts in aggregates"] = _as_batch(_inner_texts, "k")
    found["grouping sets of windows"] = _as_batch(_sets_of_windows, "k,at,g")
    found["columns of a stream"] = _as_batch(_known_columns)
    found["places"] = _as_batch(lambda df: df.repartitionByRange(3, df.columns[0]).repartitionById(4, F.lit(3)))
    subs = {"sub-queries": test_sub_queries.SOME, "more sub-queries": test_sub_queries.OTHERS}
    found |= {name: _in_expressions(forms) for name, forms in subs.items()}
    found["groups of batches"] = _processed(_groups_of_batches)
    found["windows within"], found["groups by windows"] = _processed(_windows_within), _processed(_by_windows)
    found["cube of windows"] = _processed(_cube_of_windows)
    found["keys of sets"] = _processed(_keys_of_sets)
    sides = (
        ("k string, v int", [[("a", 1), (None, 2)], [("b", 1)]]),
        ("j string, v long, w double", [[("A", 11, None)], []]),
    )
    found["summary"] = _as_batch(lambda df: df.summary("count", "mean", "50%", "max"), "summary")
    numbered = ((test_windows.SCHEMA, test_windows._batches(7, 2)),)
    found["numbers"] = Case(lambda df: df.coalesce(1).zipWithIndex("n").drop("t"), numbered)
    found["groups of both sides"] = Case(_groups_of_both_sides, sides)
    nulls = ((test_fails_on_nulls.SCHEMA, test_fails_on_nulls.ROWS),)
    found["fails on nulls"] = Case(lambda df: test_fails_on_nulls.query(df)[0], nulls)
    found["nested nulls"] = _as_batch(lambda df: test_nested_values.nested(df, _session(df)), "k")
    found["initial state"], found["aggregates"] = _processed(_initial), _processed(_newer)
    return found


def _flat(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(map(_flat, value.values()))
    if isinstance(value, tuple | list):
        return tuple(map(_flat, value))
    return value.timestamp() if isinstance(value, datetime) else value


def _of_spark(spark: SparkSession, df: Any, mode: str, number: int) -> list[tuple[Any, ...]]:
    writer = df.writeStream.format("memory").queryName(f"plain{number}").outputMode(mode)
    assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    return ordered(_flat(spark.table(f"plain{number}").toArrow().to_pylist()))


def check(spark: SparkSession, folder: Path, case: Case, number: int) -> str:
    """What is wrong with it, or nothing."""
    spark.conf.set("spark.ckpt.dir", str(folder / "jobs"))
    inputs = [Input(folder / f"in{i}", schema) for i, (schema, _) in enumerate(case.inputs)]
    for made, (_, batches) in zip(inputs, case.inputs, strict=True):
        for rows in batches:
            made.add(*rows)
    if case.keys is not None:
        batch = case.query(*(i.table(spark) for i in inputs)).collect()
        expected = ordered(_flat(row.asDict(recursive=True)) for row in batch)
    elif case.batch is None:
        expected = _of_spark(spark, case.query(*(i.spark_stream(spark) for i in inputs)), case.mode, number)
    else:
        expected = case.batch(inputs[0].table(spark))
    job, ckpt = Job(folder), spark_ckpt.enable(spark)
    told = {"changeColumn": case.changes} if case.changes else {}
    job.run(case.query(*(i.stream(ckpt, uid=i.folder.name) for i in inputs)), case.keys or None, mode=case.mode, **told)
    table = spark.table("job").toArrow().to_pylist()
    found = ordered(_flat(table) if case.batch is None else map(_flat, test_topn._rows_behind(job)))
    return "" if found == expected and expected else f"expected {expected}\nfound    {found}"


def _no_time(spark: SparkSession) -> None:
    """On Connect a column of ``window_time`` is no event time any more, for Spark as for us: append is refused."""

    def query(stream: Any) -> Any:
        timed = stream.selectExpr("'a' AS k", "timestamp AS t", "value AS v").withWatermark("t", "1 minute")
        return test_event_time.QUERIES[OF_A_COLUMN](timed).writeStream.outputMode("append").queryName("no_time")

    with pytest.raises(AnalysisException, match="without watermark"):
        query(spark.readStream.format("rate").load()).format("memory").start()
    with pytest.raises(InvalidInputError, match="puts out rows of mode 'update'"):
        query(spark_ckpt.enable(spark).readStream.format("rate").load())


def _starts(spark: SparkSession) -> None:
    """What Spark's writer refuses at start is of its class and condition here."""
    with TemporaryDirectory() as folder:
        readers = (spark.readStream, spark_ckpt.enable(spark).readStream)
        streams = [reader.schema(test_drop_in_calls.SCHEMA).parquet(folder) for reader in readers]
        for name in test_drop_in_calls.STARTS:
            one, other = (test_drop_in_calls.refused_at_start(s, name, f"{folder}/{i}") for i, s in enumerate(streams))
            assert isinstance(other, getattr(pyspark.errors, type(one).__name__)), (name, one, other)
            assert one.getCondition() == other.getCondition(), (name, one, other)


def _changed(cell: Cell) -> Callable[[SparkSession], None]:
    """A job that changes, as in test_changes_generated.py."""

    def check_it(spark: SparkSession) -> None:
        partitions = spark.conf.get("spark.sql.shuffle.partitions")
        with TemporaryDirectory() as folder:
            wrong, refusals = tried(spark, Path(folder) / "cell", cell)
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        assert not wrong, (wrong, refusals)

    return check_it


CHANGED = Cell(
    {"totals": "a processor", "windows": "merged keys", "function": "a field has another name"},
    "sources in another order", "down", "empty", "update", 1,
)  # fmt: skip


def _keys_asked(spark: SparkSession) -> str:
    stream = spark_ckpt.enable(spark).readStream.format("rate").load()
    named = stream.selectExpr("string(value) AS k", "timestamp AS t", "value AS amount")
    test_changed_state.keys_asked_about(spark_ckpt.enable(spark), named.withWatermark("t", "1 minute"))
    return ""


CHECKS = {
    "a job that changes": _changed(CHANGED),
    **{f"changes {cell.seed}": _changed(cell) for cell in covering(max(0, some(1) - 1))},
    "starts": _starts,
    "operated": operated,
    "no event time": _no_time,
    "keys that are computed otherwise": _keys_asked,
}  # fmt: skip
"""By themselves: each raises if it fails."""


def main(folder: str, *names: str) -> int:
    for module in (test_transform_with_state, changing_models, changing_queries, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    builder = SparkSession.builder.remote("local[2]")
    for key, value in {**CONFS, "spark.ckpt.cache.dir": f"{folder}/cache", "spark.ckpt.dir": f"{folder}/jobs"}.items():
        builder = builder.config(key, value)
    spark, wrong = builder.getOrCreate(), 0
    cases = {**_cases(), **CHECKS}
    for number, (name, case) in enumerate((n, c) for n, c in cases.items() if not names or n in names):
        own = Path(folder) / str(number)
        own.mkdir()
        try:
            said = check(spark, own, case, number) if isinstance(case, Case) else case(spark)
        except Exception:  # noqa: BLE001 - the other cases are to be tried, too
            said = traceback.format_exc()
        wrong += bool(said)
        print(f"Connect, {name}: {said or 'as in Spark'}", file=sys.stderr, flush=True)  # noqa: T201
    spark.stop()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
