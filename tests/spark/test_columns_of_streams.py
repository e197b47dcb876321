"""``stream["k"]`` is that column and no later one of its name: in what was made of the stream, and behind joins."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from tests.spark.conftest import Input, Job, ordered

Query = Callable[[Any, Any], Any]
NEW = F.lit


def _joined(a: Any, b: Any) -> Any:
    return a.join(b, a["k"] == b["k"])


def _new(a: Any) -> Any:
    return a.withColumn("k", NEW("new"))


def _timed(a: Any) -> Any:
    return a.withWatermark("t", "1 hour")


def _static(a: Any) -> Any:
    return a.sparkSession.createDataFrame([("p", "P", 1)], "k string, word string, v int")


def _aliased(a: Any, b: Any) -> Any:
    return a.alias("a").join(b.alias("b"), F.col("a.k") == F.col("b.k"))


def _s(*columns: str) -> Any:
    return F.struct(*columns).alias("s")


def _structs(a: Any, b: Any) -> Any:
    """Both sides have a struct ``s`` of a ``v`` that is not the side's own."""
    return _aliased(a.withColumn("s", F.struct((F.col("v") * 100).alias("v"))), b.withColumn("s", F.struct("w", "v")))


def _new_struct(a: Any, b: Any) -> Any:
    return _aliased(a.withColumn("s", F.struct("v")), b).withColumn("s", F.struct(F.lit(1).alias("p")))


def _with_table(a: Any, b: Any) -> Any:
    return _aliased(a, b).join(_static(a).alias("p"), F.col("a.k") == F.col("p.k"), "left")


def _of_table(query: Callable[[Any, Any], Any]) -> Query:
    """``query`` gets what is joined, and the table itself."""
    return lambda a, b: (lambda x: query(_joined(a, b).join(x, a["k"] == x["k"]), x))(_static(a))


ANALYSED: dict[str, Query] = {
    "select": lambda a, b: _new(a).select(a["k"]),
    "withColumn": lambda a, b: _new(a).withColumn("z", F.upper(a["k"])),
    "agg": lambda a, b: _new(a).groupBy("v").agg(F.max(a["k"])),
    "group": lambda a, b: _new(a).groupBy(a["k"]).count(),
    "drop": lambda a, b: _new(a).drop(a["k"]),
    "dropped": lambda a, b: a.drop("k").select(a["k"]),
    "renamed": lambda a, b: a.withColumnRenamed("v", "n").withColumnRenamed("k", "v").select(a["v"]),
    "all renamed": lambda a, b: a.toDF("v", "k", "t").select(a["k"]),
    "another stream": lambda a, b: a.select(b["k"]),
    "tasks by another stream": lambda a, b: a.repartition(2, b["k"]),
    "ranges of another stream": lambda a, b: a.repartitionByRange(2, F.upper(b["k"])),
    "a task by another stream": lambda a, b: a.repartitionById(2, b["v"].cast("int")),
    "tasks by what was replaced": lambda a, b: _new(a).repartition(2, a["k"]),
    "a table's key behind semi": lambda a, b: (lambda x: a.join(x, "k", "left_semi").groupBy(x["k"]).count())(
        _static(a)
    ),
    "filled": lambda a, b: a.fillna("x", ["k"]).select(a["v"], a["k"]),
    "not filled": lambda a, b: a.fillna("x", ["k"]).select(a["v"]),
    "watermark": lambda a, b: _timed(a).alias("x").select(a["t"], "x.k"),
    "union": lambda a, b: a.union(b.select("k", "v", "t")).select(a["k"]),
    "other side of a union": lambda a, b: a.union(b.select("k", "v", "t")).select(b["k"]),
    "key": lambda a, b: a.groupBy("k").agg(F.max("v") + 1).select(a["k"]),
    "aggregate": lambda a, b: a.groupBy("k").agg(F.max("v").alias("v")).where(a["v"] > 1),
    "windows": lambda a, b: _timed(a).groupBy(F.window("t", "1 hour"), "k").count().select(a["k"]),
    "cube": lambda a, b: a.cube("k").count().select(a["k"]),
    "distinct": lambda a, b: a.dropDuplicates(["k"]).select(a["v"], a["k"]),
    "new behind distinct": lambda a, b: _new(a.dropDuplicates(["k"])).select(a["k"]),
    "function": lambda a, b: a.mapInArrow(lambda rows: rows, "k string, v int").select(a["k"]),
    "in front of a join": lambda a, b: _new(a).join(b, a["k"] == b["k"]),
    "behind a join": lambda a, b: _joined(a, b).withColumn("k", NEW("new")).select(a["k"]),
    "added behind a join": lambda a, b: _joined(a, b).withColumn("k", NEW("new")).withColumn("z", a["k"]),
    "group behind a join": lambda a, b: _joined(a, b).withColumn("k", NEW("new")).groupBy(a["k"]).count(),
    "agg behind a join": lambda a, b: _joined(a, b).withColumn("k", NEW("new")).groupBy("w").agg(F.max(b["k"])),
    "left out behind a join": lambda a, b: _joined(a, b).select(b["k"], "w").select(a["k"]),
    "kept behind a join": lambda a, b: _joined(a, b).withColumn("k", NEW("new")).select(a["v"], b["v"], "w"),
    "struct behind a join": lambda a, b: _joined(a, b).select(F.struct(a["k"], b["k"], "w"), F.upper(b["k"])),
    "structs behind a join": lambda a, b: _joined(a, b).groupBy("w").agg(F.collect_list(F.struct(a["v"], "w"))),
    "filled behind a join": lambda a, b: _joined(a, b).fillna(7, ["w"]).select(b["w"]),
    **{
        f"star, {how}": lambda a, b, how=how: (
            _timed(a).alias("a").join(_timed(b).alias("b"), ["k", "t"], how).select("a.*", "b.*", "k")
        )
        for how in ("inner", "left", "right", "full")
    },
    "stars of a condition": lambda a, b: a.alias("a").join(b.alias("b"), F.expr("a.k = b.k")).select("b.*", "a.v"),
    "star of a stream": lambda a, b: _joined(a, b).select(b["*"], F.struct(a["*"])),
    "star of a stream, replaced": lambda a, b: _new(a).select(a["*"]),
    "star in another case": lambda a, b: _aliased(a, b).select("A.*", "B.K", F.col("a.v")),
    "star without some": lambda a, b: _aliased(a, b).selectExpr("* except (a.k, b.v)", "b.* except (k, t)"),
    "star of what was renamed": lambda a, b: _aliased(a, b).withColumnRenamed("v", "n").select("a.*", "b.*"),
    "star of a struct": lambda a, b: _structs(a, b).select("a.s.*", "b.s.*", F.struct("b.s.*").alias("r")),
    "field": lambda a, b: _structs(a, b).select("a.s.v", "b.s.w", F.col("b.s.v") + 1),
    "field that was replaced": lambda a, b: _new_struct(a, b).select("s.v"),
    "new field": lambda a, b: _new_struct(a, b).select("s.p", "s.*", F.upper("s.p")),
    "colRegex": lambda a, b: (lambda q: q.select(q.colRegex("`K|w`"), q.colRegex("b.`[kv]`")))(_aliased(a, b)),
    "cube of aliases": lambda a, b: (
        _aliased(a, b).cube("a.k", "w").agg(F.sum("b.v"), F.grouping("a.k"), F.grouping_id())
    ),
    "table behind a join": _of_table(lambda q, x: q.select(x["k"], x["v"], "word", "w")),
    "table behind a join, dropped": _of_table(lambda q, x: q.drop(x["k"], x["v"])),
    "table behind a join, grouped": _of_table(lambda q, x: q.groupBy(x["k"]).agg(F.sum(x["v"]), F.max("w"))),
    "table by its alias": lambda a, b: _with_table(a, b).select("p.k", "a.*", "p.*", F.struct("p.*"), F.col("b.v") + 1),
    "table by its alias, dropped": lambda a, b: _with_table(a, b).drop(F.col("p.k"), F.col("a.v")).select("p.*", "*"),
    "table by its alias, replaced": lambda a, b: _with_table(a, b).withColumn("word", F.upper("p.word")).select("p.*"),
    "table by names": lambda a, b: (
        a.alias("a").join(b.alias("b"), "k").join(_static(a).alias("p"), "k").select("p.*", "a.*", "k", "b.k")
    ),
    "table": lambda a, b: a.join(_static(a), "k").withColumn("k", NEW("new")).select(a["k"]),
    "columns of a table": lambda a, b: (lambda x: a.join(x, a["k"] == x["k"]).select(x["k"]).select(a["k"]))(
        _static(a)
    ),
}
"""What Spark says of names and types, or the condition of its error."""


def _said(query: Query, a: Any, b: Any) -> Any:
    try:
        return query(a, b).schema.simpleString()
    except AnalysisException as error:
        return error.getCondition()


FILTERS: dict[str, Query] = {
    "replaced": lambda a, b: _new(a).where(a["k"] == "p"),
    "both": lambda a, b: (lambda new: new.where((a["k"] == "p") & (new["k"] == "new")))(_new(a)),
    "twice": lambda a, b: _new(a).withColumn("k", F.upper("k")).where((a["k"] == "p") & (F.col("k") == "NEW")),
    "renamed": lambda a, b: a.withColumnRenamed("k", "n").withColumnRenamed("v", "k").where(a["k"] == "p"),
    "filled": lambda a, b: a.fillna("x", ["k"]).where(a["k"].isNull()),
    "dropped": lambda a, b: a.drop("k").withColumn("k", NEW("new")).where(a["k"] == "p"),
    "in front of a watermark": lambda a, b: _timed(a).withColumn("v", a["v"] * 10).where(a["v"] < 3),
    "computed": lambda a, b: (lambda m: m.where(m["z"] > 2).select(m["z"], a["k"]))(
        _timed(a).withColumn("z", a["v"] + 1)
    ),
    "union": lambda a, b: _timed(a).union(_timed(a.select(F.upper("k"), "v", "t"))).where(a["v"] > 3),
    "join": lambda a, b: _joined(a, b).withColumn("k", NEW("new")).where(a["k"] == "p"),
    "names": lambda a, b: a.join(b, "k").withColumn("k", NEW("new")).where(b["k"] == "p"),
    "left out behind a join": lambda a, b: _joined(a, b).select(b["v"], "w").where(a["v"] < b["v"]),
    "behind repartitioning": lambda a, b: a.select("k").repartition(2, "v").hint("r").coalesce(1).where(a["v"] > 3),
    "behind a watermark": lambda a, b: (
        _timed(a).select("k", "t").withWatermark("t", "1 hour").withMetadata("k", {}).where("v > 3").select("k")
    ),
    "behind rows that came once": lambda a, b: a.where("v > 1").select("k").dropDuplicates(["k"]).where("v > 3"),
    "dropped behind a join": lambda a, b: _joined(a, b).drop(a["v"]).where(a["v"] < b["v"]).select("w", "v"),
}
"""Spark lets a filter look at what a projection in front of it has replaced, or left out."""


STRUCTS: dict[str, Query] = {
    "one name": lambda a, b: a.select(F.to_json(F.struct("k", "k", "v"))),
    "kept": lambda a, b: a.select(F.struct("k", "k").alias("s"), "v").select(F.to_json("s"), "v"),
    "in front of a table": lambda a, b: (
        a.select("k", F.struct("k", "k").alias("s")).join(_static(a).drop("v"), "k").select(F.to_json("s"), "word")
    ),
    "join": lambda a, b: _joined(a, b).select(F.to_json(F.struct(a["k"], b["k"], a["v"], "w"))),
    "stars": lambda a, b: _aliased(a, b).select(F.to_json(F.struct("a.*", "b.w")), F.expr("hash(b.*)")),
    "table": lambda a, b: (
        _with_table(a, b).where("p.v <= b.v or b.w > 30").select(F.to_json(F.struct("p.*", "a.v")), "p.k", "b.w")
    ),
    "names": lambda a, b: a.alias("a").join(b.alias("b"), "k").select(F.to_json(F.struct("b.*")), F.xxhash64("*")),
    "fields": lambda a, b: _structs(a, b).where("a.s.v > 100 and b.s.v > 0").select("a.s.v", F.to_json("b.s")),
    "filter": lambda a, b: _joined(a, b).where(F.to_json(F.struct(a["k"], b["k"])) == '{"k":"p","k":"p"}').select("w"),
    "computed": lambda a, b: _joined(a, b).withColumn("z", F.to_json(F.struct(b["v"], a["k"]))).select("z", a["v"]),
}
"""A struct may have a field's name twice."""


@pytest.fixture
def inputs(new_input: Callable[[str, str], Input]) -> tuple[Input, Input]:
    a, b = new_input("a", "k string, v int, t timestamp"), new_input("b", "k string, w int, v int, t timestamp")
    a.add(("p", 1, None), ("q", 2, None), (None, 3, None), ("r", 4, None))
    a.add(("p", 5, None), ("s", 6, None))
    b.add(("p", 10, 1, None), ("q", 20, 5, None), ("z", 30, 3, None))
    b.add(("q", 40, 2, None), (None, 50, 6, None), ("s", 60, 7, None))
    return a, b


@pytest.mark.parametrize("step", [2, pytest.param(1, marks=pytest.mark.soak)], ids=["every other", "all"])
def test_a_column_that_is_not_there_any_more_is_no_other_of_its_name(
    spark: SparkSession, ckpt: Any, inputs: tuple[Input, Input], step: int
) -> None:
    theirs, ours = ([i.spark_stream(spark) for i in inputs], [i.stream(ckpt) for i in inputs])
    asked = list(ANALYSED)[::step]
    said = {name: (_said(ANALYSED[name], *ours), _said(ANALYSED[name], *theirs)) for name in asked}
    assert not {name: both for name, both in said.items() if both[0] != both[1]}
    missing = [name for name, (_, told) in said.items() if told.startswith("MISSING_ATTRIBUTES")]
    assert len(asked) / 4 < len(missing) < len(asked) * 2 / 3


def _texts(made: Any, name: str) -> Any:
    names = [f"c{i}" for i in range(len(made.columns))]
    return made.toDF(*names).select(F.lit(name).alias("name"), F.to_json(F.struct(*names)).alias("row"))


def test_a_struct_with_a_name_twice_is_refused_where_it_would_have_to_be_kept(
    ckpt: Any, inputs: tuple[Input, Input]
) -> None:
    a = inputs[0].stream(ckpt)
    twice = a.select(F.struct("k", "k").alias("s"), "v")
    for kept in (
        a.groupBy(F.struct("k", "k").alias("s")).count(),
        a.groupBy("v").agg(F.max(F.struct("k", "k"))),
        twice.groupBy("v").agg(F.count("s")),
        twice.dropDuplicates(["v"]),
        a.select(F.array(F.struct("k", "k")).alias("s")),
    ):
        with pytest.raises(InvalidInputError, match=r"field's name comes twice.*F.struct\(F.col"):
            ckpt.check(kept, "update")


EVERY = FILTERS | {f"struct, {name}": query for name, query in STRUCTS.items()}


@pytest.mark.soak
def test_filters_and_structs_find_the_columns_that_they_ask_for(
    spark: SparkSession, ckpt: Any, inputs: tuple[Input, Input], job: Job
) -> None:
    queries = list(EVERY.items())
    theirs = [_texts(query(*(i.table(spark) for i in inputs)), name) for name, query in queries]
    ours = [_texts(query(*(i.stream(ckpt) for i in inputs)), name) for name, query in queries]
    expected = [tuple(row) for made in theirs for row in made.collect()]
    job.run(reduce(lambda one, two: one.union(two), ours))
    assert job.rows() == ordered(expected)
    assert {name for name, _ in expected} == {name for name, _ in queries}
