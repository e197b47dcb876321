"""Columns are found by name: wherever Spark appends one, every value arrives in its own column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException, PySparkTypeError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt import agg
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks import memory
from tests.spark.conftest import Input, Job, ordered

NewInput = Callable[[str, str], Input]


@pytest.fixture
def data(new_input: NewInput) -> Input:
    found = new_input("in", "k string, v long")
    found.add(("a", 1), ("b", 2))
    found.add(("a", 3))
    return found


def _upper(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        assert batch.schema.names == ["hello", "k", "v"], "the user's columns in their order, and no others"
        yield batch


def test_a_column_that_was_added_holds_its_own_values_in_every_sink(ckpt: Any, data: Input, job: Job) -> None:
    stream = data.stream(ckpt).withColumn("hello", F.lit("hello")).withColumn("w", F.col("v") * 10)
    assert stream.columns == ["k", "v", "hello", "w"]
    writer = stream.writeStream.format("delta").option("path", f"{job.sink}-delta").queryName("job")
    query = writer.alsoTo("memory", path=job.sink).trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    expected = [("a", 1, "hello", 10), ("a", 3, "hello", 30), ("b", 2, "hello", 20)]
    assert job.rows() == expected
    table = DeltaTable(f"{job.sink}-delta").to_pyarrow_table()
    assert ordered(tuple(row.values()) for row in table.to_pylist()) == expected


def test_columns_added_around_operators_and_python_steps_stay_apart(ckpt: Any, data: Input, job: Job) -> None:
    def backwards(df: Any) -> Any:
        return df.withColumn("z", F.lit("z")).select(*reversed(df.columns), "z")

    stream = data.stream(ckpt).withColumn("hello", F.lit("hello")).select("hello", F.col("*")).drop("hello")
    assert stream.columns == ["k", "v"], "col('*') stands for the user's columns"
    stream = stream.withColumns({"hello": F.lit("hello")}).select("hello", "k", "v")
    stream = stream.mapInArrow(_upper, "hello string, k string, v long")
    totals = stream.withColumn("k2", F.upper("k")).groupBy("k2").aggregate(n=agg.count(), s=agg.sum("v")).uid("t")
    added = totals.withColumn("x", F.lit("x")).withColumn("y", F.col("n") + F.col("s")).transform(backwards)
    assert added.columns == ["y", "x", "s", "n", "k2", "z"]
    for chaining in ("true", "false"):
        path = f"{job.sink}-{chaining}"
        job.run(added, "k2", chaining=chaining, path=path, spark__ckpt__job=f"job-{chaining}")
        rows = [tuple(row.values()) for row in memory.read(path).to_pylist()]
        assert ordered(rows) == [(3, "x", 2, 1, "B", "z"), (6, "x", 4, 2, "A", "z")]


def test_names_that_sparks_parser_splits_reach_operators(ckpt: Any, data: Input, job: Job) -> None:
    # Without backticks dot.ted is a field of the struct dot, as in Spark.
    stream = data.stream(ckpt).withColumns(
        {"dot.ted": F.col("v") % 2, "a`b": F.col("v") * 10, "*": F.lit("star"), "dot": F.struct(F.lit(0).alias("ted"))}
    )
    seen = (
        stream.drop("dot")
        .groupBy("`dot.ted`")
        .aggregate(emit="rows", orderBy="a`b", **{"n": agg.count("dot.ted"), ".s": agg.sum("a`b")})
        .uid("u")
    )
    mapped = seen.select("`dot.ted`", "k", "v", "`a``b`", "`*`", "`.s`", "n").withColumn("k.v", F.col("`.s`") + 1)
    assert mapped.columns == ["dot.ted", "k", "v", "a`b", "*", ".s", "n", "k.v"]
    for chaining in ("true", "false"):
        path = f"{job.sink}-{chaining}"
        job.run(mapped, chaining=chaining, path=path, spark__ckpt__job=f"job-{chaining}")
        rows = [tuple(row.values()) for row in memory.read(path).to_pylist()]
        expected = [(0, "b", 2, 20, "star", 20, 1, 21), (1, "a", 1, 10, "star", 10, 1, 11)]
        assert ordered(rows) == [*expected, (1, "a", 3, 30, "star", 40, 2, 41)]


def test_unions_and_renamings_go_by_position_or_name_as_in_spark(ckpt: Any, data: Input, job: Job) -> None:
    stream = data.stream(ckpt, uid="one")
    other = data.stream(ckpt, uid="two").withColumn("c", F.lit("c")).select("v", "k", "c")
    by_name = stream.withColumn("d", F.lit("d")).unionByName(other, allowMissingColumns=True)
    assert by_name.columns == ["k", "v", "d", "c"]
    twice = by_name.select("k", "k", "v", "d", "c").toDF("k", "l", "v", "d", "c")
    by_position = twice.union(data.stream(ckpt, uid="three").select("k", F.lit("L"), "v", F.lit("D"), F.lit("C")))
    job.run(by_position.where("k = 'b'"))
    assert job.rows() == [("b", "L", 2, "D", "C"), ("b", "b", 2, "d", None), ("b", "b", 2, None, "c")]


def test_two_columns_of_one_name_are_refused_before_anything_starts(spark: Any, ckpt: Any, data: Input) -> None:
    stream = data.stream(ckpt)
    for twice in (stream.select("k", "k"), stream.select("v", F.col("k").alias("V"))):
        with pytest.raises(InvalidInputError, match=r"more than once: \['.', '.'\] among .*toDF"):
            twice.writeStream.format("memory").queryName("job").start()
        with pytest.raises(InvalidInputError, match="more than once"):
            twice.groupBy(F.lit(1).alias("one")).topN(1, "one")
        # As Spark's own may have them, until something has to be found by its name.
        assert twice.select("*", F.lit(1).alias("x")).columns == [*twice.columns, "x"]
    with pytest.raises(InvalidInputError, match="more than once"):
        ckpt.readStream.format("rate").option("rowsPerSecond", 1).schema("k string, K string").load()
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert stream.withColumn("V", F.lit(1)).columns == ["k", "v", "V"]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_misspelt_column_is_told_as_spark_tells_it(spark: SparkSession, ckpt: Any, new_input: NewInput) -> None:
    data = new_input("in", "customer string, amount int")
    data.add(("a", 1))
    for build in (
        lambda df: df.select("amont"),
        lambda df: df.where("amont > 1"),
        lambda df: df.where("amount"),
        lambda df: df.select("customer").unionByName(df.select("amount")),
        lambda df: df.withColumn("x", F.col("amont") + 1),
        lambda df: df.groupBy("customer").agg(F.sum("amont")),
    ):
        said = []
        for df in (data.table(spark), data.stream(ckpt)):
            with pytest.raises(AnalysisException) as refused:
                build(df)
            said.append(str(refused.value).splitlines()[0])
        assert said[1] == said[0]
    with pytest.raises(AnalysisException, match=r"`at` cannot be resolved.*\[`amount`, `customer`\]"):
        data.stream(ckpt).withWatermark("at", "1 minute")
    with pytest.raises(AnalysisException, match="EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE"):
        data.stream(ckpt).withWatermark("customer", "1 minute")


def test_square_brackets_are_those_of_sparks_dataframe(spark: SparkSession, ckpt: Any, new_input: NewInput) -> None:
    data = new_input("in", "customer string, amount int, s struct<x:int,`y.z`:string>, `a.b` int")
    data.add(("a", 1, {"x": 1, "y.z": "q"}, 5))
    for build in (
        lambda df: df.select(df["CUSTOMER"], df["s.x"], df["s.`y.z`"], df["`a.b`"], df[1], df[-2]),
        lambda df: df[["customer", F.col("amount") + 1]],
        lambda df: df["customer", "s"],
        lambda df: df[df["amount"] > 0][df["s.X"] == 1],
        lambda df: df.select(df["*"]),
        lambda df: df.groupBy(df["s.x"]).agg(F.sum(df["AMOUNT"]).alias("n")),
        lambda df: df.join(df.select(F.col("amount").alias("n")), df["S.x"] == F.col("n")).select(df["Customer"], "n"),
    ):
        assert build(data.stream(ckpt)).schema.simpleString() == build(data.table(spark)).schema.simpleString()
    for name in ("nope", "s.nope", "__ckpt_tag", None):
        said = "UNRESOLVED_COLUMN|FIELD_NOT_FOUND|NOT_EXPECTED_TYPE"
        with pytest.raises((AnalysisException, PySparkTypeError), match=said):
            data.stream(ckpt)[name]


def test_a_type_that_no_sink_can_hold_is_refused_at_start(ckpt: Any, data: Input, job: Job) -> None:
    for made, said in (("parse_json(k)", "'x' has type variant"), ("array(interval '1' year)", "interval year")):
        with pytest.raises(InvalidInputError, match=said):
            job.start(data.stream(ckpt).selectExpr("k", f"{made} as x"))
