"""Structs and arrays as keys, beside Spark's own streams over the same files; restored with other partitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pandas as pd
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupState

import spark_ckpt
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


def _aggregated(df: Any, **uid: str) -> Any:
    """Keys within results and within aggregates, too."""
    parts = ["s", F.struct("d").alias("y"), F.array("s", "s").alias("two"), F.array("d").alias("ds")]
    keys = [F.struct(*parts).alias("x"), "l", "s"]
    results = [F.count("*").alias("n"), F.max("s.b").alias("b"), (F.col("s.a") + F.count("d")).alias("c")]
    return df.groupBy(*keys).agg(*results, F.collect_set("k").alias("ks"), **uid)


def _of_a_function(df: Any, **uid: str) -> Any:
    out = "key string, n long"
    return df.groupBy("s", "l").applyInPandasWithState(_counted, out, "n long", "update", "NoTimeout", **uid)


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


def _processed(df: Any, **uid: str) -> Any:
    return df.groupBy("s").transformWithState(_Counts(), "key string, n long", "update", "none", **uid)


def _cube(df: Any, **uid: str) -> Any:
    return df.cube("s", "l").agg(F.count("*").alias("n"), F.max("s.b").alias("b"), F.grouping("s"), **uid)


def _text(row: dict[str, Any]) -> str:
    return repr(list(row.values()))


@pytest.mark.parametrize(
    "query", [_aggregated, _of_a_function, *(pytest.param(q, marks=pytest.mark.soak) for q in (_processed, _cube))]
)
def test_nested_keys_are_those_of_spark_and_go_to_other_partitions(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, query: Any
) -> None:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    made = new_input("in", SCHEMA)
    made.add(*FIRST)
    made.add()
    job.run(query(made.stream(ckpt), uid="nested"), mode="update")
    made.add(*SECOND)
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        elsewhere = str(tmp_path / "elsewhere")
        job.run(query(made.stream(ckpt), uid="nested"), mode="update", checkpointLocation=elsewhere)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    plain = query(made.spark_stream(spark))
    assert query(made.stream(ckpt)).schema.simpleString() == plain.schema.simpleString()
    theirs = [_text(row.asDict(recursive=True)) for row in rows_of_spark(plain, tmp_path / "plain", "update")]
    ours = [_text(row) for row in memory.read(job.sink).to_pylist()]
    assert len(theirs) > 7
    assert sorted(ours) == sorted(theirs)
    done = spark_ckpt.job(str(tmp_path / "jobs"), "job")
    url, version = done.state_table("nested")
    assert "StructType" in str(deltalake.DeltaTable(url, version=version).schema())
    assert done.verify() == []


def test_types_that_are_no_keys_are_named(ckpt: Any, new_input: NewInput) -> None:
    rows = new_input("in", SCHEMA).stream(ckpt)
    for key, said in (
        (F.struct(F.create_map("k", "d").alias("m")), "struct<m:map<string,double>>, which cannot be a key"),
        (F.array(F.collate("k", "UTF8_LCASE")), "which cannot be a key"),
        (F.array(F.struct("k", F.struct(F.parse_json(F.lit("1"))))), "variant"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            rows.groupBy(key.alias("x")).count()
