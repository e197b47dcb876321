"""Joins with a static DataFrame that never changes run where the stream's rows are, with the rows of Spark's own."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from itertools import product
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.plan.analysed import _joins as static_joins
from spark_ckpt.plan.analysed import _static_in_arrow as static_side
from spark_ckpt.plan.analysed._static_in_arrow import StaticPlace
from spark_ckpt.runtime.static_join import JoinColumns, JoinStatic
from spark_ckpt.runtime.static_sides import static_side as static_side_of
from spark_ckpt.types import CTL, TAG
from tests.spark.conftest import Input, Job, ordered

STREAM = "id long, k int, l long, s string, d double, f float, c decimal(9,2), day date, ok boolean, b binary"
STATIC = pa.schema(
    [
        ("sk", pa.int32()),
        ("sl", pa.int64()),
        ("ss", pa.string()),
        ("sd", pa.float64()),
        ("sf", pa.float32()),
        ("sc", pa.decimal128(12, 4)),
        ("sday", pa.date32()),
        ("sok", pa.bool_()),
        ("sb", pa.binary()),
        ("word", pa.string()),
        ("xs", pa.list_(pa.int64())),
    ]
)
_VALUES: dict[str, list[Any]] = {
    "k": [None, 0, 1, 2, 3, -1],
    "l": [None, 0, 1, 2, 2**40],
    "s": [None, "", "a", "b", "ä", "a "],
    "d": [None, 0.0, -0.0, math.nan, 1.5, 1.0],
    "f": [None, 0.0, -0.0, math.nan, 1.5, 1.0],
    "c": [None, Decimal("0.00"), Decimal("1.50"), Decimal("-1.50")],
    "day": [None, 0, 1, -700000],
    "ok": [None, True, False],
    "b": [None, b"", b"a", b"\x00"],
}


def _static_rows(chosen: random.Random, rows: int) -> pa.Table:
    drawn = [[chosen.choice(values) for _ in range(rows)] for values in _VALUES.values()]
    words = [chosen.choice([None, "one", "two", "three"]) for _ in range(rows)]
    lists = [chosen.choice([None, [], [1, None, 3]]) for _ in range(rows)]
    arrays = [pa.array(c, f.type) for c, f in zip([*drawn, words, lists], STATIC, strict=True)]
    return pa.Table.from_arrays(arrays, schema=STATIC)


def _of(df: Any) -> SparkSession:
    session = df.sparkSession
    assert isinstance(session, SparkSession)
    return session


def conditions(a: Any, x: Any) -> list[Any]:
    """Equalities of every type and of two types, of several columns, with conditions beside them."""
    return [
        a["k"] == x["sk"],
        a["l"] == x["sl"],
        a["k"] == x["sl"],
        a["s"] == x["ss"],
        a["d"] == x["sd"],
        a["f"] == x["sf"],
        a["f"] == x["sd"],
        a["k"] == x["sd"],
        a["c"] == x["sc"],
        a["k"] == x["sc"],
        a["day"] == x["sday"],
        a["ok"] == x["sok"],
        a["b"] == x["sb"],
        (a["k"] == x["sk"]) & (x["ss"] == a["s"]) & (a["d"] == x["sd"]),
        (a["k"] == x["sk"]) & (a["l"] > x["sl"]),
        (a["ok"] == x["sok"]) & (x["word"] == "two") & (F.length("s") > 0),
        (a["s"] == x["ss"]) & a["d"].eqNullSafe(x["sd"]),
    ]


def with_rows_in_python(df: Any) -> Any:
    """Of a stream that several branches share, Spark has the rows."""
    return df.mapInArrow(lambda batches: batches, df.schema) if df.isStreaming else df


@pytest.fixture
def done_in_python(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The joins that a start has placed in Python."""
    placed: list[str] = []

    def noted(made: Any) -> Callable[..., Any]:
        def make(*arguments: Any) -> Any:
            placed.append(made.__name__)
            return made(*arguments)

        return make

    for made in (static_side.JoinStatic, static_side.JoinCarried):
        monkeypatch.setattr(static_side, made.__name__, noted(made))
    return placed


@pytest.fixture
def places(ckpt: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[StaticPlace]]:
    """The places of the joins of a DataFrame."""
    found: list[StaticPlace] = []

    def noted(*arguments: Any) -> StaticPlace:
        found.append(StaticPlace(*arguments))
        return found[-1]

    def of(df: Any) -> list[StaticPlace]:
        found.clear()
        ckpt.check(df, foreachBatch=True)
        return [*found]

    monkeypatch.setattr(static_joins, "StaticPlace", noted)
    return of


def in_python(places: list[StaticPlace]) -> bool:
    return all(isinstance(place.columns, JoinColumns) for place in places)


ALL = [(how, number) for how in ("inner", "left", "left_semi", "left_anti") for number in range(17)]


def _drawn(chosen: random.Random, start: int, rows: int) -> list[tuple[Any, ...]]:
    return [(start + i, *[chosen.choice(values) for values in _VALUES.values()]) for i in range(rows)]


def _as_a_task_has_it(place: StaticPlace, rows: pa.Table, static: pa.Table) -> pa.Table:
    """What the join makes of one batch of a source."""
    table = rows.append_column(TAG, pa.array([1] * len(rows), pa.int64())).append_column(
        CTL, pa.nulls(len(rows), pa.binary())
    )
    assert isinstance(place.columns, JoinColumns)
    operation = JoinStatic(place.columns, lambda keys: static_side_of(uuid4().hex, keys, lambda: static))
    batches = list(operation(iter(table.combine_chunks().to_batches())))
    return pa.Table.from_batches(batches).drop_columns([TAG, CTL]) if batches else None


@pytest.mark.parametrize("kinds", [ALL[::22], pytest.param(ALL, marks=pytest.mark.soak)], ids=["some", "all"])
@pytest.mark.parametrize("size", [0, 40])
def test_every_equality_is_that_of_sparks_join(
    spark: SparkSession,
    ckpt: Any,
    new_input: Callable[[str, str], Input],
    places: Callable[[Any], list[StaticPlace]],
    size: int,
    kinds: list[tuple[str, int]],
) -> None:
    chosen = random.Random(size)
    static, data = _static_rows(chosen, size), new_input("in", STREAM)
    data.add(*_drawn(chosen, 0, 60))
    rows, stream = pq.read_table(next(data.folder.glob("*.parquet"))), data.stream(ckpt)
    batch, x = data.table(spark), spark.createDataFrame(static)
    for how, number in kinds:
        expected = batch.join(x, conditions(batch, x)[number], how).toArrow().to_pylist()
        (place,) = places(stream.join(x, conditions(stream, x)[number], how))
        assert in_python([place]), (how, number)
        made = _as_a_task_has_it(place, rows, static)
        assert ordered(_shown(made.to_pylist() if made else [])) == ordered(_shown(expected)), (how, number)


def _shown(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [tuple(map(repr, row.values())) for row in rows]


def test_rows_are_those_of_sparks_join(
    spark: SparkSession,
    ckpt: Any,
    new_input: Callable[[str, str], Input],
    job: Job,
    done_in_python: list[str],
) -> None:
    chosen, kinds = random.Random(51), ALL[1:68:34]
    static = _static_rows(chosen, 40)
    data = new_input("in", STREAM)
    for start in (0, 60):
        data.add(*_drawn(chosen, start, 60))

    def joined(df: Any) -> Any:
        made, once = [], _of(df).createDataFrame(static)
        each_batch = once.where(F.rand() >= 0)
        assert static_side.never_changes(once)
        assert not static_side.never_changes(each_batch)
        for (how, number), x in product(kinds, (once, each_batch)):
            a = with_rows_in_python(df)
            found = a.join(x, conditions(a, x)[number], how)
            word = F.concat_ws("-", "word", "sk", "ss", F.size("xs")) if how in ("inner", "left") else F.lit("")
            made.append(found.select(F.lit(f"{how} {number}").alias("what"), "id", word.alias("found")))
        return reduce(lambda one, two: one.union(two), made)

    expected = ordered(map(tuple, joined(data.table(spark)).collect()))
    job.run(joined(data.stream(ckpt)))
    assert job.rows() == expected
    assert done_in_python == ["JoinStatic", "JoinCarried"] * len(kinds)
    found = {what for what, *_ in expected}
    assert found == {f"{how} {number}" for how, number in kinds}


def _two(a: Any) -> Any:
    x, y = (
        (_of(a).createDataFrame(pa.table({"k": [0, 1, 1, None], "w": ["zero", "one", "uno", "none"]}))).withColumn(
            "k", F.col("k").cast("int")
        ),
        _of(a).range(3).withColumnRenamed("id", "l"),
    )
    return a.join(x, "k", "left").join(y, "l").join(x.select("w", F.col("k").alias("k2")), "w", "left_semi")


def _named_by_the_static_side(a: Any) -> Any:
    """What stays in Spark behind the join still knows the static side's columns."""
    x = _of(a).createDataFrame(pa.table({"k": pa.array([0, 1, 1], pa.int32()), "s": ["zero", "one", "uno"]}))
    made = a.join(x, a["k"] == x["k"], "left").where(a["id"] > 3).withColumn("m", F.soundex(x["s"]))
    return made.select("id", F.concat_ws("-", a["s"], x["s"], F.soundex(a["s"]), "m"), x["k"])


def _hidden(a: Any) -> Any:
    """The second join asks for a column that Spark hides behind the first."""
    x = _of(a).createDataFrame(pa.table({"k": pa.array([0, 1, 1], pa.int32()), "w": ["zero", "one", "uno"]}))
    y = _of(a).createDataFrame(pa.table({"z": pa.array([1, 2], pa.int32())}))
    return a.join(x, "k", "left").join(y, x["k"] == y["z"]).select("id", "k", "w", "z")


def _widened(a: Any) -> Any:
    """Keys that a row in control could have, a filter, a computed key."""
    x = _of(a).sql("select * from values (2, 'two'), (9, 'nine'), (9, 'neun') as t(two, word)")
    return a.withColumn("two", F.lit(2)).fillna(9).join(x, "two").where("id % 2 = 0").select("id", "two", "word", "k")


KINDS: list[Callable[[Any], Any]] = [_two, _named_by_the_static_side, _hidden, _widened]


@pytest.mark.soak
def test_what_is_behind_such_joins_has_the_columns_that_it_has_in_spark(
    spark: SparkSession,
    ckpt: Any,
    new_input: Callable[[str, str], Input],
    job: Job,
    places: Callable[[Any], list[StaticPlace]],
    done_in_python: list[str],
) -> None:
    data, chosen = new_input("in", STREAM), random.Random(5)
    for start in (0, 20):
        data.add(*_drawn(chosen, start, 20))

    def all_(df: Any) -> Any:
        made = [(kind.__name__, kind(with_rows_in_python(df))) for kind in KINDS]
        rows = [some.select(F.lit(name).alias("what"), F.to_json(F.struct("*")).alias("row")) for name, some in made]
        return reduce(lambda one, two: one.union(two), rows)

    expected = ordered(map(tuple, all_(data.table(spark)).collect()))
    assert {what for what, *_ in expected} == {kind.__name__ for kind in KINDS}
    stream = data.stream(ckpt)
    assert [in_python(places(kind(stream))) for kind in KINDS] == [True] * len(KINDS)
    job.run(all_(stream))
    assert done_in_python == ["JoinStatic"] * 6
    assert job.rows() == expected


def test_what_never_changes_is_local_data_whose_columns_go_by_itself_alone(spark: SparkSession) -> None:
    local = spark.createDataFrame(pa.table({"k": ["a", "b"], "n": [1, 2]}))
    for same in (local, F.broadcast(local), spark.range(5), local.groupBy("k").agg(F.sum("n")), local.where("n > 1")):
        assert static_side.never_changes(same)
    assert not static_side.never_changes(spark.createDataFrame([("a", 1)], "k string, n int"))
    for column in (
        F.rand(), F.current_timestamp(), F.now(), F.localtimestamp(), F.unix_timestamp(),
        F.udf(lambda n: n, "long")("n"),
        F.expr("(select max(id) from range(3))"), F.current_database(),
    ):  # fmt: skip
        assert not static_side.never_changes(local.withColumn("x", column))
