"""``enable`` where streams are PySpark's own DataFrames: what it gives them, and leaves to Spark's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkAttributeError
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

import spark_ckpt
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.sinks import memory
from tests.spark.conftest import DEADLINE_S, Input, ordered

NewInput = Callable[[str, str], Input]


@pytest.fixture
def door(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Methods that PySpark's classes get are gone behind the test."""
    monkeypatch.setattr(ClassicDataFrame, "writeStream", ClassicDataFrame.writeStream)
    monkeypatch.setattr(ClassicDataFrame, "uid", None, raising=False)
    for name in ("aggregate", "applyInArrowWithState", "topN"):
        monkeypatch.setattr(GroupedData, name, None, raising=False)
    spark.conf.set("spark.ckpt.dir", str(tmp_path / "jobs"))
    return spark_ckpt.enable(spark)


@pytest.fixture
def data(new_input: NewInput) -> Input:
    found = new_input("in", "id bigint, k string")
    found.add((1, "a"), (2, "b"), (3, "a"))
    return found


def committed(df: DataFrame, folder: Path) -> list[tuple[Any, ...]]:
    writer: Any = df.writeStream.format("memory").option("path", str(folder)).outputMode("update")
    assert writer.queryName("job").trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    return ordered([tuple(row.values()) for row in memory.read(str(folder)).to_pylist()])


def test_a_stream_is_a_dataframe_of_pysparks_that_is_written_under_checkpoints(
    door: Any, data: Input, spark: SparkSession, tmp_path: Path
) -> None:
    stream = data.stream(door)
    assert type(stream) is ClassicDataFrame
    stream.createOrReplaceTempView("orders")
    counted = spark.sql("SELECT k, count(*) AS n FROM orders GROUP BY k").uid("counted")
    rows = counted.unionAll(stream.select("k", "id"))
    assert committed(rows, tmp_path / "out") == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)]
    assert list((tmp_path / "jobs/job/state").glob("counted*")), "the state has the name that uid gives it"
    (started,) = spark_ckpt.job(str(tmp_path / "jobs"), "job").records.generations()
    (source,) = started.topology.sources
    flows = [(edge.start, edge.end) for edge in started.edges]
    assert flows == [(source, "counted"), ("counted", "sink:memory"), (source, "sink:memory")]
    assert set(started.settings_from.values()) == {"session", "default"}
    for value in (door, door.state("counted", job="job"), spark_ckpt.job(str(tmp_path / "jobs"), "job")):
        assert "counted" in value._repr_html_() or ">job<" in value._repr_html_()


def test_what_spark_alone_knows_of_files_comes_with_their_rows(door: Any, data: Input, tmp_path: Path) -> None:
    stream = door.readStream.schema(data.schema).parquet(str(data.folder))
    named = stream.select("id", F.col("_metadata.file_name").alias("of")).union(stream.select("id", F.lit("no")))
    expected = [(1, "000.parquet"), (1, "no"), (2, "000.parquet"), (2, "no"), (3, "000.parquet"), (3, "no")]
    assert committed(named, tmp_path / "out") == expected
    by_us = data.stream(door)
    with pytest.raises(InvalidInputError, match=r"input_file_name\(\) is asked for: it would be empty"):
        door.check(by_us.select(F.input_file_name()))


def test_a_job_is_shown_and_checked_before_it_starts(door: Any, data: Input, capsys: Any) -> None:
    kept = data.stream(door, uid="in").where("id > 1").groupBy("k").agg(F.sum("id").alias("s")).uid("sums")
    door.explain(kept)
    shown = capsys.readouterr().out
    for line in ("keyed operator sums: aggregate; output mode update; state sums: k -> sum_id", "source in: files"):
        assert line in shown
    assert "Filter: in Arrow" in shown
    door.check(kept, "update")
    with pytest.raises(AnalysisException, match="outputMode is 'append', but operator 'sums' puts out rows of mode"):
        door.check(kept)
    with pytest.raises(InvalidInputError, match=r"Offset .*: a stream has no end"):
        door.check(data.stream(door).offset(1))
    twice = data.stream(door).select("k", F.col("id").alias("k"))
    with pytest.raises(InvalidInputError, match="column names occur more than once"):
        door.check(twice)
    door.check(twice, foreachBatch=True)


def test_dataframes_without_a_stream_of_ours_are_as_they_were(door: Any, spark: SparkSession, tmp_path: Path) -> None:
    table: Any = spark.createDataFrame([(7,)], "uid int")
    assert table.where(table.uid == 7).count() == 1, "a column of that name is got as ever"
    with pytest.raises(PySparkAttributeError):
        _ = spark.range(1).uid
    plain = spark.readStream.format("rate").load()
    assert type(plain.writeStream).__module__.startswith("pyspark.")
    assert type(door.writeStream(plain)).__module__.startswith("spark_ckpt.")
