"""A barrier that a step loses all the same ends the query with an error; never well, and never in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.protocol import events as ev
from tests.spark.conftest import DEADLINE_S, Input, Job
from tests.spark.test_plain_plugin import Plain

NewInput = Callable[[str, str], Input]


def test_a_barrier_that_plain_spark_loses_fails_the_query_and_the_mended_query_goes_on(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    data = new_input("in", "k string, v long")
    data.add(("a", 1), ("b", 2))
    reader = spark.readStream.format("ckpt").option("source", "parquet")
    stream = reader.options(path=str(data.folder), dir=str(tmp_path / "jobs"), job="job").load()
    query = job.start(ckpt.wrap(stream.where(_condition())))
    with pytest.raises(StreamingQueryException, match=r"(?s)barrier of checkpoint 1 .*files-0.*what ckpt\.wrap got"):
        query.awaitTermination(DEADLINE_S)
    assert job.rows() == []
    data.add(("c", 3))
    query = job.run(ckpt.wrap(stream))
    assert job.rows() == [("a", 1), ("b", 2), ("c", 3)]
    assert [(c["id"], c["outcome"]) for c in query.checkpoints()] == [(1, "lost"), (2, "completed")]


def _condition() -> Any:
    """True for the control row of a preview (checkpoint 1, triggered in 1970), not for those that come."""
    return F.col("v").isNotNull() | (F.col("__ckpt_ctl") == F.lit(ev.encode(ev.Barrier(1, 1, 0))))


def test_the_plain_plugin_does_not_end_well_without_its_final_checkpoint(
    spark: SparkSession, new_input: NewInput, tmp_path: Path
) -> None:
    source = new_input("input", "v long")
    source.add((1,), (2,))
    plain = Plain(spark, source, tmp_path)
    with pytest.raises(
        StreamingQueryException, match=r"(?s)barrier of checkpoint 1.*plain Spark operations.*__ckpt_ctl"
    ):
        plain.run(plain.read().where("v > 0"))
