"""Packages of others that take a DataFrame, on a checkpointed stream as their documentation uses them.

A stream is PySpark's own DataFrame, so nothing of theirs is imitated. Each program's rows are those that it gives for a
table.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pyspark
import pytest
from pyspark.ml import Pipeline
from pyspark.ml.classification import DecisionTreeClassifier
from pyspark.ml.feature import StringIndexer, VectorAssembler
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

os.environ.setdefault("PANDERA_VALIDATION_DEPTH", "SCHEMA_ONLY")  # its other checks ask for results of the rows

import narwhals as nw
import quinn
from chispa import assert_df_equality
from nestedfunctions.functions.nullify import nullify
from nestedfunctions.functions.whitelist import whitelist
from spark_frame import nested

from tests.spark.conftest import Input, Job

with pytest.MonkeyPatch.context() as patched:
    # It imports pyspark.pandas, which sets this: Spark's own rows of other modules' tests would lose their zones.
    patched.setenv("PYARROW_IGNORE_TIMEZONE", "1")
    import pandera.pyspark as pa

NewInput = Callable[[str, str], Input]
Program = Callable[[DataFrame], DataFrame]
SCHEMA = "id bigint, `Product Name` string, price double, tags array<struct<name: string, weight: int>>, raw string"
ROWS = [
    (1, "a  red   shoe", 10.0, [("new", 1), ("old", 2)], '{"customer": "ann", "age": 30}'),
    (2, "a hat", 25.5, [("new", 3)], '{"customer": "bob", "age": 41}'),
    (3, None, 99.0, [], "no json"),
]


class Orders(pa.DataFrameModel):
    id: T.LongType() = pa.Field(gt=0, nullable=True)  # type: ignore[valid-type]
    price: T.DoubleType() = pa.Field(nullable=True)  # type: ignore[valid-type]


def spark_ml(df: DataFrame) -> DataFrame:
    known = df.sparkSession.createDataFrame(
        [("a", 10.0, 0.0), ("b", 30.0, 1.0), ("a", 99.0, 1.0)], "k string, price double, label double"
    )
    stages = [
        StringIndexer(inputCol="k", outputCol="i"),
        VectorAssembler(inputCols=["i", "price"], outputCol="features"),
        DecisionTreeClassifier(),
    ]
    model = Pipeline(stages=stages).fit(known)
    return model.transform(df.withColumn("k", F.lit("a"))).select("id", "prediction")


def with_quinn(df: DataFrame) -> DataFrame:
    quinn.validate_presence_of_columns(df, ["id", "price"])
    named = df.transform(quinn.snake_case_col_names).withColumn(
        "product_name", quinn.single_space(F.col("product_name"))
    )
    return quinn.sort_columns(named.select("id", "product_name", "price"), "asc")


def with_narwhals(df: DataFrame) -> DataFrame:
    frame = nw.from_native(df)
    made = frame.filter(nw.col("price") > 10).with_columns(cheaper=(nw.col("price") * 0.9).round(2))
    return made.select("id", "cheaper").to_native()


def with_spark_frame(df: DataFrame) -> DataFrame:
    return nested.with_fields(df.select("id", "tags"), {"tags!.weight": lambda tag: tag["weight"] * 10})


def with_sparkdantic(df: DataFrame) -> DataFrame:
    from sparkdantic import SparkModel

    class Customer(SparkModel):
        customer: str | None = None
        age: int | None = None

    parsed = F.from_json("raw", Customer.model_spark_schema())
    return df.select("id", parsed.alias("parsed")).select("id", "parsed.*")


def with_pandera(df: DataFrame) -> DataFrame:
    checked = Orders.validate(check_obj=df.select("id", "price"))
    assert not checked.pandera.errors
    return checked


def with_nested_functions(df: DataFrame) -> DataFrame:
    return whitelist(nullify(df.select("id", "tags"), field="tags.weight"), ["id", "tags.name", "tags.weight"])


PROGRAMS: tuple[Program, ...] = (
    spark_ml, with_quinn, with_narwhals, with_spark_frame, with_pandera, with_nested_functions,
    *(() if pyspark.__version__ >= "4.3" else (with_sparkdantic,)),  # sparkdantic 2.9 takes no PySpark 4.3
)  # fmt: skip


def together(df: DataFrame) -> DataFrame:
    """The rows of all programs, each as a text under the name of its program."""
    made = [program(df) for program in PROGRAMS]
    named = [
        rows.select(F.lit(program.__name__).alias("program"), F.to_json(F.struct("*")).alias("row"))
        for program, rows in zip(PROGRAMS, made, strict=True)
    ]
    whole = named[0]
    for rows in named[1:]:
        whole = whole.unionByName(rows)
    return whole


def test_a_stream_is_taken_by_packages_of_others(spark: SparkSession, ckpt: Any, job: Job, new_input: NewInput) -> None:
    made = new_input("in", SCHEMA)
    made.add(*ROWS)
    job.run(together(made.stream(ckpt)))
    rows = spark.createDataFrame(job.rows(), "program string, row string")
    assert_df_equality(rows, together(spark.createDataFrame(ROWS, SCHEMA)), ignore_row_order=True, ignore_nullable=True)
