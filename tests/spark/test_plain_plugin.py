"""``format("ckpt")`` without the wrapper: found by Spark without registration, exactly once across restarts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import spark_ckpt
from spark_ckpt.sinks import memory
from tests.spark.conftest import DEADLINE_S, Input

NewInput = Callable[[str, str], Input]


class Plain:
    """One query through the plugin; reader and writer share the job's options."""

    def __init__(self, spark: SparkSession, source: Input, tmp_path: Path) -> None:
        self.spark, self.source = spark, source
        self.sink = str(tmp_path / "sink")
        location = str(tmp_path / "location")
        self.both = {"dir": str(tmp_path / "jobs"), "job": "plain", "checkpointLocation": location}

    def read(self, schema: str | None = None) -> Any:
        reader = self.spark.readStream.format("ckpt").option("source", "files").option("fileFormat", "parquet")
        reader = reader if schema is None else reader.schema(schema)
        return reader.option("path", str(self.source.folder)).options(**self.both).load()

    def run(self, df: Any) -> None:
        writer = df.writeStream.format("ckpt").option("sink", "memory").option("path", self.sink)
        query = writer.options(**self.both).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S)


@pytest.fixture
def plain(spark: SparkSession, new_input: NewInput, tmp_path: Path) -> Plain:
    source = new_input("input", "v long")
    source.add((1,), (2,), (3,))
    return Plain(spark, source, tmp_path)


def test_spark_finds_the_plugin_and_each_row_arrives_once_across_restarts(plain: Plain, tmp_path: Path) -> None:
    plain.run(plain.read().where("v % 2 = 1 or __ckpt_ctl is not null"))
    plain.source.add((4,), (5,))
    plain.run(plain.read().where("v % 2 = 1 or __ckpt_ctl is not null"))
    assert sorted(memory.read(plain.sink).column("v").to_pylist()) == [1, 3, 5]
    assert spark_ckpt.job(str(tmp_path / "jobs"), "plain").verify() == []


def test_a_query_that_lost_the_control_columns_fails_and_says_so(plain: Plain) -> None:
    with pytest.raises(StreamingQueryException, match="lost the barriers"):
        plain.run(plain.read().select("v"))


def test_a_schema_without_the_control_columns_is_refused_and_the_told_one_works(plain: Plain) -> None:
    with pytest.raises(StreamingQueryException, match=r"schema\(\.\.\.\) has no column.*__ckpt_tag long") as refused:
        plain.run(plain.read("v long"))
    assert "UnboundLocalError" not in str(refused.value)
    plain.run(plain.read("v long, __ckpt_tag long, __ckpt_ctl binary"))
    assert sorted(memory.read(plain.sink).column("v").to_pylist()) == [1, 2, 3]
