"""Which types keys have. Driver."""

from __future__ import annotations

from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.plan.carried_keys import carried_type, is_carried
from spark_ckpt.plan.key_columns import KEY_TYPES, is_key
from spark_ckpt.plan.refused_types import has_repeated_fields, refuse_unkept


def check_key(key: T.StructField) -> None:
    """Raises ``InvalidInputError`` for a type that rows cannot be grouped by."""
    if has_repeated_fields(key.dataType):
        refuse_unkept([key])
    if not _has_hash(carried_type(key.dataType)):
        known = ", ".join(t().simpleString() if t is not T.DecimalType else "decimal" for t in KEY_TYPES)
        raise InvalidInputError(
            f"key {key.name!r} has type {key.dataType.simpleString()}, which cannot be a key here; expected one of "
            f"{known}, intervals of days or months, or structs, arrays and maps of those. Cast it in front"
        )


def check_key_of_function(key: T.StructField) -> None:
    """Also for one that a function would get as something else than it is."""
    check_key(key)
    if is_carried(key.dataType):
        raise InvalidInputError(
            f"key {key.name!r} has type {key.dataType.simpleString()}, which is a key of agg(...), its short "
            "forms and topN alone: for functions, cast it, or make one of it in front, such as "
            'withColumn("entries", F.array_sort(F.map_entries("m")))'
        )


def _has_hash(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return all(_has_hash(field.dataType) for field in kind.fields)
    return _has_hash(kind.elementType) if isinstance(kind, T.ArrayType) else is_key(kind)
