"""What would come out as something else is refused before it starts, by the column's name and type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_ckpt.errors import ControlColumnsError, InvalidInputError
from tests.spark.conftest import Input


def variant() -> Any:
    return F.parse_json("s").alias("v")


def nothing() -> Any:
    return F.expr("from_json('{}', 'struct<>')").alias("nothing")


def vector() -> Any:
    return F.udf(lambda k: Vectors.dense([float(k)]), VectorUDT())("k").alias("features")


def lower() -> Any:
    return F.expr("s collate UTF8_LCASE").alias("s")


KEPT: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a variant beside keys": (lambda df: df.select("k", variant()).dropDuplicates(["k"]), "'v' has type variant"),
    "one inside of a value": (
        lambda df: df.groupBy("k").agg(F.first(F.array(variant()))),
        "array<variant>.*parse_json",
    ),
    "one in a join": (lambda df: df.select("k", variant()).join(df.select("k", "s"), "k"), "'v' .*F.to_json in front"),
    "the greatest text of a collation": (
        lambda df: df.select("k", lower()).groupBy("k").agg(F.max("s")),
        "UTF8_BINARY",
    ),
    "texts of a collation beside keys": (
        lambda df: df.select("k", F.struct(lower()).alias("st")).dropDuplicates(["k"]),
        "'st' has type .*has no collations",
    ),
    "a variant in pandas": (
        lambda df: df.select("k", variant()).mapInPandas(lambda frames: frames, "k int"),
        "'v' has type variant, which mapInPandas cannot take",
    ),
    "a variant out of pandas": (
        lambda df: df.mapInPandas(lambda frames: frames, "k int, a array<variant>"),
        "'a' has type array<variant>, which mapInPandas cannot take or give",
    ),
    "a value named as what rows are given": (
        lambda df: df.withColumnRenamed("s", "_key_hash").groupBy("k").agg(F.max("_key_hash")),
        "a column is named '_key_hash'",
    ),
    "structs without fields in a list": (
        lambda df: df.select("k", nothing()).groupBy("k").agg(F.collect_list("nothing")),
        "'nothing' has type struct<>.*without fields.*F.to_json",
    ),
    "the first of them": (
        lambda df: df.select("k", nothing()).groupBy("k").agg(F.first("nothing")),
        "'nothing' has type",
    ),
    "one beside keys": (lambda df: df.select("k", F.array(nothing()).alias("a")).dropDuplicates(["k"]), "'a' has type"),
    "one in a stream's side of a join": (
        lambda df: df.select("k", nothing()).join(df.select("k", "s"), "k"),
        "'nothing' has type struct<>",
    ),
    "a vector beside keys": (
        lambda df: df.select("k", vector()).dropDuplicates(["k"]),
        "'features' has type .*user-defined.*vector_to_array",
    ),
    "months": (
        lambda df: df.select("k", F.expr("make_ym_interval(k, 2)").alias("m")).dropDuplicates(["k"]),
        "'m' has type interval year to month.*its months",
    ),
}


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    import spark_ckpt

    folder = tmp_path_factory.mktemp("refused")
    spark.conf.set("spark.ckpt.dir", str(folder / "jobs"))
    return Input(folder / "in", "k int, s string").stream(spark_ckpt.enable(spark))


@pytest.mark.parametrize(("made", "said"), KEPT.values(), ids=KEPT.keys())
def test_what_python_cannot_keep(ckpt: Any, stream: Any, made: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        ckpt.check(made(stream), "update")


def test_what_no_sink_can_hold(ckpt: Any, stream: Any) -> None:
    for text in ("make_interval(0, k)", "map()", "array()", "array(make_ym_interval(k, 2))"):
        with pytest.raises(InvalidInputError, match=r"column 'no' has type .*, which no sink can hold"):
            ckpt.check(stream.select(F.expr(text).alias("no")))


def test_what_no_sink_can_hold_of_users_own_types(ckpt: Any, stream: Any) -> None:
    for column in (vector(), F.array(vector()).alias("features")):
        with pytest.raises(InvalidInputError, match=r"column 'features' has type .*user-defined.*vector_to_array"):
            ckpt.check(stream.select(column))


def test_a_join_by_texts_of_a_collation_names_the_column(ckpt: Any, stream: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"join cannot compare column 's', which .*UTF8_LCASE: make one that"):
        ckpt.check(stream.select("k", lower()).join(stream.select(F.col("k").alias("k2"), lower()), "s"))


def test_columns_that_are_called_as_those_of_the_barriers(ckpt: Any, stream: Any, spark: SparkSession) -> None:
    table = spark.range(1).selectExpr("int(id) AS k", "1 AS __ckpt_tag")
    for made in (
        stream.withColumn("__ckpt_tag", F.lit(0)),
        stream.withColumnRenamed("k", "__CKPT_CTL").select("s"),
        stream.join(table, "k").select("s"),
    ):
        with pytest.raises(ControlColumnsError, match="names that begin with __ckpt_ are reserved for the barriers"):
            ckpt.check(made)


def test_a_reader_has_no_texts_of_a_length(ckpt: Any, tmp_path: Path) -> None:
    for kind in ("char(3)", "array<varchar(3)>"):
        with pytest.raises(InvalidInputError, match=r"UNSUPPORTED_CHAR_OR_VARCHAR_AS_STRING.*'s' has type"):
            ckpt.readStream.schema(f"s {kind}").parquet(str(tmp_path))
