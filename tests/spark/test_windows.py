"""Time windows as keys, beside Spark's own streams over the same files: which windows, which rows are late, when what
comes out."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.runtime.windows import TIME, AssignWindows, ShowWindows, TakeStarts, WindowSize, struct_of
from spark_ckpt.types import CTL, TAG
from tests.how_many import some
from tests.spark.conftest import Input, Job, ordered, rows_of_spark

NewInput = Callable[[str, str], Input]
BASE = datetime(2024, 3, 10, 6, 59, tzinfo=timezone.utc)  # New York has a gap in it
DELAY = timedelta(minutes=5)
SCHEMA = "t timestamp, k string, v int"


# --- without Spark --------------------------------------------------------------------------------------------------


def _windows_of(time: int, w: WindowSize) -> list[int]:
    """Their starts, by trying every one near."""
    near = (time - w.start) // w.slide
    starts = [w.start + n * w.slide for n in range(near - w.most - 1, near + 2)]
    return sorted(s for s in starts if s <= time < s + w.size)


SIZES = st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(-50, 50)).filter(lambda s: s[1] <= s[0])


@settings(max_examples=some(100), deadline=None)
@given(st.lists(st.none() | st.integers(-100, 100), max_size=8), SIZES, st.data())
def test_a_row_is_in_each_window_that_holds_its_time_and_a_control_row_passes_once(
    times: list[int | None], size: tuple[int, int, int], data: st.DataObject
) -> None:
    window = WindowSize(*size)
    control = [t is None and data.draw(st.booleans()) for t in times]
    batch = pa.record_batch(
        [
            pa.array(times, pa.int64()).view(TIME),
            pa.array(range(len(times)), pa.int64()),
            pa.array([1] * len(times), pa.int64()),
            pa.array([b"barrier" if c else None for c in control], pa.binary()),
        ],
        names=["t", "row", TAG, CTL],
    )
    (found,) = ShowWindows("start", "window", window.size)(AssignWindows("t", "w", "start", window)(iter([batch])))
    assert found.schema.names == ["t", "row", "w", "window", TAG, CTL]
    assert found.column("w").equals(found.column("window"))
    starts = found.column("window").field("start").cast(pa.int64()).to_pylist()
    missing = found.column("window").is_null().to_pylist()
    rows = found.column("row").to_pylist()
    seen = [(r, None if m else s) for r, s, m in zip(rows, starts, missing, strict=True)]
    kept = [i for i, c in enumerate(control) if c or times[i] is not None]
    assert rows == sorted(rows)
    assert sorted(seen, key=repr) == sorted(
        [(i, s) for i in kept for s in ([None] if control[i] else _windows_of(times[i], window))], key=repr
    )


def test_rows_are_in_the_window_that_they_have_and_in_a_group_of_their_own_without_one() -> None:
    starts = pa.array([30, None, None], pa.int64()).view(TIME)
    names = ["w", "row", TAG, CTL]
    columns = [struct_of(starts.view(pa.int64()), 10), pa.array([1, 2, None]), pa.array([1, 1, 1])]
    batch = pa.record_batch([*columns, pa.array([None, None, b"barrier"], pa.binary())], names=names)
    (found,) = TakeStarts("w", "start")(iter([batch]))
    assert found.schema.names == ["w", "row", "start", TAG, CTL]
    assert found.column("row").to_pylist() == [1, 2, None]
    assert found.column("start").cast(pa.int64()).to_pylist() == [30, None, None]


# --- beside Spark ---------------------------------------------------------------------------------------------------


def _batches(seed: int, batches: int = 6) -> list[list[tuple[Any, ...]]]:
    """Time goes on, with rows far behind and ahead of it, without a time and without a key; some batches are empty. At
    last the watermark reaches the end of a window, or all but reaches it.
    """
    chance, made = random.Random(seed), []
    for number in range(batches):
        now = BASE + timedelta(minutes=7 * number)
        rows: list[tuple[Any, ...]] = []
        for _ in range(chance.choice([0, 1, 3, 6])):
            away = chance.choice([0, 0, 0, -3, 4, -12, -40, 15]) * 60 + chance.randrange(60)
            time = (
                None if chance.random() < 0.1 else now + timedelta(seconds=away, microseconds=chance.choice([0, 500]))
            )
            rows.append((time, chance.choice(["a", "b", None]), chance.choice([1, 5, None])))
        made.append(rows)
    last = BASE.replace(hour=8, minute=0) + DELAY - timedelta(milliseconds=seed % 2)
    return [*made, [(last, "a", 1)]]


def _plain(df: Any, folder: Path, mode: str) -> list[tuple[Any, ...]]:
    """All that Spark's own stream puts out."""
    return ordered(_flat(tuple(row)) for row in rows_of_spark(df, folder, mode))


def _flat(row: Any) -> tuple[Any, ...]:
    """Windows as two times; ours come back as dicts, and with their zone."""
    parts: list[Any] = []
    for value in row:
        inner = (
            list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, tuple) else [value]
        )
        parts += [v.timestamp() if isinstance(v, datetime) else v for v in inner]
    return tuple(parts)


QUERIES: dict[str, Callable[[Any], Any]] = {
    "tumbling": lambda df: df.groupBy(F.window("t", "10 minutes"), "k").agg(F.count("*"), F.sum("v").alias("s")),
    "sliding": lambda df: df.groupBy("k", F.window("t", "10 minutes", "5 minutes").alias("w, of `t`")).agg(
        F.max("v"), F.avg("v")
    ),
    "shifted": lambda df: df.groupBy(F.window("t", "1 hour 30 seconds", "20 minutes", "-90 seconds")).agg(
        (F.sum(F.col("v") * 2) + F.count("v")).alias("x"), F.col("window").start.alias("begin")
    ),
    "called as a column": lambda df: (
        df.withColumn("window_start", F.col("k"))
        .groupBy(F.window("t", "10 minutes").alias("t"), "window_start")
        .agg(F.max("t"), F.count("*").alias("n"))
    ),
    "of windows' times": lambda df: (
        df.groupBy(F.window("t", "5 minutes"))
        .count()
        .groupBy(F.window(F.window_time("window"), "20 minutes", "10 minutes").alias("h"))
        .agg(F.sum("count"))
    ),
    "sliding past its size": lambda df: df.groupBy(F.window("t", "7 minutes", "5 minutes"), "k").count(),
}


CASES = [(query, mode) for query in QUERIES for mode in ("append", "update")]
CASES.remove(("of windows' times", "update"))  # Spark has no such streams
SHORT = [("sliding", "update")]
"""In the test command; the others with the soak tests. Windows of windows in mode append: test_event_time.py."""


@pytest.mark.parametrize(
    ("query", "mode"), [c if c in SHORT else pytest.param(*c, marks=pytest.mark.soak) for c in CASES]
)
def test_windows_come_out_when_and_as_they_do_in_spark(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, query: str, mode: str
) -> None:
    made, delay = new_input("in", SCHEMA), f"{DELAY.seconds} seconds"
    for rows in _batches(CASES.index((query, mode))):
        made.add(*rows)
    theirs = QUERIES[query](made.spark_stream(spark).withWatermark("t", delay))
    ours = QUERIES[query](made.stream(ckpt).withWatermark("t", delay))
    assert [(f.name, f.dataType) for f in ours.schema] == [(f.name, f.dataType) for f in theirs.schema]
    expected = _plain(theirs, tmp_path / "plain", mode)
    assert expected, "nothing to compare"
    job.run(ours, mode=mode)
    assert ordered(map(_flat, job.rows())) == expected


INTERVALS: dict[str, Callable[[Any], Any]] = {
    "m": lambda df: df.groupBy(F.window("t", "10 minutes"), "m").count(),
    "ms": lambda df: df.drop("m", "gap").select(F.window("t", "10 minutes", "5 minutes"), "ms"),
    "gap": lambda df: df.drop("m", "ms").groupBy(F.session_window("t", F.col("gap")), "k").count(),
}


def test_intervals_that_arrow_has_no_types_for_are_refused_in_front_of_windows(ckpt: Any, new_input: NewInput) -> None:
    """Of months, and of months and days."""
    months = {"m": F.make_ym_interval(F.lit(0), "v"), "ms": F.array(F.make_ym_interval("v"))}
    df = new_input("in", SCHEMA).stream(ckpt).withWatermark("t", "1 minute")
    df = df.withColumns({**months, "gap": F.make_interval(mins=F.col("v"))})
    for column, query in INTERVALS.items():
        with pytest.raises(InvalidInputError, match=f"column '{column}' has type .*interval.*, which Arrow has not"):
            ckpt.check(query(df))
    ckpt.check(
        df.withColumn("m", F.col("m").cast("int")).drop("ms", "gap").groupBy(F.window("t", "1 hour"), "m").count()
    )
    ckpt.check(df.rollup("k").agg(F.sum("m").cast("string").alias("n")), "update")
    ckpt.check(df.groupBy(F.window("t", "1 hour"), "k").count())  # which reads none of them


LOCAL: dict[str, Callable[[Any], Any]] = {
    "sliding": lambda df: df.groupBy(F.window("n", "10 minutes", "5 minutes", "90 seconds"), "k").agg(F.max("n")),
    "computed": lambda df: df.groupBy(F.window(F.col("n") - F.expr("interval 1 day"), "7 minutes").alias("w")).count(),
    "a column": lambda df: df.withColumn("w", F.window("n", "1 hour")).groupBy("w").agg(F.sum("v")),
    "its time": lambda df: df.groupBy(F.window("n", "1 hour")).count().select(F.window_time("window"), "count"),
    "beside a watermark": lambda df: df.withWatermark("t", "1 second").groupBy(F.window("n", "1 hour")).count(),
}
QUICK_LOCAL = ("its time",)


@pytest.mark.parametrize("name", [n if n in QUICK_LOCAL else pytest.param(n, marks=pytest.mark.soak) for n in LOCAL])
def test_windows_of_times_without_a_zone_are_those_of_spark(
    spark: SparkSession, ckpt: Any, new_input: NewInput, tmp_path: Path, name: str
) -> None:
    made = new_input("in", SCHEMA)
    for rows in _batches(3):
        made.add(*rows)
    theirs, ours = (
        LOCAL[name](stream.withColumn("n", F.col("t").cast("timestamp_ntz")))
        for stream in (made.spark_stream(spark), made.stream(ckpt))
    )
    assert ours.schema.simpleString() == theirs.schema.simpleString()
    found, expected = (
        ordered(map(tuple, rows_of_spark(df, tmp_path / place, "update")))
        for place, df in (("ours", ours), ("plain", theirs))
    )
    assert expected
    assert found == expected


def test_distinct_values_of_a_window_end_with_it(ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path) -> None:
    """Spark's own streams refuse distinct aggregates."""
    made = new_input("in", SCHEMA)
    made.add((BASE, "a", 1), (BASE, "a", 2), (BASE, "a", 1), (BASE, "b", None))
    made.add((BASE, "a", 2), (BASE, "a", 3), (BASE + timedelta(hours=1), "a", 9))
    rows = made.stream(ckpt).withWatermark("t", "5 minutes").groupBy(F.window("t", "10 minutes"), "k")
    job.run(rows.agg(F.count_distinct("v").alias("n")).uid("w"))
    assert [row[1:] for row in job.rows()] == [("a", 3), ("b", 0)]
    tables = [path.parent for path in (tmp_path / "jobs" / "job" / "state").glob("w.*/_delta_log")]
    values = [QueryBuilder().register("t", DeltaTable(str(t))).execute("SELECT k FROM t").read_all() for t in tables]
    assert [v.num_rows for v in values] == [1], "what is left is of the open window"


def _upper(df: Any) -> Any:
    shown = df.select(F.col("t").alias("u"), F.upper("k").alias("k"), "v").where("k = 'A'")
    return shown.withColumnRenamed("u", "t")


FILTERS: dict[str, Callable[[Any], Any]] = {
    "in front": lambda df: df.where("k = 'a'"),
    "behind one of the time": lambda df: df.where("hour(t) >= 0").alias("x").where("x.k = 'a'"),
    "behind a projection": _upper,
    "of the time": lambda df: df.where(F.col("t") < F.timestamp_micros(F.lit(1_710_060_000_000_000))),
    "of what is computed of the time": lambda df: df.withColumn("h", F.dayofmonth("t")).where("h = 10"),
    "taken apart": lambda df: df.where("hour(t) >= 0 and (k = 'a' and v < 9)"),
    "behind names": lambda df: df.select("k", "t").repartition(2).where("k = 'a'"),
    "behind a union": lambda df: df.where("v = 1").union(df.where("v = 5")).where("k = 'a'"),
    "behind a union and names": lambda df: (
        df.union(df).alias("x").where("x.t is not null").select("k", "v", "t").where("k = 'a'")
    ),
    "of a column that is another one further on": lambda df: (
        df.where("hour(t) * 0 + v < 5").withColumn("v", F.lit(100)).where("k <> 'z'")
    ),
    "taken apart behind not": lambda df: df.where(~((F.col("k") != "a") | F.col("t").isNull())),
    "not taken apart": lambda df: df.where("k = 'a' or t is null"),
    "dropna": lambda df: df.withColumn("w", F.when(F.col("k") == "a", F.col("v"))).dropna(subset=["w", "k"]),
    "dropna of the time, too": lambda df: df.withColumn("w", F.when(F.col("k") == "a", F.col("v"))).dropna(),
    "at random, and not": lambda df: df.where((F.rand() >= 0) & (F.col("k") == "a")),
    "at random": lambda df: df.where(F.rand() >= 0).where("v < 5"),
}
QUICK_FILTERS = ("taken apart",)


FILTERED: list[list[tuple[Any, ...]]] = [
    *([(BASE + timedelta(days=day), key, 1 + 4 * day)] for day, key in ((0, "a"), (1, "b"), (0, "a"), (0, "a"))),
    [(BASE, "a", 1)],
]
"""If the row of the next day counts, those behind it are late."""


def _filtered(df: Any, form: str) -> Any:
    timed = FILTERS[form](df.withWatermark("t", "1 minute"))
    return timed.groupBy(F.window("t", "10 minutes")).agg(F.count("*"))


def _check_watermark(
    new_input: NewInput, spark: SparkSession, ckpt: Any, job: Job, tmp_path: Path, asked: Callable[[Any], Any]
) -> None:
    made = new_input("in", SCHEMA)
    for rows in FILTERED:
        made.add(*rows)
    expected = _plain(asked(made.spark_stream(spark)), tmp_path / "plain", "update")
    assert expected, "nothing to compare"
    job.run(asked(made.stream(ckpt)), mode="update")
    assert ordered(map(_flat, job.rows())) == expected


@pytest.mark.parametrize(
    "form", [f if f in QUICK_FILTERS else pytest.param(f, marks=pytest.mark.soak) for f in FILTERS]
)
def test_what_a_filter_leaves_out_brings_the_watermark_on_where_it_does_in_spark(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, form: str
) -> None:
    """Spark's optimizer puts filters in front of ``withWatermark``, but those that look at the event time."""
    _check_watermark(new_input, spark, ckpt, job, tmp_path, lambda df: _filtered(df, form))


JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "left_semi": lambda df, a: df.join(a, "k", "left_semi"),
    "inner": lambda df, a: df.join(a, "k"),
    "left_anti": lambda df, a: df.join(a.select(F.lit("b").alias("k")), "k", "left_anti"),
    "lateral": lambda df, a: df.lateralJoin(a.where(F.col("k") == F.col("k").outer()).select(F.lit(1).alias("x"))),
}


@pytest.mark.parametrize("how", [h if h == "left_semi" else pytest.param(h, marks=pytest.mark.soak) for h in JOINS])
def test_what_a_join_with_a_table_leaves_out_brings_the_watermark_on_as_in_spark(
    spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput, tmp_path: Path, how: str
) -> None:
    """Also where Spark has the rows ahead of ``withWatermark``, and they would stay there."""
    static = spark.createDataFrame([("a",)], "k string")

    def asked(df: Any) -> Any:
        timed = JOINS[how](df.repartition(2).withWatermark("t", "1 minute"), static)
        return timed.groupBy(F.window("t", "10 minutes")).agg(F.count("*"))

    _check_watermark(new_input, spark, ckpt, job, tmp_path, asked)
