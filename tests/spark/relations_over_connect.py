"""Plain PySpark over streams of ours through Spark Connect, by the client's relations: rows are those of Spark's batch.

``python -m tests.spark.relations_over_connect FOLDER``, a process of its own: classic Spark and Connect do not go
together in one. Exits with 1 if something came out wrong.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import spark_ckpt
from spark_ckpt.errors import InvalidInputError, TopologyError
from spark_ckpt.plan.relations.translate import translated
from spark_ckpt.sinks import memory
from tests.spark.conftest import DEADLINE_S, Input, ordered
from tests.spark.over_connect import CONFS

SCHEMA = "id bigint, k string, v double, at timestamp, xs array<bigint>"
Made = Callable[[Any], Any]


def names_of(o: Any) -> Any:
    return o.sparkSession.createDataFrame([("a", "one"), ("b", "two"), ("b", None)], "k string, name string")


def one_more(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield frame.assign(v=frame["v"] + 1)


def upper(x: str | None) -> str | None:
    return None if x is None else x.upper()


def dotted(o: Any) -> Any:
    made = o.select(F.col("k").alias("a.b"), F.struct("v", "id").alias("s"))
    return made.where("s.v > 3").select(made["`a.b`"], "s.id")


def by_ids(o: Any) -> Any:
    """A column is that of the DataFrame that it was taken from, behind a stage in Python, too."""
    more = o.where(o["v"] > 3).withColumn("w", o["v"] + 1).alias("m")
    kept = more.select("k", "v", "w").mapInPandas(one_more, "k string, v double, w double").alias("n")
    few = more.dropDuplicates(["id"]).where(o["id"] < 9).select(o["k"], F.col("m.w"))
    return kept.where("n.w > 1").select(kept["k"], F.col("n.v") - 1 + kept["w"] * 0 + 1).union(few)


def twice_named(o: Any) -> Any:
    """Both sides of a join have the name."""
    names = names_of(o)
    made = o.join(names, o["k"] == names["k"], "left")
    return made.where(names["k"].isNotNull() & (o["id"] > 2)).select(o["k"], F.concat(names["k"], "name"))


def shown(df: Any) -> Any:
    """All columns in one."""
    return df.select(F.lit("all"), F.to_json(F.struct("*")))


def sized(key: Any, frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"k": [f"{key} {list(frame.columns)}"], "n": [len(frame)]})


def joined(key: Any, left: pa.Table, right: pa.Table) -> pa.Table:
    return pa.table({"k": [key[0].as_py()], "n": [10 * left.num_rows + right.num_rows]})


PROGRAMS: dict[str, Made] = {
    "filters and columns": lambda o: o.where("v > 3").withColumn("w", F.col("v") * 2).select("k", F.col("w")),
    "names twice": lambda o: o.select("k", F.col("v").alias("k")).toDF("k", "v").where("v < 9"),
    "aliases": lambda o: o.alias("a").select("a.k", F.col("a.v").alias("k")).drop("nothing").toDF("x", "y"),
    "stars": lambda o: o.alias("a").select("a.*", F.struct("id", "v").alias("s")).select("k", "s.*").select("*")
    .drop("id"),
    "dots": dotted, "ids": by_ids, "names of both sides": twice_named,
    "texts": lambda o: o.selectExpr("k", "v * 2 AS w", "xs[0] + 1").where("w > 1 OR k IS NULL").selectExpr("k", "w"),
    "nulls": lambda o: o.select(F.when(F.col("id") > 4, F.col("k")).alias("k"), (F.col("v") % 4).alias("q"))
    .fillna("none").fillna({"q": 7.0}).replace("a", "z").dropna(),
    "dropna": lambda o: o.select(F.when(F.col("id") > 4, F.col("k")).alias("k"), F.col("v")).dropna(subset=["k"]),
    "renamed": lambda o: o.withColumnRenamed("k", "key").withColumnsRenamed({"v": "w"}).select("key", "w"),
    "unpivot": lambda o: o.unpivot(["id"], ["v", F.col("v").alias("w")], "name", "val").where("val < 9").drop("id"),
    "generators": lambda o: o.select("k", F.explode("xs").alias("x")).where("x > 2").groupBy("k").agg(F.sum("x")),
    "aggregates": lambda o: o.groupBy("k").agg(F.sum(F.col("v") * F.col("id")) / F.count("*")),
    "having": lambda o: o.groupBy(F.upper("k").alias("u")).agg(F.avg("v").alias("m"), F.max("id").alias("x"))
    .where("x > 3").select("u", "m"),
    "one group": lambda o: o.agg(F.count("*").alias("n"), F.max("v")),
    "distinct": lambda o: o.select("k", F.col("id") % 2).distinct(),
    "duplicates of columns": lambda o: o.withWatermark("at", "1 minute").dropDuplicates(["k", "at"]).select("k", "v"),
    "functions in Python": lambda o: o.select(F.udf(upper, "string")("k"), F.col("v").alias("y")).where("y > 2"),
    "functions of batches": lambda o: o.select("k", "v").mapInPandas(one_more, "k string, v double"),
    "windows": lambda o: o.groupBy(F.window("at", "2 minutes").alias("w"), "k").agg(F.sum("v").alias("s"))
    .select("w.start", "s"),
    "windows that overlap": lambda o: o.groupBy(F.window("at", "3 minutes", "1 minute", "10 seconds"))
    .agg(F.count("*").alias("n")).select("window", "n"),
    "a column of windows": lambda o: o.select(F.window("at", "1 minute").alias("w"), "v").where("v > 4")
    .select("w.end", "v"),
    "windows in columns": lambda o: o.withColumn("s", F.window("at", "1 minute").start).where(
        F.window("at", "5 minutes").start >= F.lit("2026-01-01").cast("timestamp")).select("s", "id"),
    "union": lambda o: o.select("k", "v").union(o.where("v > 5").select("k", F.col("id").cast("double"))),
    "union by name": lambda o: o.select("v", "k").unionByName(o.select("k"), True).select("k", "v"),
    "left join with a table": lambda o: o.join(names_of(o), "k", "left").select("name", "v"),
    "inner join by name": lambda o: o.fillna("b").join(F.broadcast(names_of(o)), "k").select("k", "name"),
    "inner join with a table": lambda o: names_of(o).alias("n").join(o.alias("o"), F.expr("o.k = n.k AND o.id > 3"))
    .select("n.name", "o.v"),
    "right join of a table": lambda o: names_of(o).join(o, "k", "right").select("name", "v"),
    "anti join": lambda o: o.join(names_of(o), "k", "left_anti").select("k", "v"),
    "semi join": lambda o: o.join(names_of(o), ["k"], "left_semi").select("k", "v"),
    "cross join": lambda o: o.crossJoin(names_of(o)).select("name", "v"),
    "stars in functions": lambda o: o.select(F.to_json(F.struct("*")), F.xxhash64("*") % 7),
    "a star in an aggregate": lambda o: shown(o.groupBy("k").agg(F.max(F.struct("*")).alias("m"), F.count("*"))),
    "cube": lambda o: shown(o.cube("k", (F.col("id") % 2).alias("odd")).agg(
        F.sum("v").alias("s"), F.grouping("k").alias("g"), F.grouping_id().alias("i"), F.max("k").alias("m"))),
    "rollup of windows": lambda o: shown(o.rollup(F.window("at", "2 minutes"), "k").agg(
        F.count("*").alias("n"), F.grouping("window").alias("g"))),
    "grouping sets": lambda o: o.groupingSets([["k"], []], "k").agg(F.sum("v").alias("s")),
    "pivot": lambda o: shown(o.groupBy("k").pivot("id", [1, 2]).agg(F.max("k").alias("m"), F.count("v").alias("n"))),
    "keys of other types": lambda o: shown(o.groupBy(
        F.create_map("k", "v").alias("m"), F.make_dt_interval(F.lit(0), "id").alias("i")).agg(F.count("*").alias("n"))
        .withColumns({"m": F.to_json("m"), "i": F.col("i").cast("string")})),
    "structs of windows": lambda o: shown(o.groupBy(F.struct("k", F.window("at", "2 minutes")).alias("s")).agg(
        F.max(F.window("at", "2 minutes").end).alias("e"))),
    "a column of sessions": lambda o: o.withColumn("s", F.session_window("at", "1 minute")).select("s.end", "v"),
    "summary": lambda o: shown(o.select("k", "v").summary("count", "mean", "50%", "max")),
    "description": lambda o: o.describe("v"),
    "sample": lambda o: o.sample(1.0).select("k", "v"),
    "numbers": lambda o: o.select("k").coalesce(1).zipWithIndex("n"),
    "groups of batches": lambda o: o.groupBy(F.upper("k"), F.window("at", "4 minutes")).applyInPandas(
        sized, "k string, n long"),
    "groups of both sides": lambda o: o.groupBy("k").cogroup(names_of(o).groupBy("k")).applyInArrow(
        joined, "k string, n long"),
    "generators beside": lambda o: o.lateralJoin(o.sparkSession.tvf.explode("xs").toDF("x"), F.col("x") > 2)
    .select("k", "x"),
    "tables beside": lambda o: o.alias("o").lateralJoin(
        names_of(o).alias("n").where(F.col("n.k") == F.col("o.k").outer()), how="left").select("o.v", "name"),
}  # fmt: skip


def counted(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    n = sum(map(len, frames)) + (state.get[0] if state.exists else 0)
    state.update((n,))
    yield pd.DataFrame({"key": [key[0]], "n": [n]})


class Counted(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        n = sum(map(len, rows)) + (self.count.get()[0] if self.count.exists() else 0)
        self.count.update((n,))
        yield pd.DataFrame({"key": [key[0]], "n": [n]})

    def close(self) -> None: ...


class Orders:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        data, start = Input(folder / "orders", SCHEMA), datetime(2026, 1, 1, tzinfo=timezone.utc)
        rows = [(i, "abc"[i % 3], i * 1.5, start + timedelta(seconds=30 * i), [i, i + 1]) for i in range(12)]
        data.add(*rows)
        self.spark, self.folder, self.ckpt = spark, folder, spark_ckpt.enable(spark)
        self.read = lambda: spark.read.schema(SCHEMA).parquet(str(data.folder))
        self.data = data
        self.stream: Any = data.stream(self.ckpt)

    def copied(self) -> Any:
        return self.data.stream(self.ckpt, uid="copied")

    def run(self, df: Any, name: str, mode: str) -> list[tuple[Any, ...]]:
        path = str(self.folder / name)
        writer: Any = df.writeStream.format("memory").option("path", path).outputMode(mode).queryName(name)
        assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
        return ordered([tuple(row.values()) for row in memory.read(path).to_pylist()])


def together(made: dict[str, Any]) -> Any:
    found = None
    for name, df in made.items():
        one, other = (F.col(c).cast("string").alias(c) for c in ("one", "two"))
        texts = df.toDF("one", "two").select(F.lit(name).alias("program"), one, other)
        found = texts if found is None else found.union(texts)
    return found


def rows_of_every_relation(orders: Orders) -> None:
    """All in one query: a start of each would take minutes."""
    found = orders.run(together({name: made(orders.stream) for name, made in PROGRAMS.items()}), "together", "update")
    # Each has a DataFrame of its own: Spark itself does not find columns of one that is read in many ways in a union.
    of_spark = together({name: made(orders.read()) for name, made in PROGRAMS.items()})
    expected = ordered(tuple(row) for row in of_spark.collect())
    for name in PROGRAMS:
        one, other = ([row for row in rows if row[0] == name] for rows in (found, expected))
        assert one == other, (name, one, other)


def state_of_functions(orders: Orders) -> None:
    grouped = orders.stream.groupBy("k")
    one = grouped.applyInPandasWithState(counted, "key string, n long", "n long", "update", "NoTimeout")
    other = grouped.transformWithStateInPandas(Counted(), "key string, n long", "update", "None")
    both = one.uid("one").union(other.uid("other"))
    assert [o.uid for o in translated(orders.ckpt, both)._lineage.operators] == ["one", "other"]
    assert orders.run(both, "functions", "update") == [(k, 4) for k in "aabbcc"]


def order_and_limit(orders: Orders) -> None:
    best = orders.stream.groupBy("k").agg(F.sum("v").alias("s")).orderBy(F.desc("s"), "k").limit(2)
    assert orders.run(best, "best", "complete") == [("b", 33.0), ("c", 39.0)]


def _timed(df: Any) -> Any:
    return df.withWatermark("at", "1 minute")


def uids_and_refusals(orders: Orders) -> None:
    stream = orders.stream
    totals = stream.groupBy("k").agg(F.sum("v").alias("s")).uid("totals")
    both = totals.where("s > 1").union(totals.select("k", "s"))
    assert [o.uid for o in translated(orders.ckpt, both)._lineage.operators] == ["totals", "totals-2"]
    with pytest.raises(InvalidInputError, match="expected a DataFrame that ends with an operator that keeps state"):
        stream.where("v > 1").uid("totals")
    with pytest.raises(TopologyError, match="totals"):
        translated(orders.ckpt, totals.union(stream.groupBy("k").agg(F.max("v")).uid("totals")))
    with pytest.raises(InvalidInputError, match=r"Offset .* row_number\(\) and a filter"):
        translated(orders.ckpt, stream.offset(3))
    with pytest.raises(InvalidInputError, match=r"createOrReplaceTempView\('orders'\): .* write it with methods"):
        stream.createOrReplaceTempView("orders")
    text = orders.spark.sql("SELECT k FROM {orders}", orders=stream)
    with pytest.raises(InvalidInputError, match="write it with methods of the stream's DataFrame"):
        text.writeStream.outputMode("append")
    for refused in (stream.collect, stream.where("v > 1").persist, stream.toPandas):
        with pytest.raises(AnalysisException, match="Queries with streaming sources must be executed"):
            refused()
    timed, other = _timed(stream), _timed(orders.copied())
    for refused, said in [
        (timed.join(other, ["k", "at"], "right").where(timed["k"].isNull()), "k: a join by names shows it once"),
        (timed.join(other, "k").where(other["v"] > 1), "Filter: Spark puts .* in front of withWat"),
        (timed.where("hour(at) >= 0 AND k = 'a'"), r"Filter: Spark puts .* = a\)\) in front of withWat"),
    ]:
        with pytest.raises(InvalidInputError, match=said):
            orders.ckpt.check(refused, "append")
    with pytest.raises(InvalidInputError, match="row_number"):
        translated(orders.ckpt, stream.select(F.expr("row_number() OVER (PARTITION BY k ORDER BY v)")))


REFUSED: dict[str, Made] = {
    "write where\\(F.rand": lambda o: o.sampleBy("k", {"a": 0.5}),
    "withReplacement=True": lambda o: o.sample(True, 0.5),
    "grouping sets of session windows": lambda o: o.cube(F.session_window("at", "1 minute"), "k").count(),
    "the number of a row in a column of its own": lambda o: o.zipWithIndex().select("*").withColumn(
        "m", o.zipWithIndex()._plan._columns[1]),
    "a left join with what a generator makes": lambda o: o.lateralJoin(
        o.sparkSession.tvf.explode("xs").toDF("x"), F.col("x") > 2, "left"),
    "a star inside of it takes in": lambda o: o.select(F.expr("to_json(struct(*)) IS NULL")),
    "Project: over Spark Connect, .* F.window": lambda o: o.select(F.expr("window(at, '1 minute').start")),
    "Project: over Spark Connect, .*F.window": lambda o: o.select(F.expr("window(at, '2 minutes', '1 minute')")),
    "Project: .* Write the generator as a function": lambda o: o.selectExpr("k", "explode(xs) AS x"),
    "Write the generator as a function": lambda o: o.select(F.call_function("explode", "xs")),
    "names that begin with __ckpt_ are reserved": lambda o: o.withColumn("__ckpt_ctl", F.lit(None)),
    "the text 'sum\\(v\\)' cannot be taken apart": lambda o: o.groupBy("k").agg(F.expr("sum(v)")),
    "does not read a SQL text of both streams": lambda o: _timed(o).join(
        _timed(o).toDF(*"abcde"), F.expr("k = b AND d = at")),
    "topN": lambda o: o.withColumn("n", F.row_number().over(Window.partitionBy("k").orderBy("v"))).where("n < 2"),
    "input_file_name\\(\\) is asked for": lambda o: o.select(F.input_file_name()),
    "topN: over Spark Connect its keys are columns": lambda o: o.groupBy(F.window("at", "1 minute")).topN(1, "v"),
    "a keyed operator cannot keep, as Arrow": lambda o: o.groupBy("k").agg(F.first(F.expr("parse_json(k)"))),
    "pivot is not supported on a streaming": lambda o: o.groupBy("k").pivot("id").count(),
}  # fmt: skip
"""What the message says -> a program."""


def refusals_of_relations(orders: Orders) -> None:
    for message, made in REFUSED.items():
        df = made(orders.stream)
        with pytest.raises((InvalidInputError, AnalysisException), match=message):
            translated(orders.ckpt, df)
    dotted = orders.stream.withColumnRenamed("k", "a.b").groupBy("`a.b`").topN(1, "v")
    assert "a.b" in translated(orders.ckpt, dotted).columns


CHECKS = (rows_of_every_relation, state_of_functions, order_and_limit, uids_and_refusals, refusals_of_relations)


def main(folder: str, *names: str) -> int:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    builder = SparkSession.builder.remote("local[2]")
    for key, value in {**CONFS, "spark.ckpt.cache.dir": f"{folder}/cache", "spark.ckpt.dir": f"{folder}/jobs"}.items():
        builder = builder.config(key, value)
    spark, wrong = builder.getOrCreate(), 0
    orders = Orders(spark, Path(folder))
    for check in CHECKS:
        if names and check.__name__ not in names:
            continue
        try:
            check(orders)
            said = "right"
        except Exception:  # noqa: BLE001 - the other checks are to be tried, too
            said, wrong = traceback.format_exc(), wrong + 1
        print(f"Connect's relations, {check.__name__}: {said}", file=sys.stderr, flush=True)  # noqa: T201
    spark.stop()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
