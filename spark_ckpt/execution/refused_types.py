"""Columns of types that would not stay what they are on their way: refused by name. Driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError

_WAYS_TO_KEEP = {
    T.VariantType: "write it down with F.to_json in front of the operator, and read it with F.parse_json behind",
    T.YearMonthIntervalType: "cast it to int, its months, or to string in front of the operator",
}

_WAY_OF_VECTORS = "make it a column of plain types, of a vector pyspark.ml.functions.vector_to_array(...)"


def refuse_unread(schema: T.StructType) -> None:
    """Raises ``InvalidInputError`` for columns that no reader of Spark's has, either."""
    for field in schema.fields:
        if any(isinstance(kind, T.CharType | T.VarcharType) for kind in _types_in(field.dataType)):
            raise InvalidInputError(
                f"[UNSUPPORTED_CHAR_OR_VARCHAR_AS_STRING] The char/varchar type can't be used in the table schema: "
                f"column {field.name!r} has type {field.dataType.simpleString()}; read it as string"
            )


def refuse_unwritable(schema: T.StructType) -> None:
    """Raises ``InvalidInputError`` naming a column of a type that has no Arrow type of its own: a variant would arrive
    in a sink as a struct of bytes, a vector as one of its parts."""
    for field in schema.fields:
        if has_type(field.dataType, T.UserDefinedType):
            raise InvalidInputError(
                f"column {field.name!r} has type {field.dataType.simpleString()}, a user-defined type, which no sink "
                f"can hold; {_WAY_OF_VECTORS}"
            )
        if has_repeated_fields(field.dataType):
            raise InvalidInputError(
                f"column {field.name!r} has type {field.dataType.simpleString()}, in which a field's name comes twice: "
                'no sink can hold that. Give the fields names of their own, F.struct(F.col("k").alias("x"), "k"), or '
                "make it a text, with to_json"
            )
        if any(map(_has_no_arrow_type, _types_in(field.dataType))):
            raise InvalidInputError(
                f"column {field.name!r} has type {field.dataType.simpleString()}, which no sink can hold; make it a "
                "text, with to_json or a cast, or leave it out"
            )


def refuse_unkept(fields: Iterable[T.StructField]) -> None:
    """Raises ``InvalidInputError`` naming a column that a keyed operator would not give back as what it is.

    A variant would come out as a struct of bytes, and a text without its collation: whatever compares it, in the
    operator or behind it, would find other rows.
    """
    for field in fields:
        if has_repeated_fields(field.dataType):
            way = 'give each a name of its own, F.struct(F.col("k").alias("x"), "k")'
            raise InvalidInputError(_unkept(field, "as a field's name comes twice in it", way))
        for kind in _types_in(field.dataType):
            if isinstance(kind, T.StructType) and not kind.fields:
                way = "leave it out, or make it a text with F.to_json, in front of the operator"
                raise InvalidInputError(_unkept(field, "as a struct without fields is no column of state", way))
            if isinstance(kind, T.UserDefinedType):
                raise InvalidInputError(_unkept(field, "as state has no user-defined types", _WAY_OF_VECTORS))
            if _has_no_arrow_type(kind):
                way = _WAYS_TO_KEEP.get(type(kind), "cast it to string in front of the operator")
                raise InvalidInputError(_unkept(field, "as Arrow has no such type", way))
            if isinstance(kind, T.StringType) and not kind.isUTF8BinaryCollation():
                way = "cast it to string collate UTF8_BINARY in front of the operator, and collate it behind"
                raise InvalidInputError(_unkept(field, "as state has no collations", way))


def refuse_in_pandas(fields: Iterable[T.StructField]) -> None:
    """Raises ``InvalidInputError`` naming a variant, which a function of pandas DataFrames would see as bytes."""
    for field in fields:
        if any(isinstance(kind, T.VariantType) for kind in _types_in(field.dataType)):
            raise InvalidInputError(
                f"column {field.name!r} has type {field.dataType.simpleString()}, which mapInPandas cannot take or "
                "give: write it down with F.to_json in front, and read it with F.parse_json behind"
            )


def _unkept(field: T.StructField, why: str, way: str) -> str:
    kind = field.dataType.simpleString()
    return f"column {field.name!r} has type {kind}, which a keyed operator cannot keep, {why}: {way}"


def _has_no_arrow_type(kind: T.DataType) -> bool:
    if isinstance(kind, T.MapType) and isinstance(kind.keyType, T.NullType):
        return True  # the keys of an Arrow map are never null
    if isinstance(kind, T.ArrayType) and isinstance(kind.elementType, T.NullType) and not kind.containsNull:
        return True  # array(): elements of no type, of which none is null
    return isinstance(kind, T.VariantType | T.YearMonthIntervalType | T.CalendarIntervalType)


WITHOUT_ARROW = (T.YearMonthIntervalType, T.CalendarIntervalType)


def refuse_without_arrow(schema: T.StructType) -> None:
    """Raises ``InvalidInputError`` for a column that cannot go through Python."""
    for f in schema.fields:
        if has_type(f.dataType, WITHOUT_ARROW):
            raise InvalidInputError(
                f"column {f.name!r} has type {f.dataType.simpleString()}, which Arrow has not, and stands in front of "
                f"windows, which are assigned in Arrow. Drop it there, or cast months to a number: cast('int')"
            )


def has_type(kind: T.DataType, wanted: type[T.DataType] | tuple[type[T.DataType], ...]) -> bool:
    """Whether it is or holds such a type, or one of such types."""
    return any(isinstance(one, wanted) for one in _types_in(kind))


def has_repeated_fields(kind: T.DataType) -> bool:
    """Whether two fields of a struct in it have one name: Arrow's structs in the JVM would keep one of them."""
    structs = (one for one in _types_in(kind) if isinstance(one, T.StructType))
    return any(len(set(struct.names)) < len(struct.names) for struct in structs)


def _types_in(kind: T.DataType) -> Iterator[T.DataType]:
    yield kind
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            yield from _types_in(field.dataType)
    elif isinstance(kind, T.ArrayType):
        yield from _types_in(kind.elementType)
    elif isinstance(kind, T.MapType):
        yield from _types_in(kind.keyType)
        yield from _types_in(kind.valueType)
