"""Keys that are structs, arrays, maps and intervals, beside Spark's own streams; restored with other partitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pandas as pd
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupState

import spark_ckpt
from spark_ckpt import agg
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks import memory
from tests.spark.conftest import Job, rows_of_spark
from tests.spark.test_window_columns import NewInput

SCHEMA = "k string, d double, s struct<a: int, b: string>, l array<double>"
NAN = float("nan")
FIRST = [
    ("a", 0.0, {"a": 1, "b": "x"}, [1.0, NAN]),
    ("a", -0.0, {"a": 1, "b": "x"}, [1.0, NAN]),
    ("b", NAN, {"a": 1, "b": None}, [0.5, None]),
    ("b", None, None, None),
    (None, None, {"a": None, "b": None}, []),
]
SECOND = [
    ("a", -0.0, {"a": 1, "b": "x"}, [1.0, NAN]),
    ("b", NAN, {"a": 1, "b": None}, [0.5, None]),
    (None, NAN, None, [None]),
    (None, None, {"a": None, "b": None}, []),
]
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def _aggregated(df: Any) -> Any:
    """Keys within results and within aggregates, too."""
    parts = ["s", F.struct("d").alias("y"), F.array("s", "s").alias("two"), F.array("d").alias("ds")]
    keys = [F.struct(*parts).alias("x"), "l", "s"]
    results = [F.count("*").alias("n"), F.max("s.b").alias("b"), (F.col("s.a") + F.count("d")).alias("c")]
    return df.groupBy(*keys).agg(*results, F.collect_set("k").alias("ks"))


def _maps_and_intervals(df: Any) -> Any:
    """Entries in both orders make one key. Months are a text to the sink. Spark fails where it would sort maps, as it
    does for the largest text."""
    one, two = (F.coalesce("k", F.lit("none")), F.col("d")), (F.lit("z"), F.array("s.b"))
    made = F.when(F.col("s").isNull(), F.create_map(*one, two[0], F.col("d"))).otherwise(
        F.create_map(two[0], F.col("d"), *one)
    )
    rows = df.withColumn("m", F.when(F.col("d").isNotNull(), made)).withColumn("n", F.create_map(*two))
    keys = ["m", F.struct("n").alias("x"), F.expr("make_dt_interval(0, 0, 0, s.a)").alias("i")]
    months = F.array(F.expr("make_ym_interval(s.a)")).alias("y")
    results = [F.count("m").alias("c"), (F.col("i") + F.expr("interval 1 second")).alias("more")]
    found = rows.groupBy(*keys, months).agg(*results, F.sum(F.size("n")))
    return found.withColumn("y", F.col("y")[0].cast("string")).select("*", F.size("m"))


def _of_a_function(df: Any) -> Any:
    out = "key string, n long"
    return df.groupBy("s", "l").applyInPandasWithState(_counted, out, "n long", "update", "NoTimeout")


def _counted(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    n = sum(map(len, frames)) + (state.get[0] if state.exists else 0)
    state.update((n,))
    yield pd.DataFrame({"key": [repr(key).replace("-0.0", "0.0")], "n": [n]})


class _Counts(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self._n = handle.getValueState("n", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        n = sum(1 for _ in rows) + (self._n.get()[0] if self._n.exists() else 0)
        self._n.update((n,))
        yield Row(key=repr(key), n=n)

    def close(self) -> None:
        pass


def _processed(df: Any) -> Any:
    return df.groupBy("s").transformWithState(_Counts(), "key string, n long", "update", "none")


def _cube(df: Any) -> Any:
    return df.cube("s", "l").agg(F.count("*").alias("n"), F.max("s.b").alias("b"), F.grouping("s"))


def _text(row: dict[str, Any]) -> str:
    return repr([_plain(value) for value in row.values()])


def _plain(value: Any) -> Any:
    """Of a map its entries, in no order."""
    if isinstance(value, dict):
        return sorted(((key, _plain(v)) for key, v in value.items()), key=repr)
    if isinstance(value, list):
        return sorted(map(_plain, value), key=repr) if value and isinstance(value[0], tuple) else [*map(_plain, value)]
    return value


@pytest.mark.parametrize(
    "query",
    [
        _maps_and_intervals,
        *(pytest.param(q, marks=pytest.mark.soak) for q in (_aggregated, _of_a_function, _processed, _cube)),
    ],
)
@pytest.mark.soak
def test_nested_keys_are_those_of_spark_and_go_to_other_partitions(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, query: Any
) -> None:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    made = new_input("in", SCHEMA)
    made.add(*FIRST)
    made.add()
    job.run(query(made.stream(ckpt)).uid("nested"), mode="update")
    made.add(*SECOND)
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        elsewhere = str(tmp_path / "elsewhere")
        job.run(query(made.stream(ckpt)).uid("nested"), mode="update", checkpointLocation=elsewhere)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    plain = query(made.spark_stream(spark))
    assert query(made.stream(ckpt)).schema.simpleString() == plain.schema.simpleString()
    theirs = [_text(row.asDict(recursive=True)) for row in rows_of_spark(plain, tmp_path / "plain", "update")]
    ours = [_text(row) for row in memory.read(job.sink).to_pylist()]
    assert len(theirs) > 6
    assert sorted(ours) == sorted(theirs)
    done = spark_ckpt.job(str(tmp_path / "jobs"), "job")
    url, version = done.state_table("nested")
    assert "StructType" in str(deltalake.DeltaTable(url, version=version).schema())
    assert done.verify() == []


def test_types_that_are_no_keys_are_named(ckpt: Any, new_input: NewInput) -> None:
    rows = new_input("in", SCHEMA).stream(ckpt)
    for key, said in (
        (F.create_map("k", F.collate("k", "UTF8_LCASE")), "which cannot be a key"),
        (F.array(F.collate("k", "UTF8_LCASE")), "which cannot be a key"),
        (F.array(F.struct("k", F.struct(F.parse_json(F.lit("1"))))), "VARIANT.*is not an orderable"),
    ):
        with pytest.raises((InvalidInputError, AnalysisException), match=said):
            ckpt.check(rows.groupBy(key.alias("x")).count(), "update")
    by_map = rows.withColumn("m", F.create_map("k", "d")).groupBy("m")
    for wrong, said in (
        (lambda: by_map.aggregate(n=agg.count()), "key column 'm': expected .* found map<string, double>"),
        (
            lambda: by_map.applyInPandasWithState(_counted, "key string, n long", "n long", "update", "NoTimeout"),
            "map<string,double>, which is a key of agg",
        ),
        (
            lambda: by_map.transformWithState(_Counts(), "key string, n long", "update", "none"),
            "map<string,double>, which is a key of agg",
        ),
    ):
        with pytest.raises(InvalidInputError, match=said):
            ckpt.check(wrong(), "update")
