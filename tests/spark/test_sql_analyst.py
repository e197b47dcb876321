"""Queries as an analyst writes them, over streams of orders and clicks and a table of users, beside plain Spark's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_ckpt.errors import InvalidInputError
from tests.spark.analyst_texts import APPEND, COMPLETE, FIRST_OF_APPEND, REFUSED, REFUSED_HERE, Text
from tests.spark.conftest import Input, Job, batches_of_spark
from tests.spark.test_sql import _flat

Query = Callable[..., Any]
BEGIN = datetime(2024, 1, 1, 3, tzinfo=UTC)
ORDERS = """id bigint, user string, item string, price decimal(10,2), n int, ts timestamp, tags array<string>,
    addr struct<city:string,zip:int>, attrs map<string,int>"""


def _orders(b: int) -> list[tuple[Any, ...]]:
    return [
        (
            *(100 * b + i, ["ann", "bob", "cy", None][i % 4], ["pen", "ink", "pad"][i % 3], Decimal(i * 7 % 11) / 4),
            *(i % 5, BEGIN + timedelta(minutes=3 * i + 40 * b), [f"t{i % 2}", "x"][: i % 3]),
            *({"city": "Rome" if i % 2 else "Oslo", "zip": i}, {"a": i, "b": 2}),
        )
        for i in range(9)
    ]


def _clicks(b: int) -> list[tuple[Any, ...]]:
    times = [BEGIN + timedelta(minutes=3 * i + 40 * b + 1) for i in range(6)]
    return [(["ann", "bob", "dan"][i % 3], f"/p{i % 2}", at, i * 100, 100 * b + i) for i, at in enumerate(times)]


@pytest.fixture
def query(spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input]) -> Iterator[Query]:
    """``spark.sql`` over views of our streams, or of Spark's own."""
    orders = new_input("orders", ORDERS)
    clicks = new_input("clicks", "user string, page string, at timestamp, ms int, order bigint")
    for batch in range(3):
        orders.add(*_orders(batch))
        clicks.add(*_clicks(batch))
    ours, theirs = (orders.stream(ckpt), clicks.stream(ckpt)), (orders.spark_stream(spark), clicks.spark_stream(spark))
    users = [("ann", "IT", 30), ("bob", "NO", None), ("eve", "FR", 9)]
    spark.createDataFrame(users, "user string, country string, age int").createOrReplaceTempView("users")
    items = [("pen", Decimal("0.50")), ("ink", Decimal("1.25"))]
    spark.createDataFrame(items, "item string, cost decimal(5,2)").createOrReplaceTempView("items")
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION twice(x INT) RETURNS INT RETURN x * 2")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY FUNCTION greet(x STRING) RETURNS STRING "
        "RETURN 'hi ' || coalesce(x, (SELECT max(user) FROM users))"
    )
    spark.sql("DECLARE OR REPLACE VARIABLE least_n INT DEFAULT 2")

    def sql(one: Text, of_spark: bool = False) -> Any:
        first, second = theirs if of_spark else ours
        first.withWatermark("ts", "5 minutes").createOrReplaceTempView("orders")
        second.withWatermark("at", "5 minutes").createOrReplaceTempView("clicks")
        return spark.sql(*one)

    yield sql
    for view in ("orders", "clicks", "users", "items"):
        spark.catalog.dropTempView(view)
    for name in ("FUNCTION twice", "FUNCTION greet", "VARIABLE least_n"):
        spark.sql(f"DROP TEMPORARY {name}")


@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 4))])
def test_names_and_types_are_those_of_spark(query: Query, part: int) -> None:
    for one in [*FIRST_OF_APPEND, *APPEND, *COMPLETE][part::4]:
        assert query(one).dtypes == query(one, of_spark=True).dtypes, one


def test_what_spark_refuses_is_refused_before_it_starts(ckpt: Any, query: Query) -> None:
    for texts, kind in [(REFUSED, AnalysisException), (REFUSED_HERE, InvalidInputError)]:
        for one, said in texts.items():
            with pytest.raises(kind, match=said):
                ckpt.check(query((one,)))


def _same(query: Query, job: Job, folder: Path, mode: str, one: Text) -> None:
    job.run(query(one), mode=mode)
    batches = batches_of_spark(query(one, of_spark=True), folder / "plain", mode)
    wanted = batches[-1] if mode == "complete" else [row for batch in batches for row in batch]
    assert wanted
    assert _flat(job.rows()) == _flat(wanted)


@pytest.mark.parametrize("one", [*FIRST_OF_APPEND, *(pytest.param(q, marks=pytest.mark.soak) for q in APPEND)])
def test_rows_are_sparks(query: Query, job: Job, tmp_path: Path, one: Text) -> None:
    _same(query, job, tmp_path, "append", one)


@pytest.mark.soak
@pytest.mark.parametrize("one", COMPLETE)
def test_whole_results_are_sparks(query: Query, job: Job, tmp_path: Path, one: Text) -> None:
    _same(query, job, tmp_path, "complete", one)
