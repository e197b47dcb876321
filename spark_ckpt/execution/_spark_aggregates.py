"""What plain Spark keeps of an aggregation, as columns of a state table of ours. Driver.

Spark keeps the buffers of its aggregate functions one behind the other, in the order in which the functions stand in
the query, each function once. Of most functions a buffer has the same parts as a partial result here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_ckpt.errors import InvalidInputError
from spark_ckpt.execution._spark_collected import elements_of
from spark_ckpt.runtime.stateless import spark_schema
from spark_ckpt.state.aggregates.function import AggregateFunction


@dataclass(frozen=True)
class Buffer:
    """A column of Spark's value row."""

    name: str
    kind: T.DataType
    column: Column


Made = list[Column]
_Kind = tuple[str, ...]
"""The names of a function's buffers in Spark."""


def columns_of(
    function: AggregateFunction, uid: str, buffers: list[Buffer]
) -> tuple[dict[str, Column], dict[str, Column]]:
    """The value columns of the state table ``uid``, of Spark's buffers, and of each family the array of its values.
    Raises ``InvalidInputError`` for a function whose buffer is not understood, by its name, and if the buffers are not
    those of the query."""
    found: dict[str, Column] = {}
    values: dict[str, Column] = {}
    known: dict[str, Made] = {}
    rest = iter(buffers)
    accumulators = dict(zip(function.specs, function.accumulators, strict=True))
    families = {a.name: a.family for a in function.keepers}
    # As they stand in the query; the state's own columns are in the order of their names.
    for name in dict.fromkeys(spec for specs in function.shown.values() for spec in specs):
        accumulator, kind = accumulators[name], function.specs[name].kind
        made_of = accumulator.made_of(function.specs[name])
        if made_of not in known:
            known[made_of] = _made(uid, made_of, kind, accumulator.fields, rest)
        made = known[made_of]
        if name in families:
            elements = elements_of(made[0], accumulator.type)
            if elements is None:
                raise _not_understood(uid, f"{made_of} of {accumulator.type}")
            values[families[name]], made = elements, [F.size(elements)]
        found.update((f.name, column.cast(_spark_type(f))) for f, column in zip(accumulator.fields, made))
    left = [buffer.name for buffer in rest]
    if left:
        raise InvalidInputError(
            f"operator {uid!r}: Spark keeps {', '.join(left)} beside what the query's aggregates are made of: expected "
            "the same aggregates in the same order"
        )
    return found, values


def _not_understood(uid: str, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"operator {uid!r}: what Spark keeps of {what} is not understood here, so it cannot be imported; "
        f"expected only {', '.join(sorted(_MADE))}. Compute its state of the rows: `ckpt.savepoint_writer(...)"
        f".bootstrap({uid!r}, rows)`"
    )


def _made(uid: str, made_of: str, kind: str, fields: list[pa.Field], rest: Iterator[Buffer]) -> Made:
    if kind not in _MADE:
        raise _not_understood(uid, made_of)
    names, maker = _MADE[kind](fields)
    taken = [buffer for _, buffer in zip(names, rest)]  # in this order, or one more is taken
    if [b.name for b in taken] != list(names):
        raise InvalidInputError(
            f"operator {uid!r}: expected Spark's buffers {', '.join(names)} for {made_of}, found "
            f"{', '.join(b.name for b in taken) or 'none'}: the query's aggregates are others, or in another order"
        )
    return [*maker(taken, fields), *_not_overflowed(fields, len(taken))]


def _not_overflowed(fields: list[pa.Field], _taken: int) -> Made:
    """Where sums can leave their type, the last column says whether one did."""
    return [F.lit(False)] if fields[-1].name.endswith("_overflowed") else []


def _sum(fields: list[pa.Field]) -> tuple[_Kind, Callable[[list[Buffer], list[pa.Field]], Made]]:
    wide = pa.types.is_decimal(fields[0].type)

    def made(buffers: list[Buffer], fields: list[pa.Field]) -> Made:
        total = _total(buffers[0], fields[0])
        return [F.when(~buffers[1].column, total) if len(buffers) > 1 else total]

    # A sum of short decimals is kept as a long, without a mark of whether there was a value.
    digits = fields[0].type.precision if wide else 0
    return (("sum", "isEmpty") if wide and digits > _LONG_DIGITS else ("sum",)), made


_LONG_DIGITS = 18


def _mean(_fields: list[pa.Field]) -> tuple[_Kind, Callable[[list[Buffer], list[pa.Field]], Made]]:
    def made(buffers: list[Buffer], fields: list[pa.Field]) -> Made:
        total, count = _total(buffers[0], fields[0]), F.coalesce(buffers[1].column, F.lit(0))
        return [F.when(count > 0, total), count]

    return ("sum", "count"), made


def _total(buffer: Buffer, field: pa.Field) -> Column:
    """Spark sums decimals of few digits without their point."""
    if not pa.types.is_decimal(field.type) or isinstance(buffer.kind, T.DecimalType):
        return buffer.column
    scale = field.type.scale
    whole = buffer.column.cast(T.DecimalType(20, 0))
    return whole if not scale else whole * F.lit(f"0.{'0' * (scale - 1)}1").cast(T.DecimalType(scale + 1, scale))


def _same(*names: str) -> Callable[[list[pa.Field]], tuple[_Kind, Callable[[list[Buffer], list[pa.Field]], Made]]]:
    def made(buffers: list[Buffer], fields: list[pa.Field]) -> Made:
        return [buffer.column for buffer in buffers[: len(fields)]]

    return lambda _: (names, made)


def _count(_fields: list[pa.Field]) -> tuple[_Kind, Callable[[list[Buffer], list[pa.Field]], Made]]:
    return ("count",), lambda buffers, _: [F.coalesce(buffers[0].column, F.lit(0))]


_MOMENTS = _same("n", "avg", "m2")
_MADE: Mapping[str, Callable[[list[pa.Field]], Any]] = {
    "count": _count,
    "sum": _sum,
    "try_sum": _sum,
    "mean": _mean,
    "try_mean": _mean,
    "min": _same("min"),
    "max": _same("max"),
    "first": _same("first", "valueSet"),
    "last": _same("last", "valueSet"),
    **dict.fromkeys(("collect_list", "collect_set"), _same("buf")),
    **dict.fromkeys(("stddev", "variance", "var_pop", "stddev_pop"), _MOMENTS),
}


def _spark_type(field: pa.Field) -> T.DataType:
    return spark_schema(pa.schema([field]))[0].dataType


def by_place(struct: Column, kind: T.StructType) -> list[Column]:
    """The fields of a struct whose names may come twice."""
    parts = [T.StructField(f"c{at}", f.dataType) for at, f in enumerate(kind)]
    apart = struct.cast(T.StructType(parts))
    return [apart[f"c{at}"] for at in range(len(parts))]


def buffers_of(value: Column, kind: T.StructType) -> list[Buffer]:
    return [Buffer(f.name, f.dataType, c) for f, c in zip(kind, by_place(value, kind), strict=True)]
