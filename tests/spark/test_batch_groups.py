"""``groupBy(...).applyInPandas`` and its like: the groups of each batch, beside Spark's own streams of the files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException, PySparkTypeError, PySparkValueError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import PandasUDFType, pandas_udf

from spark_ckpt.sinks import memory
from tests.spark.conftest import DEADLINE_S, Job, ordered, rows_of_spark
from tests.spark.test_window_columns import NewInput

SCHEMA = "k string, v int, t timestamp, s struct<a: int, b: array<string>>"
OUT = "k string, n long, top int, t timestamp, s struct<a: int, b: array<string>>"
BASE = datetime(1969, 12, 31, 23, tzinfo=timezone.utc)


def _first(pdf: pd.DataFrame) -> pd.DataFrame:
    top = pdf.sort_values("v").tail(1)
    return top.assign(n=len(pdf), top=top["v"])[["s", "k", "n", "t", "top"]]


def _keyed(key, pdf):  # type: ignore[no-untyped-def]
    frame = pd.DataFrame([[key[0], len(pdf), len(key)]])
    return frame if len(pdf) < 2 else pd.DataFrame()


def _portions(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield frame[["k"]].assign(n=len(frame))


def _table(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
    assert len(key) == 1
    total = pa.array([pc.sum(rows["top"]).as_py()], pa.int64())
    return rows.slice(0, 1).select(["s", "n"]).append_column("total", total)


def _batches(key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(["v", "k", "s"])


def _one_behind_the_other(df: Any) -> Any:
    tops = df.groupBy("k").applyInPandas(_first, OUT)
    return tops.groupBy("n").applyInArrow(_table, "total long, n long, s struct<a: int, b: array<string>>")


def _of_two_streams(df: Any) -> Any:
    """Watermarks give rows the number of their stream, and a group has rows of both."""
    left = df.where("v % 2 = 0").withWatermark("t", "1 minute")
    both = left.union(df.where("v % 2 <> 0").withWatermark("t", "2 minutes"))
    return both.groupBy(F.udf(lambda k: None if k is None else k * 2)("k")).applyInPandas(_keyless, "n long")


QUERIES = {
    "behind an aggregate": lambda df: (
        df.groupBy("k").count().groupBy("count").applyInPandas(_counts, "count long, n int")
    ),
}
MORE = {
    "one behind the other": _one_behind_the_other,
    "by sliding windows": lambda df: df.groupBy(F.window("t", "2 hours", "1 hour"), "s").applyInPandas(_named, NAMED),
    "key, by position": lambda df: df.groupBy(F.upper("k"), (F.col("v") % 2).alias("k")).applyInPandas(
        _keyed, "key string, n int, keys int"
    ),
    "by sessions": lambda df: df.groupBy("k", F.session_window("t", "5 minutes").alias("x")).applyInArrow(
        _named_in_arrow, NAMED
    ),
    "by earlier windows": lambda df: (
        df.select("v", F.window("t", "1 hour").alias("w")).groupBy("w").applyInPandas(_named, NAMED)
    ),
    "within a key": lambda df: df.groupBy(F.window("t", "1 hour").end, "k").applyInPandas(_named, NAMED),
    "everything": lambda df: df.groupBy().applyInPandas(_keyless, "n long"),
    "two streams": _of_two_streams,
    "iterators of frames": lambda df: df.groupBy("k").applyInPandas(_portions, "k string, n long"),
    "iterators of batches": lambda df: df.groupBy("v").applyInArrow(
        _batches, "v int, k string, s struct<a: int, b: array<string>>"
    ),
}


NAMED = "key string, n int, columns array<string>"


def _named(key, pdf):  # type: ignore[no-untyped-def]
    return pd.DataFrame({"key": [repr(key)], "n": [len(pdf)], "columns": [list(pdf.columns)]})


def _named_in_arrow(key, rows):  # type: ignore[no-untyped-def]
    columns = pa.array([rows.column_names], pa.list_(pa.string()))
    return pa.table({"key": [repr(key)], "n": pa.array([rows.num_rows], pa.int32()), "columns": columns})


def _keyless(pdf: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"n": [len(pdf)]})


def _counts(pdf: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"count": pdf["count"].head(1), "n": [len(pdf)]})


def _theirs(df: Any, folder: Path, mode: str) -> list[tuple[Any, ...]]:
    rows: list[Any] = []
    writer = df.writeStream.option("checkpointLocation", str(folder)).outputMode(mode)
    writer = writer.foreachBatch(lambda batch, _: rows.extend(batch.toArrow().to_pylist()))
    assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    return ordered(_plain(row) for row in rows)


def _plain(row: Any) -> tuple[Any, ...]:
    return tuple(str(value) for value in row.values())


@pytest.mark.parametrize("name", [*QUERIES, *(pytest.param(name, marks=pytest.mark.soak) for name in MORE)])
def test_the_groups_of_each_batch_are_those_of_spark(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, name: str
) -> None:
    made = new_input("in", SCHEMA)
    value = {"a": 1, "b": ["x", None]}
    made.add(("a", 1, BASE, value), ("a", 5, None, None), ("b", 2, BASE, value), (None, 3, BASE, None))
    made.add()
    made.add(("a", 4, BASE, {"a": None, "b": None}), (None, None, BASE, value), (None, 7, BASE, value))
    query = {**QUERIES, **MORE}[name]
    ours, plain = query(made.stream(ckpt)), query(made.spark_stream(spark))
    assert ours.schema.simpleString() == plain.schema.simpleString()
    job.run(ours)
    theirs = _theirs(plain, tmp_path / "plain", "update" if "aggregate" in name else "append")
    assert len(theirs) > 1
    assert ordered(_plain(row) for row in memory.read(job.sink).to_pylist()) == theirs


@pytest.mark.soak
def test_rows_that_spark_reads_are_in_one_group_with_those_that_are_read_here(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path
) -> None:
    """They have no epochs of their own."""
    one, two = new_input("one", SCHEMA), new_input("two", SCHEMA)
    for made in (one, two):
        made.add(("a", 1, BASE, None), ("b", 2, BASE, None))
        made.add(("a", 5, None, None), (None, 3, BASE, None))

    def sizes(a: Any, b: Any) -> Any:
        return a.union(b).groupBy("k").applyInPandas(_keyless, "n long")

    job.run(sizes(ckpt.readStream.spark(one.spark_stream(spark)), two.stream(ckpt)))
    theirs = _theirs(sizes(one.spark_stream(spark), two.spark_stream(spark)), tmp_path / "plain", "append")
    assert ordered(_plain(row) for row in memory.read(job.sink).to_pylist()) == theirs == [("2",)] * 4


def test_functions_of_a_loop_are_those_of_their_turn_as_in_spark(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    """Spark pickles them when it is given them. They were pickled at the start, with the last turn's variable."""
    data = new_input("in", "k string, v long")
    data.add(("a", 1), ("b", 2))

    def query(df: Any) -> Any:
        made = []
        for country in ("DE", "FR"):
            told = country

            def one(frame: pd.DataFrame) -> pd.DataFrame:
                return frame.assign(k=told)  # noqa: B023 - that is what it is about

            def each(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
                return (frame.assign(k=told) for frame in frames)  # noqa: B023

            made += [df.mapInPandas(each, df.schema), df.groupBy("v").applyInPandas(one, df.schema)]
        return reduce(lambda a, b: a.union(b), made)

    expected = ordered(rows_of_spark(query(data.spark_stream(spark)), tmp_path / "plain"))
    assert {row[0] for row in expected} == {"DE", "FR"}
    job.run(query(data.stream(ckpt)))
    assert job.rows() == expected


def test_state_behind_groups_goes_on_behind_a_restart(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput
) -> None:
    made = new_input("in", SCHEMA)
    totals = made.stream(ckpt).groupBy("k").applyInPandas(_first, OUT).groupBy("k").agg(F.sum("n").alias("n"))
    for start in range(2):
        made.add(*(("ab"[i % 2], i, BASE, None) for i in range(5 + start)))
        job.run(totals, keys="k")
    assert job.rows() == [("a", 6), ("b", 5)]


def test_what_spark_refuses_of_groups_is_refused(ckpt: Any, new_input: NewInput) -> None:
    rows = new_input("in", SCHEMA).stream(ckpt)
    for wrong, error, said in (
        (lambda: rows.groupBy("k").applyInPandas(lambda: None, OUT), PySparkValueError, "either one argument"),
        (lambda: rows.groupBy("k").applyInPandas(_first, "nonsense"), Exception, "nonsense"),
        (lambda: rows.groupBy("nothing").applyInPandas(_first, OUT), AnalysisException, "nothing"),
        (lambda: rows.groupBy("k").apply(_first), PySparkTypeError, "SQL_GROUPED_MAP_PANDAS_UDF"),
        (lambda: rows.groupBy(F.window("t", "x")).applyInPandas(_first, OUT), Exception, "interval|duration"),
    ):
        with pytest.raises(error, match=said):
            wrong()


def test_what_spark_only_warns_of_is_taken(ckpt: Any, new_input: NewInput) -> None:
    def half_hinted(pdf: pd.DataFrame):  # type: ignore[no-untyped-def]
        return pdf

    grouped = new_input("in", SCHEMA).stream(ckpt).groupBy("k")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        grouped_map = pandas_udf(_keyless, "n long", PandasUDFType.GROUPED_MAP)
        assert grouped.apply(grouped_map).columns == ["n"]
        assert grouped.applyInPandas(half_hinted, "k string").columns == ["k"]
