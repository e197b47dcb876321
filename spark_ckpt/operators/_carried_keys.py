"""Keys of types that no state table has: carried as others, and given back behind the operator. Driver.

Day-time intervals are carried as microseconds, those of months as months, and maps as their entries in the order of
their keys, as Spark's own grouping sorts them. So the state table has typed columns, and equal keys are equal there.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

_KEY, _VALUE = "key", "value"
_MICROS = 1_000_000
Change = Callable[[Column, T.DataType], Column]


def carried_type(kind: T.DataType) -> T.DataType:
    """What a key of type ``kind`` is in the operator: ``kind``, if that can be."""
    if isinstance(kind, T.DayTimeIntervalType):
        return T.LongType()
    if isinstance(kind, T.YearMonthIntervalType):
        return T.IntegerType()
    if isinstance(kind, T.MapType):
        entry = {_KEY: kind.keyType, _VALUE: kind.valueType}
        return T.ArrayType(T.StructType([T.StructField(name, carried_type(part)) for name, part in entry.items()]))
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(carried_type(kind.elementType))
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, carried_type(f.dataType)) for f in kind.fields])
    return kind


def is_carried(kind: T.DataType) -> bool:
    """Whether it is another type in the operator."""
    if isinstance(kind, T.StructType):
        return any(is_carried(f.dataType) for f in kind.fields)
    if isinstance(kind, T.ArrayType):
        return is_carried(kind.elementType)
    return isinstance(kind, T.DayTimeIntervalType | T.YearMonthIntervalType | T.MapType)


def carried(key: Column, kind: T.DataType) -> Column:
    """``key``, which is of type ``kind``, as :func:`carried_type` of it."""
    if not is_carried(kind):
        return key
    if isinstance(kind, T.DayTimeIntervalType):
        return (key.cast("interval second").cast("decimal(19, 6)") * F.lit(_MICROS)).cast("long")
    if isinstance(kind, T.YearMonthIntervalType):
        return key.cast("interval month").cast("int")
    if isinstance(kind, T.MapType):
        return _entries(key, kind)
    return _within(key, kind, carried)


def given_back(key: Column, kind: T.DataType) -> Column:
    """A key as it was, of type ``kind``."""
    if not is_carried(kind):
        return key
    if isinstance(kind, T.DayTimeIntervalType):
        seconds = key.cast("decimal(19, 0)") / F.lit(_MICROS).cast("decimal(7, 0)")
        return seconds.cast("interval second").cast(kind)
    if isinstance(kind, T.YearMonthIntervalType):
        return key.cast("interval month").cast(kind)
    if isinstance(kind, T.MapType):
        parts = {_KEY: kind.keyType, _VALUE: kind.valueType}
        return F.map_from_entries(
            F.transform(key, lambda e: F.struct(*[given_back(e[n], part).alias(n) for n, part in parts.items()]))
        )
    return _within(key, kind, given_back)


def _within(key: Column, kind: T.DataType, change: Change) -> Column:
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        return F.transform(key, lambda x: change(x, element))
    assert isinstance(kind, T.StructType)
    fields = [change(key.getField(f.name), f.dataType).alias(f.name) for f in kind.fields]
    return F.when(key.isNotNull(), F.struct(*fields))


def _entries(key: Column, kind: T.MapType) -> Column:
    """In the order of their keys, which alone are sure to have one."""
    value = kind.valueType

    def entry(name: Column) -> Column:
        return F.struct(carried(name, kind.keyType).alias(_KEY), carried(key[name], value).alias(_VALUE))

    return F.transform(F.array_sort(F.map_keys(key)), entry)
