"""What fails for a row, or in a column, that a query leaves out fails no query, wherever the filter or the projection
stands: Spark's optimizer moves filters in front of what is computed, and drops what nobody reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.expressions.tree import Call, Input, Literal
from spark_ckpt.runtime.expressions import Compute, Keep
from spark_ckpt.runtime.operations import Operations
from tests.spark.conftest import DEADLINE_S, Job, ordered, rows_of_spark
from tests.spark.conftest import Input as Files

SCHEMA = "k string, v long, t timestamp, a array<long>"
ROWS = [("1", 1, None, [1]), ("x", -1, None, [7]), ("2", 2, None, [])]
Case = Callable[[Any, SparkSession], Any]


def _number() -> Any:
    return F.col("k").cast("int")


def _negative(v: int | None) -> bool:
    return v is None or v < 0


def _prices(spark: SparkSession) -> Any:
    return spark.createDataFrame([("1", 10), ("x", 20)], "k string, price int")


def _changing(spark: SparkSession) -> Any:
    """Which each batch reads again."""
    return _prices(spark).where(F.rand() >= 0)


IN_PYTHON: dict[str, Case] = {
    "a filter behind a cast": lambda df, _: df.select("k", "v", _number().alias("n")).where("v > 0").select("n"),
    "in one condition": lambda df, _: df.withColumn("n", _number()).where("v > 0 AND n > 0").select("n"),
    "guarded by CASE": lambda df, _: df.withColumn("n", _number()).select(
        F.when(F.col("v") > 0, F.col("n")).alias("n")
    ),
    "behind another column": lambda df, _: (
        df.withColumn("n", _number()).withColumn("u", F.upper("k")).where("u < 'A'").select("n")
    ),
    "not read": lambda df, _: (
        df.withColumn("n", _number()).withColumn("m", F.col("n") + 1).select(F.col("v").alias("n"))
    ),
    "a table behind it": lambda df, spark: (
        df.withColumn("n", _number()).join(_prices(spark), "k").where("v > 0").select("n")
    ),
    "a table that changes": lambda df, spark: (
        df.withColumn("n", _number()).join(_changing(spark), "k", "left").where("v > 0").select("n")
    ),
}
IN_SPARK: dict[str, Case] = {
    "a filter of Spark's": lambda df, _: df.withColumn("n", _number()).where(F.col("k").rlike("^[0-9]$")).select("n"),
    "a Python function": lambda df, _: (
        df.withColumn("n", _number()).where(~F.udf(_negative, "boolean", useArrow=False)("v")).select("n")
    ),
    "a generator, not read": lambda df, _: df.withColumn("n", _number()).select(F.explode("a").alias("n")),
}
JOINED: dict[str, Case] = {
    "in front of a join's key": lambda df, _: df.select("k", "v").join(
        df.select(F.col("v").alias("n")), (_number() == F.col("n")) & (F.col("v") > 0)
    ),
}
QUERIES = {**IN_PYTHON, **IN_SPARK, **JOINED}
ENDED = "2024-01-01 00:00:00"


def _sums(df: Any) -> Any:
    timed = df.withColumn("n", _number()).withColumn("t", F.lit(ENDED).cast("timestamp"))
    return timed.groupBy(F.window("t", "2 hours", "1 hour"), "k").agg(F.count("*"), F.max("v"))


AGGREGATES: dict[str, Callable[[Any], Any]] = {
    "windows": _sums,
    "guarded": lambda df: df.withColumn("n", _number()).where("v > 0").groupBy("k").agg(F.sum("n"), F.count("*")),
}


def _stream(folder: Path) -> Files:
    data = Files(folder, SCHEMA)
    data.add(*ROWS[:2])
    data.add(*ROWS[2:])
    return data


@pytest.mark.soak
def test_queries_run_as_in_spark(spark: SparkSession, ckpt: Any, job: Job, tmp_path: Path) -> None:
    data = _stream(tmp_path / "in")

    def whole(read: Callable[[], Any]) -> Any:
        """A source for each, so that each runs where its rows are."""
        made = [case(read(), spark).select(F.lit(name), F.col("n").cast("long")) for name, case in QUERIES.items()]
        return reduce(lambda one, two: one.union(two), made)

    expected = ordered(rows_of_spark(whole(lambda: data.spark_stream(spark)), tmp_path / "spark"))
    job.run(whole(lambda: data.stream(ckpt)))
    assert job.rows() == expected
    assert {name for name, _ in expected} == set(QUERIES)


@pytest.mark.parametrize("name", AGGREGATES)
def test_aggregates_run_as_in_spark(spark: SparkSession, ckpt: Any, job: Job, tmp_path: Path, name: str) -> None:
    data = _stream(tmp_path / "in")
    query = AGGREGATES[name]
    expected = rows_of_spark(query(data.spark_stream(spark)).select(F.to_json(F.struct("*"))), tmp_path / "s", "update")
    job.run(query(data.stream(ckpt)).select(F.to_json(F.struct("*"))), mode="update")
    assert job.rows() == ordered(expected)


def test_what_is_asked_for_still_fails(ckpt: Any, job: Job, tmp_path: Path) -> None:
    rows = _stream(tmp_path / "in").stream(ckpt).withColumn("n", _number()).where("v < 0").select("n")
    with pytest.raises(StreamingQueryException, match=r"CAST_INVALID_INPUT|cannot be cast"):
        job.start(rows).awaitTermination(DEADLINE_S)


# -- operations, without Spark ---------------------------------------------------------------------------------------

TEXT, LONG = Input(0, pa.string()), Input(1, pa.int64())
CAST = Call("Cast", (TEXT,), pa.int64(), True, True)
POSITIVE = Call("GreaterThan", (LONG, Literal(0, pa.int64())), pa.bool_())
BATCH = pa.record_batch({"k": ["1", "x"], "v": [1, -1]})


class Sink:
    """Reads one column."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def reads(self, _behind: Any) -> frozenset[str]:
        return frozenset(self.names)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches


def test_a_column_is_made_for_the_rows_and_readers_that_ask_for_it() -> None:
    made = Compute([("n", CAST), ("v", LONG)])
    assert [b.to_pylist() for b in Operations((made, Keep(POSITIVE)))(iter([BATCH]))] == [[{"n": 1, "v": 1}]]
    read = list(Operations((Operations((made,)), Sink("v")))(iter([BATCH])))
    assert read[0].to_pylist() == [{"n": None, "v": 1}, {"n": None, "v": -1}]
    assert read[0].schema.field("n").type == pa.int64()
    with pytest.raises(Exception, match="cast"):
        list(Operations((made, Sink("n")))(iter([BATCH])))


def test_a_column_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_ckpt.runtime import expressions

    asked, true = [], expressions.column
    monkeypatch.setattr(expressions, "column", lambda tree, *rest: asked.append(tree) or true(tree, *rest))
    doubled = Call("Add", (LONG, LONG), pa.int64(), True)
    kept = Keep(Call("LessThan", (Input(0, pa.int64()), Literal(0, pa.int64())), pa.bool_()))
    found = list(Operations((Compute([("w", doubled), ("w2", doubled)]), kept))(iter([BATCH])))
    assert found[0].to_pylist() == [{"w": -2, "w2": -2}]
    assert asked.count(doubled) == 2  # each of the columns
