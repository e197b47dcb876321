"""Aggregates drawn at random, of nasty values of all types, with FILTER, beside Spark's own stream of the same files.

Sums are of numbers that doubles add exactly, so that nothing depends on an order that Spark leaves open. Wide decimals
are by themselves: beside an aggregate of strings Spark looks for an overflow behind each batch, alone behind each row.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.conftest import Input, Job, batches_of_spark

LONG = 2**63 - 1
WIDE = Decimal("9" * 38)
DAY = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
VALUES: dict[str, tuple[str, list[Any]]] = {
    "t": ("timestamp", []),
    "k": ("string", ["x", "y", None]),
    "i": ("int", [1, 2, 3, -1, 0, 2**31 - 1, -(2**31), None]),
    "l": ("bigint", [1, 2, LONG, -LONG - 1, 5, -3, None]),
    "h": ("smallint", [1, 2, 2**15 - 1, None]),
    "f": ("float", [0.0, -0.0, 1.5, math.nan, None]),
    "d": ("double", [0.0, -0.0, 1.5, math.nan, math.inf, 0.25, None]),
    "c": ("decimal(10,2)", [Decimal("1.25"), Decimal("-3.10"), Decimal("99999999.99"), None]),
    "w": ("decimal(38,0)", [WIDE, WIDE.copy_negate(), Decimal(1), Decimal(7), None]),
    "n": ("int", []),
    "m": ("double", [0.0, 1.5, math.nan, math.inf, -2.25, 1e9, None]),
    "s": ("string", ["a", "b", "", "ä", None]),
    "b": ("boolean", [True, False, None]),
    "q": ("interval day to second", [*(dt.timedelta(*parts) for parts in ((1,), (0, 5, 7), (-2, 3), (0,))), None]),
}
INTERVALS = ("q", "cast(q as interval hour)", "make_ym_interval(0, h)", "cast(make_ym_interval(h, 0) as interval year)")
NESTED = (
    "array(i, h)",
    "array(s, k)",
    "struct(array(m), b)",
    "array(struct(s, c), null)",
    "array(q)",
    "struct(make_ym_interval(0, h))",
)
ALL = (*"ilhfdcwsb", *INTERVALS)
COUNTED = (*"ilhcm", *INTERVALS)
"""Without -0.0, which Spark's percentiles tell from 0.0."""
NUMBERS = ("i", "h", "f", "d", "c")
"""Whose sums stay in their types, and are exact."""
DRAWN = {
    "sum": (*NUMBERS, *INTERVALS),
    "avg": (*NUMBERS, *INTERVALS),
    "min": ALL,
    "max": ALL,
    "count": ALL,
    "try_sum": (*"ilhfdc", *INTERVALS, "make_ym_interval(0, i)"),
    "try_avg": (*NUMBERS, *INTERVALS, "make_ym_interval(0, i)"),
    "array_sort(collect_list({}){filter})": (*"ilhcwsbm", *INTERVALS, *NESTED),
    "array_sort(collect_set({}){filter})": (*"ilhcwsbm", *INTERVALS, *NESTED),
    "approx_count_distinct": (*"ilhcwsbm", *INTERVALS, *NESTED, "map(coalesce(h, 0), array(q))"),
    **dict.fromkeys(("first({})", "last({})", "any_value({})", "first({}, true)", "last({}, true)"), ALL),
    "min_by({}, if(n % 5 = 0, null, n), 3)": ALL,
    "max_by({}, struct(l, n), 4)": ALL,
    "md5(bitmap_construct_agg(bitmap_bit_position({})){filter})": tuple("ihn"),
    "md5(bitmap_or_agg(encode({}, 'utf-8')){filter})": tuple("sk"),
    "md5(bitmap_and_agg(encode(repeat({}, 3000), 'utf-8')){filter})": tuple("sk"),
    "mode({}, true)": (*"ilhcwsbm", *INTERVALS, *NESTED),
    "mode() within group (order by {} desc)": (*"ilhcwsbm", *INTERVALS, *NESTED),
    "percentile({}, 0.3, abs(h))": COUNTED,
    "percentile({}, array(0.0, 0.25, 1.0), n % 3)": COUNTED,
    "percentile_cont(0.4) within group (order by {} desc)": COUNTED,
    "percentile_cont(array(0.9, 0.35)) within group (order by {})": COUNTED,
    "percentile_disc(0.4) within group (order by {} desc)": COUNTED,
    "percentile_disc(array(0.0, 0.25, 0.5, 0.77, 1.0)) within group (order by {})": COUNTED,
}
"""Function -> the columns that it is drawn for; one with ``{}`` is a text around the column, and has FILTER at its end
unless it says where."""
FILTERS = ("b", "i > 1", "s is null", "i > 5 and k = 'x'")
"""The last one leaves out all rows of most groups."""
OF_ARRIVAL = ("first", "last", "any_value")
"""Not drawn for sessions, whose rows Spark sorts by time."""

OF_WIDE = ("try_sum(w)", "try_avg(w)", "try_sum(w) filter (where b)", "try_sum(l)", "try_avg(w * 0 + 1) + try_sum(h)")


def expressions(rng: random.Random, count: int, mode: str) -> list[str]:
    """Each function once, then again, as far as ``count`` goes."""
    names = [name for name in sorted(DRAWN) if mode != "session" or not name.startswith(OF_ARRIVAL)]
    drawn = [*rng.sample(names, min(count, len(names))), *rng.choices(names, k=max(0, count - len(names)))]
    return [_drawn(rng, name) for name in drawn]


def _drawn(rng: random.Random, name: str) -> str:
    form = name if "{}" in name else f"{name}({{}})"
    form = form if "{filter}" in form else f"{form}{{filter}}"
    only = f" filter (where {rng.choice(FILTERS)})" if rng.random() < 0.4 else ""
    return form.format(rng.choice(DRAWN[name]), filter=only)


def rows(rng: random.Random, batch: int, count: int) -> list[tuple[Any, ...]]:
    """A minute a batch, and some seconds of chance."""
    times = [DAY + dt.timedelta(minutes=batch, seconds=rng.randint(0, 59)) for _ in range(count)]
    places = itertools.count(batch * count)
    return [
        (time, *(rng.choice(values) if values else next(places) for _, values in list(VALUES.values())[1:]))
        for time in times
    ]


def grouped(df: Any, mode: str) -> Any:
    if mode == "session":
        return df.withWatermark("t", "20 seconds").groupBy("k", F.session_window("t", "9 seconds"))
    if mode == "ended":
        return df.withWatermark("t", "10 seconds").groupBy("k", F.window("t", "1 minute"))
    if mode == "window":
        return df.withWatermark("t", "1 minute").groupBy("k", F.window("t", "2 minutes", "1 minute"))
    return df.groupBy("k")


OUTPUT = {"session": "append", "window": "update", "ended": "append", "update": "update", "complete": "complete"}


def plain(value: Any) -> Any:
    """One form for Spark's values and for ours, in which -0.0 is not 0.0."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.timezone.utc).isoformat()
    if value != value or value == "NaN":
        return "NaN"
    return repr(bytes(value) if isinstance(value, bytearray) else value)


def wrong(texts: list[str], ours: list[Any], theirs: list[Any]) -> list[Any]:
    """Expressions, and what came of them for each row's keys; the keys themselves, where rows are others."""
    keys = len(theirs[0]) - len(texts)
    pairs = [[[plain(value) for value in row] for row in found] for found in (ours, theirs)]
    of_keys = [sorted(str(row[:keys]) for row in found) for found in pairs]
    if of_keys[0] != of_keys[1]:
        return [("keys", *of_keys)]
    columns = [
        [sorted(str([*row[:keys], row[i + keys]]) for row in found) for found in pairs] for i in range(len(texts))
    ]
    return [
        (text, [a for a in mine if a not in spark], [a for a in spark if a not in mine])
        for text, (mine, spark) in zip(texts, columns, strict=True)
        if mine != spark
    ]


def short_form(df: Any, texts: list[str]) -> Any:
    """Times, sessions and intervals as columns that both bring to Python alike."""
    keys = df.columns[: -len(texts)]
    flat = [
        F.col(k)
        if k == "k"
        else F.struct(*[F.col(f"{k}.{e}").cast("string").alias(e) for e in ("start", "end")]).alias("at")
        for k in keys
    ]
    intervals = {f.name for f in df.schema.fields if "interval" in f.dataType.simpleString()}
    return df.select(*flat, *[F.col(c).cast("string") if c in intervals else F.col(c) for c in df.columns[len(keys) :]])


def moved(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Options of a start that restores into an empty location, in a session with another number of partitions."""
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    return {"checkpointLocation": str(folder)}


@pytest.mark.parametrize(
    ("mode", "seed", "count"),
    [
        ("update", 1, 8),
        pytest.param("session", 2, 5, marks=pytest.mark.soak),
        pytest.param("update", 0, 0, marks=pytest.mark.soak),
        *[
            pytest.param(mode, seed, 24, marks=pytest.mark.soak)
            for seed in range(3, 9)
            for mode in ("update", "session", "window", "ended", "complete")
        ],
    ],
)
@pytest.mark.soak
def test_aggregates_are_those_of_sparks_stream(
    spark: SparkSession,
    ckpt: Any,
    job: Job,
    new_input: Callable[[str, str], Input],
    tmp_path: Path,
    mode: str,
    seed: int,
    count: int,
) -> None:
    """Both are stopped in the middle, and go on; ours from an empty location where the seed is even."""
    rng = random.Random(seed)
    texts = expressions(rng, count, mode) if seed else list(OF_WIDE)
    data = new_input("in", ", ".join(f"{name} {kind}" for name, (kind, _) in VALUES.items()))

    def result(df: Any) -> Any:
        return grouped(df, mode).agg(*[F.expr(text).alias(f"r{i}") for i, text in enumerate(texts)])

    ours, theirs = result(data.stream(ckpt)), result(data.spark_stream(spark))
    assert [(f.name, f.dataType) for f in ours.schema] == [(f.name, f.dataType) for f in theirs.schema], texts
    expected: list[Any] = []
    try:
        for part in range(2):
            for batch in range(2):
                data.add(*rows(rng, 2 * part + batch, 30))
            batches = batches_of_spark(short_form(theirs, texts), tmp_path / "spark", OUTPUT[mode])
            options = moved(spark, tmp_path / "elsewhere") if part and seed % 2 == 0 else {}
            assert job.run(short_form(ours, texts), mode=OUTPUT[mode], **options).exception() is None
            expected = batches[-1] if mode == "complete" else [*expected, *(row for rows in batches for row in rows)]
            found = wrong(texts, job.rows(), expected)
            assert not found, f"{len(found)} of {len(texts)} in part {part}: {found[:3]}"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
