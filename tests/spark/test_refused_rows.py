"""A target refuses rows in the middle of a job: nothing is visible anywhere, and the same location goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import functions as F

import spark_ckpt.sinks.memory
from tests.spark.conftest import DEADLINE_S, Input, wait_until


class Orders:
    """Running totals by key go into a table where ``n`` must stay below 9, and into a sink that takes everything.

    One file a batch, and one checkpoint at the end of what is there: an epoch has several batches."""

    def __init__(self, ckpt: Any, data: Input, folder: Path) -> None:
        self.ckpt, self.data, self.folder = ckpt, data, folder
        self._engine = sa.create_engine(f"sqlite:///{folder}/out.db", poolclass=sa.NullPool)
        self.do("create table out (k integer primary key, n integer, constraint few check (n < 9))")

    def do(self, statement: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(sa.text(statement))

    def run(self, condition: str = "true", **options: str) -> Any:
        totals = self.data.stream(self.ckpt).where(condition).groupBy("k").agg(F.sum("v").alias("n")).uid("totals")
        writer = totals.writeStream.format("sql").queryName("orders").outputMode("update")
        writer = writer.options(url=f"sqlite:///{self.folder}/out.db", table="out", mergeKeys="k", **options)
        writer = writer.alsoTo("memory", path=f"{self.folder}/memory").option("interval", "1h")
        return writer.trigger(availableNow=True).start()

    def fails(self, condition: str = "true") -> str:
        query = self.run(condition)
        with pytest.raises(Exception, match="refuses its rows") as refused:
            query.awaitTermination(DEADLINE_S)
        wait_until(lambda: not query.isActive)
        return str(refused.value)

    def goes_on(self, condition: str = "true", **options: str) -> Any:
        query = self.run(condition, **options)
        assert query.awaitTermination(DEADLINE_S)
        return query

    def table(self) -> list[tuple[int, int]]:
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text("select k, n from out order by k"))]

    def seen(self) -> list[tuple[int, int]]:
        """The last total of each key that the other sink shows."""
        rows = spark_ckpt.sinks.memory.read(f"{self.folder}/memory").to_pylist()
        return sorted({r["k"]: r["n"] for r in rows}.items())


@pytest.fixture
def orders(ckpt: Any, new_input: Callable[[str, str], Input], tmp_path: Path) -> Orders:
    return Orders(ckpt, new_input("in", "k int, v long"), tmp_path)


def test_a_filter_at_the_same_location_goes_on_behind_a_refused_row(orders: Orders) -> None:
    orders.data.add((1, 1), (2, 1))
    orders.goes_on()
    orders.data.add((1, 2), (3, 3))
    orders.data.add((2, 50))  # its batch is committed in Spark before the checkpoint is refused
    orders.data.add((3, 1))
    said = orders.fails()
    assert "sink 'sql'" in said
    assert "few" in said
    assert "it reads again from checkpoint 1" in said
    assert orders.table() == orders.seen() == [(1, 1), (2, 1)]
    assert "CHECK constraint failed: few" in orders.fails(), "the same rows are refused once more"
    assert orders.table() == orders.seen() == [(1, 1), (2, 1)]
    query = orders.goes_on("v < 50")
    assert orders.table() == orders.seen() == [(1, 3), (2, 1), (3, 4)]
    assert [c["outcome"] for c in query.checkpoints()].count("refused") == 2
    orders.data.add((1, 1))
    orders.goes_on("v < 50")
    assert orders.table() == orders.seen() == [(1, 4), (2, 1), (3, 4)]
    with orders._engine.connect() as connection:
        assert connection.execute(sa.text("select count(*) from spark_ckpt_stages")).scalar() == 0


def test_a_job_whose_first_checkpoint_is_refused_begins_anew_when_the_target_takes_its_rows(orders: Orders) -> None:
    orders.data.add((1, 1), (2, 50))
    orders.data.add((1, 2))
    assert "it reads again from the beginning" in orders.fails()
    assert orders.table() == orders.seen() == []
    orders.do("drop table out")
    orders.do("create table out (k integer primary key, n integer)")
    orders.goes_on()
    assert orders.table() == orders.seen() == [(1, 3), (2, 50)]


def test_refused_rows_go_to_where_the_option_says_and_the_job_goes_on(orders: Orders) -> None:
    orders.do("create table bad (data text, reason text, rule text, sink text, epoch integer, rejected_at text)")
    orders.data.add((1, 1), (2, 50))
    orders.data.add((3, 3))
    query = orders.goes_on(rejects="bad")
    assert orders.table() == [(1, 1), (3, 3)]
    assert orders.seen() == [(1, 1), (2, 50), (3, 3)]  # the other sink takes it
    with orders._engine.connect() as connection:
        rejected = connection.execute(sa.text("select data, rule, sink from bad")).all()
    assert [tuple(r) for r in rejected] == [('{"k":2,"n":50}', "few", "sql")]
    assert query.checkpoints()[0]["reason"] == "1 row(s) rejected in sink 'sql'"
    assert query.statistics()["operators"]["sql"]["all"]["rejected_rows"]["max"] == 1
    orders.data.add((2, -49), (1, 1))
    orders.goes_on(rejects="bad")
    assert orders.table() == [(1, 2), (2, 1), (3, 3)]
