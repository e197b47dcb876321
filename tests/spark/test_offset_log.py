"""Version 2 of Spark's log of offsets, which Spark 4.2 and later write if they are asked to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.errors import ConfigError
from spark_ckpt.spark_versions import spark_version
from tests.spark.conftest import Input, Job, rows_of_spark

NewInput = Callable[[str, str], Input]
SOURCES_HAVE_NAMES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def test_names_of_sources_as_spark_has_them_are_refused(spark: SparkSession, ckpt: Any, new_input: NewInput) -> None:
    spark.conf.set(SOURCES_HAVE_NAMES, "true")
    try:
        with pytest.raises(ConfigError, match=f"{SOURCES_HAVE_NAMES}: expected false"):
            new_input("in", "k string, n int").stream(ckpt)
    finally:
        spark.conf.unset(SOURCES_HAVE_NAMES)


@pytest.mark.soak
def test_a_job_goes_on_from_version_2_of_the_log(spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job) -> None:
    """Rows of Spark's own stream and of a table have the epochs that the log tells."""
    spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")
    names = spark.createDataFrame([("a", "one")], "k string, name string")
    ours, sparks = new_input("ours", "k string, n int"), new_input("sparks", "k string, n int")

    def sums() -> Any:
        rows = ours.stream(ckpt).union(ckpt.readStream.spark(sparks.spark_stream(spark))).join(names, "k", "left")
        return rows.groupBy("k", "name").agg(F.sum("n").alias("n")).uid("sums")

    for n in (1, 10):
        ours.add(("a", n), ("b", n))
        sparks.add(("a", 2 * n))
        job.run(sums(), "k", mode="update")
    assert job.rows() == [("a", "one", 33), ("b", None, 11)]
    log = (Path(job.sink).parent / "jobs/job/spark/offsets/0").read_text()
    assert log.startswith("v2" if spark_version() >= (4, 2) else "v1")


@pytest.mark.soak
@pytest.mark.skipif(spark_version() < (4, 2), reason="sources have no names")
def test_a_plain_query_whose_sources_have_names_is_imported_by_them(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    zeros, ones = new_input("zeros", "k string, n int"), new_input("ones", "k string, n int")
    zeros.add(("a", 0))
    ones.add(("b", 1))
    spark.conf.set(SOURCES_HAVE_NAMES, "true")

    def named(data: Input, name: str) -> Any:
        reader = spark.readStream.schema(data.schema).option("maxFilesPerTrigger", 1).name(name)
        return reader.parquet(str(data.folder))

    location = tmp_path / "plain"
    assert len(rows_of_spark(named(zeros, "z").union(named(ones, "a")), location)) == 2
    spark.conf.set(SOURCES_HAVE_NAMES, "false")
    df = zeros.stream(ckpt, uid="z").union(ones.stream(ckpt, uid="a"))
    made = ckpt.import_spark(str(location), df, str(tmp_path / "imported"))
    zeros.add(("c", 2))
    ones.add(("d", 3))
    job.run(df, **{"spark.ckpt.restore": made.path})
    assert job.rows() == [("c", 2), ("d", 3)]
