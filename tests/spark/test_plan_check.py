"""A plan that could lose control rows is refused before it starts, and the way that its message tells works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from spark_ckpt import agg
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks import memory
from tests.spark.conftest import Input, Job, ordered

NewInput = Callable[[str, str], Input]


@pytest.fixture
def data(new_input: NewInput) -> Input:
    found = new_input("in", "k string, v long, t timestamp, a array<long>")
    found.add(("a", 1, 0, [1, 2]), ("b", 2, 1, []))
    found.add(("a", 3, 3_600_000_000, [3]), ("c", 4, None, None))
    return found


def _static(spark: SparkSession) -> Any:
    return spark.createDataFrame([("a", 10), ("a", 20), ("d", 30)], "key string, z int")


def test_what_a_stream_has_not_is_refused_when_it_is_checked(ckpt: Any, data: Input) -> None:
    stream = data.stream(ckpt)
    by_k = Window.partitionBy("k").orderBy("v")
    for df, said in (
        (stream.withColumn("f", F.input_file_name()), r"input_file_name\(\) is asked for: it would be empty"),
        (stream.withColumn("n", F.row_number().over(by_k)), r"row_number\(\) OVER .*n <= 3, or QUALIFY"),
    ):
        with pytest.raises(InvalidInputError, match=f"(?s){said}"):
            ckpt.check(df)


def _double(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for batch in batches:
        assert batch.dtype == "int64", "a null in a control row would make floats"
        yield batch * 2


def _sum(frame: pd.DataFrame, v: pd.Series) -> pd.Series:
    assert (frame["v"].dtype, v.dtype) == ("int64", "int64")
    return frame["v"] + v


def _pair(k: pd.Series, v: pd.Series) -> pd.DataFrame:
    return pd.DataFrame({"k": k + "!", "v": v})


def test_python_functions_of_every_kind_are_called_for_data_rows_only(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job
) -> None:
    """They fail on what a control row holds, nulls, and are named in every way that Spark has."""
    data = new_input("in", "k string, v long")
    data.add(("a", 2**53 + 1), ("b", 2))
    data.add(("a", 3))
    plus = F.udf(lambda v, by=1: v + by, "long")
    spark.udf.register("plus_ten", lambda v: v + 10, "long")
    arrow = F.arrow_udf(lambda v: pa.array([x * 3 for x in v.to_pylist()]), "long")
    stream = data.stream(ckpt).where(plus("v") > 3)
    stream = stream.withColumns({"w": plus(plus("v")) + plus(F.lit(1)), "x": plus("v", by=F.lit(5))})
    stream = stream.select("*", F.expr("plus_ten(v) as y"), F.udf(lambda: 7, "int")().alias("seven"), arrow("v"))
    stream = stream.toDF("k", "v", "w", "x", "y", "seven", "z")
    stream = stream.withColumn("d", F.pandas_udf(_double, "long")("v"))
    stream = stream.withColumn("s", F.pandas_udf(_sum, "long")(F.struct("k", "v"), "v"))
    stream = stream.withColumn("p", F.pandas_udf(_pair, "k string, v long")("k", "v"))
    first = stream.groupBy(F.udf(lambda k: k.upper(), "string")("k").alias("key"))
    job.run(stream.withColumn("p", F.col("p.k")))
    expected = [
        ("a", v, v + 4, v + 5, v + 10, 7, 3 * v, 2 * v, 2 * v, "a!") for v in (2**53 + 1, 3)
    ]  # fmt: skip
    assert job.rows() == ordered(expected)
    keyed = first.aggregate(n=agg.count(), s=agg.sum("d")).uid("t")
    job.run(keyed, "key", path=f"{job.sink}-keyed", spark__ckpt__job="keyed")
    assert memory.read(f"{job.sink}-keyed").to_pylist() == [{"key": "A", "n": 2, "s": 2 * (2**53 + 4)}]


def test_what_a_python_function_raises_keeps_its_line_and_its_name_in_the_plan(
    ckpt: Any, data: Input, job: Job
) -> None:
    def fails_on_two(v):  # PySpark takes hints for a kind of function
        return {1: 1, 3: 3, 4: 4}[v]

    stream = data.stream(ckpt).select(F.udf(fails_on_two, "long")("v"))
    assert stream.columns == ["fails_on_two(v)"]
    with pytest.raises(StreamingQueryException, match=r"(?s)test_plan_check.py.*in fails_on_two.*KeyError: 2"):
        job.run(stream)


@pytest.mark.soak
def test_the_ways_that_the_refusals_tell_work(spark: SparkSession, ckpt: Any, data: Input, job: Job) -> None:
    static = _static(spark)
    windows = data.stream(ckpt, uid="1").where(F.col("t").isNotNull())
    some_time = F.coalesce("t", F.timestamp_seconds(F.lit(0)))
    windows = windows.withColumn("start", F.window(some_time, "1 hour").start)
    windows = windows.groupBy("start").aggregate(n=agg.count()).uid("windows")
    windows = windows.selectExpr("'window' as way", "string(unix_seconds(start)) as k", "n")
    exploded = data.stream(ckpt, uid="2").select("k", F.explode("a").alias("e"))
    joined = data.stream(ckpt, uid="3").join(static, F.col("k") == static["key"]).repartition(2)
    first = data.stream(ckpt, uid="4").groupBy("k").aggregate(emit="rows", seen=agg.count()).uid("first")
    # Fails on nulls; control rows are not even looked at.
    asserted = data.stream(ckpt, uid="5").where(F.assert_true(F.col("v") > 0).isNull() & (F.col("v") > 3))
    for more in (
        exploded.selectExpr("'explode'", "k", "e"),
        joined.selectExpr("'join'", "k", "bigint(z)"),
        first.where("seen = 1").drop("seen").selectExpr("'first'", "k", "v"),
        asserted.selectExpr("'assert'", "k", "v"),
        data.stream(ckpt, uid="6").where(F.rand() < 2).selectExpr("'rand'", "k", "v").where("k = 'b'"),
    ):
        windows = windows.union(more)
    query = job.run(windows)  # six streams and two operators in one query
    assert job.rows() == sorted(
        [
            ("window", "0", 2),
            ("window", "3600", 1),
            *[("explode", k, e) for k, e in [("a", 1), ("a", 2), ("a", 3)]],
            *[("join", "a", z) for z in (10, 20, 10, 20)],
            *[("first", k, v) for k, v in [("a", 1), ("b", 2), ("c", 4)]],
            ("assert", "c", 4),
            ("rand", "b", 2),
        ],
        key=lambda row: tuple(map(repr, row)),
    )
    assert [c["kind"] for c in query.checkpoints()] == ["final"]


def test_a_static_join_and_a_window_of_the_told_form_run(spark: SparkSession, ckpt: Any, data: Input, job: Job) -> None:
    static, some_time = _static(spark), F.coalesce("t", F.timestamp_seconds(F.lit(0)))
    stream = data.stream(ckpt).where(F.col("t").isNotNull())
    stream = stream.withColumn("start", F.unix_seconds(F.window(some_time, "1 hour").start))
    joined = stream.join(static, stream["k"] == static["key"])
    query = job.run(joined.select("start", "k", "z", "v"))
    assert job.rows() == [(0, "a", 10, 1), (0, "a", 20, 1), (3600, "a", 10, 3), (3600, "a", 20, 3)]
    assert [c["kind"] for c in query.checkpoints()] == ["final"]
