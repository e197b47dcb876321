"""State that changes its shape, in jobs: what the query of before wrote, the query of now goes on from, or is asked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import spark_ckpt
from spark_ckpt import agg
from spark_ckpt.errors import TopologyError
from tests.spark.conftest import Job

SCHEMA = "k string, t timestamp, amount long, cents long"


@pytest.fixture
def rows(new_input) -> Any:  # type: ignore[no-untyped-def]
    made = new_input("in", SCHEMA)
    made.add(("a", None, 100, 1), ("b", None, 10, 2))
    return made


def _grouped(rows: Any, ckpt: Any, **aggregates: Any) -> Any:
    return rows.stream(ckpt).groupBy("k").aggregate(**aggregates).uid("u")


def _agg(rows: Any, ckpt: Any, *results: Any, of: str = "amount") -> Any:
    return rows.stream(ckpt).withColumn("x", F.expr(of)).groupBy("k").agg(*results).uid("u")


QUESTIONS = {
    "another column": (
        lambda r, c: _agg(r, c, F.sum("amount").alias("total"), F.count("*").alias("n")),
        lambda r, c: _agg(r, c, F.sum("cents").alias("total"), F.count("*").alias("n")),
        "sum(cents)",
    ),
    "nothing else": (
        lambda r, c: _agg(r, c, F.sum("amount").alias("total")),
        lambda r, c: _agg(r, c, F.sum("cents").alias("total")),
        "sum(cents)",
    ),
    "by name": (
        lambda r, c: _grouped(r, c, total=agg.sum("amount")),
        lambda r, c: _grouped(r, c, total=agg.sum("cents")),
        "sum(cents)",
    ),
    "an expression in a column": (
        lambda r, c: _agg(r, c, F.sum(F.col("amount") + F.col("cents")).alias("total")),
        lambda r, c: _agg(r, c, F.sum("x").alias("total"), of="amount + cents"),
        "sum(x)",
    ),
    "kept values": (
        lambda r, c: _agg(r, c, F.countDistinct("amount").alias("total")),
        lambda r, c: _agg(r, c, F.countDistinct("cents").alias("total")),
        "count_distinct(cents)",
    ),
}  # fmt: skip


ANSWERS = {
    "another column": (5, 105),
    "nothing else": (5, 105),
    "by name": (5, 105),
    "an expression in a column": (1005, 1106),
    "kept values": (1, 2),
}
"""Of key a behind a row more: what began empty, and what went on."""
SHORT = ("another column", "kept values")


def _lines(asked: Any) -> list[str]:
    """What the message says to write."""
    return re.findall(r"`(ckpt\.[^`]*)`", str(asked.value))


@pytest.mark.parametrize("question", [q if q in SHORT else pytest.param(q, marks=pytest.mark.soak) for q in QUESTIONS])
def test_whether_a_result_is_the_same_under_another_name_is_asked_and_both_answers_hold(
    ckpt: Any, job: Any, rows: Any, tmp_path: Path, question: str
) -> None:
    before, now, name = QUESTIONS[question]
    job.run(before(rows, ckpt), "k")
    with pytest.raises(TopologyError, match=re.escape(name)) as asked:
        job.start(now(rows, ckpt), "k", checkpointLocation=str(tmp_path / "elsewhere"))
    rows.add(("a", None, 1000, 5))
    lines = _lines(asked)
    assert [re.findall(r"rename|begin_empty", line) for line in lines] == [["rename"], ["begin_empty"]]
    for line in lines:
        told = spark_ckpt.enable(ckpt.spark)
        exec(line, {"ckpt": told})
        place = Job(tmp_path / line[:30].replace("/", "_"))
        query = place.start(now(rows, told), "k", checkpointLocation=f"{place.sink}-location", restore="1")
        query.awaitTermination(240)
        assert place.rows()[0][:2] == ("a", ANSWERS[question]["rename" in line]), line
