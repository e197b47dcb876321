"""``format("memory")`` as in Spark: no option, and a table by the query's name that is read while the query runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.conftest import Input, ordered, wait_until

NewInput = Callable[[str, str], Input]
SCHEMA = "k string, v long, t timestamp, s struct<x:int,y:array<string>>, `a.b` decimal(9,2), d date"
FIRST = [("a", 1, None, {"x": 1, "y": ["p", None]}, None, None), (None, None, None, None, None, None)]
QUERIES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "rows": (lambda df: df.withColumn("n", F.lit(1)), "append"),
    "totals": (lambda df: df.groupBy("k").agg(F.sum("v").alias("total")), "update"),
    "results": (lambda df: df.groupBy("k").agg(F.count("*").alias("n"), F.max("s.x").alias("x")), "complete"),
}


def _read(spark: SparkSession, name: str) -> Any:
    """What code that was written for Spark looks at."""
    table = spark.table(name)
    fields = [(f.name, f.dataType) for f in table.schema.fields]
    counted = spark.sql(f"SELECT count(*), count(k) FROM {name} WHERE k IS NULL OR k > ''").collect()
    return fields, ordered(table.collect()), counted, table.isStreaming


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.soak] if n != "rows" else []) for n in QUERIES])
def test_the_table_of_a_running_query_is_that_of_spark(
    spark: SparkSession, ckpt: Any, new_input: NewInput, name: str
) -> None:
    query, mode = QUERIES[name]
    seen: list[list[Any]] = []
    for who, begin in (("of_spark", Input.spark_stream), ("here", Input.stream)):
        data = new_input(who, SCHEMA)
        data.add(*FIRST)
        stream = query(begin(data, spark if who == "of_spark" else ckpt))
        writer = stream.writeStream.outputMode(mode).format("memory").queryName(f"{name}_{who}")
        running, looks = writer.start(), []
        table = spark.table(f"{name}_{who}")
        for rows in ([], [("b", 5, None, None, None, None)], [("a", 7, None, {"x": 2, "y": []}, None, None)]):
            if rows:
                data.add(*rows)
            running.processAllAvailable()
            looks.append(_read(spark, f"{name}_{who}"))
        assert ordered(table.collect()) == looks[-1][1], "the table is not that of the time when it was looked up"
        running.stop()
        looks.append(_read(spark, f"{name}_{who}"))
        seen.append(looks)
    assert seen[1] == seen[0]
    assert seen[0][0][1] != seen[0][1][1] != seen[0][2][1]


def test_the_table_has_what_is_committed_and_goes_on_after_a_restart(
    spark: SparkSession, ckpt: Any, new_input: NewInput, caplog: pytest.LogCaptureFixture
) -> None:
    data = new_input("in", "k string, v long")
    data.add(("a", 1))

    def start(name: str = "Kept") -> Any:
        return data.stream(ckpt).writeStream.format("memory").queryName(name).start()

    query = start()
    query.processAllAvailable()
    data.add(("b", 2))
    wait_until(lambda: query.lastProgress.sources[0].numInputRows or None, query)
    query._query.processAllAvailable()
    assert ordered(spark.table("kept").collect()) == [("a", 1)], "a row that is not committed yet is not seen"
    query.stop()
    data.add(("c", 3))
    query = start()
    query.processAllAvailable()
    assert ordered(spark.table("kept").collect()) == [("a", 1), ("b", 2), ("c", 3)]
    query.stop()
    with caplog.at_level(logging.WARNING):
        start("no-table").stop()
    assert "takes its name for no table's" in caplog.text
    assert "/jobs/no-table/memory" in caplog.text
