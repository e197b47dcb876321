"""Sub-queries over static DataFrames in expressions of a stream, and lateral joins, beside Spark's own streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from tests.spark.conftest import Input, Job, ordered, rows_of_spark

SCHEMA = "id long, k string, v int"
BATCHES: list[list[tuple[Any, ...]]] = [
    [(1, "a", 1), (2, "b", 5), (3, None, 4), (4, "c", None)],
    [],
    [(5, "a", 9), (6, "b", 0), (7, "d", 2), (8, None, None)],
]


def _static(df: Any) -> Any:
    return df.sparkSession.createDataFrame([("a", 1), ("a", 3), ("b", 2), ("z", 7), (None, 6)], "k string, n int")


def _in(a: Any) -> Any:
    return a.where(F.col("k").isin(_static(a).select("k"))).select("id", "k")


def _not_in(a: Any) -> Any:
    x = _static(a).where("k is not null and n > 1")
    return a.where(~F.col("k").isin(x.select("k")) & (F.col("v") < 9)).select("id", "v")


def _not_in_nulls(a: Any) -> Any:
    return a.where(~F.col("k").isin(_static(a).select("k")) | (F.col("v") > 4)).select("id", "k")


def _not_in_nothing(a: Any) -> Any:
    return a.where(~F.col("k").isin(_static(a).where("n > 99").select("k"))).select("id", "k")


def _both_in(a: Any) -> Any:
    return a.where(F.struct("k", "v").isin(_static(a).select("k", "n"))).select("id", "k")


def _exists(a: Any) -> Any:
    x = _static(a).alias("x")
    return a.alias("a").where(x.where(F.col("x.k") == F.col("a.k").outer()).exists()).select("id", "a.k")


def _not_exists(a: Any) -> Any:
    x = _static(a).toDF("other", "n")
    found = x.where((F.col("other") == F.col("k").outer()) & (F.col("n") > F.col("v").outer()))
    return a.where(~found.exists() | F.col("k").isNull()).select("id", "k")


def _value(a: Any) -> Any:
    most = _static(a).select(F.max("n")).scalar()
    return a.where(F.col("v") > most - 4).withColumn("most", most).select("id", F.col("most") + F.col("v"))


def _value_of_key(a: Any) -> Any:
    x = _static(a).toDF("other", "n").where(F.col("other") == F.col("k").outer())
    return a.select("id", x.agg(F.sum("n")).scalar().alias("s")).withColumn("s", F.coalesce("s", F.lit(-1)))


def _whether(a: Any) -> Any:
    x = _static(a)
    found = F.col("k").isin(x.select("k"))
    return a.withColumns({"one": found, "other": ~F.col("v").isin(x.select("n"))}).select(
        "id", F.concat("one", "other")
    )


def _text(a: Any) -> Any:
    return a.where("v IN (SELECT * FROM VALUES (1), (2)) OR k NOT IN (SELECT col1 FROM VALUES ('a'), ('c'))").select(
        "id", "k"
    )


def _exploded(a: Any) -> Any:
    elements = F.when(F.col("v").outer() > 1, F.array(F.col("v").outer(), F.lit(3)))
    made = a.lateralJoin(a.sparkSession.tvf.explode(elements).toDF("x"), how="left")
    made = made.lateralJoin(a.sparkSession.tvf.posexplode_outer(F.split(F.col("k").outer(), "")).toDF("p", "c"))
    return made.select("id", F.concat_ws(" ", "x", "p", "c"))


def _all_found(a: Any) -> Any:
    x = _static(a).toDF("other", "n")
    made = a.lateralJoin(x.where((F.col("other") == F.col("k").outer()) | F.col("other").isNull()), how="left")
    return made.select("id", F.concat_ws(" ", "other", F.col("n") + F.col("v")))


def _some_found(a: Any) -> Any:
    x = _static(a).alias("x")
    made = a.alias("a").lateralJoin(x.where(F.col("x.k") == F.col("a.k").outer()), F.col("n") > F.col("v"))
    return made.select("id", F.concat("a.k", "x.n"))


def _found_or_not(a: Any) -> Any:
    x = _static(a).toDF("other", "n").where(F.col("other") == F.col("k").outer())
    return a.lateralJoin(x, F.col("n") > F.col("v"), "left").select("id", F.concat_ws(" ", "other", "n"))


def _numbered(a: Any) -> Any:
    return a.lateralJoin(a.sparkSession.tvf.range(2).toDF("i"), how="cross").select("id", "i")


def _several(a: Any) -> Any:
    x, key = _static(a).toDF("other", "n"), F.col("other") == F.col("k").outer()
    kept = ~F.col("k").isin(x.select("other")) | (F.col("v") < x.select(F.max("n")).scalar()) | F.col("k").isNull()
    total, known = x.where(key).agg(F.sum("n")).scalar(), x.where(key).exists()
    made = a.where(kept).withColumn("found", F.concat_ws(" ", F.coalesce(total, F.lit(-1)), known))
    made = made.lateralJoin(a.sparkSession.tvf.explode(F.array(F.col("v").outer(), F.lit(3))).toDF("x"))
    made = made.lateralJoin(x.where(key).orderBy(F.desc("n")).limit(1).select("n"), how="left")
    return made.select("id", F.concat_ws(" ", "found", "x", "n"))


Form = Callable[[Any], Any]
SOME: tuple[Form, ...] = (_several,)
OTHERS: tuple[Form, ...] = (
    *(_in, _not_in, _not_in_nulls, _not_in_nothing, _both_in, _exists, _not_exists, _value, _value_of_key, _whether),
    *(_text, _exploded, _all_found, _some_found, _found_or_not, _numbered),
)


def together(a: Any, forms: tuple[Form, ...] = SOME) -> Any:
    made = [form(a).toDF("id", "found").withColumn("form", F.lit(form.__name__)) for form in forms]
    return reduce(lambda one, two: one.union(two), [m.withColumn("found", F.col("found").cast("string")) for m in made])


@pytest.mark.parametrize("forms", [pytest.param(forms, marks=pytest.mark.soak) for forms in (SOME, OTHERS)])
def test_rows_are_those_of_spark(
    spark: SparkSession,
    ckpt: Any,
    new_input: Callable[[str, str], Input],
    job: Job,
    tmp_path: Path,
    forms: tuple[Form, ...],
) -> None:
    data = new_input("in", SCHEMA)
    for batches in (BATCHES[:2], BATCHES[2:]):
        for batch in batches:
            data.add(*batch)
        job.run(together(data.stream(ckpt), forms))
    mine, theirs = together(data.stream(ckpt), forms), together(data.spark_stream(spark), forms)
    assert mine.dtypes == theirs.dtypes
    expected = ordered(map(tuple, rows_of_spark(theirs, tmp_path / "plain")))
    assert {form for *_, form in expected} == {form.__name__ for form in forms}
    assert job.rows() == expected


@pytest.mark.soak
def test_what_is_not_in_a_table_is_that_of_spark(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input], job: Job, tmp_path: Path
) -> None:
    def taken_off(a: Any) -> Any:
        return a.select("k", F.col("v") % 4).subtract(_static(a).select("k", F.col("n").cast("bigint")))

    data = new_input("in", SCHEMA)
    for batch in BATCHES:
        data.add(*batch, *BATCHES[0][:3])
        job.run(taken_off(data.stream(ckpt)), mode="update")
    mine, theirs = taken_off(data.stream(ckpt)), taken_off(data.spark_stream(spark))
    assert mine.dtypes == theirs.dtypes
    expected = ordered(map(tuple, rows_of_spark(theirs, tmp_path / "plain", "update")))
    assert (None, 0) in expected
    assert job.rows() == expected
    with pytest.raises(AnalysisException, match="on the right are not supported"):
        ckpt.check(data.stream(ckpt).subtract(data.stream(ckpt)))
    with pytest.raises(AnalysisException, match="NUM_COLUMNS_MISMATCH"):
        data.stream(ckpt).subtract(_static(mine))


class _Words:
    def eval(self, text: str) -> Iterator[tuple[str]]:
        yield from ((word,) for word in text.split())


def test_lateral_joins_that_spark_has_not_are_refused(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input]
) -> None:
    rows = new_input("in", SCHEMA).stream(ckpt)
    elements = spark.tvf.explode(F.array(F.col("v").outer()))
    with pytest.raises(AnalysisException, match="UNSUPPORTED_JOIN_TYPE"):
        rows.lateralJoin(elements, how="semi")
    with pytest.raises(AnalysisException, match="STREAMING_QUERY"):
        ckpt.check(rows.lateralJoin(rows))
    with pytest.raises(AnalysisException, match="STREAMING_QUERY"):
        ckpt.check(rows.lateralJoin(new_input("other", SCHEMA).spark_stream(spark)))
    words = F.udtf(_Words, returnType="word string")
    with pytest.raises(InvalidInputError, match=r"_Words: a Python table function would get control rows"):
        ckpt.check(rows.lateralJoin(words(F.col("k").outer())))
    with pytest.raises(InvalidInputError, match=r"variant_explode: expected explode, .*array<variant>"):
        ckpt.check(rows.lateralJoin(spark.tvf.variant_explode(F.parse_json(F.col("k").outer()))))
    spark.udtf.register("words", words)
    rows.createOrReplaceTempView("lines")
    with pytest.raises(InvalidInputError, match="words: a Python table function would get control rows"):
        ckpt.check(spark.sql("SELECT k, word FROM lines, LATERAL words(k)"))
    spark.catalog.dropTempView("lines")


def test_a_sub_query_over_a_stream_is_refused_as_in_spark(
    spark: SparkSession, ckpt: Any, new_input: Callable[[str, str], Input]
) -> None:
    data = new_input("in", SCHEMA)
    mine, theirs = data.stream(ckpt), data.spark_stream(spark)
    for rows, table in ((theirs, theirs), (mine, theirs), (mine, mine)):
        with pytest.raises(AnalysisException, match="Streaming query is not allowed in subquery"):
            rows.where(F.col("k").isin(table.select("k")))
