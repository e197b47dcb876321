"""Joins of two streams, batch for batch, as in plain Spark on the same files; what is kept, refused and told."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt import agg
from spark_ckpt.errors import InvalidInputError, TopologyError
from tests.spark.conftest import Input, Job, ordered, rows_of_spark

NewInput = Callable[[str, str], Input]
LEFT, RIGHT = "id long, k string, n int, at timestamp, d double", "rid long, k string, m long, seen timestamp, d double"
BASE = datetime(2023, 11, 5, tzinfo=timezone.utc)


def _batches(chance: random.Random, batches: int, first: int, alike: bool = False) -> list[list[tuple[Any, ...]]]:
    """The newest event time goes on by a second a batch; rows are up to five seconds older, and some are late.

    ``alike``: it is that of a row which no filter leaves out, and the same batches are empty. So all streams have one
    watermark, as in Spark, where it is that of the whole query.
    """
    found, number = [], 1000 * first
    for batch in range(first, first + batches):
        rows: list[tuple[Any, ...]] = []
        empty = batch % 5 == 3 if alike else chance.random() < 0.15
        for _ in range(0 if empty else 12):
            number += 1
            back = timedelta(microseconds=chance.choice([0, 1, 1_000_000, 1_500_000, chance.randrange(5_000_000)]))
            at = None if chance.random() < 0.1 else BASE + timedelta(seconds=batch) - back
            d = chance.choice([None, 0.0, -0.0, float("nan"), 1.5])
            rows.append((number, chance.choice(["a", "b", "c", None]), chance.randrange(4), at, d))
        if alike and rows:
            rows[0] = (rows[0][0], "d", 3, BASE + timedelta(seconds=batch), 1.5)
        found.append(rows)
    return found


def _timed(a: Any, b: Any) -> tuple[Any, Any]:
    return a.withWatermark("at", "1 second"), b.withWatermark("seen", "2 seconds")


def _soon(a: Any, b: Any) -> Any:
    return (b["seen"] >= a["at"] - F.expr("interval 1 second")) & (
        b["seen"] < a["at"] + F.expr("interval 1500 milliseconds")
    )


def _known(a: Any, how: str, *keys: str) -> Any:
    """In full joins of Spark's streams, and in those by a double, null equals null as a key."""
    return a.dropna(subset=list(keys)) if how in ("full", "outer") else a


def _ranged(how: str, *more: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def join(a: Any, b: Any) -> Any:
        a, b = _timed(_known(a, how, "k"), b)
        conditions = [a["k"] == b["k"], _soon(a, b), *(condition(a, b) for condition in more)]
        return a.join(b, reduce(lambda one, two: one & two, conditions), how)

    return join


def _by_time(how: str) -> Callable[[Any, Any], Any]:
    def join(a: Any, b: Any) -> Any:
        a, b = _known(a, how, "k", "at"), b.withColumnRenamed("seen", "at").drop("d")
        return a.withWatermark("at", "1 second").join(b.withWatermark("at", "2 seconds"), ["k", "at"], how)

    return join


def _windowed(a: Any, b: Any) -> Any:
    """Windows end later than the watermark, by as much as a row may wait."""
    windows = _ranged("inner")(a, b).select("at").groupBy(F.window("at", "2 seconds")).agg(F.count("*").alias("rid"))
    return windows.select(F.unix_seconds(F.col("window.start")).alias("id"), "rid")


def _chained(a: Any, b: Any) -> Any:
    again = a.select("k", "at", F.col("n").alias("again")).withWatermark("at", "1 second")
    return _by_time("left")(a, b).select("k", "at", "id", "rid").join(again, ["k", "at"], "left")


def _unmatched(a: Any, b: Any) -> Any:
    """``b["k"]`` is null where ``b`` has no row, though ``k`` is not."""
    b = b.withColumnRenamed("seen", "at").drop("d").withWatermark("at", "2 seconds")
    return a.withWatermark("at", "1 second").join(b, ["k", "at"], "left").where(b["k"].isNull())


def _guide(a: Any, b: Any) -> Any:
    """Impressions and clicks, as in Spark's guide."""
    shown = a.selectExpr("id", "k as impressionAdId", "at as impressionTime").withWatermark(
        "impressionTime", "1 second"
    )
    clicks = b.selectExpr("rid", "k as clickAdId", "seen as clickTime").withWatermark("clickTime", "2 seconds")
    soon = "clickTime >= impressionTime AND clickTime <= impressionTime + interval 1500 milliseconds"
    return shown.join(clicks, F.expr(f"clickAdId = impressionAdId AND {soon}"), "leftOuter")


def _second(time: str) -> tuple[Any, Any]:
    return F.col(time), F.col(time) + F.expr("interval 1 second")


def _renamed(a: Any, b: Any) -> Any:
    """An event time stays one by another name, in a struct and out of it."""
    a, b = _timed(a, b)
    a = a.withColumnRenamed("at", "t").select("id", F.struct("t", "k").alias("s")).select("id", "s.*")
    b = b.toDF("rid", "kk", "m", "seen", "dd").select("rid", "kk", F.col("seen").alias("u"), F.lit("x").alias("seen"))
    near = b["u"].between(a["t"] - F.expr("interval 1 second"), a["t"] + F.expr("interval 1 second"))
    return a.join(b, (F.col("k") == F.col("kk")) & near, "left")


def _aliased(a: Any, b: Any) -> Any:
    """By names that only an alias tells apart, ahead of ``withWatermark`` and behind it."""
    a, b = a.alias("a").withWatermark("at", "1 second"), b.withWatermark("seen", "2 seconds").alias("b")
    soon = F.col("b.seen").between(*_second("a.at")) & (F.abs("a.n") <= F.col("b.m") * 2)
    return a.join(b, (F.col("a.k") == F.col("b.k")) & soon, "left").select("a.id", "b.rid")


def _three(a: Any, b: Any) -> Any:
    """Two event times, and names that come twice, in front of the second join."""
    c = a.selectExpr("id as cid", "k as ck", "at as t", "abs(d) as d").withWatermark("t", "1 second")
    a, b = _timed(a, b)
    both = a.join(b, (a["k"] == b["k"]) & _soon(a, b), "left")
    later = (c["t"] >= a["at"]) & (c["t"] <= a["at"] + F.expr("interval 1 second"))
    third = both.join(c, (a["k"] == c["ck"]) & later & (c["d"].isNull() | (c["d"] != 0.5)), "left")
    return third.select(a["id"], (F.coalesce("rid", F.lit(0)) * 100 + F.coalesce("cid", F.lit(0))).alias("rid"))


def _three_by_alias(a: Any, b: Any) -> Any:
    """The second join by the other event time, and with a filter and a column between."""
    c = a.selectExpr("id as cid", "k", "at", "d").withWatermark("at", "1 second").alias("c")
    a, b = (side.alias(name) for side, name in zip(_timed(a, b), "ab", strict=True))
    near = F.col("b.seen").between(F.col("a.at") - F.expr("interval 1 second"), _second("a.at")[1])
    both = a.join(b, (F.col("a.k") == F.col("b.k")) & near)
    both = both.where("a.n <= b.m").withColumn("x", F.expr("a.n + b.m"))
    later = F.col("c.at").between(F.col("b.seen"), F.col("b.seen") + F.expr("interval 2 seconds"))
    third = c.join(both, (F.col("c.k") == F.col("b.k")) & later, "right")
    return third.select("a.id", F.expr("rid * 100 + coalesce(cid, 0) + x").alias("rid"))


def _once_behind(a: Any, b: Any) -> Any:
    """Rows once by one of two event times, behind which they are joined again."""
    c = a.selectExpr("id as cid", "k as ck", "at as t").withWatermark("t", "1 second")
    a, b = _timed(a, b)
    once = a.join(b, (a["k"] == b["k"]) & _soon(a, b)).dropDuplicates(["id", "at"])
    near = (c["t"] >= a["at"]) & (c["t"] <= a["at"] + F.expr("interval 1 second"))
    return once.join(c, (a["k"] == c["ck"]) & near).select(a["id"], c["cid"].alias("rid"))


def _self(a: Any, b: Any) -> Any:
    """Both sides come from one stream."""
    one = a.selectExpr("id", "k", "at as t").withWatermark("t", "1 second")
    other = a.where("n > 1").selectExpr("id as rid", "k as kk", "at as u").withWatermark("u", "2 seconds")
    near = F.col("u").between(F.col("t"), F.col("t") + F.expr("interval 2 seconds"))
    return one.join(other, (F.col("k") == F.col("kk")) & near, "left")


def _told(a: Any, b: Any) -> Any:
    """The watermark of a side counts without its column."""
    a, b = _timed(a, b)
    joined = a.drop("at").join(b, (a["k"] == b["k"]) & (a["n"] == b["m"]))
    return joined.where("unix_seconds(seen) > n")  # with nobody to read it, Spark's optimizer leaves no event time


def _told_apart(a: Any, b: Any) -> Any:
    """Columns of one name, behind a join, in ``withColumn``, ``groupBy`` and ``agg``."""
    a, b = a.withWatermark("at", "1 second").alias("a"), b.withWatermark("seen", "2 seconds").alias("b")
    joined = a.join(b, (F.col("a.k") == F.col("b.k")) & F.col("b.seen").between(*_second("a.at")))
    joined = joined.withColumn("x", F.col("a.n") + F.col("b.m")).withColumn("d", F.coalesce("b.d", F.lit(1.0)))
    counted = joined.groupBy("a.k", F.window("a.at", "2 seconds")).agg(F.sum("x"), F.count("b.k").alias("rid"))
    return counted.withColumn("id", F.unix_seconds(F.col("window.start")) + F.col("sum(x)") + F.hash("k"))


def _known_behind(a: Any, b: Any) -> Any:
    """Whose columns they are is known behind what keeps them, too."""
    joined = _timed(a, b)[0].join(_timed(a, b)[1], (a["k"] == b["k"]) & _soon(a, b))
    kept = joined.withColumnRenamed("m", "of b").drop(b["k"], b["seen"]).hint("rebalance").coalesce(1).fillna(7, ["n"])
    kept = kept.dropna(subset=["of b"]).repartition(2, b["d"]).withMetadata("n", {"is": "kept"})
    kept = kept.where(a["d"].isNull() | (a["d"] != 0.5)).withColumn("x", F.hash(a["d"], "k", "n")).distinct()
    return kept.select((F.col("id") + F.col("x")).alias("id"), (F.col("rid") * 100 + F.hash(b["d"])).alias("rid"))


KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "inner": lambda a, b: a.join(b, "k"),
    "range inner": _ranged("inner"),
    "range left": _ranged("left_outer", lambda a, b: a["n"] <= b["m"]),
    "range right": _ranged("right", lambda a, b: (a["d"] < b["d"]) | (b["m"] == 1) | a["d"].isNull()),
    "range full": _ranged("outer", lambda a, b: ~((a["n"] == b["m"]) & (a["n"] > 1))),
    "range semi": _ranged("semi", lambda a, b: a["d"].eqNullSafe(b["d"]) | (a["n"] > 2)),
    "time inner": _by_time("inner"),
    "time left": _by_time("left"),
    "time right": _by_time("rightouter"),
    "time full": _by_time("full"),
    "time semi": _by_time("leftsemi"),
    "own left": _ranged("left", lambda a, b: (a["n"] != 0) & (b["m"] != 0)),
    "own full": _ranged("full", lambda a, b: (a["n"] != 0) & (b["m"] != 0)),
    "mixed": _ranged("inner", lambda a, b: (a["n"] + b["m"]) % 2 == 0),
    "zeros": lambda a, b: a.where("d is not null").join(b, a["d"] == b["d"]),
    "windows behind": _windowed,
    "chained": _chained,
    "unmatched": _unmatched,
    "null safe": _ranged("full", lambda a, b: a["n"].eqNullSafe(b["m"])),
    "guide": _guide,
    "renamed": _renamed,
    "aliased": _aliased,
    "told": _told,
    "told apart": _told_apart,
    "known behind": _known_behind,
    "self": _self,
    "three": _three,
    "three by alias": _three_by_alias,
    "once behind": _once_behind,
}
SOME = ("three",)
"""In the test command, and "three by alias" over Connect. All types of joins, without Spark: test_joins_stages.py."""


def _all(a: Any, b: Any, kinds: Iterable[str]) -> Any:
    """All kinds beside each other, in one query."""
    made = []
    for name in kinds:
        df = KINDS[name](a, b)
        rid = F.col("rid") if "rid" in df.columns else F.lit(None).cast("long")
        made.append(df.select(F.lit(name).alias("kind"), "id", rid.alias("rid")))
    return reduce(lambda one, two: one.union(two), made)


def _plain(df: Any, folder: Path) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows_of_spark(df, folder)]


SOAKED = [(seed, tuple(KINDS)[at : at + 5], 3) for seed in (2, 3) for at in range(0, len(KINDS), 5)]
RUNS = [(1, SOME, 2), *(pytest.param(*run, marks=[pytest.mark.soak, pytest.mark.timeout(3000)]) for run in SOAKED)]


@pytest.mark.parametrize(("seed", "kinds", "lives"), RUNS)
def test_what_comes_out_is_what_comes_out_of_spark(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path, seed: int, kinds: Any, lives: int
) -> None:
    """The last life goes on at an empty location with more partitions, others where it stood."""
    chance, left, right, expected = random.Random(seed), new_input("l", LEFT), new_input("r", RIGHT), []
    for life in range(lives):
        last = life == lives - 1
        size = 2 if kinds == SOME else 3
        sides = [_batches(chance, size, size * life, kinds != SOME) for _ in range(2)]
        for one, other in zip(*sides, strict=True):
            left.add(*one)
            right.add(*other)
        if last:
            for data in (left, right):
                data.add((-1, "z", 9, BASE + timedelta(hours=1), None))
        spark.conf.set("spark.sql.shuffle.partitions", 1)
        expected += _plain(_all(left.spark_stream(spark), right.spark_stream(spark), kinds), tmp_path / "plain")
        spark.conf.set("spark.sql.shuffle.partitions", 2 if last else 1)
        options = {"checkpointLocation": str(tmp_path / str(last)), "chaining": str(not life).lower()}
        job.run(_all(left.stream(ckpt), right.stream(ckpt), kinds), **options)
    found = job.rows()
    for name in kinds:
        mine, theirs = ([row for row in ordered(rows) if row[0] == name] for rows in (found, expected))
        assert (name, mine) == (name, theirs)
    assert {kind for kind, *_ in expected} == set(kinds)


def _counted(key: Any, rows: Any, state: Any) -> Any:
    """Which rows came, with the number of those before, and that number when the time is over."""
    before = state.get[0] if state.exists else 0
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"id": [-1], "other": [before]})
        return
    ids = sorted(id_ for some in rows for id_ in some["id"])
    state.update((before + len(ids),))
    state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 7_200_000)
    yield pd.DataFrame({"id": ids, "other": [before] * len(ids)})


BEHIND: dict[str, Callable[[Any, Any], Any]] = {
    "function": lambda j, a: j.groupBy("k").applyInPandasWithState(
        _counted, "id long, other long", "n long", "append", "EventTimeTimeout"),
    "window": lambda j, a: j.select("id", F.window("at", "30 minutes"), "rid").dropDuplicates(["id", "window"]).select(
        "id", F.col("rid").alias("other")),
    "once": lambda j, a: j.dropDuplicates(["id", "at"]).select("id", F.col("rid").alias("other")),
    "join": lambda j, a: j.join(a.selectExpr("id as cid", "k as ck", "at as t").withWatermark("t", "1 second"), F.expr(
        "k = ck AND t BETWEEN at AND at + interval 2 hours")).select("id", F.col("cid").alias("other")),
}  # fmt: skip


@pytest.mark.parametrize("behind", [b if b == "once" else pytest.param(b, marks=pytest.mark.soak) for b in BEHIND])
@pytest.mark.soak
def test_rows_that_a_join_kept_for_long_are_late_behind_it(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path, behind: str
) -> None:
    left, right, hour = new_input("l", LEFT), new_input("r", RIGHT), timedelta(hours=1)
    for at, (key, other) in enumerate([("a", "z"), ("b", "z"), ("b", "z"), ("c", "a"), ("d", "d"), ("d", "y")]):
        left.add((at, key, 1, BASE + at * hour, 0.0), (at + 90, "a", 1, BASE + at * hour, 0.0))
        right.add((at, other, 1, BASE + at * hour, 0.0))

    def query(a: Any, b: Any) -> Any:
        timed, late = _timed(a, b)
        both = timed.join(late, timed["k"] == late["k"]).select("id", timed["k"].alias("k"), "at", "rid")
        return BEHIND[behind](both, a)

    expected = _plain(query(left.spark_stream(spark), right.spark_stream(spark)), tmp_path / "plain")
    job.run(query(left.stream(ckpt), right.stream(ckpt)))
    assert job.rows() == ordered(expected)
    assert expected
    assert 90 not in {row[0] for row in expected}, "whose time is over when the join finds its partner"


EVERY = range(8)


@pytest.mark.parametrize(
    ("ansi", "asked"),
    [(True, (0, 4, 7)), *(pytest.param(ansi, EVERY, marks=pytest.mark.soak) for ansi in (True, False))],
)
@pytest.mark.soak
def test_columns_of_two_types_are_compared_as_in_spark(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path, ansi: bool, asked: Iterable[int]
) -> None:
    """With ANSI a text that is compared with an ``int`` is made a ``long``, without it an ``int``, or null."""

    def query(a: Any, b: Any) -> Any:
        once = a.where("id < 3")
        pairs = [(a["n"], b["k"]), (a["k"], b["m"]), (a["k"], b["d"]), (a["n"] > 1, (b["m"] > 1).cast("string"))]
        pairs.append((a["at"], b["seen"].cast("string")))
        joins = [a.join(b, one == other) for one, other in pairs]
        joins += [a.join(b, (a["id"] == b["rid"]) & (a["n"] >= b["k"])), a.join(b, a["n"].eqNullSafe(b["k"]))]
        joins.append(once.select("id", F.col("n").alias("k")).join(b, ["k"]))
        made = [j.select(F.lit(at).alias("join"), "id", "rid") for at, j in enumerate(joins) if at in asked]
        return reduce(lambda some, more: some.union(more), made)

    left, right = new_input("l", LEFT), new_input("r", RIGHT)
    texts = ["1", " 2 ", None] if ansi else ["1", " 2 ", "1.9", "x", None]
    for data in (left, right):
        data.add(*((at, text, at % 3, BASE + timedelta(hours=at % 2), 2.0) for at, text in enumerate(texts, 1)))
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        expected = _plain(query(left.spark_stream(spark), right.spark_stream(spark)), tmp_path / "plain")
        job.run(query(left.stream(ckpt), right.stream(ckpt)))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert {row[0] for row in expected} == set(asked)
    theirs = [row for row in expected if (row[0], row[1]) != (2, len(texts))]  # there null equals null by a double
    assert job.rows() == ordered(theirs)


def test_a_semi_join_does_not_see_a_right_row_of_the_same_batch_that_is_over(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    """Unless the left one waited. Of two rows that come together, Spark 4.2's other joins make a pair."""

    def query(a: Any, b: Any, how: str) -> Any:
        a, b = (side.withWatermark(time, "0 seconds") for side, time in ((a, "at"), (b, "seen")))
        soon = "seen BETWEEN at - interval 238 minutes AND at + interval 1000 minutes"
        return a.join(b, (a["k"] == b["k"]) & F.expr(soon), how).select(a["id"])

    left, right = new_input("l", LEFT), new_input("r", RIGHT)
    minutes = {"both over": (-240, -240), "right over": (-5, -240), "not over": (-5, -200), "now": (50, 50)}
    left.add((0, "now", 0, BASE, None), (1, "waited", 0, BASE - timedelta(minutes=5), None))
    right.add(*[(0, "now", 0, BASE, None)] * 9)
    times = [(key, *(BASE + timedelta(minutes=m) for m in both)) for key, both in minutes.items()]
    left.add(*[(number, key, 0, at, None) for number, (key, at, _) in enumerate(times, 2)])
    waited = (9, "waited", 0, BASE - timedelta(minutes=240), None)
    right.add(waited, *[(number, key, 0, seen, None) for number, (key, _, seen) in enumerate(times, 2)])
    expected = _plain(query(left.spark_stream(spark), right.spark_stream(spark), "left_semi"), tmp_path / "plain")
    job.run(query(left.stream(ckpt), right.stream(ckpt), "left_semi"))
    assert job.rows() == ordered(expected)
    assert {row[0] for row in expected} == {0, 1, 4, 5}


@pytest.mark.soak
def test_what_an_inner_join_by_names_shows_once_is_found_as_either_sides(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    def query(a: Any, b: Any) -> Any:
        one, other = a.select("id", "k"), b.select("rid", "k")
        both = one.join(other, ["k"])
        rows = [
            both.select(other["k"], one["k"], other.rid).toDF("k", "l", "rid"),
            both.where(other["k"] == "a").select("k", F.lit("a").alias("l"), "rid"),
            both.withColumn("l", F.upper(other["k"])).select("k", "l", "rid"),
            both.drop(other["k"]).select("k", F.lit("d").alias("l"), "rid"),
        ]
        return reduce(lambda some, more: some.union(more), rows)

    left, right = new_input("l", LEFT), new_input("r", RIGHT)
    left.add((1, "a", 0, BASE, None), (2, "b", 0, BASE, None), (3, None, 0, BASE, None))
    right.add((11, "a", 0, BASE, None), (12, "b", 0, BASE, None), (13, "c", 0, BASE, None))
    ours, theirs = (
        query(left.stream(ckpt), right.stream(ckpt)),
        query(left.spark_stream(spark), right.spark_stream(spark)),
    )
    job.run(ours)
    expected = _plain(theirs, tmp_path / "plain")
    assert len(expected) == 7
    assert job.rows() == ordered(expected)


def test_rows_that_waited_under_another_condition_are_refused(ckpt: Any, new_input: NewInput, job: Job) -> None:
    """What is kept of ``t + 5 minutes`` was compared as if it were ``t + 10 minutes``, in silence."""
    left, right = (new_input(name, "k long, t timestamp") for name in ("left", "right"))
    soon, later = (BASE + timedelta(minutes=m) for m in (1, 5))
    left.add((1, BASE))
    right.add((1, soon))

    def query(minutes: int) -> Any:
        a, b = (data.stream(ckpt).withWatermark("t", "1 hour") for data in (left, right))
        until = a["t"] + F.expr(f"make_dt_interval(0, 0, {minutes})")
        return a.join(b, (a["k"] == b["k"]) & (b["t"] <= until)).select(a["k"], b["t"])

    job.run(query(5))
    with pytest.raises(TopologyError, match=r"'left.__ckpt_compared_0' of its state was made by .* 5, .* by .* 10, "):
        job.run(query(10))
    right.add((1, later))
    job.run(query(5))
    assert job.rows() == [(1, soon), (1, later)]


@pytest.mark.smoke
def test_a_drain_puts_out_every_row_that_waits_for_a_partner(ckpt: Any, new_input: NewInput, job: Job) -> None:
    left, right = new_input("l", LEFT), new_input("r", RIGHT)
    later = BASE + timedelta(hours=1)
    left.add((1, "a", 0, BASE, None), (2, "b", 0, BASE, None), (3, None, 0, BASE, None), (4, "a", 0, None, None))
    right.add((11, "a", 0, BASE, None), (12, "c", 0, later, None))
    joined = _ranged("full")(left.stream(ckpt, uid="l").where("id > 0"), right.stream(ckpt, uid="r"))
    query = job.start(joined.select("id", "rid"), now=False)
    query.processAllAvailable()
    query.checkpoint()
    assert job.rows() == [(1, 11)]
    query.stop(drain=True)
    assert query.exception() is None
    alone = [(2, None), (None, 12)]
    assert job.rows() == ordered([(1, 11), *alone]), job.rows()


def test_what_cannot_work_is_refused_and_what_grows_is_told(
    spark: SparkSession, ckpt: Any, new_input: NewInput, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = new_input("l", LEFT).stream(ckpt), new_input("r", RIGHT).stream(ckpt)
    timed, late = _timed(a, b)
    soon = (timed["k"] == late["k"]) & _soon(timed, late)
    third = a.selectExpr("k", "k as ck", "at as t").withWatermark("t", "1 second")
    for call, said in [
        (lambda: a.join(b, "k", "left"), "LeftOuter join between two streaming .* not supported without a watermark"),
        (lambda: timed.join(late, "k", "right"), "RightOuter join .* an appropriate range condition.*withWatermark on"),
        (lambda: timed.join(late, "k", "full"), "FullOuter join .* not supported without"),
        (lambda: timed.join(late, "k", "semi"), "LeftSemi join .* not supported without"),
        (lambda: timed.join(late, soon, "left_anti"), "LeftAnti joins with a streaming .*isNull"),
        (lambda: timed.join(late, _soon(timed, late)), "join without equality predicate is not supported"),
        (lambda: a.crossJoin(b), "join without equality predicate is not supported"),
        (
            lambda: timed.join(late, soon & (F.soundex(F.concat(timed["k"], late["k"])) > "x"), "left"),
            "soundex.*mixes columns of both",
        ),
        (lambda: a.join(b, a["k"] == b["k"]).groupBy("id").aggregate(n=agg.count()), "occur more than once"),
        (
            lambda: timed.join(late, soon).join(
                third, (timed["k"] == third["ck"]) & (third["t"] >= timed["at"]) & (third["t"] >= late["seen"])
            ),
            r"More than one event time columns .*'at', 'seen'",
        ),
        (lambda: timed.join(late, soon).distinct(), r"More than one event time columns .*'at', 'seen'"),
    ]:
        with pytest.raises(InvalidInputError, match=f"(?s){said}") as refused:
            ckpt.check(call())
        own = "occur more than once|mixes columns"
        assert isinstance(refused.value, AnalysisException) or re.search(own, str(refused.value))
    with pytest.raises(InvalidInputError, match="use outputMode\\('append'\\)"):
        timed.join(late, soon, "left").drop(late["k"], late["d"]).writeStream.outputMode("update")
    one = a.join(b, "k").uid("one")
    named = a.alias("a").join(b.alias("b"), F.col("a.k") == F.col("b.k"))
    assert named.groupBy("a.k", b["d"]).agg({"b.d": "max", "m": "sum"}).columns == ["k", "d", "max(d)", "sum(m)"]
    assert one.columns == ["k", "id", "n", "at", "d", "rid", "m", "seen", "d"]
    one = one.drop("d")
    with pytest.raises(TopologyError, match="both sides of the join contain the keyed operator"):
        ckpt.check(one.join(a.join(b, "k").uid("one").drop("d").toDF(*"stuvwxy"), F.expr("k = s")))
    caplog.clear()
    ckpt.check(timed.join(late, soon, "left"), foreachBatch=True)
    assert not caplog.records
    ckpt.check(timed.join(late, (timed["k"] == late["k"]) & (late["seen"] >= timed["at"])), foreachBatch=True)
    assert "join keeps every row of its left side for ever, so its state grows" in caplog.text
    ckpt.check(a.join(b, "k"), foreachBatch=True)
    assert "of its left and its right side for ever" in caplog.text
