"""Aggregates over nasty values, cut into tasks, batches and restarts, against plain Spark's result of the same rows."""

from __future__ import annotations

import io
import itertools
import math
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt import agg
from spark_ckpt.agg import AggSpec
from spark_ckpt.errors import InvalidInputError
from spark_ckpt.state.aggregates.function import AggregateFunction
from spark_ckpt.state.aggregates.kinds import Rules
from tests.spark.conftest import Input, Job
from tests.state.aggregates_harness import Operator

LONG = 2**63 - 1
NINES = Decimal("9" * 38)
FLOATS = [0.0, -0.0, 1.0, 0.1, -0.1, 1e9, 1e9 + 4, 1e-300, 1e15 + 0.5, math.nan, math.inf, -math.inf, 1e200, -1e200]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "double": (pa.float64(), FLOATS),
    "float": (pa.float32(), [0.0, -0.0, 1.5, -2.25, 16777216.0, 3e38, math.nan, math.inf]),
    "bigint": (pa.int64(), [0, 1, -1, 5, 2**53 + 1, LONG, -LONG - 1, LONG - 1, 2**62]),
    "tinyint": (pa.int8(), [0, -128, 127, 1]),
    "decimal(38,0)": (
        pa.decimal128(38, 0),
        [NINES, Decimal("-" + "9" * 38), Decimal(10) ** 33, Decimal(0), Decimal(1), Decimal(-7)],
    ),
    "decimal(38,38)": (pa.decimal128(38, 38), [Decimal("0.5"), Decimal("-0.99"), Decimal(0), Decimal(1).scaleb(-38)]),
    "decimal(12,3)": (pa.decimal128(12, 3), [Decimal("999999999.999"), Decimal("-0.001"), Decimal(0), Decimal("2.5")]),
    "interval day to second": (pa.duration("us"), [0, 1, -1, 86_400_000_000, LONG, -LONG]),
}
CHOSEN = (
    "n",
    "known",
    "low",
    "high",
    "first",
    "last",
    "first_known",
    "last_known",
    "distinct",
    "items",
    "set",
    "often",
)
SPECS = {
    "n": agg.count(),
    "known": agg.count("v"),
    "low": agg.min("v"),
    "high": agg.max("v"),
    "first": agg.first("v"),
    "last": agg.last("v"),
    "first_known": agg.first("v", ignore_nulls=True),
    "last_known": agg.last("v", ignore_nulls=True),
    "total": agg.sum("v"),
    "average": agg.mean("v"),
    "spread": agg.stddev("v"),
    "distinct": agg.count_distinct("v"),
    "items": AggSpec("collect_list", "v"),
    "set": AggSpec("collect_set", "v"),
    "often": AggSpec("mode", "v"),
    "variance": AggSpec("variance", "v"),
    "var_pop": AggSpec("var_pop", "v"),
    "stddev_pop": AggSpec("stddev_pop", "v"),
    "skewness": AggSpec("skewness", "v"),
    "kurtosis": AggSpec("kurtosis", "v"),
    "product": AggSpec("product", "v"),
    "middle": AggSpec("percentile", "v", {"percentage": 0.5}),
    "shares": AggSpec("percentile", "v", {"percentage": [0.0, 0.3, 0.9]}),
    "ranks": AggSpec("percentile_approx", "v", {"percentage": [0.0, 0.25, 0.5, 1.0], "accuracy": 10_000}),
    "bit_and": AggSpec("bit_and", "v"),
    "bit_or": AggSpec("bit_or", "v"),
    "bit_xor": AggSpec("bit_xor", "v"),
    "once": AggSpec("sum_distinct", "v"),
    "mean_once": AggSpec("mean_distinct", "v"),
    "spread_once": AggSpec("stddev_distinct", "v"),
}
MOMENTS = ("spread", "variance", "var_pop", "stddev_pop", "skewness", "kurtosis", "spread_once")
BITS = ("bit_and", "bit_or", "bit_xor")
ONCE = ("once", "mean_once", "spread_once")
IN_SPARK = {
    "n": "count(1)",
    "known": "count(v)",
    "low": "min(v)",
    "high": "max(v)",
    "first": "first(v)",
    "last": "last(v)",
    "first_known": "first(v, true)",
    "last_known": "last(v, true)",
    "total": "sum(v)",
    "average": "avg(v)",
    "spread": "stddev(v)",
    "distinct": "count(distinct v)",
    "items": "collect_list(v)",
    "set": "sort_array(collect_set(v))",
    "often": "mode(v, true)",
    "variance": "variance(v)",
    "middle": "median(v)",
    "shares": "percentile(v, array(0.0, 0.3, 0.9))",
    "ranks": "percentile_approx(v, array(0.0, 0.25, 0.5, 1.0))",
    **{name: f"{name}(v)" for name in ("var_pop", "stddev_pop", "skewness", "kurtosis", *BITS)},
    "once": "sum(distinct v)",
    "mean_once": "avg(distinct v)",
    "spread_once": "stddev(distinct v)",
}


def cases(kind: str, ansi: bool, count: int) -> list[list[Any]]:
    """Every pair of nasty values, then random rows; with ANSI mode only those whose sums stay within their type."""
    rng, values = random.Random(kind), VALUES[kind][1]
    made = [list(pair) for pair in itertools.product([*values, None], repeat=2)]
    made += [[v] * n for v in values for n in (1, 3, 10)]
    made += [rng.choices([*rng.sample(values, 3), None], k=rng.randint(1, 12)) for _ in range(count)]
    if kind == "double":
        made += [[1e9 + rng.randint(0, 9) for _ in range(8)] for _ in range(count)]
    return [case for case in made if _steady(kind, case, ansi)]


def _steady(kind: str, case: list[Any], ansi: bool) -> bool:
    """Whether Spark's result does not depend on how rows are spread over tasks; in ANSI mode, that nothing overflows.

    Not so where a part of the rows overflows and all of them together do not.
    """
    if kind not in ("bigint", "decimal(38,0)", "decimal(38,38)") or (kind == "bigint" and not ansi):
        return True
    known = [Fraction(v) for v in case if v is not None]
    limit = LONG if kind == "bigint" else Fraction(NINES) / (10**38 if kind == "decimal(38,38)" else 1)
    pieces = [sum(known[i:j]) for i in range(len(known)) for j in range(i + 1, len(known) + 1)]
    if ansi and kind == "decimal(38,0)":
        limit = Fraction(10**34) - 1  # the mean has four more digits
    if all(abs(piece) <= limit for piece in pieces):
        return True
    return not ansi and (all(v >= 0 for v in known) or all(v <= 0 for v in known))


def in_spark(
    spark: SparkSession, kind: str, rows: list[list[Any]], names: list[str], ansi: bool
) -> list[dict[str, Any]]:
    """One row a case, from one partition, so that rows have an order."""
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    # With more keys, Spark sorts the rows by key, and those of a key come in any order.
    spark.conf.set("spark.sql.objectHashAggregate.sortBased.fallbackThreshold", "1000000")
    try:
        table = pa.table(
            {
                "k": pa.array([i for i, case in enumerate(rows) for _ in case], pa.int64()),
                "v": pa.array([v for case in rows for v in case], VALUES[kind][0]),
            }
        )
        grouped = spark.createDataFrame(table).coalesce(1).groupBy("k")
        found = []
        apart = [n for n in names if n in ("distinct", *ONCE)]  # with one, rows have another order in Spark
        for some in ([n for n in names if n not in apart], apart):
            columns = [F.product("v") if name == "product" else F.expr(IN_SPARK[name]) for name in some]
            made = grouped.agg(*[c.alias(name) for c, name in zip(columns, some, strict=True)])
            found.append(made.toArrow().to_pylist())
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.conf.unset("spark.sql.objectHashAggregate.sortBased.fallbackThreshold")
    ordered = [sorted(rows, key=lambda row: int(row["k"])) for rows in found]
    return [{**a, **b} for a, b in zip(*ordered, strict=True)]


def in_batches(function: AggregateFunction, rows: list[list[Any]], type_: pa.DataType) -> list[dict[str, Any]]:
    """The last word on each case, its rows cut at random into tasks and batches; state passes through Parquet."""
    rng, operator = random.Random(len(rows)), Operator(function)
    last: dict[int, dict[str, Any]] = {}
    left = {i: list(case) for i, case in enumerate(rows)}
    while left:
        tasks = []
        for _ in range(rng.randint(1, 2)):
            taken = {i: [case.pop(0) for _ in range(min(len(case), rng.randint(0, 4)))] for i, case in left.items()}
            pairs = [(i, v) for i, values in taken.items() for v in values]
            tasks.append(
                pa.table(
                    {"k": pa.array([i for i, _ in pairs], pa.int64()), "v": pa.array([v for _, v in pairs], type_)}
                )
            )
        last.update({row["k"]: row for row in operator.batch(*tasks)})
        operator.state = _stored(operator.state, function.state_schema)
        left = {i: case for i, case in left.items() if case}
    return [last[i] for i in sorted(last)]


def _stored(state: dict[str, dict[str, Any]], schema: pa.Schema) -> dict[str, dict[str, Any]]:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(state.values()), schema=schema), file)
    return dict(zip(state, pq.read_table(file).to_pylist(), strict=True))


def same(name: str, a: Any, b: Any, case: list[Any]) -> bool:
    if name == "ranks" and any(isinstance(v, float) and math.isnan(v) for v in case):
        return True  # Spark's sketch gives NaN, or what was there before it, in any order
    if name in ("set", "shares", "ranks") and isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(f"each of {name}", x, y, case) for x, y in zip(a, b, strict=True))
    if name == "items":
        return repr(a) == repr(b)
    if name == "each of ranks" and not isinstance(a, float):
        return math.isclose(a, b, rel_tol=1e-15)  # Spark takes all numbers through double
    known = [abs(float(v)) for v in case if v is not None and math.isfinite(v)]
    size, rows = max(known, default=0.0), len(case)
    if (name in MOMENTS and size > (1e150 if name == "spread" else 1e70)) or (name == "product" and size > 1e100):
        return True  # powers leave the range of double: Spark says inf or nan, as its partial results were merged
    if not (isinstance(a, float) and isinstance(b, float)):
        return type(a) is type(b) and bool(a == b)
    if name not in KEEP_THE_SIGN and (a == b == 0.0 or (math.isfinite(a) and math.isfinite(b))):
        # Sums of doubles depend on the order of additions: near in proportion to what was added.
        power = {"variance": 2, "var_pop": 2}.get(name, 1)
        shape = 1e-6 if name in ("skewness", "kurtosis") else 0.0
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=max(rows * 2.3e-16 * size**power, shape))
    return repr(a) == repr(b)  # -0.0 is another number than 0.0 here


KEEP_THE_SIGN = ("low", "high", "first", "last", "first_known", "last_known")


def names_for(type_: pa.DataType) -> list[str]:
    """Sums of distinct values have no order in Spark: not where that can make them overflow. Ranks pass through double
    in Spark, and out of the range of a wide type."""
    if pa.types.is_duration(type_):
        return list(CHOSEN)
    wide = pa.types.is_int64(type_) or (pa.types.is_decimal(type_) and type_.precision > 20)
    left_out = {*(() if pa.types.is_integer(type_) else BITS), *((*ONCE, "ranks") if wide else ())}
    return [name for name in SPECS if name not in left_out]


WITHOUT_ANSI = {"bigint", "tinyint", "decimal(38,0)"}
"""Types whose results may be too large, for which ANSI's rules count; others without them with the soak tests."""
RULES = [(kind, True) for kind in VALUES]
RULES += [(k, False) if k in WITHOUT_ANSI else pytest.param(k, False, marks=pytest.mark.soak) for k in VALUES]


@pytest.mark.parametrize(("kind", "ansi"), RULES)
def test_nasty_values_give_what_plain_spark_gives(spark: SparkSession, kind: str, ansi: bool) -> None:
    type_ = VALUES[kind][0]
    names = names_for(type_)
    rows = [case for case in cases(kind, ansi, 60) if case]
    schema = pa.schema([("k", pa.int64()), ("v", type_)])
    function = AggregateFunction(
        schema.remove(1), schema, {name: SPECS[name] for name in names}, rules=Rules(ansi=ansi)
    )
    wrong = [
        (name, case, ours[name], theirs[name])
        for case, ours, theirs in zip(
            rows, in_batches(function, rows, type_), in_spark(spark, kind, rows, names, ansi), strict=True
        )
        for name in names
        if not same(name, ours[name], theirs[name], case)
    ]
    assert not wrong, f"{len(wrong)} of {len(rows) * len(names)}: {wrong[:6]}"


PAIRS = {
    "least": "min_by(v, w)",
    "most": "max_by(v, w)",
    "least_of": "min(struct(v, w))",
    "most_of": "max(struct(v, w))",
    **{name: f"{name}(v, w)" for name in ("covar_pop", "covar_samp", "corr")},
    **{f"regr_{name}": f"regr_{name}(w, v)" for name in ("sxx", "syy", "sxy", "slope", "intercept", "r2")},
}
OF_PAIRS = {"least": "min_by", "most": "max_by", "least_of": "min", "most_of": "max"}


def test_pairs_of_nasty_values_give_what_plain_spark_gives(spark: SparkSession) -> None:
    rng, wrong = random.Random(5), []
    for kind in ("double", "tinyint", "decimal(12,3)"):
        type_, values = VALUES[kind]
        pair = pa.struct([("x", type_), ("y", pa.float64())])
        # Of infinities, what Spark says depends on the order of rows: NaN, or an infinity.
        chosen = [v for v in values if not isinstance(v, float) or math.isnan(v) or abs(v) < 1e70]
        rows = [
            [(rng.choice([*chosen, None]), rng.choice([0.0, -0.0, 1.5, 3.0, math.nan, None])) for _ in range(n % 7 + 1)]
            for n in range(80)
        ]
        schema = pa.schema([("k", pa.int64()), ("v", pair)])
        specs = {name: AggSpec(OF_PAIRS.get(name, name), "v") for name in PAIRS}
        as_pairs = [[{"x": v, "y": w} for v, w in case] for case in rows]
        ours = in_batches(AggregateFunction(schema.remove(1), schema, specs), as_pairs, pair)
        flat = [(i, v, w) for i, case in enumerate(rows) for v, w in case]
        columns = [
            pa.array(c, t) for c, t in zip(zip(*flat, strict=True), (pa.int64(), type_, pa.float64()), strict=True)
        ]
        grouped = spark.createDataFrame(pa.table(columns, ["k", "v", "w"])).coalesce(1).groupBy("k")
        spark.conf.set("spark.sql.ansi.enabled", "false")  # with it, corr of equal values ends the query
        try:
            found = grouped.agg(*[F.expr(text).alias(name) for name, text in PAIRS.items()]).toArrow().to_pylist()
        finally:
            spark.conf.unset("spark.sql.ansi.enabled")
        for mine, theirs, case in zip(ours, sorted(found, key=lambda r: int(r["k"])), rows, strict=True):
            wrong += [
                (kind, name, case, mine[name], theirs[name])
                for name in PAIRS
                if not same_pair(name, mine[name], theirs[name], case)
            ]
    assert not wrong, f"{len(wrong)}: {wrong[:6]}"


def same_pair(name: str, a: Any, b: Any, case: list[Any]) -> bool:
    if name.endswith("_of"):
        return repr(list(a.values())) == repr(list(b.values()))
    if name in ("least", "most") or a is None or b is None:
        return repr(a) == repr(b)
    if isinstance(a, float) and math.isfinite(a) and math.isfinite(b):
        size = max([abs(float(v)) for v, w in case if v is not None and math.isfinite(v)], default=0.0)
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-12 * (1 + size) ** (2 if name == "regr_sxx" else 1))
    return repr(a) == repr(b)


@pytest.mark.soak
def test_spark_settings_and_intervals_reach_the_aggregates_of_a_query(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input], job: Job
) -> None:
    data = new_input("in", "k string, v long, d decimal(38,0), t long")
    data.add(("a", LONG, NINES, 5), ("b", 1, Decimal(1), 7))
    data.add(("a", 1, Decimal(1), -5))
    stream = data.stream(ckpt).selectExpr(
        "k", "v", "d", "make_dt_interval(0, 0, 0, t) as i", "make_ym_interval(0, int(t)) as m"
    )
    grouped = stream.drop("m").groupBy("k")
    with pytest.raises(InvalidInputError, match=r"'m'.*interval"):
        stream.groupBy("k").aggregate(low=agg.min("m")).uid("x")
    with pytest.raises(InvalidInputError, match=r"duration.*state table cannot store"):
        grouped.aggregate(all=agg.collect_list("i", max_items=3)).uid("x")
    with pytest.raises(InvalidInputError, match="sum does not support"):
        grouped.aggregate(all=agg.sum("i")).uid("x")
    specs = {"s": agg.sum("v"), "d": agg.sum("d"), "low": agg.min("i"), "last": agg.last("i"), "n": agg.stddev("v")}
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.conf.set("spark.sql.legacy.statisticalAggregate", "true")
    try:
        totals = grouped.aggregate(**specs).uid("totals")
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.conf.unset("spark.sql.legacy.statisticalAggregate")
    query = job.run(totals.selectExpr("k", "s", "d", "cast(low as string) l", "cast(last as string) e", "n"), "k")
    assert query.exception() is None
    (key, total, wide, low, last, _), (other, *rest) = job.rows()
    assert (key, total, wide) == ("a", -LONG - 1, None)
    assert low == last == "INTERVAL '-0 00:00:05' DAY TO SECOND"
    assert (other, rest[0], rest[1], rest[-1]) == ("b", 1, Decimal(1), "NaN")
