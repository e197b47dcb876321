"""Top-N against Spark's ``row_number`` over all rows so far; what is refused; changes in merging sinks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError, TopologyError
from spark_ckpt.operators.top_rows import ordering
from spark_ckpt.sinks import memory
from tests.spark.conftest import Input, Job, ordered

NewInput = Callable[[str, str], Input]
ROWS = "id long, k string, x double, s string, n int, at timestamp"
NAN = float("nan")

KINDS: dict[str, Callable[[], tuple[list[Any], int, list[Any], bool]]] = {
    "latest": lambda: (["k"], 1, [F.desc("at"), "n"], False),
    "best": lambda: (["k"], 3, [F.desc("x")], True),
    "least": lambda: (["K", "n"], 2, [[F.col("x").asc_nulls_last(), F.desc_nulls_first("s")]], False),
    "computed": lambda: ([F.upper("k").alias("u")], 2, [(F.col("n") * -1).asc(), F.length("s").desc()], True),
    "of doubles": lambda: (["x"], 2, [F.asc("s")], False),
    "all": lambda: ([], 4, [F.struct("n", "s"), F.desc("k")], True),
}
"""Keys, n, order, and whether ranks come out. Behind the order is the id: rows arrive by it."""


def _some(chance: random.Random, first: int) -> list[tuple[Any, ...]]:
    from datetime import datetime, timedelta, timezone

    base = datetime(2023, 11, 5, 5, tzinfo=timezone.utc)
    return [
        (
            first + i,
            chance.choice(["a", "A", "b", None]),
            chance.choice([None, NAN, 0.0, -0.0, 1.5, float("inf"), chance.random()]),
            chance.choice([None, "", "x", "yy"]),
            chance.choice([1, 2, 3]),
            None if chance.random() < 0.1 else base + timedelta(hours=chance.randrange(6)),
        )
        for i in range(chance.choice([3, 12, 30]))
    ]


def _streams(df: Any, kinds: Sequence[str]) -> Any:
    made = []
    for kind in kinds:
        keys, n, order, ranked = KINDS[kind]()
        top = df.groupBy(*keys).topN(n, *order, rank="place" if ranked else None).uid(kind)
        place = F.col("place") if ranked else F.lit(0)
        made.append(
            top.select(
                F.lit(kind).alias("kind"), "id", "k", "x", "s", "n", F.unix_micros("at"), place.alias("place"), "op"
            )
        )
    return reduce(lambda one, two: one.union(two), made)


def _in_spark(df: Any, kinds: Sequence[str]) -> list[tuple[Any, ...]]:
    found = []
    for kind in kinds:
        keys, n, order, ranked = KINDS[kind]()
        order = order[0] if isinstance(order[0], list) else order
        number = F.row_number().over(Window.partitionBy(*(keys or [F.lit(1)])).orderBy(*order, "id"))
        top = df.withColumn("place", number).where(F.col("place") <= n)
        place = F.col("place") if ranked else F.lit(0)
        rows = top.select(F.lit(kind), "id", "k", "x", "s", "n", F.unix_micros("at"), place).collect()
        found += [tuple(row) for row in rows]
    return ordered(found)


RUNS = [(1, ("least", "computed"), 2)]
RUNS += [pytest.param(seed, tuple(KINDS), 4, marks=pytest.mark.soak) for seed in range(2, 6)]


@pytest.mark.smoke
@pytest.mark.parametrize(("seed", "kinds", "lives"), RUNS)
def test_the_changes_fold_to_what_a_batch_of_spark_has(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path, seed: int, kinds: Any, lives: int
) -> None:
    """The last life goes on at an empty location with another number of partitions, others where it stood."""
    chance, data, count = random.Random(seed), new_input("in", ROWS), 0
    for life in range(lives):
        last = life == lives - 1
        for _ in range(2):
            rows = _some(chance, count)
            count += len(rows)
            data.add(*rows)
        spark.conf.set("spark.sql.shuffle.partitions", 2 if last else 1)
        options = {"checkpointLocation": str(tmp_path / str(last)), "chaining": str(not life).lower()}
        job.run(_streams(data.stream(ckpt), kinds), **options)
        assert _rows_behind(job) == _in_spark(data.table(spark), kinds)


def _rows_behind(job: Job) -> list[tuple[Any, ...]]:
    """What all changes come to."""
    table = dict[Any, Any]()
    for change in memory.read(job.sink).to_pylist():
        *row, op = change.values()
        _fold(table, tuple(row), op)
    return ordered(table.values())


def _fold(table: dict[Any, Any], row: tuple[Any, ...], op: str) -> None:
    key = row[:2]
    if op in ("+I", "+U"):
        assert key not in table
        table[key] = row
    else:
        assert ordered([table.pop(key)]) == ordered([row])


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_behind_an_aggregate_and_behind_another_top_n(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path, seed: int
) -> None:
    """Sums rise and fall, so products leave and come back; the best of all come from the best of each shop."""
    chance, data, lives = random.Random(seed), new_input("in", "shop string, product string, n int"), 5
    number = Window.partitionBy("shop").orderBy(F.desc("sales"), "product")
    for life in range(lives):
        for _ in range(2):
            shops, products = ["x", "y", None], ["a", "b", "c", "d", "e"]
            data.add(*((chance.choice(shops), chance.choice(products), chance.randrange(-9, 15)) for _ in range(12)))
        sales = data.stream(ckpt).groupBy("shop", "product").agg(F.sum("n").alias("sales")).uid("sales")
        order = (F.desc("sales"), "product")
        best = sales.groupBy("shop").topN(2, *order, rank="place", mergeKeys="product").uid("best")
        top = best.groupBy().topN(3, *order, F.asc("shop"), rank="of_all", mergeKeys=["shop", "product"]).uid("top")
        spark.conf.set("spark.sql.shuffle.partitions", 2 if life == lives - 1 else 1)
        options = {"checkpointLocation": str(tmp_path / str(life == lives - 1)), "changeColumn": "op"}
        job.run(top, "of_all", mode="update", **options)
        sums = data.table(spark).groupBy("shop", "product").agg(F.sum("n").alias("sales"))
        firsts = sums.withColumn("place", F.row_number().over(number)).where("place <= 2")
        rows = firsts.orderBy(*order, F.asc("shop")).limit(3).collect()
        assert job.rows() == ordered((*row, place + 1) for place, row in enumerate(rows))


def test_merging_sinks_have_the_first_rows(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    """By keys and rank, and by what tells rows apart; two checkpoints with several batches each."""
    data = new_input("in", "k string, id long, x double")
    for start in (0, 6):
        for first in range(start, start + 6, 2):
            data.add(("a", first, first % 5 + 0.5), ("b", first + 1, float(-first)))
        best = data.stream(ckpt).groupBy("k").topN(2, F.desc("x"), rank="place").uid("best")
        writer = best.writeStream.format("delta").option("path", str(tmp_path / "t")).option("mergeKeys", "k,place")
        writer = writer.option("changeColumn", "op").queryName("job").trigger(availableNow=True)
        url = f"sqlite:///{tmp_path}/x.db"
        writer = writer.alsoTo("sql", url=url, table="t", mergeKeys="k,id", changeColumn="op", columns="k,id,x,op")
        writer = writer.alsoTo("memory", path=job.sink, mergeKeys="k,id", changeColumn="op")
        query = writer.start()
        assert query.awaitTermination(240)
    expected = [("a", 4, 4.5, 1), ("a", 8, 3.5, 2), ("b", 1, 0.0, 1), ("b", 3, -2.0, 2)]
    rows = QueryBuilder().register("t", DeltaTable(tmp_path / "t")).execute("select * from t order by k, place")
    assert [tuple(row.values()) for row in rows.read_all().to_struct_array().to_pylist()] == expected
    assert job.rows() == ordered(expected)
    from tests.sinks.sql_harness import run

    assert run(url, "SELECT k, id, x FROM t ORDER BY k, x DESC") == [row[:3] for row in expected]


def test_late_rows_do_not_count_and_a_key_ends_with_its_time(
    ckpt: Any, new_input: NewInput, job: Job, tmp_path: Path
) -> None:
    from datetime import datetime, timezone

    def at(minute: int) -> datetime:
        return datetime(2024, 1, 1, 12, minute, tzinfo=timezone.utc)

    data = new_input("in", "at timestamp, k string, v int")
    data.add((at(0), "a", 1), (at(10), "a", 2))
    data.add((at(30), "a", 3))
    data.add((at(0), "late", 9), (at(25), "a", 4))
    data.add((at(31), "a", 5))
    timed = data.stream(ckpt).withWatermark("at", "10 minutes")
    by_time, by_key = timed.groupBy("at").topN(1, "v").uid("time"), timed.groupBy("k").topN(2, F.desc("v")).uid("key")
    both = by_time.select(F.lit("time").alias("by"), "v", "op").union(by_key.select(F.lit("key"), "v", "op"))
    query = job.run(both)
    changes = [tuple(row.values()) for row in memory.read(job.sink).to_pylist()]
    assert ordered(c for c in changes if c[0] == "time") == ordered(("time", v, "+I") for v in (1, 2, 3, 4, 5))
    assert [c[1:] for c in changes if c[0] == "key"] == [
        (2, "+I"), (1, "+I"), (1, "-D"), (3, "+I"), (2, "-D"), (4, "+I"), (3, "-D"), (5, "+I")
    ]  # fmt: skip
    sizes = {uid: size.keys for uid, size in query.checkpoints()[-1]["state"].items()}
    assert sizes == {"time": 3, "time.top": 3, "key": 1, "key.top": 2}


def test_the_order_is_read_of_columns_of_connect_too() -> None:
    from pyspark.sql.connect import functions as connect

    given = [connect.desc("x"), connect.col("x").asc_nulls_last(), connect.desc_nulls_first("x"), connect.col("x")]
    found = [(str(o.given), o.descending, o.nulls_first) for o in map(ordering, given)]
    column = "Column<'x'>"
    assert found == [(column, True, False), (column, False, False), (column, True, True), (column, False, True)]


def test_a_log_of_changes_is_followed_and_another_order_is_refused(ckpt: Any, new_input: NewInput, job: Job) -> None:
    """The first rows of what a database's log leaves, in a sink by what tells its rows apart."""
    data = new_input("in", "op string, id long, v int")
    data.add(("+I", 1, 10), ("+I", 2, 20), ("+I", 3, 30))
    data.add(("-U", 1, 10), ("+U", 1, 40), ("-D", 3, 30))
    data.add(("+I", 4, 5), ("-D", 1, 40))
    df = data.stream(ckpt)
    job.run(df.groupBy().topN(2, (F.col("v") + 1).desc(), mergeKeys="id").uid("top"), "id", changeColumn="op")
    assert job.rows() == [(2, 20), (4, 5)]
    for other in (df.groupBy().topN(3, (F.col("v") + 1).desc(), mergeKeys="id").uid("top"),
                  df.groupBy().topN(2, (F.col("v") + 2).desc(), mergeKeys="id").uid("top")):  # fmt: skip
        with pytest.raises(TopologyError, match=r"(?s)'top'.*the first 2 by .*v.* DESC.*updated by id, and the query"):
            job.start(other, "id", changeColumn="op")


@pytest.mark.soak
def test_the_first_of_each_window_and_a_filter_behind(
    spark: SparkSession, ckpt: Any, new_input: NewInput, job: Job
) -> None:
    """Where a filter lets only the row before an update pass, it goes from the sink."""
    from datetime import datetime, timedelta, timezone

    data, chance = new_input("in", "at timestamp, product string, n int"), random.Random(3)
    base = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
    for batch in range(6):
        at = [base + timedelta(minutes=10 * batch + chance.randrange(10)) for _ in range(30)]
        data.add(*((time, chance.choice("abcdef"), chance.randrange(9)) for time in at))
    data.add((base + timedelta(hours=9), "z", 1))
    timed = data.stream(ckpt).withWatermark("at", "1 minute")
    windows = timed.groupBy(F.window("at", "10 minutes"), "product").agg(F.sum("n").alias("n"))
    flat = windows.select(F.unix_micros("window.start").alias("w"), "product", "n")
    top = flat.groupBy("w").topN(4, F.desc("n"), "product", rank="place").where("place <= 2")
    job.run(top, "w,product", changeColumn="op")
    table = data.table(spark).where("product <> 'z'").groupBy(F.window("at", "10 minutes"), "product")
    sums = table.agg(F.sum("n").alias("n")).select(F.unix_micros("window.start").alias("w"), "product", "n")
    number = F.row_number().over(Window.partitionBy("w").orderBy(F.desc("n"), "product"))
    expected = sums.withColumn("place", number).where("place <= 2").collect()
    assert job.rows() == ordered(map(tuple, expected))


def test_what_cannot_work_is_refused(ckpt: Any, new_input: NewInput) -> None:
    schema = "k string, x double, xs array<int>, m map<string,int>, op int, place int, at timestamp, "
    collated = new_input("in", schema + "c string collate UNICODE_CI").stream(ckpt)
    df = collated.drop("c")
    by = df.drop("op").groupBy("k")
    totals = df.groupBy("k").agg(F.sum("x").alias("x"))
    changes = by.topN(9, "x").groupBy("k")
    for call, said in [
        (lambda: by.topN(0, "x"), "n is how many rows.*found 0"),
        (lambda: by.topN(True, "x"), "whole number from 1 on; found True"),
        (lambda: by.topN(3), "at least one column to order by"),
        (lambda: by.topN(3, 5.0), "expected columns to order by.*found 5.0"),
        (lambda: by.topN(3, "xs"), "cannot order by 'xs', whose type is array<int>"),
        (lambda: by.topN(3, F.desc("m")), "cannot order by 'm'"),
        (lambda: collated.drop("op").groupBy("k").topN(3, "c"), "cannot order by 'c'.*cast"),
        (lambda: by.topN(3, "x", rank="place"), "more than once: \\['place'"),
        (lambda: df.groupBy("k").topN(3, "x"), "more than once: \\['op'"),
        (lambda: totals.groupBy("k").topN(3, "x"), "are updates, new values of rows.*mergeKeys=\\['product'\\]"),
        (lambda: totals.groupBy("k").topN(3, "x", mergeKeys="q"), "mergeKeys names 'q'; the columns are \\['k', 'x'"),
        (lambda: totals.groupBy("k").topN(3, "x", mergeKeys=["K"]), "needs a column beside the keys, found \\['K'\\]"),
        (lambda: by.topN(3, "x", mergeKeys="xs"), "mergeKeys names 'xs', whose type is array<int>"),
        (lambda: df.groupBy("k").topN(3, "x", mergeKeys="x"), "'op' has type int.*changeColumn='change'"),
        (lambda: by.topN(3, "x", mergeKeys=5), "a column's name, or a list of names; found 5"),
        (lambda: by.topN(3, "x", mergeKeys=[F.col("x")]), "a column's name, or a list of names"),
        (lambda: by.topN(3, "x", rank=True), "rank is the name of a column that comes out; found True"),
        (lambda: by.topN(3, "x", changeColumn=""), "changeColumn is the name of a column"),
        (lambda: changes.topN(3, "op", mergeKeys="x"), "'op' says what each row is.*neither ordered nor told apart"),
        (lambda: changes.topN(3, "x", mergeKeys=["x", "op"]), "'op' says what each row is"),
    ]:
        with pytest.raises(InvalidInputError, match=f"(?s){said}"):
            ckpt.check(call(), "update")


@pytest.mark.soak
def test_a_window_is_a_key_of_top_n(ckpt: Any, job: Job, new_input: Callable[[str, str], Input]) -> None:
    from datetime import datetime, timedelta, timezone

    data, base = new_input("in", "at timestamp, n int"), datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
    for batch in ((0, 3, 11), (4, 12, 26)):
        data.add(*((base + timedelta(minutes=m), m) for m in batch), (None, 99))
    window = F.window("at", "10 minutes", "5 minutes")
    best = data.stream(ckpt).groupBy(window, (F.col("n") % 2).alias("odd")).topN(1, F.desc("n")).uid("best")
    assert best.columns == ["at", "n", "op"]
    job.run(best)
    kept: dict[int, int] = {}
    for _, n, op in job.rows():
        kept[n] = kept.get(n, 0) + (1 if op == "+I" else -1)
    assert {n: times for n, times in kept.items() if times} == {3: 2, 4: 2, 11: 2, 12: 2, 26: 2}, (
        "each is in two windows; 4 came in front of 0"
    )
