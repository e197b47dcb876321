"""``format("ckpt")`` alone: found by Spark without registration, exactly once across restarts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt.errors import CkptError
from spark_ckpt.sinks import memory
from spark_ckpt.spark_versions import spark_version
from tests.spark.conftest import DEADLINE_S, Input

NewInput = Callable[[str, str], Input]
SINCE_4_2 = pytest.mark.skipif(spark_version() < (4, 2), reason="Spark does not tell a source enough before 4.2")
CONTROL = ", __ckpt_tag long, __ckpt_ctl binary"


class Plain:
    """One query through the plugin; reader and writer share the job's options."""

    def __init__(self, spark: SparkSession, source: Input, tmp_path: Path) -> None:
        self.spark, self.source = spark, source
        self.sink = str(tmp_path / "sink")
        self.location = str(tmp_path / "location")
        self.both = {"dir": str(tmp_path / "jobs"), "job": "plain", "checkpointLocation": self.location}

    def read(self, schema: str | None = None, **options: Any) -> Any:
        reader = self.spark.readStream.format("ckpt").option("source", "parquet")
        reader = reader if schema is None else reader.schema(schema)
        return reader.option("path", str(self.source.folder)).options(**{**self.both, **options}).load()

    def run(self, df: Any, **options: Any) -> Any:
        """``options`` with ``__`` for ``.``; a memory sink if they name none."""
        to = options if {"sink", "sinks", "none"} & set(options) else {"sink": "memory", "path": self.sink, **options}
        writer = df.writeStream.format("ckpt").options(**self.both)
        for key, value in to.items():
            writer = writer.option(key.replace("__", "."), value)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S)
        return query

    def rows(self) -> list[Any]:
        return sorted(tuple(r.values()) for r in memory.read(self.sink).to_pylist())


@pytest.fixture
def plain(spark: SparkSession, new_input: NewInput, tmp_path: Path) -> Plain:
    source = new_input("input", "v long")
    source.add((1,), (2,), (3,))
    return Plain(spark, source, tmp_path)


@pytest.mark.smoke
@pytest.mark.skipif(spark_version() >= (4, 2), reason="it works")
def test_before_spark_4_2_it_says_what_to_use(plain: Plain) -> None:
    with pytest.raises(PySparkException, match=r"needs Spark 4\.2 or later.*enable\(spark\)"):
        plain.read()


@pytest.mark.smoke
@SINCE_4_2
def test_spark_finds_the_plugin_and_each_row_arrives_once_across_restarts(plain: Plain, tmp_path: Path) -> None:
    plain.run(plain.read().where("v % 2 = 1 or __ckpt_ctl is not null"))
    plain.source.add((4,), (5,))
    plain.run(plain.read().where("v % 2 = 1 or __ckpt_ctl is not null"))
    assert plain.rows() == [(1,), (3,), (5,)]
    plain.both["checkpointLocation"] += "-empty"
    plain.source.add((7,))
    plain.run(plain.read())
    assert plain.rows() == [(1,), (3,), (5,), (7,)]
    assert spark_ckpt.job(str(tmp_path / "jobs"), "plain").verify() == []


def test_several_sinks_commit_under_one_checkpoint_each_with_its_own_options(plain: Plain, tmp_path: Path) -> None:
    database = tmp_path / "rows.db"
    df = plain.read().withColumn("odd", F.expr("v % 2 = 1"))
    some = {"some__sink": "memory", "some__path": plain.sink, "some__columns": "v", "some__where": "odd"}
    table = {"Table__sink": "sql", "table__url": f"sqlite:///{database}", "TABLE__table": "rows", "table__columns": "v"}
    plain.run(df, sinks="delta, Table, some", delta__path=str(tmp_path / "lake"), **table, **some)
    assert sorted(DeltaTable(str(tmp_path / "lake")).to_pyarrow_table()["v"].to_pylist()) == [1, 2, 3]
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT v FROM rows ORDER BY v").fetchall() == [(1,), (2,), (3,)]
    assert plain.rows() == [(1,), (3,)]
    job = spark_ckpt.job(plain.both["dir"], "plain")
    assert len(job.checkpoints()) == 1
    assert (Path(plain.both["dir"]) / "plain" / "sinks.json").read_text().count('"id"') == 3


def test_sql_in_between_over_a_view_and_over_a_table(plain: Plain, spark: SparkSession) -> None:
    plain.read().createOrReplaceTempView("numbers")
    kept = "__ckpt_tag, __ckpt_ctl"
    plain.run(spark.sql(f"SELECT v * 2 AS w, {kept} FROM numbers WHERE v > 1 OR __ckpt_ctl IS NOT NULL"))
    assert plain.rows() == [(4,), (6,)]
    here = f"dir = '{plain.both['dir']}', job = 'table'"
    spark.sql(f"CREATE TABLE rates USING ckpt OPTIONS (source = 'rate-micro-batch', {here})")
    try:
        options = f"source = 'rate-micro-batch', numRows = 4, {here}, checkpointLocation = '{plain.location}-table'"
        plain.both |= {"job": "table", "checkpointLocation": f"{plain.location}-table"}
        plain.run(spark.sql(f"SELECT value, {kept} FROM STREAM rates WITH ({options})"), path=f"{plain.sink}-table")
    finally:
        spark.sql("DROP TABLE rates")
    assert memory.read(f"{plain.sink}-table").column("value").to_pylist() == [0, 1, 2, 3]


def test_a_query_that_lost_control_columns_or_rows_fails_and_says_so(plain: Plain) -> None:
    with pytest.raises(StreamingQueryException, match="lost the barriers"):
        plain.run(plain.read().select("v"))
    with pytest.raises(StreamingQueryException, match="has not reached the sink: an operation dropped rows"):
        plain.run(plain.read().where("v > 1"))
    assert not Path(plain.sink).exists() or plain.rows() == []
    plain.run(plain.read().where("v > 1 or __ckpt_ctl is not null"))
    assert plain.rows() == [(2,), (3,)]


def test_several_readers_in_one_query_are_refused(plain: Plain) -> None:
    with pytest.raises(StreamingQueryException, match="several ckpt readers: a plain stream has one; read both by"):
        plain.run(plain.read().union(plain.read()))


def test_a_schema_without_the_control_columns_is_refused_and_the_told_one_works(plain: Plain) -> None:
    with pytest.raises(StreamingQueryException, match=r"schema\(\.\.\.\) has no column.*__ckpt_tag long") as refused:
        plain.run(plain.read("v long"))
    assert "UnboundLocalError" not in str(refused.value)
    plain.run(plain.read(f"v long{CONTROL}"))
    assert plain.rows() == [(1,), (2,), (3,)]


def test_a_readers_options_are_refused_by_load_as_those_of_our_own_are(plain: Plain, ckpt: Any) -> None:
    for wrong in ({"pth": "x"}, {"source": "kafka"}, {"maxFilesPerTrigger": "0"}):
        own = {"format": "parquet", "path": "x", **wrong}
        with pytest.raises(CkptError) as told:
            ckpt.readStream.load(**{("format" if k == "source" else k): v for k, v in own.items()})
        with pytest.raises(AnalysisException) as refused:
            plain.read(**wrong)
        assert str(told.value).split(":")[0] in str(refused.value)
    for wrong, message in (
        ({"spark.ckpt.intervall": "1s"}, "Did you mean spark.ckpt.interval"),
        ({"job": "a/b"}, "spark.ckpt.job: expected a name"),
        ({"lanes": "0"}, "lanes: expected a whole number"),
    ):
        with pytest.raises(AnalysisException, match=message):
            plain.read(**wrong)
    with pytest.raises(AnalysisException, match=r"needs option dir.*in the conf that Spark is started with"):
        plain.spark.readStream.format("ckpt").option("source", "rate").option("job", "j").load()
    with pytest.raises(AnalysisException, match=r"is a stream: read it by spark\.readStream"):
        plain.spark.read.format("ckpt").options(source="rate", **plain.both).load().collect()


def test_a_writers_options_are_refused_before_a_row_is_written(plain: Plain, tmp_path: Path) -> None:
    df = plain.read()
    to = {"sinks": "delta,memory", "delta.path": f"{tmp_path}/d", "delta.mergeKeys": "nope", "memory.path": plain.sink}
    with pytest.raises(StreamingQueryException, match="'mergeKeys' names nope; the columns are v"):
        plain.run(df, **to)
    assert not (tmp_path / "d").exists()
    assert not Path(plain.sink).exists() or plain.rows() == []


def test_a_query_elsewhere_than_its_reader_thinks_is_refused(plain: Plain) -> None:
    df, there = plain.read(), plain.both["checkpointLocation"]
    plain.both["checkpointLocation"] = f"{there}-other"
    with pytest.raises(StreamingQueryException, match=r"expects the Spark checkpoint location .*/location, the query"):
        plain.run(df)
