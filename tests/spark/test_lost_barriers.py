"""A barrier that a step loses all the same ends the query with an error; never well, and never in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark_ckpt import CONTROL_ROW, job
from tests.spark.conftest import Input
from tests.spark.test_plain_plugin import Plain

NewInput = Callable[[str, str], Input]


def test_a_barrier_that_plain_spark_loses_fails_the_query_and_the_mended_query_goes_on(
    spark: SparkSession, new_input: NewInput, tmp_path: Path
) -> None:
    source = new_input("input", "v long")
    source.add((1,), (2,))
    plain = Plain(spark, source, tmp_path)
    with pytest.raises(
        StreamingQueryException, match=r"(?s)barrier of checkpoint 1.*plain Spark operations.*__ckpt_ctl"
    ):
        plain.run(plain.read().where("v > 0"))
    plain.run(plain.read().where(f"v > 0 OR {CONTROL_ROW}"))
    assert plain.rows() == [(1,), (2,)]
    outcomes = [(c["id"], c["outcome"]) for c in job(plain.both["dir"], "plain").checkpoints()]
    assert outcomes == [(1, "lost"), (2, "completed")]
