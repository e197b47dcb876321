"""``observe``, ``toTable``, ``table`` and ``text``: what they give is what Spark gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from spark_ckpt.errors import ConfigError, InvalidInputError
from tests.spark.conftest import DEADLINE_S, Input, Job, ordered

NewInput = Callable[[str, str], Input]


def metrics() -> list[Any]:
    return [
        F.count("*").alias("n"), F.count("v").alias("present"), F.sum("v").alias("total"), F.max("k").alias("most"),
        (F.sum(F.col("v") * 2) / F.count(F.lit(1))).alias("twice"), F.count_if(F.col("v") > 1).alias("some"),
        F.sum(F.coalesce("v", F.lit(100))).alias("with"), F.approx_count_distinct("k").alias("keys"),
        F.percentile_approx("v", 0.5).alias("half"), F.collect_set("k").alias("set"), F.lit(7).alias("seven"),
        F.sum(F.lit(1)).alias("ones"),
    ]  # fmt: skip


def observed(query: Any) -> list[dict[str, Any]]:
    """Of the batches that had rows."""
    found = [p.observedMetrics["m"].asDict() for p in query.recentProgress if "m" in p.observedMetrics]
    return [f for f in found if f["n"]]


def test_observed_metrics_are_those_of_sparks_own_stream(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path
) -> None:
    source = new_input("input", "k string, v long")
    source.add(("a", 1), ("b", 2), ("a", None))
    source.add(("c", 5))
    theirs = source.spark_stream(spark).observe("m", *metrics()).writeStream.format("noop")
    query = theirs.option("checkpointLocation", str(tmp_path / "noop")).trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S)
    expected = observed(query)
    assert [e["n"] for e in expected] == [3, 1]
    assert observed(job.run(source.stream(ckpt).where("k <> 'x'").observe("m", *metrics()))) == expected
    assert job.rows() == [("a", 1), ("a", None), ("b", 2), ("c", 5)]


def test_what_cannot_be_observed_is_refused_as_in_spark(ckpt: Any, new_input: NewInput) -> None:
    rows = new_input("input", "v long").stream(ckpt)
    with pytest.raises(IllegalArgumentException, match="Observation does not support streaming Datasets"):
        rows.observe(Observation("m"), F.count("*"))
    with pytest.raises(InvalidInputError, match="first would see control rows"):
        ckpt.check(rows.observe("m", F.first("v").alias("v")))
    with pytest.raises(AnalysisException, match="INVALID_OBSERVED_METRICS"):
        rows.observe("m", F.col("v").alias("v"))


def test_a_table_is_made_and_appended_to_and_read_by_its_name(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput
) -> None:
    source = new_input("input", "k string, v long")
    source.add(("a", 1), ("b", None))
    try:
        for more in ([("c", 3)], [("d", 4)]):
            writer = source.stream(ckpt).writeStream.trigger(availableNow=True)
            assert writer.toTable("orders_by_name", queryName="named").awaitTermination(DEADLINE_S)
            source.add(*more)
        assert sorted(map(tuple, spark.table("orders_by_name").collect())) == [("a", 1), ("b", None), ("c", 3)]
        back = ckpt.readStream.table("orders_by_name")
        assert back.schema.simpleString() == "struct<k:string,v:bigint>"
        job.run(back.where("v > 0"))
        assert job.rows() == [("a", 1), ("c", 3)]
        writer = source.stream(ckpt).select("v", F.col("k").alias("K")).writeStream
        with pytest.raises(InvalidInputError, match=r"the table's columns are .* has others: \[\('K', 'string'\)\]"):
            writer.toTable("orders_by_name", queryName="other")
        with pytest.raises(ConfigError, match="the table's format is parquet, and 'delta' was given"):
            writer.toTable("orders_by_name", format="delta")
    finally:
        spark.sql("DROP TABLE IF EXISTS orders_by_name")


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_a_query_that_has_changed_appends_by_the_names_of_columns(
    spark: SparkSession, ckpt: Any, new_input: NewInput, tmp_path: Path, format: str
) -> None:
    source = new_input("input", "k string, v long, d double")
    selected = (("k", "v", "d"), ("d", "k", "v"), ("d",))
    names = [f"changed_by_{who}" for who in ("spark", "ckpt")]
    try:
        for number, columns in enumerate(selected):
            source.add((f"k{number}", number, number / 2))
            for rows, name in zip((source.spark_stream(spark), source.stream(ckpt)), names, strict=True):
                writer = rows.select(*columns).writeStream.trigger(availableNow=True)
                writer = writer.option("checkpointLocation", str(tmp_path / name)).queryName(name)
                assert writer.toTable(name, format=format).awaitTermination(DEADLINE_S)
        plain, ours = (sorted(map(str, spark.table(name).collect())) for name in names)
        assert ours == plain
        assert "Row(k=None, v=None, d=1.0)" in ours
    finally:
        for name in names:
            spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_what_is_no_table_of_a_sinks_format_is_refused(spark: SparkSession, ckpt: Any, new_input: NewInput) -> None:
    rows = new_input("input", "v long").stream(ckpt)
    spark.sql("CREATE TABLE parted (v long, day string) USING parquet PARTITIONED BY (day)")
    spark.sql("CREATE VIEW seen AS SELECT 1L AS v")
    try:
        for message, call in (
            ("expected a table of format parquet, json or delta, found a view", lambda w: w.toTable("seen")),
            ("a partitioned table of files", lambda w: w.toTable("parted")),
            ("a new table is one of parquet, json or delta, found 'orc'", lambda w: w.toTable("x", format="orc")),
            ("needs Delta's jars", lambda w: w.toTable("x", format="delta")),
            ("makes tables without partitions", lambda w: w.toTable("x", partitionBy="v")),
        ):
            with pytest.raises(ConfigError, match=message):
                call(rows.writeStream)
        assert not spark.catalog.tableExists("x")
        for name, message in (("seen", "found a view"), ("parted", "found parquet, partitioned")):
            with pytest.raises(ConfigError, match=message):
                ckpt.readStream.table(name)
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            ckpt.readStream.table("nowhere")
    finally:
        spark.sql("DROP VIEW seen")
        spark.sql("DROP TABLE parted")


def test_lines_of_text_are_those_of_spark(spark: SparkSession, ckpt: Any, job: Job, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b'\xef\xbb\xbfone\n\n two \r\n,"\r\n\r\nlast')
    (tmp_path / "in" / "b.txt").write_bytes("ü\n\n".encode())
    expected = ordered(map(tuple, spark.read.text(str(tmp_path / "in")).collect()))
    job.run(ckpt.readStream.text(str(tmp_path / "in")))
    assert job.rows() == expected


def test_orc_is_read_as_spark_reads_it(spark: SparkSession, ckpt: Any, job: Job, tmp_path: Path) -> None:
    row = (
        "timestamp'2024-07-01 12:00:00.123456' t, timestamp_ntz'2024-07-01 12:00:00' w, date'1999-12-31' d, "
        "cast(1.5 as decimal(10,2)) m, 1Y b, 2L l, 1.5f f, 'ä' s, cast('v' as varchar(3)) v, true o, array(1, null) a, "
        "named_struct('q', timestamp'2024-01-01 00:00:00') st"
    )
    for n in range(2):
        spark.sql(f"select {row}, {n} n union all select {', '.join(['null'] * 12)}, {-n - 2}").coalesce(1).write.orc(
            str(tmp_path / "in"), mode="append"
        )
    expected = spark.read.orc(str(tmp_path / "in"))
    found = ckpt.readStream.orc(str(tmp_path / "in"))
    assert found.schema.simpleString() == expected.schema.simpleString()
    job.run(found)
    assert ordered(job.rows()) == ordered(tuple(row.values()) for row in expected.toArrow().to_pylist())
