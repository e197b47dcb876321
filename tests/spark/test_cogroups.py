"""``cogroup``: the groups that two streams have in each batch, beside Spark's own streams of the same files."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkValueError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks import memory
from tests.spark.conftest import Input, Job, batches_of_spark, ordered, wait_until
from tests.spark.test_alignment import _offsets
from tests.spark.test_window_columns import NewInput

LEFT = "k string, v int, t timestamp, s struct<a: int, b: array<string>>"
RIGHT = "j string, v long, w double"
OUT = "k string, n long, types string, s struct<a: int, b: array<string>>, t timestamp"
AT = datetime(1969, 12, 31, 23, tzinfo=timezone.utc)


def _seen(key, left, right):  # type: ignore[no-untyped-def]
    types = f"{list(left.dtypes.items())} {list(right.dtypes.items())} {[type(k).__name__ for k in key]}"
    if not len(left):
        return pd.DataFrame()
    return left[["t", "s"]].head(1).assign(k=key[0], n=10 * len(left) + len(right), types=types)


def _by_position(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame([[len(left), len(right)]])


def _table(key: tuple[pa.Scalar, ...], left: pa.Table, right: pa.Table) -> pa.Table:
    if not left.num_rows:
        return pa.table({})
    names = pa.array([f"{key} {left.schema.names} {right.schema.names}"])
    return left.slice(0, 1).select(["s", "k"]).append_column("said", names)


def _of_expressions(a: Any, b: Any, _: Any = None) -> Any:
    odd = (F.col("v") % 2).cast("int")
    return a.groupBy(F.upper("k"), odd).cogroup(b.groupBy(F.upper("j").alias("up"), odd)).applyInPandas(_seen, OUT)


def _with_static(a: Any, _: Any, static: Any) -> Any:
    """Of the static side, keys that no stream has come with each batch that reads something, and with no other."""
    some = a.where("v IS NULL OR v <> 5").groupBy(F.upper("k"), "v")
    return some.cogroup(static.groupBy(F.upper("j").alias("up"), F.col("v").cast("int"))).applyInPandas(
        _both, "k string, v long, n long"
    )


def _both(key, left, right):  # type: ignore[no-untyped-def]
    return pd.DataFrame([[key[0], key[1], 100 * len(left) + 10 * len(right) + len(right.columns)]])


def _of_wholes(a: Any, b: Any, static: Any) -> Any:
    counts = a.groupBy("k").count().groupBy("k")
    return counts.cogroup(static.groupBy("j")).applyInArrow(_sizes, "k string, l long, r long")


def _sizes(key: tuple[pa.Scalar, ...], left: pa.Table, right: pa.Table) -> pa.Table:
    rows = {"k": [key[0].as_py()], "l": [left.num_rows and left["count"][0].as_py()], "r": [right.num_rows]}
    return pa.table(rows, pa.schema([("k", pa.string()), ("l", pa.int64()), ("r", pa.int64())]))


QUERIES = {"static": _with_static}
MORE = {
    "windows": lambda a, b, _: (
        a.groupBy(F.window("t", "1 hour"), F.struct("k"))
        .cogroup(b.groupBy(F.window(F.timestamp_seconds("v"), "1 hour"), F.struct(F.upper("j").alias("k"))))
        .applyInPandas(_by_position, "l long, r long")
    ),
    "expressions": _of_expressions,
    "static, aggregates": _of_wholes,
    "static, complete": _of_wholes,
    "static, beside others": lambda a, b, static: (
        _with_static(a, b, static).select("k").union(b.select("j"))
    ),
    "one behind the other": lambda a, b, _: (
        _of_expressions(a, b)
        .groupBy("k")
        .cogroup(b.groupBy("j"))
        .applyInArrow(_table, "said string, k string, s struct<a: int, b: array<string>>")
    ),
    "everything": lambda a, b, _: a.groupBy().cogroup(b.groupBy()).applyInPandas(_by_position, "l long, r long"),
    "one stream": lambda a, b, _: a.groupBy("k").cogroup(a.groupBy("k")).applyInPandas(_by_position, "l long, r long"),
    "aggregates": lambda a, b, _: (
        a.groupBy("k").count().groupBy("k").cogroup(b.groupBy("j").count().groupBy("j")).applyInPandas(
            _by_position, "l long, r long"
        )
    ),
    "aggregated": lambda a, b, _: (
        a.withWatermark("t", "1 hour").groupBy("k").cogroup(b.groupBy("j")).applyInPandas(_seen, OUT)
        .groupBy("k").agg(F.sum("n"))
    ),
}  # fmt: skip


def _plain(row: Any) -> tuple[Any, ...]:
    return tuple(map(str, row))


@pytest.mark.parametrize("name", [*QUERIES, *(pytest.param(name, marks=pytest.mark.soak) for name in MORE)])
def test_the_groups_of_both_sides_are_those_of_spark(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, name: str
) -> None:
    a, b = _inputs(new_input)
    static = spark.createDataFrame([("a", 1, 0.5), ("A", 1, None), ("q", 5, 1.0), (None, None, 1.0)], RIGHT)
    query, mode = (
        {**QUERIES, **MORE}[name],
        "complete" if "complete" in name else "update" if "aggre" in name else "append",
    )
    ours = query(a.stream(ckpt, uid="a"), b.stream(ckpt, uid="b"), static)
    plain = query(a.spark_stream(spark), b.spark_stream(spark), static)
    assert ours.schema.simpleString() == plain.schema.simpleString()
    job.run(ours, mode=mode if mode == "complete" else None)
    theirs = batches_of_spark(plain, tmp_path / "plain", mode)
    _compare(spark, job, theirs[-1:] if mode == "complete" else theirs)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["expressions", "static", "one behind the other"])
def test_rows_that_spark_reads_meet_those_that_are_read_here(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, name: str
) -> None:
    """They have no epochs of their own."""
    a, b = _inputs(new_input)
    static = spark.createDataFrame([("a", 1, 0.5), ("q", 5, 1.0)], RIGHT)
    sides = (ckpt.readStream.spark(a.spark_stream(spark)), b.stream(ckpt, uid="b"))
    job.run({**QUERIES, **MORE}[name](*sides, static))
    plain = {**QUERIES, **MORE}[name](a.spark_stream(spark), b.spark_stream(spark), static)
    _compare(spark, job, batches_of_spark(plain, tmp_path / "plain"))


def _inputs(new_input: NewInput) -> tuple[Input, Input]:
    a, b, value = new_input("a", LEFT), new_input("b", RIGHT), {"a": 1, "b": ["x", None]}
    a.add(("a", 1, AT, value), ("a", 4, None, None), ("b", 2, AT, value), (None, 3, AT, None))
    b.add(("A", 1, 1.5), (None, 3, None), ("a", 7, 2.0), ("c", None, 1.0))
    a.add()
    b.add(("b", 2, 1.0))
    a.add(("a", 5, AT, {"a": None, "b": None}), (None, None, AT, value))
    return a, b


def _compare(spark: SparkSession, job: Job, theirs: list[list[Any]]) -> None:
    rows = spark.createDataFrame(memory.read(job.sink)).collect()
    expected = ordered(_plain(row) for batch in theirs for row in batch)
    assert ordered(map(_plain, rows)) == expected
    assert expected


@pytest.mark.soak  # of a union: test_alignment.py
def test_rows_on_both_sides_of_a_barrier_do_not_meet_and_none_is_lost_or_there_twice(
    ckpt: Any, job: Job, new_input: NewInput
) -> None:
    """As in ``test_alignment``: the leader's second row is behind barrier 1, and the follower's is ahead of it."""
    leader, follower = new_input("leader", "k string, v int"), new_input("follower", "k string, v int")
    sides = [made.stream(ckpt, uid=made.folder.name).groupBy("k") for made in (leader, follower)]
    groups = sides[0].cogroup(sides[1]).applyInPandas(_counts, "k string, l long, r long, both long")
    totals = groups.groupBy("k").agg(F.sum("l").alias("l"), F.sum("r").alias("r"), F.sum("both").alias("both"))
    leader.add(("x", 1))
    follower.add(("x", 10))
    first = job.start(totals, keys="k", now=False, triggerPollInterval="1h", initialDelay="5s")
    wait_until(lambda: any(end["barrier"] == 1 for end, _ in _offsets(first)), first)
    leader.add(("x", 2), ("y", 3))
    follower.add(("x", 20))
    wait_until(lambda: [end["inner"]["file"] for end in _offsets(first)[-1]] == [2, 2], first)
    first.stop()
    second = job.run(totals, keys="k")
    assert job.rows() == [("x", 2, 2, 1), ("y", 1, 0, 0)]
    job.run(totals, keys="k", restore="1", checkpointLocation=second.job.url + "/elsewhere")
    assert job.rows() == [("x", 2, 2, 1), ("y", 1, 0, 0)]


def _of_static(spark: SparkSession, groups: Any) -> Any:
    return spark.range(3).groupBy("id").cogroup(groups).applyInPandas(_seen, OUT)


def _counts(key, left, right):  # type: ignore[no-untyped-def]
    both = int(len(left) > 0 and len(right) > 0)
    return pd.DataFrame({"k": [key[0]], "l": [len(left)], "r": [len(right)], "both": [both]})


def test_what_spark_refuses_of_both_sides_is_refused(spark: SparkSession, ckpt: Any, new_input: NewInput) -> None:
    a, b = new_input("a", LEFT).stream(ckpt), new_input("b", RIGHT)
    by_k, other = a.groupBy("k"), b.stream(ckpt)
    for wrong, error, said in (
        (lambda: by_k.cogroup(other.groupBy("j")).applyInPandas(lambda one: one, OUT), PySparkValueError, "either two"),
        (lambda: by_k.cogroup(other.groupBy("j")).applyInArrow(lambda: 1, OUT), PySparkValueError, "either two"),
        (lambda: by_k.cogroup(other.groupBy("j")).applyInPandas(_seen, "nonsense"), Exception, "nonsense"),
        (lambda: by_k.cogroup(other.groupBy("j", "v")).applyInPandas(_seen, OUT), Exception, "same size: 1 != 2"),
        (lambda: by_k.cogroup(other.groupBy("nothing")).applyInPandas(_seen, OUT), AnalysisException, "nothing"),
        (lambda: ckpt.check(_of_static(spark, by_k)), InvalidInputError, "the stream's rows first"),
    ):
        with pytest.raises(error, match=said):
            wrong()
