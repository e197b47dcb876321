"""``describe`` and ``summary``: the rows that Spark's own streams have."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.conftest import Job, last_result, ordered
from tests.spark.test_window_columns import NewInput

ROWS = "k string, v int, d double, m decimal(10,2), t timestamp, b boolean"
AT = datetime(2024, 5, 1, tzinfo=timezone.utc)
BATCHES = (
    [
        ("x", 1, 1.5, Decimal("1.25"), AT, True),
        ("2", 2, None, None, None, None),
        (None, 3, 1e3, Decimal(7), AT, None),
    ],
    [],
    [("-3.5", None, 0.25, Decimal(-1), None, False), ("2", 4, 7.25, None, AT, True)],
)
QUERIES = {
    "of expressions": lambda df: df.select("k", (F.col("v") * 2).alias("a.b")).toDF("k", "w").describe("w", "k"),
}
MORE = {
    # Of decimals, Spark's percentiles are written with another number of zeros than the column has.
    "summary": lambda df: df.drop("m").summary(),
    "describe": lambda df: df.describe(),
    "of a few": lambda df: df.describe(["v", "t", "k"]),
    "some": lambda df: (
        df.drop("m").summary("count", "33.3%", "MAX", "approx_count_distinct", "100%").where("summary <> 'MAX'")
    ),
}


@pytest.mark.parametrize("name", [*QUERIES, *(pytest.param(name, marks=pytest.mark.soak) for name in MORE)])
def test_statistics_of_all_rows_are_those_of_spark(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, name: str
) -> None:
    """With a restart in the middle; then once more, in output mode complete."""
    made, query = new_input("in", ROWS), {**QUERIES, **MORE}[name]
    ours, plain = query(made.stream(ckpt)), query(made.spark_stream(spark))
    assert ours.schema.simpleString() == plain.schema.simpleString()
    for batches in (BATCHES[:1], BATCHES[1:]):
        for rows in batches:
            made.add(*rows)
        job.run(ours, keys="summary")
    theirs = ordered(map(tuple, last_result(plain, tmp_path / "plain")))
    assert job.rows() == theirs
    assert theirs
    if name in MORE:
        whole = Job(tmp_path / "whole")
        whole.run(ours, mode="complete", job="whole")
        assert whole.rows() == theirs


def test_what_spark_refuses_is_refused(ckpt: Any, new_input: NewInput) -> None:
    rows = new_input("in", ROWS).stream(ckpt)
    for wrong, error, said in (
        (lambda: rows.describe("nothing"), AnalysisException, "nothing"),
        (lambda: rows.summary("nothing"), IllegalArgumentException, "UNRECOGNIZED_STATISTIC"),
        (lambda: rows.summary("101%"), IllegalArgumentException, "range"),
    ):
        with pytest.raises(error, match=said):
            ckpt.check(wrong(), "complete")
