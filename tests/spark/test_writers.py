"""Spark's writers by their names: files, partitions, the console, and a condition for each sink."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.errors import ConfigError, InvalidInputError
from spark_ckpt.sinks import memory
from tests.spark.conftest import DEADLINE_S, Input, ordered

NewInput = Callable[[str, str], Input]


@pytest.fixture
def data(new_input: NewInput) -> Input:
    found = new_input("in", "k string, v long")
    found.add(("a/b", 1), (None, 2), ("c", 3), ("c", 4))
    return found


def rows_of(path: Path) -> list[Any]:
    return sorted(memory.read(str(path)).column("v").to_pylist())


@pytest.mark.smoke
def test_each_sink_gets_the_rows_of_its_condition_in_sparks_formats_and_folders(
    ckpt: Any, spark: SparkSession, data: Input, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stream, out = data.stream(ckpt), tmp_path / "out"
    picked = F.udf(lambda v: v % 2 == 1, "boolean")
    query = (
        stream.writeStream.format("parquet")
        .partitionBy("k")
        .alsoTo("csv", path=f"{out}/csv", sep=";", header=True, where="v > 1")
        .alsoTo("json", path=f"{out}/json", where=F.col("k").isNull(), columns="v")
        .alsoTo("memory", path=f"{out}/m", where=picked("v"))
        .alsoTo("memory", path=f"{out}/none", where="v < 0", columns="v")
        .alsoTo("console", where="v = 3")
        .alsoTo(lambda rows, k: seen.extend(map(tuple, rows.collect())), where=stream.v < 3)
        .queryName("job")
        .trigger(availableNow=True)
    )
    seen: list[Any] = []
    with pytest.raises(InvalidInputError, match=r"needs a condition, found .*bigint"):
        stream.writeStream.format("memory").option("where", "v").queryName("job").start(f"{out}/x")
    started = query.start(f"{out}/parquet")
    assert started.awaitTermination(DEADLINE_S)
    expected = data.table(spark)
    expected.write.partitionBy("k").parquet(f"{out}/spark")
    folders = [sorted(p.name for p in (out / n).iterdir() if "=" in p.name) for n in ("parquet", "spark")]
    assert folders[0] == folders[1] == ["k=__HIVE_DEFAULT_PARTITION__", "k=a%2Fb", "k=c"]
    ours, sparks = (ordered(spark.read.parquet(f"{out}/{n}").collect()) for n in ("parquet", "spark"))
    assert ours == sparks
    csv = spark.read.options(sep=";", header=True).schema("k string, v long").csv(f"{out}/csv")
    assert ordered(csv.collect()) == ordered([(None, 2), ("c", 3), ("c", 4)])
    assert spark.read.json(f"{out}/json").collect() == [(2,)]
    assert rows_of(out / "m") == [1, 3]
    assert rows_of(out / "none") == []
    assert ordered(seen) == ordered([("a/b", 1), (None, 2)])
    printed = capfd.readouterr().out
    assert "Checkpoint: 1" in printed
    assert "|  c|  3|" in printed
    assert "|  c|  4|" not in printed


def test_folders_of_times_and_fractions_are_named_as_sparks(
    ckpt: Any, spark: SparkSession, new_input: NewInput, tmp_path: Path
) -> None:
    found = new_input("in", "t timestamp, n timestamp_ntz, d double, f float, v long")
    at = datetime(2026, 7, 1, 12, 30, 0, 120000)
    whole = at.replace(microsecond=0)
    found.add((at, at, 1e20, 0.1, 1), (None, None, float("nan"), None, 2), (whole, at, -0.0, 1.5, 3))
    found.table(spark).write.partitionBy("t", "n", "d", "f").parquet(f"{tmp_path}/spark")
    by = found.stream(ckpt).writeStream.format("parquet").partitionBy("t", "n", "D", "f").queryName("job")
    assert by.trigger(availableNow=True).start(f"{tmp_path}/ours").awaitTermination(DEADLINE_S)
    ours, sparks = (spark.read.parquet(f"{tmp_path}/{name}") for name in ("ours", "spark"))
    assert ours.dtypes == sparks.dtypes
    assert ordered(ours.collect()) == ordered(sparks.collect())
    folders = [{p.parent.relative_to(tmp_path / n) for p in (tmp_path / n).rglob("part-*")} for n in ("ours", "spark")]
    assert folders[0] == folders[1]
    with pytest.raises(InvalidInputError, match="column 't' has type timestamp"):
        by.alsoTo("noop").queryName("two").start(f"{tmp_path}/two")


def test_partition_by_no_column_makes_no_folders(ckpt: Any, spark: SparkSession, data: Input, tmp_path: Path) -> None:
    query = data.stream(ckpt).writeStream.format("parquet").partitionBy("k").partitionBy().queryName("job")
    assert query.trigger(availableNow=True).start(f"{tmp_path}/out").awaitTermination(DEADLINE_S)
    assert not list((tmp_path / "out").glob("k=*"))
    assert spark.read.parquet(f"{tmp_path}/out").count() == 4


def test_files_are_read_back_as_those_that_spark_wrote(
    ckpt: Any, spark: SparkSession, new_input: NewInput, tmp_path: Path
) -> None:
    """Whole doubles are none that readers who look at the text take for integers, and each row is a line."""
    found = new_input("in", "k string, v double")
    found.add(("a,b", 1.0), (None, 2.0), ('say "c"', None), ("ends in \\", 3.5), ('\\" and \\\\', 4.5), ('"', 5.5))
    line = F.to_json(F.struct("*")).alias("value")
    for name, rows in (("csv", found.stream(ckpt)), ("text", found.stream(ckpt).select("k"))):
        query = rows.select(line).writeStream if name == "text" else rows.writeStream
        query = query.format(name).queryName(name).trigger(availableNow=True).start(f"{tmp_path}/{name}")
        assert query.awaitTermination(DEADLINE_S)
    table = found.table(spark)
    table.write.csv(f"{tmp_path}/spark-csv")
    table.select("k").select(line).write.text(f"{tmp_path}/spark-text")
    for read in (spark.read.option("inferSchema", True).csv, spark.read.text):
        ours, sparks = read(f"{tmp_path}/{read.__name__}"), read(f"{tmp_path}/spark-{read.__name__}")
        assert ours.schema == sparks.schema
        assert ordered(ours.collect()) == ordered(sparks.collect())
    with pytest.raises(InvalidInputError, match="text files have one column, a string, found k: string, v: double"):
        found.stream(ckpt).writeStream.format("text").queryName("two").start(f"{tmp_path}/two")


def test_options_of_sparks_writers_that_mean_something_else_here_are_refused(ckpt: Any, data: Input) -> None:
    for kind, options, match in (
        ("csv", {"quoteAll": True}, "unknown option.*quoteAll"),
        ("json", {"compression": "gzip"}, "files are written as they are"),
        ("parquet", {"compression": "brotli"}, "one of none"),
        ("console", {"numRows": "many"}, "console takes numRows"),
        ("console", {"path": "x"}, "console: unknown option.* path"),
        ("sql", {"partitionBy": "k", "url": "sqlite://", "table": "t"}, "unknown option.*partitionBy"),
    ):
        options = {"path": "x", **options} if kind in ("csv", "json", "parquet") else options
        with pytest.raises(ConfigError, match=match):
            data.stream(ckpt).writeStream.format(kind).options(**options).queryName("job").start()
    with pytest.raises(InvalidInputError, match="must not have a comma"):
        data.stream(ckpt).writeStream.partitionBy("a,b")


def test_noop_computes_everything_writes_nothing_and_needs_no_name(ckpt: Any, data: Input) -> None:
    query = data.stream(ckpt).writeStream.format("noop").trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S)
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 4
    assert [done["outcome"] for done in query.checkpoints()] == ["completed"]


def test_a_writer_that_was_started_takes_another_path(ckpt: Any, data: Input, tmp_path: Path) -> None:
    writer = data.stream(ckpt).writeStream.format("memory").trigger(availableNow=True)
    for name in ("one", "two"):
        query = writer.queryName(name).start(str(tmp_path / name))
        assert query.awaitTermination(DEADLINE_S)
        assert rows_of(tmp_path / name) == [1, 2, 3, 4]
