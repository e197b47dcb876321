"""Keyed operators and stateless operations give what plain Spark gives on the same rows, and every barrier arrives."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt import agg
from spark_ckpt.errors import InvalidInputError
from tests.spark.conftest import Input, Job, ordered, rows_of_spark

cloudpickle.register_pickle_by_value(sys.modules[__name__])

NewInput = Callable[[str, str], Input]
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def _utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[arg-type,misc]


def _completed(query: Any) -> list[str]:
    return [row["kind"] for row in query.checkpoints() if row["outcome"] == "completed"]


# --- aggregates -----------------------------------------------------------------------------------------------------

IN_ORDER = "transform(array_sort(collect_list(if(i is null, null, struct(o, i)))), x -> x.i)"

KEYS: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 127],
    "smallint": [-1, 300],
    "int": [42, 0],
    "bigint": [2**62, 42],
    "float": [0.0, -0.0, math.nan, 1.5],
    "double": [-0.0, 0.0, math.nan, -1.5],
    "decimal(9,2)": [Decimal("0.42"), Decimal("-1.00")],
    "decimal(38,10)": [Decimal("12345678901234567890.0000000001"), Decimal(0)],
    "string": ["", "Grüße"],
    "binary": [b"", b"\x00\xff"],
    "date": [date(1969, 12, 31), date(2024, 2, 29)],
    "timestamp": [_utc(1960, 1, 1), _utc(2024, 7, 1, 12, 0, 0, 5)],
    "timestamp_ntz": [datetime(2024, 3, 10, 2, 30), datetime(1, 1, 1)],
}


ALONE = ("boolean", "double", "decimal(9,2)", "string", "timestamp")
"""A key column of its own; the other types make one key together. An operator each would take a minute more."""


def test_every_key_type_groups_as_sparks_groupBy_does(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job
) -> None:
    columns = {f"c{i}": kind for i, kind in enumerate(KEYS)}
    data = new_input("in", ", ".join([*(f"{name} {kind}" for name, kind in columns.items()), "v int"]))
    data.add(*[(*_key_row(i), i) for i in range(10)])

    def shown(df: Any, name: str) -> Any:
        text = f"hex({name})" if columns[name] == "binary" else f"cast({name} as string)"
        return df.selectExpr(f"'{columns[name]}' as what", f"{text} as key", "n", "s")

    # One source on several branches, each with an operator, all to one sink.
    stream, table = data.stream(ckpt), data.table(spark)
    found, expected = None, []
    for name in (n for n, kind in columns.items() if kind in ALONE):
        counted = stream.groupBy(name).aggregate(n=agg.count(), s=agg.sum("v")).uid(f"by-{name}")
        found = shown(counted, name) if found is None else found.union(shown(counted, name))
        counts = table.groupBy(name).agg(F.count("*").alias("n"), F.sum("v").alias("s"))
        expected += shown(counts, name).collect()
    together = [n for n, kind in columns.items() if kind not in ALONE]
    key = F.concat_ws(
        "|", F.lit(""), *[F.hex(n) if columns[n] == "binary" else F.col(n).cast("string") for n in together]
    )
    counted = stream.groupBy(*together).aggregate(n=agg.count(), s=agg.sum("v")).uid("together")
    found = found.union(counted.select(F.lit("all").alias("what"), key.alias("key"), "n", "s"))
    counts = table.groupBy(*together).agg(F.count("*").alias("n"), F.sum("v").alias("s"))
    expected += counts.select(F.lit("all").alias("what"), key.alias("key"), "n", "s").collect()
    query = job.run(found, keys="what,key")
    assert job.rows() == ordered(expected)
    assert _completed(query) == ["final"]


def _key_row(i: int) -> list[Any]:
    return [None if i % 5 == 4 else values[i % len(values)] for values in KEYS.values()]


def test_all_aggregates_equal_sparks_over_several_batches_and_key_columns(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job
) -> None:
    data = new_input("in", "a string, b double, i int, d double, m decimal(10,2), s string, t timestamp, o int")
    for batch in range(3):
        data.add(*[_wide_row(batch * 20 + i) for i in range(20)])
    specs = {
        "n": (agg.count(), F.count("*")),
        "ni": (agg.count("i"), F.count("i")),
        "si": (agg.sum("i"), F.sum("i")),
        "sd": (agg.sum("d"), F.sum("d")),
        "sm": (agg.sum("m"), F.sum("m")),
        "ai": (agg.mean("i"), F.mean("i")),
        "am": (agg.avg("m"), F.avg("m")),
        "lo": (agg.min("s"), F.min("s")),
        "hi": (agg.max("d"), F.max("d")),
        "ht": (agg.max("t"), F.max("t")),
        # Spark's own first, last and collect_list depend on how it sorts; o says what came first.
        "f1": (agg.first("s"), F.min_by("s", "o")),
        "f2": (agg.first("s", ignore_nulls=True), F.expr("min_by(s, if(s is null, null, o))")),
        "l1": (agg.last("i"), F.max_by("i", "o")),
        "l2": (agg.last("i", ignore_nulls=True), F.expr("max_by(i, if(i is null, null, o))")),
        "dev": (agg.stddev("i"), F.round(F.stddev("i"), 9)),
        "exd": (agg.count_distinct("d"), F.count_distinct("d")),
        "dis": (agg.approx_count_distinct("s"), F.count_distinct("s")),
        "all": (agg.collect_list("i", max_items=100), F.expr(IN_ORDER)),
        "own": (agg.last("b"), F.max_by("b", "o")),  # as a key -0.0 is 0.0, as a value it is not
    }
    ours = data.stream(ckpt).groupBy("a", "b").aggregate(**{k: v for k, (v, _) in specs.items()}).uid("u")
    expected = data.table(spark).groupBy("a", "b").agg(*[v.alias(k) for k, (_, v) in specs.items()])
    assert ours.schema.simpleString() == expected.schema.simpleString()
    sign = F.col("own").cast("string")
    job.run(ours.withColumn("dev", F.round("dev", 9)).withColumn("own", sign), keys="a,b")
    assert job.rows() == ordered(_plain(expected.withColumn("own", sign)))
    assert any(row[-1] == "-0.0" for row in job.rows())


def _wide_row(i: int) -> tuple[Any, ...]:
    number = None if i % 7 == 3 else i * 3 - 20
    return (
        None if i % 4 == 3 else f"k{i % 4}",
        (math.nan, 0.0, -0.0)[i % 3],
        number,
        math.nan if i == 17 else i / 4,
        None if i % 5 == 1 else Decimal(i).scaleb(-2),
        None if i % 6 == 0 else f"s{i % 9}",
        None if i % 8 == 1 else _utc(2024, 3, 10, i % 24),
        i,
    )


def _plain(df: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in df.toArrow().to_pylist()]


def test_rolling_aggregates_append_running_values_to_every_row(ckpt: Any, new_input: NewInput, job: Job) -> None:
    data = new_input("in", "k string, at int, v int")
    data.add(("a", 3, 30), ("b", 1, 1), ("a", 1, 10), ("a", 2, 20))
    data.add(("b", 5, 5), ("a", 9, 5))
    ours = (
        data.stream(ckpt)
        .groupBy("k")
        .aggregate(emit="rows", orderBy="at", n=agg.count(), total=agg.sum("v"), hi=agg.max("v"))
        .uid("rolling")
    )
    assert ours.columns == ["k", "at", "v", "n", "total", "hi"]
    job.run(ours)
    assert job.rows() == ordered(
        [
            ("a", 1, 10, 1, 10, 10),
            ("a", 2, 20, 2, 30, 20),
            ("a", 3, 30, 3, 60, 30),
            ("a", 9, 5, 4, 65, 30),
            ("b", 1, 1, 1, 1, 1),
            ("b", 5, 5, 2, 6, 5),
        ]
    )


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("array<variant>", "array<variant>"),
        ("map<string,variant>", "map<string, variant>"),
        ("string collate UTF8_LCASE", "UTF8_LCASE"),
        ("variant", "variant"),
    ],
)
def test_a_key_type_that_cannot_be_supported_is_refused_before_anything_starts(
    ckpt: Any, new_input: NewInput, kind: str, hint: str
) -> None:
    stream = new_input("in", "i int").stream(ckpt).selectExpr(f"cast(null as {kind}) as k")
    with pytest.raises((InvalidInputError, AnalysisException), match=f"(?i)['\"]k['\"].*{hint}"):
        ckpt.check(stream.groupBy("k").count(), "update")


# --- several operators ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["hdfs", pytest.param("rocksdb", marks=pytest.mark.soak)])
def test_three_operators_behind_a_union_of_two_sources_share_one_checkpoint(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, provider: str
) -> None:
    left, right = new_input("left", "who int, page string"), new_input("right", "page string, who int")
    for batch in range(2):
        left.add(*[(i % 7, f"p{i % 3}") for i in range(batch * 5, batch * 5 + 9)])
        right.add(*[(f"p{i % 4}", i % 11) for i in range(batch * 3, batch * 3 + 6)])

    visits = left.stream(ckpt).unionByName(right.stream(ckpt))
    firsts = visits.groupBy("who", "page").aggregate(emit="rows", seen=agg.count()).uid("once").where("seen = 1")
    visitors = firsts.groupBy("page").aggregate(n=agg.count()).uid("visitors")
    busiest = (
        visitors.withColumn("even", F.expr("page in ('p0', 'p2')"))
        .groupBy("even")
        .aggregate(most=agg.max("n"))
        .uid("busiest")
    )
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB) if provider == "rocksdb" else None
    try:
        query = job.run(busiest, keys="even")
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")

    everyone = left.table(spark).unionByName(right.table(spark)).distinct().groupBy("page").count()
    expected = everyone.groupBy(F.expr("page in ('p0', 'p2')")).agg(F.max("count"))
    assert job.rows() == ordered(expected.collect())
    (final,) = query.checkpoints()
    assert (final["outcome"], set(final["state"])) == ("completed", {"once", "visitors", "busiest"})
    assert final["state"]["once"].keys == left.table(spark).unionByName(right.table(spark)).distinct().count()
    assert query.job.verify() == []


def test_a_source_that_reaches_an_operator_on_two_branches_counts_twice(
    ckpt: Any, new_input: NewInput, job: Job
) -> None:
    data = new_input("in", "k int, v int")
    data.add((1, 10), (2, 20))
    data.add((1, 1))
    stream = data.stream(ckpt)
    both = stream.union(stream.where("k = 1").withColumn("v", F.col("v") * 100))
    query = job.run(both.groupBy("k").aggregate(n=agg.count(), s=agg.sum("v")).uid("u"), keys="k")
    assert job.rows() == [(1, 4, 1111), (2, 1, 20)]
    assert _completed(query) == ["final"]


# --- stateless operations -------------------------------------------------------------------------------------------


def _plus_one(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict(
            {"w": pc.add(batch.column("v"), pa.scalar(1, pa.int32())), "k": batch.column("k")}
        )


def _local_time(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Shows what a function sees of a timestamp, and hands it back."""
    for frame in frames:
        seen = frame["t"].map(lambda t: f"{t} {t.tzinfo}")
        # Out of order, and a type that has to be converted.
        yield pd.DataFrame({"t": frame["t"], "seen": seen, "v": frame["v"].astype("float64")})


def _steps(df: Any) -> Any:
    """A chain of PySpark's methods; made for a checkpointed stream and for a plain DataFrame alike."""
    df = df.select("k", F.col("v"), "t").withColumn("half", F.col("v") / 2).filter(F.col("half") > 0.5)
    df = df.withColumnRenamed("half", "h").withColumns({"h": F.round("h"), "x": F.lit(None).cast("string")})
    df = df.where("x is null or x <> 'y'").drop("x").selectExpr("*", "upper(k) as u").alias("a")
    df = df.transform(lambda d: d.where("a.u <> 'C'")).toDF("k", "v", "t", "h", "u")
    doubled = df.unionByName(df.select("t", "v", "k").where("v = 2"), allowMissingColumns=True)
    return doubled.select(F.struct("k", "u").alias("ku"), *[doubled[c] for c in ("v", "h", "t")])


def test_stateless_steps_do_what_spark_does_and_keep_every_barrier(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job
) -> None:
    data = new_input("in", "k string, v int, t timestamp")
    data.add(*[("abc"[i % 3], i, _utc(2024, 7, 1, i)) for i in range(9)], (None, None, None))
    data.add(("c", 1, None))  # nothing of this batch is left
    query = job.run(_steps(data.stream(ckpt)))
    assert job.rows() == ordered(_plain(_steps(data.table(spark))))
    assert _completed(query) == ["final"]


def test_functions_over_arrow_and_pandas_see_what_spark_shows_them(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job
) -> None:
    data = new_input("in", "k string, v int, t timestamp")
    data.add(("a", 1, _utc(2024, 7, 1, 12)), ("b", 2, None))
    data.add(("c", 3, _utc(2024, 1, 1)))

    def both(df: Any) -> Any:
        times = df.mapInPandas(_local_time, "v int, t timestamp, seen string")
        added = df.mapInArrow(_plus_one, "w int, k string")
        return times.selectExpr("v", "t", "seen").union(added.selectExpr("w", "cast(null as timestamp)", "k"))

    query = job.run(both(data.stream(ckpt)))
    assert job.rows() == ordered(_plain(both(data.table(spark))))
    assert _completed(query) == ["final"]


# --- aggregates behind what puts out rows, and updates ----------------------------------------------------------------


def _so_far(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    state.update(((state.get[0] if state.exists else 0) + sum(map(len, frames)),))
    yield pd.DataFrame({"k": [key[0]], "n": [state.get[0]]})


def _of_a_function(df: Any) -> Any:
    rows = df.groupBy("k").applyInPandasWithState(_so_far, "k string, n long", "n long", "append", "NoTimeout")
    return rows.groupBy("n").count()


def _of_updates(df: Any) -> Any:
    return df.groupBy("k").agg(F.count("*").alias("n")).groupBy("n").count()


@pytest.mark.parametrize(
    ("query", "checked"), [(_of_a_function, "true"), pytest.param(_of_updates, "false", marks=pytest.mark.soak)]
)
def test_what_spark_aggregates_of_functions_and_of_updates_is_aggregated(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path, query: Any, checked: str
) -> None:
    """A function's rows of mode append in mode update; and updates, where the check of them is turned off."""
    spark.conf.set("spark.sql.streaming.statefulOperator.checkCorrectness.enabled", checked)
    data, expected = new_input("in", "k string"), []
    for keys in ("ab", "ac"):
        data.add(*[(key,) for key in keys])
        expected += rows_of_spark(query(data.spark_stream(spark)), tmp_path / "plain", "update")
        job.run(query(data.stream(ckpt)), mode="update")
        assert job.rows() == ordered(map(tuple, expected))
