"""Columns that are no keys here, as a text that two values share if and only if Spark takes them for equal. Driver.

State is found by flat columns. So arrays, structs and intervals are written down: each value with its end or length,
so that no two read alike; nulls, the sign of a zero and NaN as in Spark's grouping.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution.columns import quoted
from spark_ckpt.execution.event_time import EventTimeColumn, event_time, event_time_among, event_times, late_by_window
from spark_ckpt.execution.spark_errors import unsupported
from spark_ckpt.operators.key_columns import Keys, arrow_columns, is_key
from spark_ckpt.runtime.stateless import arrow_schema
from spark_ckpt.state.functions.distinct_rows import SEEN, DistinctRows, Expiry

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


_log = logging.getLogger("spark_ckpt")

DROP_DUPLICATES, WITHIN, DISTINCT = "dropDuplicates", "dropDuplicatesWithinWatermark", "distinct"


@dataclass(frozen=True)
class DistinctBy:
    """Rows of ``schema`` are told apart by the columns ``wanted``. ``kind`` is the method; ``open_watermarks``: no
    operator is between the rows and their watermark."""

    kind: str
    schema: T.StructType
    wanted: Sequence[str]
    open_watermarks: bool

    def function(self) -> tuple[DistinctRows, Keys]:
        """What keeps the keys. Raises ``InvalidInputError`` for columns that cannot be compared, and as Spark does
        where a watermark is missing or there are several."""
        keys, expiry, watermark = self._keys(), self._expiry(), bool(event_times(self.schema))
        late = late_by_window(self.schema) is not None
        rows = arrow_columns(self.schema, self.schema.names)
        if expiry is None:
            _log.warning(
                "%s keeps every key for ever, so its state grows with each new one. %s", self.kind, self._way(watermark)
            )
        return DistinctRows(self.kind, arrow_schema(keys.schema), rows, watermark, expiry, late), keys

    def time(self, wanted: Iterable[str] | None = None) -> EventTimeColumn | None:
        """The event time that counts, of those among the columns."""
        if self.kind == WITHIN:
            return event_time(self.schema, self.kind)
        names = self.wanted if wanted is None else list(wanted)
        return event_time_among(self.schema, self.kind, names, not self.open_watermarks)

    def _expiry(self) -> Expiry | None:
        time = self.time()
        if self.kind == WITHIN:
            if time is None:
                raise unsupported(
                    f"{self.kind} is not supported on streaming DataFrames/Datasets without watermark: call "
                    'withWatermark("at", "1 hour") in front of it'
                )
            return Expiry(time.name, time.delay_us)
        return None if time is None or time.name not in self.wanted else Expiry(time.name)

    def _way(self, watermark: bool) -> str:
        if watermark:
            return f"Have the event-time column among its columns, or use {WITHIN}, to forget those of long ago."
        return (
            'To forget those of long ago, call withWatermark("at", "1 hour") in front of it and have "at" among the '
            f"columns of {self.kind}, or use {WITHIN}."
        )

    def _keys(self) -> Keys:
        """Columns that cannot be keys go by what is written of them; without any column, all rows have one key."""
        names, wanted = self.schema.names, list(self.wanted)
        if not wanted:
            return Keys({"all": F.lit(True)}, T.StructType().add("all", "boolean"), frozenset()).named_for(names, [])
        types = {f.name: f.dataType for f in self.schema.fields}
        plain = frozenset(name for name in wanted if is_key(types[name]))
        columns = {name: F.col(quoted(name)) for name in wanted}
        expressions = {n: c if n in plain else as_text(self.kind, n, c, types[n]) for n, c in columns.items()}
        fields = [T.StructField(name, types[name] if name in plain else T.StringType(), True) for name in wanted]
        return Keys(expressions, T.StructType(fields), plain).named_for(names, [SEEN])
