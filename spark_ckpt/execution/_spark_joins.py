"""What plain Spark keeps of a join of two streams, as rows of our state tables. Driver.

Spark keeps the rows of each side by the join's keys and a number. Its reader gives a side's rows, and, by the name of
the store, also whether a row has found another, which outer and semi joins have to know. Columns are found by their
names. Of the left side of a semi join these are other names than the query's: Spark's optimizer moves such a join in
front of projections. :class:`SemiColumns` tells them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, Window
from pyspark.sql import functions as F

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution._spark_aggregates import by_place
from spark_ckpt.execution.columns import quoted
from spark_ckpt.execution.semi_columns import SemiColumns
from spark_ckpt.runtime.stateless import spark_schema
from spark_ckpt.state.functions.base import NO_TIMEOUT
from spark_ckpt.state.joins.function import COUNTS, NEXT, StreamJoin
from spark_ckpt.state.joins.matching import SEMI
from spark_ckpt.state.joins.sides import MATCHED, ROW, Expiry, Side
from spark_ckpt.types import TIMEOUT_MS

_LONG_AGO = NO_TIMEOUT - 1
_KEY, _INDEX = "__ckpt_key_", "__ckpt_index"

Read = Callable[..., Any]
"""The rows of Spark's reader, with its options."""


@dataclass(frozen=True)
class SparkJoin:
    """The state of the join ``uid``. ``semi``: None if it is no semi join, or what Spark keeps is not known."""

    uid: str
    function: StreamJoin
    read: Read
    semi: SemiColumns | None = None

    def sides(self) -> list[Any]:
        """A DataFrame for each side, with the columns of its family by name. Raises ``InvalidInputError`` for what
        cannot be known."""
        if self.function.how == SEMI and self.semi is None:
            raise InvalidInputError(
                f"operator {self.uid!r}: which columns a semi join keeps in Spark is known only if the query has one, "
                f"and not over Spark Connect. In a session without Spark Connect it can be imported. {self._anew()}"
            )
        return [self._side(place) for place in range(len(COUNTS))]

    def _anew(self) -> str:
        return f"Bootstrap it of the rows: `ckpt.savepoint_writer(...).bootstrap({self.uid!r}, ...)`"

    def counts(self, sides: list[Any]) -> Any:
        """The table of the keys: how many rows wait on each side."""
        keys = [quoted(name) for name in self.function.key_schema.names]
        ones = [
            side.select(*keys, *[F.lit(int(name == of)).cast("bigint").alias(name) for name in COUNTS])
            for side, of in zip(sides, COUNTS, strict=True)
        ]
        both = reduce(lambda one, other: one.unionByName(other), ones)
        found = both.groupBy(*keys).agg(*[F.sum(name).alias(name) for name in COUNTS])
        found = found.withColumn(NEXT, reduce(lambda a, b: a + b, [F.col(name) for name in COUNTS]))
        return found.withColumn(TIMEOUT_MS, F.lit(NO_TIMEOUT))

    def _side(self, place: int) -> Any:
        side, rows = self.function.sides[place], self._rows(place)
        keys = {name: self._key(side, rows, at, name) for at, name in enumerate(self.function.key_schema.names)}
        columns = {**keys, **{field.name: self._kept(side, rows, place, field) for field in side.columns}}
        if side.expiry is not None:
            columns[TIMEOUT_MS] = _timeout(side.expiry, columns)
        if side.outer:
            columns[MATCHED] = F.col(quoted(MATCHED))
        made = rows.select(F.col(_INDEX), *[column.alias(name) for name, column in columns.items()])
        in_order = Window.partitionBy(*map(quoted, keys)).orderBy(_INDEX)
        return made.withColumn(ROW, F.row_number().over(in_order).cast("bigint") - 1).drop(_INDEX)

    def _rows(self, place: int) -> Any:
        """The side's columns as Spark has them, its keys by their places, and what a row is told apart by."""
        of_semi = self.function.how == SEMI and place == 0
        with_flag = self.function.sides[place].outer or of_semi
        read = self._with_flag(place) if with_flag else self.read(joinSide=COUNTS[place])
        key, value = read.schema["key"].dataType, read.schema["value"].dataType
        keys = [c.alias(f"{_KEY}{at}") for at, c in enumerate(by_place(F.col("key"), key))]
        values = [c.alias(name) for name, c in zip(value.names, by_place(F.col("value"), value), strict=True)]
        index = keys.pop() if with_flag else F.monotonically_increasing_id()
        if with_flag:
            values[-1] = values[-1].alias(MATCHED)
        if len(keys) != len(self.function.key_schema) or len(set(value.names)) != len(value.names):
            raise InvalidInputError(
                f"operator {self.uid!r}: expected a join by {', '.join(self.function.key_schema.names)} in Spark's "
                f"checkpoint, found keys {key.simpleString()} and columns {value.simpleString()}: the query is another "
                "one, or two columns have one name"
            )
        rows = read.select(*keys, *values, index.alias(_INDEX))
        return self._of_semi(rows, value.names[:-1]) if of_semi else rows

    def _of_semi(self, rows: Any, found: list[str]) -> Any:
        """The left rows that have found none, under the query's names. Spark drops the others when they are late."""
        assert self.semi is not None
        if found != self.semi.kept:
            raise InvalidInputError(
                f"operator {self.uid!r}: expected columns {', '.join(self.semi.kept)} of the semi join's left side in "
                f"Spark's checkpoint, found {', '.join(found)}: the query is another one, or another release of Spark "
                f"has moved the join elsewhere. {self._anew()}"
            )
        keys = [F.col(quoted(name)) for name in rows.columns if name.startswith(_KEY) or name == _INDEX]
        named = [F.col(quoted(column)).alias(name) for name, column in self.semi.of.items()]
        return rows.where(~F.col(quoted(MATCHED))).select(*keys, *named)

    def _with_flag(self, place: int) -> Any:
        read = self.read(storeName=f"{COUNTS[place]}-keyWithIndexToValue")
        if read.schema["value"].dataType.names[-1] != "matched":
            raise InvalidInputError(
                f"operator {self.uid!r}: a {self.function.how} join has to know which rows have found another, and "
                "Spark keeps that from state format version 2 on "
                f"(spark.sql.streaming.join.stateFormatVersion). {self._anew()}"
            )
        return read

    def _key(self, side: Side, rows: Any, at: int, name: str) -> Column:
        """By its name where it is a column of the side: Spark may have the keys in another order."""
        column = side.made_of.get(name, "")
        return F.col(quoted(column)) if column in rows.columns else F.col(f"{_KEY}{at}")

    def _kept(self, side: Side, rows: Any, place: int, field: pa.Field) -> Column:
        column = side.made_of[field.name]
        if column in rows.columns:
            return F.col(quoted(column))
        text = self.function.made_of.get(f"{COUNTS[place]}.{column}")
        found = None if text is None else _expression(rows, text)
        if found is None or pa.types.is_duration(field.type):
            raise InvalidInputError(
                f"operator {self.uid!r}: expected {text or column} among what Spark keeps of the join's "
                f"{COUNTS[place]} side, found {', '.join(rows.columns)}. What the query does not use, Spark does not "
                f"keep: leave it out by a select in front of the join. Else: {self._anew()}"
            )
        return found.cast(spark_schema(pa.schema([field]))[0].dataType)


def _expression(rows: Any, text: str) -> Column | None:
    """What the join's condition computes of a side; None if that does not read as it is written."""
    try:
        found = F.expr(text)
        rows.select(found).schema  # noqa: B018 - analyses it
    except AnalysisException:
        return None
    return found


def _timeout(expiry: Expiry, columns: dict[str, Column]) -> Column:
    """Time-outs fire strictly behind their millisecond, a row ends with it."""
    micros = F.unix_micros(columns[expiry.column].cast("timestamp"))
    millis = F.ceil(micros / 1000).cast("bigint") - F.lit(expiry.shift_ms + 1)
    return F.when(micros.isNull(), F.lit(NO_TIMEOUT)).when(millis < 0, F.lit(_LONG_AGO)).otherwise(millis)
