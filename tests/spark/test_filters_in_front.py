"""Filters behind groupings, joins, generators and unions: Spark's optimizer puts them in front of ``withWatermark``.

What a join compares is not null there, either. So rows that are left out do not bring the watermark on, here neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.plan.analysed._nodes import analysed, kind_of, parts_of, walk
from spark_ckpt.plan.analysed._rules import in_stream_form
from tests.spark.conftest import Input, Job, ordered, rows_of_spark

NewInput = Callable[[str, str], Input]
Streams = tuple[Any, Any]
Form = Callable[[Any, Any, Any], Any]
BEGIN = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def _at(minute: int) -> datetime:
    return BEGIN + timedelta(minutes=minute)


BATCHES: list[list[tuple[Any, ...]]] = [
    [("a", 1, _at(0)), ("b", -5, _at(60)), (None, 1, _at(65)), ("a", None, _at(70))],
    [("a", 2, _at(1)), ("c", 3, _at(2))],
    [("a", 2, _at(3)), ("b", -3, _at(130))],
    [("a", 2, _at(4)), ("c", 3, _at(5))],
    [("a", 2, _at(6)), ("d", 3, _at(37))],
]
"""Rows ahead of the others have the key b or none, or a number that is negative or none."""
NEAR = "k = k2 and t between u - interval 5 minutes and u + interval 5 minutes"
ONES = "k <> 'b' and v > 0"


def _window() -> Any:
    return F.window("t", "5 minutes")


def _counted(df: Any, *keys: Any) -> Any:
    return df.groupBy(_window(), *keys).agg(F.count("*").alias("n"))


def _near(a: Any, b: Any, how: str, condition: str = NEAR) -> Any:
    return a.join(b, F.expr(condition), how)


FORMS: dict[str, Form] = {
    "keys of groups": lambda a, b, _: _counted(a.where("v > 0"), "k").where("k <> 'b'").where("n > 0"),
    "keys by another name": lambda a, b, _: (
        _counted(a.where("v > 0"), F.upper("k").alias("q")).select("n", F.lower("q").alias("p")).where("p <> 'b'")
    ),
    "fields of keys": lambda a, b, _: _counted(a, F.struct("k", "v").alias("s")).where("s.k <> 'b' and s.v > 0"),
    "keys of sessions": lambda a, b, _: (
        a.where("v > 0").groupBy(F.session_window("t", "4 minutes"), "k").count().where("k <> 'b'")
    ),
    "keys of an alias": lambda a, b, _: _counted(a.where("v > 0").alias("x"), "x.k").where("x.k <> 'b'"),
    "keys of the stream": lambda a, b, _: _counted(a.where("v > 0"), "k").where(a["k"] != "b"),
    "behind a generator": lambda a, b, _: _counted(
        a.withColumn("e", F.explode(F.array("v", F.lit(7)))).where(ONES).where("e < 8")
    ),
    "behind a table": lambda a, b, table: _counted(a.join(table, "k").where("v > 0 and note <> 'y'")),
    "behind a table, of its key": lambda a, b, table: _counted(
        a.where("v > 0").join(table.withColumnRenamed("k", "kk"), F.expr("k = kk")).where("kk <> 'b'"), "note"
    ),
    "keys that a table has": lambda a, b, table: _counted(
        a.where("v > 0 and (k is null or k <> 'b')").join(table, "k")
    ),
    "behind a union": lambda a, b, _: _counted(a.union(b).where(ONES)),
    "behind a union by name": lambda a, b, _: _counted(
        a.unionByName(b.select(F.col("w").alias("v"), F.col("u").alias("t"), F.col("k2").alias("k"))).where(ONES), "k"
    ),
    "behind a union with itself": lambda a, b, _: _counted(a.union(a.where("k <> 'b'")).where("v > 0"), "k"),
    "behind an inner join": lambda a, b, _: _near(a, b, "inner").where("v > 0").where("k2 <> 'b' and w > 0"),
    "of a key of an inner join": lambda a, b, _: _near(a, b, "inner", f"{NEAR} and v > 0 and w > 0").where("k <> 'b'"),
    "behind a left join": lambda a, b, _: _near(a, b, "left").where("v > 0 and k <> 'b'").where("w > 0"),
    "behind a right join": lambda a, b, _: _near(a, b, "right").where("w > 0 and k2 <> 'b' and v > 0"),
    "behind a full join": lambda a, b, _: _near(a, b, "full").where("v > 0 and w > 0 and k <> 'b'"),
    "behind left_semi": lambda a, b, _: _near(a, b, "left_semi", f"{NEAR} and w > 0").where("v > 0 and k <> 'b'"),
    "what a join compares": lambda a, b, _: _near(
        a.where("k is null or k <> 'b'"), b.where("k2 is null or k2 <> 'b'"), "inner", f"{NEAR} and v >= w"
    ),
    "by names": lambda a, b, _: _counted(
        a.where("v > 0").join(b.where("w > 0").toDF("k", "w", "t"), ["k", "t"]).where("k <> 'b'"), "k"
    ),
}
QUICK = ("behind a left join",)


def _both(new_input: NewInput, spark: SparkSession, ckpt: Any) -> tuple[Streams, Streams]:
    made = new_input("a", "k string, v int, t timestamp"), new_input("b", "k2 string, w int, u timestamp")
    for rows in BATCHES:
        for one in made:
            one.add(*rows)
    ours, theirs = [one.stream(ckpt) for one in made], [one.spark_stream(spark) for one in made]
    return _timed(*ours), _timed(*theirs)


def _timed(a: Any, b: Any) -> Streams:
    return a.withWatermark("t", "10 minutes"), b.withWatermark("u", "10 minutes")


@pytest.mark.parametrize("form", [f if f in QUICK else pytest.param(f, marks=pytest.mark.soak) for f in FORMS])
def test_what_a_filter_leaves_out_does_not_bring_the_watermark_on(
    spark: SparkSession, ckpt: Any, new_input: NewInput, tmp_path: Path, form: str
) -> None:
    table = spark.createDataFrame([("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")], "k string, note string")
    ours, theirs = (FORMS[form](*streams, table) for streams in _both(new_input, spark, ckpt))
    expected = ordered(map(tuple, rows_of_spark(theirs, tmp_path / "plain")))
    assert expected, "nothing to compare"
    assert ordered(map(tuple, rows_of_spark(ours, tmp_path / "ours"))) == expected


SIMPLER = ("keys by another name", "fields of keys")
"""Where the optimizer writes a filter in a simpler way, too."""


def _in_front(plan: Any) -> set[str]:
    """The filters below watermarks, with the event time of each."""
    found = set()
    for mark in (node for node in walk(plan) if kind_of(node) == "EventTimeWatermark"):
        filters = (node for node in walk(mark) if kind_of(node) == "Filter")
        parts = (part for node in filters for part in parts_of(node.condition()))
        found |= {
            f"{mark.eventTime().name()}: {re.sub(r'#[0-9]+L?|-T[0-9]+ms', '', part.toString())}" for part in parts
        }
    return found


@pytest.mark.parametrize("form", [form for form in FORMS if form not in SIMPLER])
def test_filters_go_where_sparks_optimizer_puts_them(spark: SparkSession, new_input: NewInput, form: str) -> None:
    made = new_input("a", "k string, v int, t timestamp"), new_input("b", "k2 string, w int, u timestamp")
    table = spark.createDataFrame([("a", "x")], "k string, note string")
    plan = analysed(FORMS[form](*_timed(*(one.spark_stream(spark) for one in made)), table))
    optimized = spark._jsparkSession.sessionState().optimizer().execute(plan)
    assert _in_front(in_stream_form(plan)) == _in_front(optimized) != set()


def test_a_filter_that_came_with_a_later_query_holds_for_what_is_kept_since_before(
    ckpt: Any, job: Job, new_input: NewInput
) -> None:
    made = new_input("in", "k string, v int, t timestamp")
    made.add(("a", 1, _at(0)), ("b", 1, _at(1)))
    counted = _counted(made.stream(ckpt).withWatermark("t", "1 minute"), "k")
    job.run(counted)
    made.add(("a", 1, _at(30)))
    job.run(counted.where("k <> 'b'"))
    assert [(row[1], row[2]) for row in job.rows()] == [("a", 1)]
