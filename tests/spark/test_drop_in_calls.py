"""Odd but legal calls, and wrong ones, give here what they give on Spark's own stream: the same names, types and
nullability, or an error of the same class and condition. Nothing is run: both are only analysed."""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyspark.errors
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import spark_ckpt

Call = Callable[[Any], Any]
SCHEMA = "a long, `b.c` string, s struct<x:int,y:string>, D double, t timestamp, `ü` string, l array<int>, i int"

COLUMNS: dict[str, Call] = {
    "select()": lambda d: d.select(),
    "select([])": lambda d: d.select([]),
    "select(list)": lambda d: d.select(["a", "D"]),
    "select(tuple)": lambda d: d.select(("a", "D")),
    "select(list, name)": lambda d: d.select(["a"], "D"),
    "select(*, name)": lambda d: d.select("*", "a"),
    "select(s.*)": lambda d: d.select("s.*"),
    "select in another case": lambda d: d.select("A", "d", "S.X", "Ü"),
    "select in backticks": lambda d: d.select("`b.c`"),
    "select without backticks": lambda d: d.select("b.c"),
    "select(1)": lambda d: d.select(1),
    "select(None)": lambda d: d.select(None),
    "select(nope)": lambda d: d.select("nope"),
    "select twice": lambda d: d.select("a", "a"),
    "select literals": lambda d: d.select(F.lit(1), F.lit(None), F.lit("x").alias("x y")),
    "select unnamed": lambda d: d.select(F.col("a") + 1, F.upper("`b.c`")),
    "selectExpr(list)": lambda d: d.selectExpr(["a", "D as e"]),
    "selectExpr()": lambda d: d.selectExpr(),
    "selectExpr(broken)": lambda d: d.selectExpr("a +"),
    "selectExpr(except)": lambda d: d.selectExpr("* except (a, l)"),
    "[field]": lambda d: d.select(d["s.x"]),
    "[field], cast": lambda d: d.select(d["s.x"].cast("string"), F.struct(d["s.y"].cast("int"))),
    "[field], twice cast": lambda d: d.select(d["s.X"].cast("string").cast("long")),
    "[field] + 1": lambda d: d.select(d["s.x"] + 1, d["s.X"].alias("m") + 1, F.coalesce(d["s.y"], d["`b.c`"])),
    "[field] in functions": lambda d: d.select(F.struct(d["s.x"], d["a"]), F.when(d["s.x"] == d["a"], d["s.y"])),
    "[field], where": lambda d: d.where(d["s.x"] > 1).withColumn("n", d["s.x"] + 1).withColumn("s", d["s.y"]),
    "[field], renamed": lambda d: d.withColumnRenamed("s", "r").select(d["s.x"], d["s.x"] + 1),
    "[backticks]": lambda d: d.select(d["`b.c`"]),
    "[without backticks]": lambda d: d.select(d["b.c"]),
    "[place, without backticks]": lambda d: d[1],
    "[0], [-1]": lambda d: d.select(d[0], d[-1]),
    "[99]": lambda d: d[99],
    "[nope]": lambda d: d["nope"],
    "[1.5]": lambda d: d[1.5],
    "[list]": lambda d: d[["a", "D"]],
    "[condition]": lambda d: d[d.a > 1],
    "[s.*]": lambda d: d.select(d["s.*"]),
    ".name": lambda d: d.select(d.a, d.ü),
    "dtypes": lambda d: d.dtypes,
    "columns": lambda d: d.columns,
    "repr": repr,
    "dir": lambda d: [name in dir(d) for name in ("a", "ü", "select", "b.c")],
    "printSchema()": lambda d: d.printSchema(),
    "printSchema(1)": lambda d: d.printSchema(1),
    "printSchema(level=1)": lambda d: d.printSchema(level=1),
    "explain(mode)": lambda d: d.explain(mode="nonsense"),
    "explain(both)": lambda d: d.explain(True, "simple"),
    "where(text)": lambda d: d.where("a > 1 and D is null"),
    "where(a number)": lambda d: d.where("a"),
    "where(a text)": lambda d: d.where(F.col("`b.c`")),
    "where(a cast)": lambda d: d.where(F.col("`b.c`").cast("boolean")),
    "where(1)": lambda d: d.where(1),
    "where(nope)": lambda d: d.where("nope > 1"),
    "where(aggregate)": lambda d: d.where(F.count("*") > 1),
    "withColumn by name": lambda d: d.withColumn(colName="n", col=F.lit(1)),
    "withColumn in another case": lambda d: d.withColumn("A", F.lit(1)),
    "withColumn(text)": lambda d: d.withColumn("n", "a"),
    "withColumn with a dot": lambda d: d.withColumn("x.y", F.lit(1)),
    "withColumns({})": lambda d: d.withColumns({}),
    "withColumns(list)": lambda d: d.withColumns([("n", F.lit(1))]),
    "withColumns, names alike": lambda d: d.withColumns({"n": F.lit(1), "N": F.lit(2)}),
    "withColumns(two)": lambda d: d.withColumns({"n": F.lit(1)}, {"m": F.lit(1)}),
    "renamed in another case": lambda d: d.withColumnRenamed("A", "z"),
    "renamed onto another": lambda d: d.withColumnRenamed("a", "D"),
    "renamed, with a dot": lambda d: d.withColumnRenamed("b.c", "z"),
    "renamed, unknown": lambda d: d.withColumnsRenamed({"a": "z", "nope": "q"}),
    "renamed in a chain": lambda d: d.withColumnsRenamed({"a": "z", "z": "q"}),
    "renamed to and fro": lambda d: d.withColumnsRenamed({"a": "D", "D": "a"}),
    "renamed to one name": lambda d: d.withColumnsRenamed({"a": "z", "D": "z"}),
    "renamed(list)": lambda d: d.withColumnsRenamed(["a"]),
    "drop(columns)": lambda d: d.drop(d.a, F.col("D"), "i"),
    "drop(nope)": lambda d: d.drop("nope", F.col("nope")),
    "drop in another case": lambda d: d.drop("A"),
    "drop with a dot": lambda d: d.drop("b.c"),
    "drop in backticks": lambda d: d.drop("`b.c`"),
    "drop(a field)": lambda d: d.drop("s.x"),
    "drop()": lambda d: d.drop(),
    "drop(1)": lambda d: d.drop(1),
    "drop(list)": lambda d: d.drop(["a"]),
    "drop all": lambda d: d.drop(*d.columns),
    "toDF": lambda d: d.toDF(*"abcdefgh"),
    "toDF, too few": lambda d: d.toDF("a", "b"),
    "toDF, too many": lambda d: d.toDF(*"abcdefghi"),
    "toDF(list)": lambda d: d.toDF([*"abcdefgh"]),
    "toDF, a name twice": lambda d: d.toDF(*"abcdefga"),
    "toDF(1)": lambda d: d.toDF(*"abcdefg", 1),
    "to": lambda d: d.to(StructType().add("a", "int").add("z", "string")),
    "to what it is not": lambda d: d.to(StructType().add("l", "int")),
    "withMetadata in another case": lambda d: d.withMetadata("A", {"x": 1}),
    "withMetadata(nope)": lambda d: d.withMetadata("nope", {"x": 1}),
    "withMetadata(1)": lambda d: d.withMetadata("a", 1),
    "colRegex": lambda d: d.select(d.colRegex("`[AD]`")),
    "colRegex, none": lambda d: d.select(d.colRegex("`q.*`")),
    "colRegex, a name": lambda d: d.select(d.colRegex("nope")),
    "colRegex(1)": lambda d: d.colRegex(1),
    "alias": lambda d: d.alias("q").select("q.a", "Q.s.x"),
    "alias, another": lambda d: d.alias("q").select("r.a"),
    "alias, star": lambda d: d.alias(alias="q").select("q.*"),
    "alias(1)": lambda d: d.alias(1),
    "transform": lambda d: d.transform(lambda x, n: x.select(n), n="a"),
    "transform to nothing": lambda d: d.transform(lambda x: 1),
}
ROWS: dict[str, Call] = {
    "fillna(True)": lambda d: d.fillna(True),
    "fillna(dict)": lambda d: d.fillna({"a": 0, "ü": "x", "D": 1.5}),
    "fillna(dict), another case": lambda d: d.fillna({"A": 0}),
    "fillna(dict), nope": lambda d: d.fillna({"nope": 0}),
    "fillna({})": lambda d: d.fillna({}),
    "fillna(dict of lists)": lambda d: d.fillna({"a": [1]}),
    "fillna, a name": lambda d: d.fillna(0, "a"),
    "fillna, a tuple": lambda d: d.fillna(0, ("a", "D")),
    "fillna, nope": lambda d: d.fillna(0, ["nope"]),
    "fillna, another type": lambda d: d.fillna("x", ["a"]),
    "fillna, with a dot": lambda d: d.fillna("x", ["b.c"]),
    "fillna, in backticks": lambda d: d.fillna("x", ["`b.c`"]),
    "fillna(None)": lambda d: d.fillna(None),
    "fillna, 1": lambda d: d.fillna(0, 1),
    "dropna(some)": lambda d: d.dropna("some"),
    "dropna(thresh)": lambda d: d.dropna(thresh=2),
    "dropna, a name": lambda d: d.dropna(subset="a"),
    "dropna, nope": lambda d: d.dropna(subset=["nope"]),
    "dropna, none": lambda d: d.dropna(subset=[]),
    "dropna, a field": lambda d: d.dropna(subset=["s.x"]),
    "dropna, 1": lambda d: d.dropna(subset=1),
    "replace(dict)": lambda d: d.replace({1: 2, 3: 4}, subset=["a"]),
    "replace(to None)": lambda d: d.replace({"x": None}),
    "replace, no value": lambda d: d.replace(1),
    "replace(x, None)": lambda d: d.replace("x", None),
    "replace(lists)": lambda d: d.replace([1, 2], [3, 4]),
    "replace(list, one)": lambda d: d.replace([1, 2], 3),
    "replace(lists of other lengths)": lambda d: d.replace([1, 2], [3]),
    "replace(mixed)": lambda d: d.replace([1, "x"], [2, "y"]),
    "replace(1, x)": lambda d: d.replace(1, "x"),
    "replace, nope": lambda d: d.replace("x", "y", "nope"),
    "replace, 1": lambda d: d.replace("x", "y", 1),
    "replace(object)": lambda d: d.replace(object(), 1),
    "na.replace, no value": lambda d: d.na.replace(1),
    "sample(0.5, 3)": lambda d: d.sample(0.5, 3),
    "sample(False, 0.5, 3)": lambda d: d.sample(False, 0.5, 3),
    "sample()": lambda d: d.sample(),
    "sample(1)": lambda d: d.sample(1),
    "sample(x)": lambda d: d.sample("x"),
    "sample(-0.5)": lambda d: d.sample(-0.5),
    "sampleBy(-0.5)": lambda d: d.sampleBy("a", {1: -0.5}),
    "sampleBy(nope)": lambda d: d.sampleBy("nope", {1: 0.5}),
    "sampleBy(list)": lambda d: d.sampleBy("a", [1]),
    "unpivot": lambda d: d.unpivot("ü", ["a", "D"], "k", "v"),
    "unpivot(columns)": lambda d: d.unpivot([d.ü], (d.a, d.i), "k", "v"),
    "unpivot, all others": lambda d: d.select("ü", "a", "i").unpivot("ü", None, "k", "v"),
    "unpivot, no ids": lambda d: d.select("a", "i").unpivot([], ["a", "i"], "k", "v"),
    "unpivot, no values": lambda d: d.select("a", "i").unpivot(["a", "i"], [], "k", "v"),
    "unpivot, other types": lambda d: d.unpivot("ü", ["a", "t"], "k", "v"),
    "unpivot, called as an id": lambda d: d.unpivot("a", ["D", "i"], "a", "v"),
    "unpivot, nope": lambda d: d.unpivot("ü", ["nope"], "k", "v"),
    "unpivot, in backticks": lambda d: d.unpivot("a", ["`b.c`", "ü"], "k", "v"),
    "hint(nonsense)": lambda d: d.hint("nonsense", 1),
    "hint(repartition)": lambda d: d.hint("repartition", 3, "a"),
    "hint(repartition, x)": lambda d: d.hint("repartition", "x"),
    "hint, a list": lambda d: d.hint("x", [1, 2]),
    "hint, a dict": lambda d: d.hint("x", {}),
    "hint(1)": lambda d: d.hint(1),
    "coalesce(0)": lambda d: d.coalesce(0),
    "coalesce(a)": lambda d: d.coalesce("a"),
    "repartition(3, a, D)": lambda d: d.repartition(3, "a", "D"),
    "repartition(a)": lambda d: d.repartition("a"),
    "repartition(0)": lambda d: d.repartition(0),
    "repartition(nope)": lambda d: d.repartition("nope"),
    "repartition(list)": lambda d: d.repartition(["a"]),
    "repartition(1.5)": lambda d: d.repartition(1.5),
    "repartitionByRange(2)": lambda d: d.repartitionByRange(2),
    "repartitionById of a text": lambda d: d.repartitionById(2, "ü"),
    "union of wider types": lambda d: d.select("a", "D").union(d.select("i", "a")),
    "union with a text": lambda d: d.select("a").union(d.select("ü")),
    "union with a list": lambda d: d.select("a").union(d.select("l")),
    "union, more columns": lambda d: d.select("a").union(d.select("a", "D")),
    "union with nulls": lambda d: d.select("a").union(d.select(F.lit(None))),
    "union, nullable": lambda d: d.select(F.lit(1).alias("x")).union(d.select("i")),
    "union of decimals": lambda d: d.selectExpr("cast(a as decimal(5,2))").union(
        d.selectExpr("cast(a as decimal(10,4))")
    ),
    "union of structs": lambda d: d.select("s").union(d.selectExpr("struct(1L as x, 'q' as y) as s")),
    "unionByName in another case": lambda d: d.select("a", "D").unionByName(d.selectExpr("D as d", "a as A")),
    "unionByName, missing": lambda d: d.select("a", "D").unionByName(d.select("D")),
    "unionByName, filled up": lambda d: d.select("a", "D").unionByName(d.select("D", "i"), allowMissingColumns=True),
    "unionByName, none alike": lambda d: d.select("a").unionByName(d.select("i"), True),
    "unionByName, fields": lambda d: d.select("s").unionByName(d.selectExpr("struct(1 as x, 2 as w) as s"), True),
    "unionByName, wider": lambda d: d.select("a").unionByName(d.selectExpr("D as a")),
    "dropDuplicates(a)": lambda d: d.dropDuplicates("a"),
    "dropDuplicates(tuple)": lambda d: d.dropDuplicates(("A", "D")),
    "dropDuplicates(nope)": lambda d: d.dropDuplicates(["nope"]),
    "dropDuplicates, with a dot": lambda d: d.dropDuplicates(["b.c"]),
    "dropDuplicates([])": lambda d: d.dropDuplicates([]),
    "dropDuplicates(column)": lambda d: d.dropDuplicates([d.a]),
    "dropDuplicates(1)": lambda d: d.dropDuplicates(1),
    "withWatermark in another case": lambda d: d.withWatermark("T", "1 hour"),
    "withWatermark(nope)": lambda d: d.withWatermark("nope", "1 hour"),
    "withWatermark(a)": lambda d: d.withWatermark("a", "1 hour"),
    "withWatermark, soon": lambda d: d.withWatermark("t", "soon"),
    "withWatermark, below 0": lambda d: d.withWatermark("t", "-1 hour"),
    "withWatermark, a month": lambda d: d.withWatermark("t", "1 month"),
    "withWatermark, empty": lambda d: d.withWatermark("t", ""),
    "withWatermark, 1": lambda d: d.withWatermark("t", 1),
    "withWatermark(column)": lambda d: d.withWatermark(d.t, "1 hour"),
    "limit(-1)": lambda d: d.limit(-1),
    "limit(x)": lambda d: d.limit("x"),
    "mapInPandas, one type": lambda d: d.drop("`b.c`", "b.c").mapInPandas(lambda x: x, "long"),
    "mapInPandas, no type": lambda d: d.drop("b.c").mapInPandas(lambda x: x, "a lung"),
    "mapInArrow(1)": lambda d: d.drop("b.c").mapInArrow(1, "a long"),
    "mapInArrow, barrier": lambda d: d.drop("b.c").mapInArrow(lambda x: x, "a long", True),
    "join(nope)": lambda d: d.join(_static(d), "nope"),
    "join(sideways)": lambda d: d.join(_static(d), F.col("a") == F.col("id"), "sideways"),
    "join(list)": lambda d: d.withColumnRenamed("a", "id").join(_static(d), ["id"]),
    "createTempView twice": lambda d: (d.createTempView("calls"), d.createTempView("CALLS")),
    "createTempView(a.b)": lambda d: d.createTempView("a.b"),
    "createTempView(a-b)": lambda d: d.createTempView("a-b"),
    "createTempView, empty": lambda d: d.createOrReplaceTempView(""),
    "outputMode(sometimes)": lambda d: d.writeStream.outputMode("sometimes"),
    "outputMode(None)": lambda d: d.writeStream.outputMode(None),
    "queryName( )": lambda d: d.writeStream.queryName(" "),
    "trigger()": lambda d: d.writeStream.trigger(),
    "trigger, two": lambda d: d.writeStream.trigger(once=True, availableNow=True),
    "trigger, false": lambda d: d.writeStream.trigger(availableNow=False),
    "trigger by place": lambda d: d.writeStream.trigger("1 second"),
    "trigger, soon": lambda d: d.writeStream.trigger(processingTime="soon"),
    "trigger, 5": lambda d: d.writeStream.trigger(processingTime=5),
    "trigger, below 0": lambda d: d.writeStream.trigger(processingTime="-5 seconds"),
    "start, two paths": lambda d: d.writeStream.format("json").queryName("q").option("PATH", "/x").start("/y"),
}
ROWS |= {
    f"behind a join by names, {how}, {name}": lambda d, how=how, call=call: call(
        d.alias("o").join(_static(d).withColumnRenamed("id", "a").alias("s"), "a", how)
    )
    for how in ("inner", "left", "left_semi", "left_anti")
    for name, call in {
        "key": lambda j: j.select("o.a", F.col("o.D")),
        "star": lambda j: j.select("o.*"),
        "where": lambda j: j.where("o.a > 0 and O.D is not null"),
        "column": lambda j: j.withColumn("z", F.col("o.a") + 1).drop(F.col("o.a")),
    }.items()
}
GROUPS: dict[str, Call] = {
    "groupBy(1)": lambda d: d.groupBy(1).count(),
    "groupBy(0)": lambda d: d.groupBy(0).count(),
    "groupBy(list)": lambda d: d.groupBy(["a", "D"]).count(),
    "groupBy(list of 1)": lambda d: d.groupBy([1]).count(),
    "groupBy(tuple)": lambda d: d.groupBy(("a", "D")).count(),
    "groupBy in another case": lambda d: d.groupBy("A").count(),
    "groupBy in backticks": lambda d: d.groupBy("`b.c`").count(),
    "groupBy(field)": lambda d: d.groupBy("s.x").count(),
    "groupBy([field])": lambda d: d.groupBy(d["s.x"], d["s.x"] + 1).agg((d["s.x"] + 2).alias("n"), F.max(d["s.y"])),
    "groupBy([field]), told otherwise": lambda d: d.groupBy(F.col("s.x") + 1).agg((d["s.x"] + 1).alias("n")),
    "groupBy([field]), cast": lambda d: d.groupBy(d["s.x"].cast("string"), d["a"].cast("int")).count(),
    "rollup([field])": lambda d: d.rollup(d["s.x"] + 1, d["s.x"].cast("string")).agg(F.max(d["s.x"] + 1)),
    "groupBy(nope)": lambda d: d.groupBy("nope").count(),
    "groupBy(1.5)": lambda d: d.groupBy(1.5).count(),
    "groupBy(None)": lambda d: d.groupBy(None).count(),
    "groupBy(expression)": lambda d: d.groupBy(F.col("a") % 2).count(),
    "agg(dict)": lambda d: d.groupBy("a").agg({"D": "sum", "*": "count"}),
    "agg(dict), other names": lambda d: d.groupBy("a").agg({"D": "mean", "i": "AVG", "l": "size"}),
    "agg(dict), nonsense": lambda d: d.groupBy("a").agg({"D": "nonsense"}),
    "agg(dict), nope": lambda d: d.groupBy("a").agg({"nope": "sum"}),
    "agg(dict), in backticks": lambda d: d.groupBy("a").agg({"`b.c`": "max", "s.x": "min"}),
    "agg(no aggregate)": lambda d: d.groupBy("a").agg(F.col("D")),
    "agg of the key": lambda d: d.groupBy("a").agg(F.col("a").alias("k"), F.count("*")),
    "agg(expressions)": lambda d: d.groupBy("a").agg(F.expr("sum(D) / count(*) as m"), F.sum("i") + 1),
    "sum()": lambda d: d.groupBy("a").sum(),
    "sum(text)": lambda d: d.groupBy("a").sum("ü"),
    "sum(nope)": lambda d: d.groupBy("a").sum("nope"),
    "mean": lambda d: d.groupBy("a").mean("D", "i"),
    "select(aggregates)": lambda d: d.select(F.sum("a"), F.count("*") + 1),
    "selectExpr(aggregates)": lambda d: d.selectExpr("max(t) as last", "avg(D)"),
    "select(aggregate, column)": lambda d: d.select(F.sum("a"), "D"),
    "sort, another direction each": lambda d: d.groupBy("a").count().sort(["a", "count"], ascending=[True, False]),
    "sort()": lambda d: d.groupBy("a").count().sort(),
    "sort(-1)": lambda d: d.groupBy("a").count().sort(-1),
    "sort(9)": lambda d: d.groupBy("a").count().sort(9),
    "sort(nope)": lambda d: d.groupBy("a").count().sort("nope"),
    "rollup(1)": lambda d: d.rollup(1).count(),
    "cube": lambda d: d.cube("a", F.col("i")).agg(F.sum("D")),
}
"""Of operators every column may be null, as control rows are: names and types are compared."""
BATCHES: dict[str, Call] = {
    "collect": lambda d: d.collect(),
    "count": lambda d: d.count(),
    "first": lambda d: d.first(),
    "head": lambda d: d.head(2),
    "isEmpty": lambda d: d.isEmpty(),
    "show": lambda d: d.show(5, False),
    "tail": lambda d: d.tail(1),
    "take": lambda d: d.take(1),
    "toArrow": lambda d: d.toArrow(),
    "toLocalIterator": lambda d: d.toLocalIterator(),
    "foreach": lambda d: d.foreach(print),
    "foreachPartition": lambda d: d.foreachPartition(print),
    "cache": lambda d: d.cache(),
    "persist": lambda d: d.persist(),
    "unpersist": lambda d: d.unpersist(),
    "storageLevel": lambda d: d.storageLevel,
    "checkpoint": lambda d: d.checkpoint(),
    "localCheckpoint": lambda d: d.localCheckpoint(),
    "rdd": lambda d: d.rdd,
    "write": lambda d: d.write,
    "writeTo": lambda d: d.writeTo("t"),
    "mergeInto": lambda d: d.mergeInto("t", F.lit(True)),
    "inputFiles": lambda d: d.inputFiles(),
    "pandas_api": lambda d: d.pandas_api(),
    "transpose": lambda d: d.select("a", "i").transpose(),
    "crosstab": lambda d: d.crosstab("a", "i"),
    "corr": lambda d: d.corr("a", "i"),
    "approxQuantile": lambda d: d.approxQuantile("a", [0.5], 0.1),
    "sameSemantics": lambda d: (
        d.sameSemantics(d), d.select("a").sameSemantics(d.select(F.col("a"))),
        d.select("a").sameSemantics(d.select("i")),
        d.sameSemantics(_static(d)), d.where("a > 1").sameSemantics(d.where("a > 2")),
        d.withWatermark("t", "1 hour").sameSemantics(d.withWatermark("t", "2 hours")),
    ),
    "sameSemantics(1)": lambda d: d.sameSemantics(1),
    "semanticHash": lambda d: d.select("a").semanticHash() == d.select("a").semanticHash(),
    "sparkSession": lambda d: d.sparkSession.version,
    "a global view": lambda d: d.createGlobalTempView("a.b"),
    "of the class": lambda d: functools.reduce(DataFrame.unionByName, [d, DataFrame.drop(d, "x")]),
    "of the class, wrong": lambda d: DataFrame.withColumn(d, "n"),
    "count of the class": lambda d: DataFrame.count(d),
    "isinstance": lambda d: (isinstance(d, DataFrame), isinstance(d.groupBy("a").count(), DataFrame)),
    "count beside a column count": lambda d: d.withColumn("count", F.lit(1)).count(),
    "a column count": lambda d: d.withColumn("count", F.lit(1))["count"],
    "metadata of keys": lambda d: [
        f.metadata for f in d.withMetadata("a", {"comment": "x"}).groupBy("i", "a").count().schema.fields
    ],
}  # fmt: skip


def _static(df: Any) -> Any:
    return df.sparkSession.range(3)


def _told(call: Call, df: Any, nullable: bool) -> Any:
    """What comes of it, to compare: what is printed, too."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            made = call(df)
            if hasattr(type(made), "isStreaming"):  # on Connect, what is wrong is told when somebody looks
                return [(f.name, f.dataType, f.nullable and nullable) for f in made.schema.fields]
    except Exception as error:  # noqa: BLE001 - which it is, is what is compared
        return type(error).__name__, getattr(error, "getCondition", lambda: None)()
    return type(made).__name__ if isinstance(made, Column) else made, printed.getvalue()


def told(streams: Sequence[Any], calls: dict[str, Call]) -> dict[str, tuple[Any, ...]]:
    """What each call gives on Spark's own stream, and on ours."""
    return {name: tuple(_told(call, df, calls is not GROUPS) for df in streams) for name, call in calls.items()}


@pytest.fixture(scope="module")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder = tmp_path_factory.mktemp("calls")
    spark.conf.set("spark.ckpt.dir", str(folder / "jobs"))
    readers = (spark.readStream, spark_ckpt.enable(spark).readStream)
    plain, ours = (reader.schema(SCHEMA).parquet(str(folder)) for reader in readers)
    return plain, ours


@pytest.mark.parametrize("calls", [COLUMNS, ROWS, GROUPS, BATCHES], ids=["columns", "rows", "groups", "batches"])
def test_odd_and_wrong_calls_give_what_they_give_in_spark(streams: tuple[Any, Any], calls: dict[str, Call]) -> None:
    other = {name: made for name, made in told(streams, calls).items() if made[0] != made[1]}
    assert other == {}, "".join(f"\n{name}\n  Spark {spark}\n  here  {here}" for name, (spark, here) in other.items())


def _row_number(df: Any) -> Any:
    return df.withColumn("n", F.row_number().over(Window.partitionBy("a").orderBy("t")))


def _rows_so_far(mode: str) -> Call:
    """How many keys a function of that output mode has said to have so many rows."""

    def so_far(key: Any, frames: Any, state: Any) -> Any:
        state.update(((state.get[0] if state.exists else 0) + sum(map(len, frames)),))
        yield pd.DataFrame({"a": [key[0]], "n": [state.get[0]]})

    def counted(df: Any) -> Any:
        rows = df.select("a").groupBy("a").applyInPandasWithState(so_far, "a long, n long", "n long", mode, "NoTimeout")
        return rows.groupBy("n").count()

    return counted


def _counted_twice(df: Any) -> Any:
    return df.groupBy("a").agg(F.count("*").alias("n")).groupBy("n").count()


def _counts_joined(df: Any) -> Any:
    counts = df.groupBy("a").agg(F.count("*").alias("n"))
    return counts.join(df.select(F.col("a").alias("b")), F.expr("a = b"))


def _start(made: Call, df: Any, mode: str, location: str) -> None:
    made(df).writeStream.format("noop").outputMode(mode).option("checkpointLocation", location).start()


@pytest.mark.parametrize(
    ("mode", "made"),
    [
        pytest.param("append", lambda d: d.groupBy("a").count(), id="counts"),
        pytest.param("complete", lambda d: d, id="all rows"),
        pytest.param("append", lambda d: d.orderBy("a"), id="sorted"),
        pytest.param("append", lambda d: d.groupBy("a").count().orderBy("a"), id="sorted counts"),
        pytest.param("update", lambda d: d.limit(3), id="limit"),
        pytest.param("append", lambda d: d.groupBy("a").count().limit(3), id="limited counts"),
        pytest.param("append", _row_number, id="row_number"),
        pytest.param("update", _counted_twice, id="counts of counts"),
        pytest.param("complete", _counted_twice, id="all counts of counts"),
        pytest.param("update", _counts_joined, id="counts joined"),
        pytest.param("update", _rows_so_far("update"), id="updates of a function counted"),
    ],
)
def test_what_spark_refuses_at_start_has_its_condition_here(
    streams: tuple[Any, Any], tmp_path: Path, mode: str, made: Call
) -> None:
    found = []
    for side, df in enumerate(streams):
        with pytest.raises(AnalysisException) as refused:
            _start(made, df, mode, str(tmp_path / str(side)))
        found.append(refused.value)
    assert found[0].getCondition() == found[1].getCondition()
    assert isinstance(found[1], spark_ckpt.errors.InvalidInputError)
    again = pickle.loads(pickle.dumps(found[1]))
    assert (str(again), again.getMessageParameters()) == (str(found[1]), found[1].getMessageParameters())


STARTS: dict[str, Call] = {
    "no path": lambda w: w.format("json").start(),
    "no format": lambda w: w.start(),
    "no name": lambda w: w.format("memory").start(),
    "update": lambda w: w.format("parquet").outputMode("update").start("/nowhere"),
    "update, text": lambda w: w.format("TEXT").outputMode("update").start("/nowhere"),
    "update, no path": lambda w: w.format("csv").outputMode("update").start(),
    "no such column": lambda w: w.format("parquet").partitionBy("nope").start(),
    "no partitions in memory": lambda w: w.format("memory").partitionBy("nope").start(),
    "no partitions in functions": lambda w: w.foreachBatch(lambda rows, id_: None).partitionBy("a").start(),
    "continuous": lambda w: w.format("noop").trigger(continuous="1 second").start(),
    "no location": lambda w: w.format("parquet").start("/nowhere"),
}


def refused_at_start(df: Any, name: str, location: str) -> PySparkException:
    writer = df.writeStream
    if name != "no location":
        writer = writer.option("checkpointLocation", location)
    with pytest.raises(PySparkException) as refused:
        STARTS[name](writer)
    return refused.value


@pytest.mark.parametrize("name", STARTS)
def test_what_sparks_writer_refuses_at_start_is_of_its_class_and_condition_here(
    streams: tuple[Any, Any], tmp_path: Path, name: str
) -> None:
    found = [refused_at_start(df, name, str(tmp_path / str(side))) for side, df in enumerate(streams)]
    assert found[0].getCondition() == found[1].getCondition()
    assert isinstance(found[1], getattr(pyspark.errors, type(found[0]).__name__))
    assert isinstance(found[1], spark_ckpt.errors.InvalidInputError)
    again = pickle.loads(pickle.dumps(found[1]))
    assert (str(again), again.getMessageParameters()) == (str(found[1]), found[1].getMessageParameters())


def test_readers_take_and_refuse_what_sparks_do(spark: SparkSession, ckpt: Any, tmp_path: Path) -> None:
    folder, nothing = tmp_path / "in", tmp_path / "nothing"
    folder.mkdir()
    calls: dict[str, Call] = {
        **{f"nothing, {f}": lambda r, f=f: r.schema("value string").format(f).load(str(nothing)) for f in
           ("csv", "json", "orc", "parquet", "text")},
        "nothing, no schema": lambda r: r.parquet(str(nothing)),
        "glob": lambda r: r.schema("k long").json(f"{nothing}/*"),
        "alternatives": lambda r: r.schema("k long").json(f"{tmp_path}/{{nothing,other}}"),
        "a uri": lambda r: r.schema("k long").json(f"file://{folder}"),
        "no format": lambda r: r.schema("k long").load(str(folder)),
        "two paths": lambda r: r.schema("k long").option("PATH", str(folder)).json(str(folder)),
        "a reader twice": lambda r: (s := r.schema("k long")).json(str(folder)).union(s.load(str(folder))),
        "an option of the path": lambda r: r.schema("k long").option("PATH", str(folder)).format("json").load(),
        "none is no option": lambda r: r.schema("k long").option("multiLine", None).json(str(folder), encoding=None),
        "list": lambda r: r.schema("k long").json([str(folder)]),
        "1": lambda r: r.schema("k long").json(1),
        "a schema of another type": lambda r: r.schema(5),
        "a schema that is none": lambda r: r.schema("k lung").json(str(folder)),
        "by place": lambda r: r.csv(str(folder), "k long", ";", "UTF-8", "'"),
        "a rate": lambda r: r.format("rate").option("rampUpTime", "5s").load(),
        "rows of a batch": lambda r: r.format("rate-micro-batch").option("rowsPerBatch", 5).load(),
        "no name": lambda r: r.name("the-numbers"),
        "a name that is none": lambda r: r.name(None),
    }  # fmt: skip
    for name, call in calls.items():
        found = [_told(call, reader.readStream, True) for reader in (spark, ckpt)]
        assert found[0] == found[1], name
    with pytest.raises(AnalysisException, match=f"{nothing}.*Make the folder first, or give a glob") as raised:
        ckpt.readStream.schema("k long").json(str(nothing))
    assert str(raised.value).count("PATH_NOT_FOUND") == 1
