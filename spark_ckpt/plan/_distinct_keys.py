"""Columns that are no keys here, as a text that two values share if and only if Spark takes them for equal. Driver.

State is found by flat columns. So arrays, structs and intervals are written down: each value with its end or length,
so that no two read alike; nulls, the sign of a zero and NaN as in Spark's grouping.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError

_NULL = "n"


def as_text(method: str, name: str, column: Column, kind: T.DataType) -> Column:
    """``column``, which is called ``name``, as such a text.

    Raises ``InvalidInputError`` for what cannot be compared: maps, variants, and strings with a collation.
    """
    _check(method, name, kind)
    return _text(column, kind)


def _text(value: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.StructType):
        fields = [_text(value.getField(f.name), f.dataType) for f in kind.fields]
        return F.when(value.isNull(), _NULL).otherwise(F.concat(F.lit("("), *fields, F.lit(")")))
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        items = F.array_join(F.transform(value, lambda x: _text(x, element)), "")
        whole = F.concat(F.size(value).cast("string"), F.lit("["), items, F.lit("]"))
    elif isinstance(kind, T.StringType):
        whole = F.concat(F.length(value).cast("string"), F.lit(":"), value)
    else:
        whole = F.concat(_plain(value, kind), F.lit(";"))
    return F.coalesce(whole, F.lit(_NULL))


def _plain(value: Column, kind: T.DataType) -> Column:
    """A text without a semicolon."""
    if isinstance(kind, T.BinaryType):
        return F.hex(value)
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(value).cast("string")  # a local time names two instants in autumn
    if isinstance(kind, T.FloatType | T.DoubleType):
        return (value + F.lit(0.0).cast(kind)).cast("string")
    return value.cast("string")


def _check(method: str, name: str, kind: T.DataType) -> None:
    if isinstance(kind, T.ArrayType):
        return _check(method, name, kind.elementType)
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            _check(method, name, field.dataType)
        return None
    collated = isinstance(kind, T.StringType) and not kind.isUTF8BinaryCollation()
    if collated or isinstance(kind, T.MapType | T.VariantType | T.CalendarIntervalType | T.UserDefinedType):
        others = "" if method == "join" else "name the columns to compare, dropDuplicates([...]), or "
        raise InvalidInputError(
            f"{method} cannot compare column {name!r}, which is or holds a {kind.simpleString()}: {others}make one "
            f"that can be compared in front of it, {_way(name, kind)}"
        )
    return None


def _way(name: str, kind: T.DataType) -> str:
    if isinstance(kind, T.MapType):
        return f'withColumn("entries", F.array_sort(F.map_entries("{name}")))'
    text = "string collate UTF8_BINARY" if isinstance(kind, T.StringType) else "string"
    return f'withColumn("text", F.col("{name}").cast("{text}"))'
