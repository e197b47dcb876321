"""DDL schema strings are read as Spark reads them."""

from __future__ import annotations

import pytest
from pyspark.sql import types

from spark_ckpt.errors import ConfigError
from spark_ckpt.sources.ddl import parse_ddl


def test_simple_types_by_any_of_their_names() -> None:
    schema = parse_ddl("a bigint, b LONG, c: double, d timestamp_ntz, e boolean, f binary, g date")
    assert [f.dataType for f in schema] == [
        types.LongType(),
        types.LongType(),
        types.DoubleType(),
        types.TimestampNTZType(),
        types.BooleanType(),
        types.BinaryType(),
        types.DateType(),
    ]


def test_types_with_parameters() -> None:
    schema = parse_ddl("a decimal, b decimal(12, 3), c varchar(5), d char(2)")
    assert [f.dataType for f in schema] == [
        types.DecimalType(10, 0),
        types.DecimalType(12, 3),
        types.VarcharType(5),
        types.CharType(2),
    ]


def test_nested_types() -> None:
    schema = parse_ddl("a array<map<string, struct<x: int, y: array<double>>>>, b struct<>")
    inner = types.StructType().add("x", "integer").add("y", types.ArrayType(types.DoubleType()))
    assert schema["a"].dataType == types.ArrayType(types.MapType(types.StringType(), inner))
    assert schema["b"].dataType == types.StructType()


def test_quoted_names_not_null_and_comments() -> None:
    schema = parse_ddl("`a b` int NOT NULL COMMENT 'one, two', `c``d` string")
    assert schema == types.StructType(
        [
            types.StructField("a b", types.IntegerType(), False, {"comment": "one, two"}),
            types.StructField("c`d", types.StringType()),
        ]
    )


def test_a_struct_type_is_a_schema() -> None:
    assert parse_ddl("struct<a: int, b: string>") == parse_ddl("a int, b string")


@pytest.mark.parametrize(
    "ddl", ["a", "a int b", "a int,, b int", "a array<int", "a nonsense", "a decimal(1", "'a' int"]
)
def test_what_is_not_a_schema_is_shown(ddl: str) -> None:
    with pytest.raises(ConfigError, match="cannot read the source's schema"):
        parse_ddl(ddl)
