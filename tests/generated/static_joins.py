"""Joins with a static DataFrame, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import functions as F


def words(df: Any, schema: str = "k int, word string") -> Any:
    rows = [(0, "zero"), (2, "two"), (2, "two again"), (9, "nine"), (None, "nothing"), (7, None)]
    return df.sparkSession.createDataFrame(rows, schema)


WORD = {"key": "int", "word": "string"}


def by_key(df: Any) -> Any:
    return words(df, "key int, word string")


def pairs(df: Any) -> Any:
    rows = [(0, 0.0), (1, -0.0), (2, float("nan")), (None, 1.5), (1, None)]
    return df.sparkSession.createDataFrame(rows, "k int, d double").withColumn("found", F.lit("yes"))


def conditioned(how: str, *conditions: Callable[[Any, Any], Any]) -> list[Callable[[Any], Any]]:
    """A join for each condition, with a static side whose names the stream has, too."""

    def join(condition: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
        def joined(df: Any) -> Any:
            static = words(df)
            made = df.join(static, condition(df, static), how)
            return made if how in ("left_semi", "left_anti") else made.drop(static["k"])

        return joined

    return [join(condition) for condition in conditions]


CONDITIONS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda df, static: df["k"] == static["k"],
    lambda df, static: df.k.eqNullSafe(static.k),
    lambda df, static: (df["k"] == static["k"]) & (F.length("word") > F.col("id") % 5),
    lambda df, static: [df["k"] == static["k"], F.col("word").startswith("t")],
    lambda df, static: (df["k"] < static["k"]) | (df["n"] == 7),
    lambda df, static: F.expr("id % 3 = 1"),
    lambda df, static: F.lit(True),
    lambda df, static: F.udf(lambda k: None if k is None else k + 2, "int")(df["k"]) == static["k"],
    lambda df, static: df["k"] == F.udf(lambda k: None if k is None else k - 7, "int")(static["k"]),
)

JOINS: list[Callable[[Any], Any]] = [
    lambda df: df.join(words(df), "k"),
    lambda df: df.join(words(df), ["k"], "left").select("id", "k", "word"),
    lambda df: df.join(words(df), "k", "left_outer").where("word is null or k = 0"),
    lambda df: df.join(words(df), on=["k"], how="left_semi"),
    lambda df: df.join(words(df), "k", "leftanti"),
    lambda df: df.join(words(df), "K").select("K", "id"),
    lambda df: df.join(pairs(df), ["k", "d"]),
    lambda df: df.join(pairs(df), ["d", "k"], "left"),
    lambda df: df.join(pairs(df), ["k", "d"], "semi"),
    lambda df: df.join(pairs(df), ["d", "k"], "anti"),
    *[join for how in ("inner", "left", "left_semi", "left_anti") for join in conditioned(how, *CONDITIONS)],
    lambda df: df.crossJoin(by_key(df)),
    lambda df: df.join(by_key(df)),
    lambda df: df.join(by_key(df), how="left"),
    lambda df: df.join(by_key(df), how="left_semi"),
    lambda df: df.join(by_key(df), F.col("k") == F.col("key"), "cross"),
    lambda df: df.join(F.broadcast(words(df)), "k"),
    lambda df: df.join(by_key(df).hint("shuffle_hash"), F.col("k") == F.col("key"), "left"),
    lambda df: df.alias("a").join(words(df).alias("b"), F.col("a.k") == F.col("b.k")).select("a.id", "b.k", "b.word"),
    lambda df: df.alias("a").join(words(df).alias("b"), F.col("a.k") == F.col("b.k"), "left_semi").select("a.id", "k"),
    lambda df: df.join(words(df).where("false"), "k"),
    lambda df: df.join(words(df).where("false"), "k", "left"),
    lambda df: df.join(words(df).where("false"), "k", "left_semi"),
    lambda df: df.join(words(df).where("false"), "k", "left_anti"),
    lambda df: df.crossJoin(by_key(df).where("false")),
    lambda df: df.join(words(df).groupBy("k").agg(F.count("*").alias("n_"), F.max("word").alias("last")), "k", "left"),
    lambda df: df.join(words(df).join(words(df).select("k", F.col("word").alias("w2")), "k"), "k"),
    lambda df: df.join(words(df), "k").join(words(df).withColumnRenamed("word", "w2"), "k", "left"),
    lambda df: df.join(words(df).select(F.explode(F.array("k", F.lit(1))).alias("k")).distinct(), "k"),
    # Control rows whose key is not null, and would find something.
    lambda df: df.withColumn("k", F.lit(2)).join(words(df), "k"),
    lambda df: df.withColumn("two", F.lit(2)).join(by_key(df), F.col("two") == F.col("key"), "left"),
    lambda df: df.fillna(9).join(words(df), "k", "left_anti"),
    lambda df: df.fillna(9).join(words(df), "k", "left_semi"),
    lambda df: df.join(words(df), "k").select("id", F.explode(F.split("word", " ")).alias("part")).dropna(),
    lambda df: df.select("id", F.explode("xs").alias("k")).join(words(df), "k", "left"),
    lambda df: df.join(words(df), "k", "left").drop("word").join(by_key(df), F.col("key") == F.col("id")),
]
