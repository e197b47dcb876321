"""What no source here reads, and Spark's own do, is read by them under the same calls."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.errors import ConfigError
from tests.spark.conftest import Job, ordered, rows_of_spark

FILES = {
    "intervals": ("""{"m":"INTERVAL '1-2' YEAR TO MONTH","d":"INTERVAL '3' DAY"}\n{"m":"x"}""", "{}"),
    "json": ('[{"a":1,"b":"x"},\n{"a":2}]', '{"a":"bad"}', '{"a":3, // no more\n"b":7}'),
    "csv": ("a||b\n1||x\n2||y|z\n", "a||b\n3||\n||q\n4||x||more\n", "a§b\n5§y\n"),
    "latin": ("ä,1\n".encode("latin1"), b"\xdf,2\n"),
    "text": ("hello\nworld\n", "x;y"),
    "xml": ("<r><row><a>1</a><b>x</b></row><row><a>2</a></row></r>", "<r/>"),
}
AB = "a int, b string"
Reader = Any


def _binary(reader: Reader, path: str) -> Any:
    columns = "path string, modificationTime timestamp, length long, content binary"
    return reader.schema(columns).format("binaryFile").load(path)


READ: dict[str, tuple[str, Callable[[Reader, str], Any]]] = {
    "objects of several lines": ("json", lambda r, p: r.schema(AB).option("multiLine", True).json(p)),
    "with comments": ("json", lambda r, p: r.schema(AB).json(p, multiLine=True, allowComments=True)),
    "left out": (
        "json", lambda r, p: r.schema(AB).options(multiLine=True, mode="DROPMALFORMED").format("json").load(p)
    ),
    "a separator of two": ("csv", lambda r, p: r.schema(AB).csv(p, sep="||", header=True)),
    "a separator that is not ASCII": ("csv", lambda r, p: r.csv(p, AB, "§")),
    "another alphabet": ("latin", lambda r, p: r.schema("b string, a int").csv(p, encoding="ISO-8859-1")),
    "whole files": ("text", lambda r, p: r.text(p, wholetext=True)),
    "an option that the short form's own wins over": ("text", lambda r, p: r.option("wholetext", True).text(p)),
    "other ends of lines": ("text", lambda r, p: r.text(p, lineSep=";")),
    "bytes": ("text", lambda r, p: _binary(r, p).selectExpr("length", "hex(content)")),
    "xml": ("xml", lambda r, p: r.xml(p, "row", AB)),
    "intervals of months": (
        "intervals",
        lambda r, p: r.schema("m interval year to month, k string").json(p).select(F.col("m").cast("string"), "k"),
    ),
    "intervals of days": (
        "intervals", lambda r, p: r.schema("d interval day, k variant").json(p).selectExpr("string(d)", "to_json(k)")
    ),
    "variants": (
        "variants", lambda r, p: r.schema("v variant").format("parquet").load(p).select(F.to_json("v"), F.lit(1))
    ),
}  # fmt: skip
OF_FILES: dict[str, Callable[[Any], Any]] = {
    "beside all": lambda df: df.select("*", "_metadata.file_name"),
    "computed with": lambda df: df.withColumn("n", F.col("_metadata.file_size") + 1).where("n > 0"),
    "asked for": lambda df: df.where("_metadata.file_name = '000.txt'"),
    "a key": lambda df: df.groupBy("_metadata.file_name").agg(F.min("value").alias("m"), F.count("*").alias("n")),
    "the old function": lambda df: df.selectExpr("value", "right(input_file_name(), 7) AS f"),
    "behind filters": lambda df: (
        df.where("value <> ''")
        .where(df["value"] < "z")
        .select("*", "_metadata.file_name")
        .where("_metadata.file_size > 1")
    ),
    "behind projections": lambda df: _with_upper(df).select("u", "_metadata.file_name"),
    "with columns of before": lambda df: (lambda up: up.select(up["u"], "_metadata.file_name"))(_with_upper(df)),
    "behind a watermark": lambda df: (
        df.withColumn("t", F.lit("2024-01-01").cast("timestamp")).withWatermark("t", "1 hour").drop("t")
    ).selectExpr("value", "right(input_file_name(), 7) AS f"),
}


def _with_upper(df: Any) -> Any:
    return df.withColumn("u", F.upper("value")).where(df["value"] != "").withColumnRenamed("value", "v").select("u")


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for kind, texts in FILES.items():
        (tmp_path / kind).mkdir()
        for i, text in enumerate(texts):
            path = tmp_path / kind / f"{i:03d}.txt"
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            os.utime(path, (1_600_000_000 + i,) * 2)
    return tmp_path


def _texts(name: str, df: Any) -> Any:
    names = [f"c{i}" for i in range(len(df.columns))]
    return df.toDF(*names).select(F.lit(name).alias("what"), F.to_json(F.struct(*names)).alias("row"))


def _all(frames: dict[str, Any]) -> Any:
    return reduce(lambda one, two: one.union(two), [_texts(name, df) for name, df in frames.items()])


def test_options_and_formats_that_only_spark_has_are_read_by_spark(
    spark: SparkSession, ckpt: Any, folders: Path, job: Job
) -> None:
    variants = spark.sql('SELECT parse_json(v) v FROM VALUES (\'{"a":1,"b":["x"]}\'), (\'null\'), (null) AS x(v)')
    variants.coalesce(1).write.parquet(str(folders / "variants"))
    plain, ours = (
        {name: read(session.readStream, str(folders / kind)) for name, (kind, read) in READ.items()}
        for session in (spark, ckpt)
    )
    assert {name: df.schema for name, df in ours.items()} == {name: df.schema for name, df in plain.items()}
    job.run(_all(ours))
    expected = [tuple(row) for row in rows_of_spark(_all(plain), folders / "spark")]
    assert {what for what, _ in expected} == set(READ)
    assert job.rows() == ordered(expected)
    late = folders / "xml" / "002.txt"
    late.write_text("<row><a>9</a></row>")
    os.utime(late, (1_600_000_009,) * 2)
    job.run(_all({name: read(ckpt.readStream, str(folders / kind)) for name, (kind, read) in READ.items()}))
    assert job.rows() == ordered([*expected, ("xml", '{"c0":9}')])


INFERRED = """SELECT timestamp'2024-03-10 01:30:00.123456' AS at, array(timestamp'1969-07-20 20:17:00') AS listed,
    named_struct('at', timestamp'2024-11-03 01:30:00', 'n', 1) AS both, timestamp_ntz'2024-03-10 02:30:00' AS clock,
    interval '90' second AS seconds, interval '3' day AS days"""
MORE_INFERRED = {
    "parquet": "SELECT *, interval '5' month AS months, parse_json('[1]') AS v, 'x' COLLATE UTF8_LCASE AS word",
    "orc": "SELECT *, interval '5' month AS months",
}


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_the_schema_that_files_tell_is_the_one_that_spark_infers(
    spark: SparkSession, ckpt: Any, tmp_path: Path, job: Job, kind: str, more: bool
) -> None:
    """``more``: with types that Spark alone reads."""
    folder = str(tmp_path / "in")
    rows = spark.sql(f"{MORE_INFERRED[kind]} FROM ({INFERRED})" if more else INFERRED)
    rows.coalesce(1).write.format(kind).save(folder)
    spark.conf.set("spark.sql.streaming.schemaInference", "true")
    try:
        plain, ours = (session.readStream.format(kind).load(folder) for session in (spark, ckpt))
        assert ours.schema == plain.schema
        job.run(_all({kind: ours}))
        assert job.rows() == ordered(map(tuple, rows_of_spark(_all({kind: plain}), tmp_path / "spark")))
    finally:
        spark.conf.unset("spark.sql.streaming.schemaInference")


def test_columns_of_the_file_that_a_row_is_of_are_those_of_spark(
    spark: SparkSession, ckpt: Any, folders: Path, job: Job
) -> None:
    path = str(folders / "text")
    plain, ours = (
        {name: made(session.readStream.text(path)) for name, made in OF_FILES.items()} for session in (spark, ckpt)
    )
    assert {name: df.columns for name, df in ours.items()} == {name: df.columns for name, df in plain.items()}
    grouped = ours.pop("a key")
    job.run(_all(ours))
    expected = rows_of_spark(_all({n: df for n, df in plain.items() if n in ours}), folders / "spark")
    assert job.rows() == ordered(map(tuple, expected))
    counted = [tuple(row) for row in rows_of_spark(plain["a key"], folders / "keys", "complete")]
    query = grouped.writeStream.format("memory").queryName("counted").outputMode("complete")
    assert query.trigger(availableNow=True).start().awaitTermination(100)
    assert ordered(map(tuple, spark.table("counted").collect())) == ordered(counted)


def test_what_spark_must_not_do_here_or_does_not_know_is_refused(ckpt: Any, folders: Path) -> None:
    path, reader = str(folders / "json"), lambda: ckpt.readStream.schema(AB).option("multiLine", True)
    with pytest.raises(ConfigError, match=r"cleanSource.*once a completed checkpoint covers them"):
        reader().option("cleanSource", "delete").json(path)
    for option in ("discoveryInterval", "lanes", "storage.key"):
        with pytest.raises(
            ConfigError, match=f"option {option}: only sources of spark_ckpt have it, .*multiLine of json"
        ):
            reader().option(option, "1").json(path)
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        ckpt.readStream.text(path).select(F.max("value")).select("_metadata")
